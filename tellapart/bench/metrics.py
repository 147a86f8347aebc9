"""``tellapart bench metrics``: our metrics against pycocoevalcap, on published captions of COCO's test split."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.bench import process
from tellapart.bench.rows import Contest, Row, Taken
from tellapart.errors import UsageError
from tellapart.metrics import CiderD, ptb_tokenize
from tellapart.metrics.meteor_index import open_tables
from tellapart.progress import Progress
from tellapart.utils.messages import say

CAPTIONS, OTHERS = "clipcap_coco_on_coco.txt", "clipcap_concap_on_coco.txt"
REFERENCES = "references_coco_karpathy_test.txt"
PICTURES, SAMPLES = 100, 5  # of a batch in training
CALLS = 5  # a call of a few milliseconds is timed so often: one alone may meet something else that runs
MEMORY_MB = 1024.0
END = 0  # the end token of our token ids
ALL = "bleu1,bleu2,bleu3,bleu4,meteor,rouge_l,cider"


def rows(repeat: int, only: str = "") -> list[Row]:
    """Hold every contest (or those whose work contains ``only``), ``repeat`` times each, with progress on stderr."""
    folder = published()
    check_tools()
    with tempfile.TemporaryDirectory() as few:
        whole = _WholeCommand(folder)
        makers: dict[str, Callable[[str], Contest]] = {
            "CIDEr-D reward, 100 captions × 5 samples, token ids": lambda work: _reward(folder, work, ids=True),
            "CIDEr-D reward, 100 captions × 5 samples, text": lambda work: _reward(folder, work, ids=False),
            "CIDEr-D, 5,000 captions, from text": lambda work: _corpus(folder, work, "cider_d", "cider", 10, 1e-9),
            "METEOR, 5,000 captions": lambda work: _corpus(folder, work, "meteor", "meteor", 4, 1e-3),
            "METEOR, 100 captions, whole command": lambda work: _few_meteor(folder, Path(few), work),
            "BLEU, METEOR, ROUGE-L, CIDEr, 5,000 captions, whole command": whole.contest,
        }
        chosen = {work: make for work, make in makers.items() if only.lower() in work.lower()}
        if not chosen:
            raise UsageError(f"no work contains '{only}'; known: {'; '.join(makers)}")
        if any("METEOR" in work for work in chosen):
            open_tables()  # the index is built once on a machine, and in none of the times
        found = []
        with Progress(2 * repeat * len(chosen), "timing, ours and theirs") as progress:
            for work, make in chosen.items():
                say(f"timing: {work}")
                found.append(make(work).hold(repeat, progress))
        return found + whole.memory_rows()


def published() -> Path:
    """The folder of published captions. Raises `UsageError` where it is not there."""
    folder = Path(os.environ.get("TELLAPART_DATA", "../shared/data")) / "published"
    lacking = [name for name in (CAPTIONS, OTHERS, REFERENCES) if not (folder / name).is_file()]
    if lacking:
        raise UsageError(f"{folder} has no {lacking[0]}; set TELLAPART_DATA to the folder that has 'published/'")
    return folder


def check_tools() -> None:
    """Raises `UsageError` without the tools that we are measured against."""
    if importlib.util.find_spec("pycocoevalcap") is None:
        raise UsageError("pycocoevalcap, which is measured against, is not installed; type: pip install pycocoevalcap")
    if shutil.which("java") is None:
        raise UsageError(
            "pycocoevalcap needs Java, which is not on the path; type: apt-get install default-jre-headless"
        )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


class _Batches:
    """Batches of pictures with samples, as texts and as token ids: real captions, other ones in each round.

    The samples of a picture are what two published systems say of it, and what the first says with every fifth word
    or so exchanged for one of its next captions. All 5,000 pictures' references are held, as in training; documents
    are the batch's references, each picture's once for every sample: so the usual tool counts in a batch.
    """

    def __init__(self, folder: Path) -> None:
        self.references = [line.split("\t") for line in _lines(folder / REFERENCES)]
        self.systems = [_lines(folder / name) for name in (CAPTIONS, OTHERS)]

    def pictures(self, number: int) -> np.ndarray:
        """The picture of each sample in a round."""
        return np.repeat(np.arange(PICTURES) + PICTURES * (number % (len(self.references) // PICTURES)), SAMPLES)

    def samples(self, number: int) -> list[str]:
        first, second = self.systems
        return [
            text
            for p in self.pictures(number)[::SAMPLES]
            for text in (first[p], second[p], *(self._exchanged(p, k) for k in range(1, SAMPLES - 1)))
        ]

    def _exchanged(self, picture: int, k: int) -> str:
        said = self.systems[0]
        words, other = said[picture].split(), said[(picture + k) % len(said)].split()
        chance = random.Random(f"{picture} {k}")
        return " ".join(chance.choice(other) if chance.random() < 0.2 else word for word in words)

    @cached_property
    def held(self) -> list[list[str]]:
        """References in tokens."""
        flat = iter(ptb_tokenize([text for texts in self.references for text in texts]))
        return [[next(flat) for _ in texts] for texts in self.references]

    @cached_property
    def words(self) -> dict[str, int]:
        """A token id for every word."""
        texts = [text for texts in self.held for text in texts]
        texts += [text for said in self.systems for text in ptb_tokenize(said)]
        return {word: END + 1 + n for n, word in enumerate(dict.fromkeys(" ".join(texts).split()))}

    def ids(self, text: str) -> list[int]:
        return [self.words[word] for word in text.split()]

    @cached_property
    def held_ids(self) -> list[list[list[int]]]:
        return [[self.ids(text) for text in texts] for texts in self.held]

    def token_NT(self, number: int) -> np.ndarray:
        """Samples as a captioner gives them: rows of token ids, filled up with the end token."""
        said = [self.ids(text) for text in ptb_tokenize(self.samples(number))]
        token_NT = np.full((len(said), 1 + max(map(len, said))), END)
        for place, row in enumerate(said):
            token_NT[place, : len(row)] = row
        return token_NT


def _reward(folder: Path, work: str, ids: bool) -> Contest:
    from pycocoevalcap.cider.cider import Cider

    batches = _Batches(folder)

    def ours(number: int) -> Taken:
        pictures = batches.pictures(number)
        if ids:
            held = batches.held_ids
            scorer = CiderD(held, idf=[held[p] for p in pictures], end_token=END)
            samples: Any = batches.token_NT(number)
        else:
            told = batches.references
            scorer, samples = CiderD(told, idf=[told[p] for p in pictures]), batches.samples(number)
        taken = []
        for _ in range(CALLS):
            start = time.perf_counter()
            score_N = scorer(samples, pictures)
            taken.append(time.perf_counter() - start)
        return Taken(1e3 * statistics.median(taken), score_N)

    def theirs(number: int) -> Taken:
        texts = ptb_tokenize(batches.samples(number))
        gts = {n: batches.held[p] for n, p in enumerate(batches.pictures(number))}
        res = {n: [text] for n, text in enumerate(texts)}
        start = time.perf_counter()
        _, score_N = Cider().compute_score(gts, res)
        return Taken(1e3 * (time.perf_counter() - start), score_N)

    return Contest(work, 100 if ids else 25, "ms", ours, theirs)


def _usual(work: str, captions: Path, references: Path) -> process.Done:
    script = Path(__file__).parent / "usual.py"
    return process.run([sys.executable, str(script), work, str(captions), str(references)])


def _command(metrics: str, captions: Path, references: Path) -> process.Done:
    files = ["--captions", str(captions), "--references", str(references)]
    return process.run([sys.executable, "-m", "tellapart", "eval", *files, "--metrics", metrics, "--json"])


def _numbers(done: process.Done) -> list[float]:
    """What ``tellapart eval`` printed of the one system, without the ×100."""
    (system,) = done.printed["systems"].values()
    return [found["value"] / 100 for found in system.values()]


def _corpus(folder: Path, work: str, metric: str, theirs: str, goal: float, tolerance: float) -> Contest:
    """A metric from text in a fresh process, against the usual tool's: the seconds of the work itself."""
    captions, references = folder / CAPTIONS, folder / REFERENCES
    own = [sys.executable, "-m", "tellapart.bench.once", metric, str(captions), str(references)]

    def measured(done: process.Done) -> Taken:
        return Taken(done.printed["seconds"], done.printed["found"])

    return Contest(
        work,
        goal,
        "s",
        lambda number: measured(process.run(own)),
        lambda number: measured(_usual(theirs, captions, references)),
        tolerance,
    )


def _few_meteor(folder: Path, few: Path, work: str) -> Contest:
    """Our whole command against the jar alone, from its start."""
    captions, references = few / CAPTIONS, few / REFERENCES
    for path in (captions, references):
        path.write_text("\n".join(_lines(folder / path.name)[:PICTURES]) + "\n", encoding="utf-8")

    def ours(number: int) -> Taken:
        done = _command("meteor", captions, references)
        return Taken(done.seconds, _numbers(done))

    def theirs(number: int) -> Taken:
        done = _usual("meteor", captions, references)
        return Taken(done.printed["seconds"], done.printed["found"])

    return Contest(work, 20, "s", ours, theirs, 1e-3)


class _WholeCommand:
    """``tellapart eval`` of 5,000 captions against a process of pycocoevalcap, and the memory that ours takes."""

    def __init__(self, folder: Path) -> None:
        self.captions, self.references = folder / CAPTIONS, folder / REFERENCES
        self.peaks: list[float] = []

    def contest(self, work: str) -> Contest:
        return Contest(work, 3, "s", self._ours, self._theirs, 1e-3)

    def _ours(self, number: int) -> Taken:
        done = _command(ALL, self.captions, self.references)
        self.peaks.append(done.peak_mb)
        return Taken(done.seconds, _numbers(done))

    def _theirs(self, number: int) -> Taken:
        done = _usual("all", self.captions, self.references)
        return Taken(done.seconds, done.printed["found"])

    def memory_rows(self) -> list[Row]:
        """The memory of the command, where it ran, against what it may take."""
        if not self.peaks:
            return []
        return [Row("memory of that command (theirs: the bound)", self.peaks, [MEMORY_MB], 1, "MB")]
