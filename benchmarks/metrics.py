"""``benchmarks metrics``: compares our metrics with pycocoevalcap on published captions of COCO's test split."""

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

from benchmarks import process
from benchmarks.rows import Comparison, Row, RunResult
from tellapart.errors import UsageError
from tellapart.metrics import CiderD, ptb_tokenize
from tellapart.metrics.meteor_tables import open_tables
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

CAPTIONS, OTHERS = "clipcap_coco_on_coco.txt", "clipcap_concap_on_coco.txt"
REFERENCES = "references_coco_karpathy_test.txt"
PICTURES, SAMPLES = 100, 5  # size of a training batch
CALLS = 5  # a call takes milliseconds, so the median of several is seconds
MEMORY_MB = 1024.0
END = 0  # the end token of our token ids
ALL = "bleu1,bleu2,bleu3,bleu4,meteor,rouge_l,cider"


def rows(repeat: int, only: str = "") -> list[Row]:
    """Measures the rows whose name contains ``only``, with ``repeat`` runs of each implementation."""
    folder = published_captions()
    check_tools()
    with tempfile.TemporaryDirectory() as few:
        whole = _WholeCommand(folder)
        makers: dict[str, Callable[[str], Comparison]] = {
            "CIDEr-D reward, 100 captions × 5 samples, token ids": lambda work: _reward(folder, work, ids=True),
            "CIDEr-D reward, 100 captions × 5 samples, text": lambda work: _reward(folder, work, ids=False),
            "CIDEr-D, 5,000 captions, from text": lambda work: _corpus(folder, work, "cider_d", "cider", 10, 1e-9),
            "METEOR, 5,000 captions": lambda work: _corpus(folder, work, "meteor", "meteor", 6, 1e-3),
            "METEOR, 100 captions, whole command": lambda work: _short_meteor(folder, Path(few), work),
            "BLEU, METEOR, ROUGE-L, CIDEr, 5,000 captions, whole command": whole.comparison,
        }
        chosen = {work: make for work, make in makers.items() if only.lower() in work.lower()}
        if not chosen:
            raise UsageError(f"no row contains '{only}'; available: {'; '.join(makers)}")
        if any("METEOR" in work for work in chosen):
            open_tables()  # built once on a machine, outside the timings
        found = []
        with Progress(2 * repeat * len(chosen), "timing, ours and theirs") as progress:
            for work, make in chosen.items():
                say(f"timing: {work}")
                found.append(make(work).run(repeat, progress))
        return found + whole.memory_rows()


def published_captions() -> Path:
    """Returns the folder of published captions. Raises `UsageError` if files are missing."""
    folder = Path(os.environ.get("TELLAPART_DATA", "../shared/data")) / "published"
    missing = [name for name in (CAPTIONS, OTHERS, REFERENCES) if not (folder / name).is_file()]
    if missing:
        raise UsageError(
            f"{folder} does not contain {missing[0]}; set TELLAPART_DATA to the folder that contains 'published/'"
        )
    return folder


def check_tools() -> None:
    """Raises `UsageError` if Java or pycocoevalcap is missing."""
    if importlib.util.find_spec("pycocoevalcap") is None:
        raise UsageError("pycocoevalcap, the reference, is not installed; run: pip install pycocoevalcap")
    if shutil.which("java") is None:
        raise UsageError(
            "pycocoevalcap requires Java, which is not on the PATH; run: apt-get install default-jre-headless"
        )


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


class _Batches:
    """Batches of pictures with samples, as text and as token ids. The samples are real captions, and each round has
    different ones.

    A picture's samples are the captions from two published systems, and variants of the first caption in which about
    every fifth word comes from one of the next captions. The references of all 5,000 pictures are kept, as in training.
    The documents are those of the batch. A picture counts once per sample, as in pycocoevalcap.
    """

    def __init__(self, references: list[list[str]], systems: list[list[str]]) -> None:
        self.references, self.systems = references, systems

    def pictures(self, number: int) -> np.ndarray:
        """Returns the picture that each of a round's samples describes."""
        return np.repeat(np.arange(PICTURES) + PICTURES * (number % (len(self.references) // PICTURES)), SAMPLES)

    def samples(self, number: int) -> list[str]:
        first, second = self.systems
        return [
            text
            for p in self.pictures(number)[::SAMPLES]
            for text in (first[p], second[p], *(self._perturbed(p, k) for k in range(1, SAMPLES - 1)))
        ]

    def _perturbed(self, picture: int, k: int) -> str:
        captions = self.systems[0]
        words, other = captions[picture].split(), captions[(picture + k) % len(captions)].split()
        rng = random.Random(f"{picture} {k}")
        return " ".join(rng.choice(other) if rng.random() < 0.2 else word for word in words)

    @cached_property
    def references_tokenized(self) -> list[list[str]]:
        """Returns references as space-separated tokens."""
        flat = iter(ptb_tokenize([text for texts in self.references for text in texts]))
        return [[next(flat) for _ in texts] for texts in self.references]

    @cached_property
    def words(self) -> dict[str, int]:
        """Maps every word to a token id."""
        texts = [text for texts in self.references_tokenized for text in texts]
        texts += [text for captions in self.systems for text in ptb_tokenize(captions)]
        return {word: END + 1 + n for n, word in enumerate(dict.fromkeys(" ".join(texts).split()))}

    def ids(self, text: str) -> list[int]:
        return [self.words[word] for word in text.split()]

    @cached_property
    def reference_ids(self) -> list[list[list[int]]]:
        return [[self.ids(text) for text in texts] for texts in self.references_tokenized]

    def token_NT(self, number: int) -> np.ndarray:
        """Returns samples in the format of a captioner's output: rows of token ids, padded with the end token."""
        rows = [self.ids(text) for text in ptb_tokenize(self.samples(number))]
        token_NT = np.full((len(rows), 1 + max(map(len, rows))), END)
        for place, row in enumerate(rows):
            token_NT[place, : len(row)] = row
        return token_NT


def _reward(folder: Path, work: str, ids: bool) -> Comparison:
    from pycocoevalcap.cider.cider import Cider

    references = [line.split("\t") for line in _lines(folder / REFERENCES)]
    batches = _Batches(references, [_lines(folder / name) for name in (CAPTIONS, OTHERS)])

    def ours(number: int) -> RunResult:
        pictures = batches.pictures(number)
        if ids:
            ids_of_references = batches.reference_ids
            scorer = CiderD(ids_of_references, idf=[ids_of_references[p] for p in pictures], end_token=END)
            samples: Any = batches.token_NT(number)
        else:
            texts = batches.references
            scorer, samples = CiderD(texts, idf=[texts[p] for p in pictures]), batches.samples(number)
        seconds = []
        for _ in range(CALLS):
            start = time.perf_counter()
            score_N = scorer(samples, pictures)
            seconds.append(time.perf_counter() - start)
        return RunResult(1e3 * statistics.median(seconds), score_N)

    def theirs(number: int) -> RunResult:
        texts = ptb_tokenize(batches.samples(number))
        gts = {n: batches.references_tokenized[p] for n, p in enumerate(batches.pictures(number))}
        res = {n: [text] for n, text in enumerate(texts)}
        start = time.perf_counter()
        _, score_N = Cider().compute_score(gts, res)
        return RunResult(1e3 * (time.perf_counter() - start), score_N)

    return Comparison(work, 100 if ids else 25, "ms", ours, theirs)


def _run_pycocoevalcap(metric: str, captions: Path, references: Path) -> process.CompletedRun:
    script = Path(__file__).parent / "run_pycocoevalcap.py"
    return process.run([sys.executable, str(script), metric, str(captions), str(references)])


def _command(metrics: str, captions: Path, references: Path) -> process.CompletedRun:
    files = ["--captions", str(captions), "--references", str(references)]
    return process.run([sys.executable, "-m", "tellapart", "eval", *files, "--metrics", metrics, "--json"])


def _numbers(done: process.CompletedRun) -> list[float]:
    """Returns the values that ``tellapart eval`` printed, as fractions."""
    (system,) = done.output["systems"].values()
    return [interval["value"] / 100 for interval in system.values()]


def _corpus(folder: Path, work: str, metric: str, theirs: str, goal: float, tolerance: float) -> Comparison:
    """Compares the time of a metric, computed from text in a fresh process, with that of pycocoevalcap in another."""
    captions, references = folder / CAPTIONS, folder / REFERENCES
    command = [sys.executable, "-m", "benchmarks.run_metric", metric, str(captions), str(references)]

    def result(done: process.CompletedRun) -> RunResult:
        return RunResult(done.output["seconds"], done.output["scores"])

    return Comparison(
        work,
        goal,
        "s",
        lambda number: result(process.run(command)),
        lambda number: result(_run_pycocoevalcap(theirs, captions, references)),
        tolerance,
    )


def _short_meteor(folder: Path, few: Path, work: str) -> Comparison:
    """Compares the time of our whole command with that of METEOR's jar alone, including the jar's start."""
    captions, references = few / CAPTIONS, few / REFERENCES
    for path in (captions, references):
        path.write_text("\n".join(_lines(folder / path.name)[:PICTURES]) + "\n", encoding="utf-8")

    def ours(number: int) -> RunResult:
        done = _command("meteor", captions, references)
        return RunResult(done.seconds, _numbers(done))

    def theirs(number: int) -> RunResult:
        done = _run_pycocoevalcap("meteor", captions, references)
        return RunResult(done.output["seconds"], done.output["scores"])

    return Comparison(work, 25, "s", ours, theirs, 1e-3)


class _WholeCommand:
    """Compares ``tellapart eval`` on 5,000 captions with a pycocoevalcap process, and measures our peak memory."""

    def __init__(self, folder: Path) -> None:
        self.captions, self.references = folder / CAPTIONS, folder / REFERENCES
        self.peaks: list[float] = []

    def comparison(self, work: str) -> Comparison:
        return Comparison(work, 8, "s", self._ours, self._theirs, 1e-3)

    def _ours(self, number: int) -> RunResult:
        done = _command(ALL, self.captions, self.references)
        self.peaks.append(done.peak_mb)
        return RunResult(done.seconds, _numbers(done))

    def _theirs(self, number: int) -> RunResult:
        done = _run_pycocoevalcap("all", self.captions, self.references)
        return RunResult(done.seconds, done.output["scores"])

    def memory_rows(self) -> list[Row]:
        """Returns the command's peak memory and the bound on it, if the command ran."""
        if not self.peaks:
            return []
        return [Row("memory of that command (theirs: the bound)", self.peaks, [MEMORY_MB], 1, "MB")]
