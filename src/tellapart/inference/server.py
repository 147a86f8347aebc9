"""Captions by a model behind a server, through the backends and the ledger of `tellapart.boost`.

The server batches (vLLM and SGLang do); requests are sent many at a time, and captions are written in the order of the
data set. Every answer is in the ledger before it counts, so that no answer is paid for twice. An answer that is no
caption (empty, a refusal, cut off) is requested once more, sampled; a second one is a failure, listed with its reason.

`captions_of` writes the captions of any captioner, of this machine or behind a server.
"""

from __future__ import annotations

import io
import json
import math
import re
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from PIL import Image

from tellapart.boost.backends import KEYS, open_backend
from tellapart.boost.job import BoostJob, Load, Tally, estimate_line, ledger_of
from tellapart.boost.ledger import Ledger
from tellapart.boost.stages import unusable
from tellapart.boost.types import Answer, Backend, BackendError, Boosted, Message, Request, Stage, most_choices
from tellapart.captioners import load_captioner
from tellapart.captioners.consensus import consensus
from tellapart.captions.lines import Written
from tellapart.captions.provenance import PictureRecord
from tellapart.captions.writers import PRINTED, Replace, open_writer
from tellapart.data import Dataset, Skipped, open_data
from tellapart.data.pictures import BytesPicture
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.inference.caption import caption_pictures, nothing_left
from tellapart.inference.prompts import Prompts
from tellapart.language.phrases import soften, without_repeats
from tellapart.language.words import Word, content_words, spelled_spans, word_of_span
from tellapart.models.decoding import EVIDENCE, Decoding, check_choice
from tellapart.models.devices import resolve_device, resolve_precision
from tellapart.models.names import is_server, warn_outside_scenes
from tellapart.models.saved import default_decoding, files_digest
from tellapart.scorers.base import Scorer
from tellapart.types import Item, Picture
from tellapart.utils.messages import Progress, say

PROMPT = "Describe the image in one sentence."
MAX_TOKENS = 256  # a longer answer is an essay
CONCURRENCY = 16
RETRY_TEMPERATURE = 0.7  # at temperature 0 the same question gets the same answer
SHOWN = 20  # pictures that failed, by name
GREY_SIDE = 336  # pixels of the picture that shows nothing


@dataclass(frozen=True)
class ServerSummary:
    """The outcome of `caption_by_server`. ``failed``: pictures without a caption and why; ``unanswered``: how many of
    these because the server gave no answer, which the same call asks again. ``tally``: requests, tokens and cost.
    ``samples_lost``: answers that are no captions, among which none was chosen. ``unspelled``: captions that the
    server's tokens do not spell, so that no word has a probability, and none was left out."""

    out: Path | None
    ledger: Path
    written: int
    already: int
    skipped: Skipped
    failed: Skipped
    unanswered: int
    tally: Tally
    seconds: float
    samples_lost: int = 0
    unspelled: int = 0

    def lines(self) -> list[str]:
        """Returns what was asked and what it cost; each picture that failed, up to `SHOWN`, with its reason."""
        used = self.tally
        cost = "" if used.cost is None else f", cost {used.cost:.2f}"
        several = f" to {used.requests:,} requests" if used.requests != used.asked else ""
        asked = f"{used.asked:,} answers of the server{several}"
        tokens = f"{used.prompt_tokens:,} tokens in, {used.completion_tokens:,} out"
        found = [f"{asked} ({tokens}{cost}), {used.kept:,} from {self.ledger}"] if used.asked or used.kept else []
        if self.samples_lost:
            found.append(
                f"{self.samples_lost:,} samples are no captions; the others of their pictures were chosen from"
            )
        if self.unspelled:
            found.append(
                f"{self.unspelled:,} captions stay as they were written: the server's tokens do not spell them"
            )
        found += [f"no caption of {name}: {reason}" for name, reason in self.failed[:SHOWN]]
        more = len(self.failed) - SHOWN
        return [*found, f"no caption of {more:,} more"] if more > 0 else found

    def refuse_unanswered(self) -> None:
        """Raises `TellapartError` where pictures have no caption because the server failed, or none has one."""
        if self.unanswered:
            reason = next((why for _, why in self.failed if why.startswith("no answer: ")), "no answer")
            raise TellapartError(
                f"{self.unanswered:,} pictures have no caption, for want of an answer ({reason.partition(': ')[2]}); "
                "the same command requests only these"
            )
        if self.failed and not self.written and not self.already:
            raise TellapartError(
                f"not one of {len(self.failed):,} answers is a caption ({self.failed[0][1]}); another ?prompt=, model "
                "or --max-tokens may do better"
            )


def open_server(name: str) -> tuple[Backend, str]:
    """The backend of ``openai:MODEL@URL?prompt=TEXT&key=…``, and the prompt. Raises `UsageError`."""
    body, _, query = name.partition("?")
    pairs = query.split("&") if query else []
    prompts = [unquote(pair.removeprefix("prompt=")) for pair in pairs if pair.startswith("prompt=")]
    rest = [pair for pair in pairs if not pair.startswith("prompt=")]
    for key in (pair.partition("=")[0] for pair in rest):
        if key not in KEYS:
            raise UsageError(f"{body.partition('@')[0]}: no setting '{key}'{nearest(key, (*KEYS, 'prompt'))}")
    if prompts and not prompts[-1].strip():
        raise UsageError(f"{body.partition('@')[0]}: the prompt is empty; leave prompt= out for '{PROMPT}'")
    return open_backend("?".join([body, "&".join(rest)]) if rest else body), (prompts or [PROMPT])[-1]


def caption_by_server(
    name: str,
    dataset: Dataset,
    out: Path | None,
    *,
    decoding: Decoding,
    format: str | None = None,
    best_of: int | None = None,
    scorer: Scorer | None = None,
    drop_guesses: bool = False,
    concurrency: int = CONCURRENCY,
    ledger: Path | None = None,
    resume: bool = True,
    overwrite: bool = False,
    replace_edited: bool = False,
    store: FeatureStore | None = None,
    prompts: Prompts | None = None,
    progress: bool = True,
    **retry: Any,
) -> ServerSummary:
    """Caption every picture of ``dataset`` into ``out``, as `caption_pictures` does with a model of this machine.

    ``decoding``: ``greedy`` asks for one caption, at the server's own temperature unless the name has one
    (``?temperature=0``); ``sample`` asks for ``samples`` captions of a picture, ``consensus`` for its candidates.
    ``best_of``, ``scorer``, ``drop_guesses`` and ``decoding.confidence`` as in `caption_pictures`; guesses are found
    by comparison with a grey picture. ``prompts``: of single pictures; those of the name's prompt, where that has
    fields. ``ledger``: where answers are kept (default: beside ``out``). ``retry``: options
    of `tellapart.boost.job.RetryingBackend`. Prints how many requests are expected and how many there are at most, and
    what they cost, where the name has prices.

    Raises `UsageError` for a request that cannot be met, and `TellapartError` where no request can succeed, or the
    server lacks the log-probabilities that are needed; captions and answers up to then stay.
    """
    started = time.monotonic()
    if decoding.kind == "beam":
        raise UsageError("a server writes greedy or sampled captions, not beams; leave --beams out")
    if concurrency < 1:
        raise UsageError(f"{concurrency} concurrent requests; expected at least 1")
    check_choice(decoding, best_of, scorer is not None)
    if drop_guesses and (best_of is not None or decoding.samples > 1):
        other = "--best-of scores captions" if best_of is not None else "--samples keeps several captions"
        raise UsageError(f"--drop-guesses edits the one caption of a picture, and {other}; leave one out")
    backend, prompt = open_server(name)
    prompts = prompts or Prompts.read(prompt, dataset)
    if (best_of or decoding.kind != "greedy") and "temperature" in getattr(backend, "sampling", ()):
        raise UsageError(f"{backend.name}: --temperature sets that of samples; leave it out of the name")
    settings: dict[str, Any] = {
        **{"captioner": backend.name, "captioner_files": None, "prompt": prompt, "data": dataset.spec},
        **{"decoding": decoding.model_dump(), "best_of": best_of, "scorer": scorer.name if scorer else None},
    }
    if scorer is not None:
        warn_outside_scenes(scorer.name, dataset, "scorer")
        digest = files_digest(scorer.name, "scorer")
        settings |= {"scorer_files": digest, "scorer_weights": scorer.fingerprint}
    settings |= {"truthful": EVIDENCE} if drop_guesses else {}
    ledger = ledger or (ledger_of(out) if out is not None and out != PRINTED else Path("captions.ledger.jsonl"))
    failed, written, unanswered = Skipped(), 0, 0
    writer = open_writer(dataset, out, format, settings, resume, Replace(overwrite, replace_edited))
    captions = ServerCaptions(backend, prompt, decoding, best_of, drop_guesses, prompts)
    try:
        todo = [item for item in dataset if item.id not in writer.done]
        already = len(dataset) - len(todo)
        if scorer is not None and todo:
            wanted = [item.id for item in todo]
            captions.chooser = BestOf.among(dataset, scorer, store, wanted=wanted, progress=progress)
            todo = [item for item in todo if item.id in captions.chooser.places]
        tally = Tally()
        if todo:
            _announce(captions, todo, ledger)
            with Ledger.open(ledger) as kept, Progress(len(todo), "captioning", enabled=progress) as shown:
                job = BoostJob(captions.stages, kept, concurrency, **retry)
                try:
                    for done in job.run(iter(todo), shown.advance):
                        if done.unreadable is not None:
                            dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                        elif (why := captions.trouble(done)) is not None:
                            failed.add(done.item.picture.name, why)
                            unanswered += done.unanswered
                        else:
                            writer.write([captions.written(done)])
                            written += 1
                except TellapartError as error:
                    raise TellapartError(f"{error}; {_kept(written + already, kept)}") from None
                except KeyboardInterrupt:
                    say(_kept(written + already, kept))
                    raise
                tally = _total(job.tally)
    finally:
        writer.close()
    if todo and not written and not already and not failed:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    seconds = time.monotonic() - started
    return ServerSummary(
        out, ledger, written, already, dataset.unreadable, failed, unanswered, tally, seconds, captions.lost,
        captions.unspelled,
    )  # fmt: skip


@cache
def grey_picture() -> Picture:
    """Returns a plain grey picture, which shows nothing."""

    file = io.BytesIO()
    Image.new("RGB", (GREY_SIDE, GREY_SIDE), (128, 128, 128)).save(file, "PNG")
    return BytesPicture(file.getvalue(), "grey")


@dataclass
class ServerCaptions:
    """The stages of captions by a server, and what becomes of their answers.

    A picture has one request, or as many samples as are wanted, with a seed each; with ``drop_guesses`` two more, which
    score the caption that was chosen for the picture and for a grey one. ``chooser``: of ``best_of``, and of a
    consensus with ``scorer_weight``.
    """

    backend: Backend
    prompt: str
    decoding: Decoding
    best_of: int | None = None
    drop_guesses: bool = False
    prompts: Prompts | None = None
    chooser: BestOf | None = None
    lost: int = 0  # samples that are no captions, of pictures that have one
    unspelled: int = 0
    _chosen: dict[str, Written] = field(default_factory=dict)  # by item, until it is written
    _pictures: dict[str, PictureRecord | None] = field(default_factory=dict)  # as they were before they were sent
    _lock: threading.Lock = field(default_factory=threading.Lock)  # one thread at a time uses the scorer

    def __post_init__(self) -> None:
        samples = self.best_of or self.decoding.drawn.samples
        self.samples = [self._sample(number, samples) for number in range(samples)]
        scores = [self._score(name, blank) for name, blank in (("own", False), ("grey", True)) if self.drop_guesses]
        self.stages = [*self.samples, *scores]

    @property
    def chooses(self) -> bool:
        """Returns whether one of several samples is kept."""
        return self.best_of is not None or self.decoding.kind == "consensus"

    def trouble(self, done: Boosted) -> str | None:
        """Returns why a picture has no caption; None where it has one: of samples to choose from, some must be good."""
        good = [stage for stage in self.samples if stage.name in done.texts]
        if not done.bad or (self.chooses and good and not done.unanswered):
            return None
        self._chosen.pop(done.item.id, None)
        reasons = sorted(done.bad.values(), key=lambda why: not why.startswith("no answer: "))
        return reasons[0]

    def written(self, done: Boosted) -> Written:
        """Returns the caption that was chosen, edited."""
        self.lost += sum(stage.name in done.bad for stage in self.samples)
        found = self._choose(done.item, done.texts)
        self._chosen.pop(done.item.id, None)
        if (picture := self._pictures.pop(done.item.id, None)) is not None:
            found = replace(found, picture=picture.if_unchanged(done.item.picture))
        if not self.drop_guesses:
            return found
        own, grey = json.loads(done.texts["own"]), json.loads(done.texts["grey"])
        if own is None or grey is None:
            self.unspelled += 1
            return found
        text = soften(found.caption, [a - b < EVIDENCE for a, b in zip(own, grey, strict=True)])
        return replace(found, caption=text, candidates=(), samples=(text,))

    def load(self, pictures: Sequence[Item]) -> tuple[Load, Load, Load]:
        """Returns what is asked of the server at least, where an answer is one choice, and at most."""
        first = self.samples[0].build_request(pictures[0], {})
        scores = Load()
        if self.drop_guesses:  # of a caption whose length is not known yet
            scores = Load.of([self._scoring(pictures[0], "", False)]) + Load(0, first.max_tokens, 0)
        each, together = len(self.samples), min(len(self.samples), most_choices(self.backend))
        fewest = Load.of([first]) * -(-each // together)
        fewest = Load(fewest.requests, fewest.tokens_in, first.max_tokens * each)
        singly = Load.of([first]) * each
        found = fewest + scores * 2, singly + scores * 2, singly * 2 + scores * 2
        few, one_each, most = (load * len(pictures) for load in found)
        return few, one_each, most

    def _asked(self, item: Item) -> str:
        return self.prompt if self.prompts is None else self.prompts.by_id[item.id]

    def _sample(self, number: int, samples: int) -> Stage:
        """The stage of one sample."""
        sampled = self.best_of is not None or self.decoding.kind != "greedy"

        def request(item: Item, temperature: float | None, seed: int | None) -> Request:
            if item.id not in self._pictures:
                self._pictures[item.id] = PictureRecord.of(item.picture)
            messages, most = (Message("user", self._asked(item)),), self.decoding.max_tokens
            return Request(
                messages, item.picture, temperature, most, seed=seed, truth=item.truth,
                logprobs=self.decoding.confidence > 0,
            )  # fmt: skip

        temperature, seed = (self.decoding.temperature, number) if sampled else (None, None)
        return Stage(
            f"caption.{number}" if number else "caption",
            self.backend,
            self.prompt,
            lambda item, _: request(item, temperature, seed),
            lambda item, answers, text: unusable(text),
            lambda item, _, bad: request(item, max(RETRY_TEMPERATURE, temperature or 0.0), samples + number),
            (lambda item, _, answer, text: self._confident(answer, text)) if self.decoding.confidence else None,
            group="caption" if sampled else "",
        )

    def _confident(self, answer: Answer, text: str) -> str:
        """A caption without nouns of a probability below ``confidence``, and without what it says twice."""
        text = " ".join(text.split())
        words = content_words(text)
        log_probs = word_log_probs(text, words, answer.tokens)
        if log_probs is None:
            with self._lock:
                self.unspelled += 1
            return text
        least = math.log(self.decoding.confidence)
        doubted = [word.kind == "head" and value < least for word, value in zip(words, log_probs, strict=True)]
        return without_repeats(soften(text, doubted))

    def _score(self, name: str, blank: bool) -> Stage:
        """The stage that scores the chosen caption: its text is a list of its words' log-probabilities, or null."""

        def request(item: Item, texts: Mapping[str, str]) -> Request:
            return self._scoring(item, self._choose(item, texts).caption, blank)

        def log_probs(item: Item, texts: Mapping[str, str], answer: Answer, _: str) -> str:
            caption = self._choose(item, texts).caption
            return json.dumps(word_log_probs(caption, content_words(caption), answer.tokens))

        return Stage(
            name, self.backend, self.prompt, request, lambda item, texts, text: None,
            lambda item, texts, bad: request(item, texts), log_probs,
        )  # fmt: skip

    def _scoring(self, item: Item, caption: str, blank: bool) -> Request:
        messages = Message("user", self._asked(item)), Message("assistant", caption)
        return Request(messages, grey_picture() if blank else item.picture, max_tokens=1, scored=True)

    def _choose(self, item: Item, texts: Mapping[str, str]) -> Written:
        """The caption of a picture among its samples. Raises `BackendError` where it has none."""

        with self._lock:
            if item.id in self._chosen:
                return self._chosen[item.id]
            captions = tuple(" ".join(texts[one.name].split()) for one in self.samples if one.name in texts)
            if not captions:
                raise BackendError("no caption to score")
            if self.best_of is not None:
                assert self.chooser is not None
                (ranked,) = self.chooser.rank([item], [captions])
                found = Written(item, ranked[0][0], ranked)
            elif self.decoding.kind == "consensus":
                if self.chooser is not None:
                    (text,) = self.chooser.consensus([item], [captions], self.decoding.scorer_weight)
                else:
                    text = consensus(captions)
                found = Written(item, text)
            else:
                found = Written(item, captions[0], samples=captions)
            self._chosen[item.id] = found
            return found


def word_log_probs(text: str, words: Sequence[Word], tokens: Sequence[tuple[str, float]]) -> list[float] | None:
    """Returns the log-probability of each word, the sum of its tokens'; None where the tokens do not spell the text."""
    spans = spelled_spans(text, [piece.encode("utf-8", "surrogateescape") for piece, _ in tokens])
    if spans is None:
        return None
    found = [0.0] * len(words)
    for span, (_, log_p) in zip(spans, tokens, strict=True):
        if (number := word_of_span(span, words)) >= 0:
            found[number] += log_p
    return found


def _kept(captions: int, ledger: Ledger) -> str:
    return f"{captions:,} captions and {len(ledger):,} answers are kept, and the same command goes on from there"


def _total(by_stage: Mapping[str, Tally]) -> Tally:
    total = Tally()
    for own in by_stage.values():
        for name in ("kept", "asked", "second", "bad", "requests", "prompt_tokens", "completion_tokens"):
            setattr(total, name, getattr(total, name) + getattr(own, name))
        if own.cost is not None:
            total.cost = (total.cost or 0.0) + own.cost
    return total


def _announce(captions: ServerCaptions, todo: list[Item], ledger: Path) -> None:
    """Says how many requests there are, and what they cost."""
    backend = captions.backend
    few, one_each, most = captions.load(todo)
    several = few.requests != one_each.requests
    note = f" ({one_each.requests:,} from a server that gives one choice a request)" if several else ""
    line = f"{backend.name}: {estimate_line(few, most, backend, note)}"
    say(f"{line}; answers in {ledger} are not requested again" if ledger.exists() else line)


def captions_of(name: str, data: str, device: str = "auto", precision: str = "auto") -> Path:
    """The file with the captions of ``data`` by a captioner; what it lacks is written now.

    The file is called after the captioner, and so is its system. A model behind a server writes greedy captions of at
    most 256 tokens; one of this machine decodes as it was saved, else with five beams and at most 30. Raises as
    `caption_pictures` and `caption_by_server`, and `UsageError` where a file of that name has captions of other
    settings.
    """
    out, dataset = Path(f"{system_name(name)}.jsonl"), open_data(data)
    if is_server(name):
        summary = caption_by_server(name, dataset, out, decoding=Decoding(max_tokens=MAX_TOKENS))
        for line in summary.lines():
            say(line)
        summary.refuse_unanswered()
    else:
        _caption_here(name, dataset, out, device, precision)
    for line in dataset.report():
        say(line)
    dataset.refuse_mostly_unreadable()
    return out


def system_name(captioner: str) -> str:
    """The last part of a captioner's name, fit for a file: ``openai:org/vlm-2:7b@URL?key=K`` is ``vlm-2-7b``, and
    ``runs/apart?detail=0.5`` is ``apart-detail-0.5``."""
    bare, _, options = captioner.partition("?")
    if is_server(captioner):
        bare = bare.partition("@http")[0].partition(":")[2]
    else:
        chosen = [pair.replace("=", "-") for pair in options.split("&") if pair.startswith("detail=")]
        bare = "-".join([bare.rstrip("/"), *chosen])
    found = re.sub(r"[^\w.-]+", "-", bare.rstrip("/").rpartition("/")[2]).strip("-.")
    if not found:
        raise UsageError(f"--captioner '{captioner}' has no name; type a folder, run, hub name, or openai:MODEL@URL")
    return found


def _caption_here(name: str, dataset: Dataset, out: Path, device: str, precision: str) -> None:

    decoding = default_decoding(name)
    place = resolve_device(device)
    precision = resolve_precision(precision, place)
    if not nothing_left(dataset, out, name, decoding=decoding, precision=precision):
        for line in caption_pictures(load_captioner(name, place, precision), dataset, out, decoding=decoding).lines():
            say(line)
