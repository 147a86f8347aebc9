"""Captions by a model behind a server, through the backends and the ledger of `tellapart.boost`.

The server batches (vLLM and SGLang do); requests are sent many at a time, and captions are written in the order of the
data set. Every answer is in the ledger before it counts, so that no answer is paid for twice. An answer that is no
caption (empty, a refusal, cut off) is requested once more, sampled; a second one is a failure, listed with its reason.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tellapart.boost.backends import KEYS, open_backend
from tellapart.boost.job import BoostJob, Tally, estimate, ledger_of
from tellapart.boost.ledger import Ledger
from tellapart.boost.stages import unusable
from tellapart.boost.types import Backend, Boosted, Message, Request, Stage
from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.inference.writers import PRINTED, Written, open_writer
from tellapart.types import Item
from tellapart.utils.messages import Progress, say

if TYPE_CHECKING:
    from tellapart.models.decoding import Decoding

PROMPT = "Describe the image in one sentence."
MAX_TOKENS = 256  # a longer answer is an essay
CONCURRENCY = 16
RETRY_TEMPERATURE = 0.7  # at temperature 0 the same question gets the same answer
SHOWN = 20  # pictures that failed, by name


@dataclass(frozen=True)
class ServerSummary:
    """The outcome of `caption_by_server`. ``failed``: pictures without a caption and why; ``unanswered``: how many of
    these because the server gave no answer, which the same call asks again. ``tally``: requests, tokens and cost."""

    out: Path | None
    ledger: Path
    written: int
    already: int
    skipped: Skipped
    failed: Skipped
    unanswered: int
    tally: Tally
    seconds: float

    def lines(self) -> list[str]:
        """What was asked and what it cost; each picture that failed, up to `SHOWN`, with its reason."""
        used = self.tally
        cost = "" if used.cost is None else f", cost {used.cost:.2f}"
        asked = (
            f"{used.asked:,} answers of the server ({used.prompt_tokens:,} tokens in, {used.completion_tokens:,} out"
        )
        found = [f"{asked}{cost}), {used.kept:,} from {self.ledger}"] if used.asked or used.kept else []
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
    concurrency: int = CONCURRENCY,
    ledger: Path | None = None,
    resume: bool = True,
    overwrite: bool = False,
    progress: bool = True,
    **retry: Any,
) -> ServerSummary:
    """Caption every picture of ``dataset`` into ``out``, as `caption_pictures` does with a model of this machine.

    ``decoding``: ``greedy`` asks for one caption, at the server's own temperature unless the name has one
    (``?temperature=0``); ``sample`` asks for ``samples`` captions of a picture, with a seed each.
    ``ledger``: where answers are kept (default: beside ``out``). ``retry``: options of
    `tellapart.boost.job.RetryingBackend`. Prints how many requests are expected and how many there are at
    most, and what they cost, where the name has prices.

    Raises `UsageError` for a request that cannot be met, and `TellapartError` where no request can succeed; captions
    and answers up to then stay.
    """
    started = time.monotonic()
    if decoding.kind == "beam":
        raise UsageError("a server writes greedy or sampled captions, not beams; leave --beams out")
    if decoding.confidence:
        raise UsageError("a server does not say how sure it is of its words; leave confidence out")
    if concurrency < 1:
        raise UsageError(f"{concurrency} concurrent requests; expected at least 1")
    backend, prompt = open_server(name)
    if decoding.kind == "sample" and "temperature" in getattr(backend, "sampling", ()):
        raise UsageError(f"{backend.name}: --temperature sets that of samples; leave it out of the name")
    settings = {
        **{"captioner": backend.name, "captioner_files": None, "prompt": prompt, "data": dataset.spec},
        **{"decoding": decoding.model_dump(), "best_of": None, "scorer": None},
    }
    ledger = ledger or (ledger_of(out) if out is not None and out != PRINTED else Path("captions.ledger.jsonl"))
    stages = caption_stages(backend, prompt, decoding)
    failed, written, unanswered = Skipped(), 0, 0
    writer = open_writer(dataset, out, format, settings, resume, overwrite)
    try:
        todo = [item for item in dataset if item.id not in writer.done]
        already = len(dataset) - len(todo)
        tally = Tally()
        if todo:
            _announce(stages, todo, ledger)
            with Ledger.open(ledger) as kept, Progress(len(todo), "captioning", enabled=progress) as shown:
                job = BoostJob(stages, kept, concurrency, **retry)
                try:
                    for done in job.run(iter(todo), shown.advance):
                        if done.unreadable is not None:
                            dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                        elif done.bad:
                            failed.add(done.item.picture.name, next(iter(done.bad.values())))
                            unanswered += done.unanswered
                        else:
                            writer.write([_written(done, stages)])
                            written += 1
                except TellapartError as error:
                    raise TellapartError(f"{error}; {_kept(written + already, kept)}") from None
                except KeyboardInterrupt:
                    say(f"stopped; {_kept(written + already, kept)}")
                    raise
                tally = _total(job.tally)
    finally:
        writer.close()
    if todo and not written and not already and not failed:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    seconds = time.monotonic() - started
    return ServerSummary(out, ledger, written, already, dataset.unreadable, failed, unanswered, tally, seconds)


def caption_stages(backend: Backend, prompt: str, decoding: Decoding) -> list[Stage]:
    """One request about each picture, or as many as ``decoding.samples``, each with a seed of its own."""
    sampled = decoding.kind == "sample"

    def stage(number: int) -> Stage:
        def request(item: Item, temperature: float | None, seed: int | None) -> Request:
            messages = (Message("user", prompt),)
            return Request(messages, item.picture, temperature, decoding.max_tokens, seed=seed, truth=item.truth)

        temperature, seed = (decoding.temperature, number) if sampled else (None, None)
        return Stage(
            f"caption.{number}" if number else "caption",
            backend,
            prompt,
            lambda item, _: request(item, temperature, seed),
            lambda item, answers, text: unusable(text),
            lambda item, _, bad: request(item, max(RETRY_TEMPERATURE, temperature or 0.0), decoding.samples + number),
        )

    return [stage(number) for number in range(decoding.samples)]


def _kept(captions: int, ledger: Ledger) -> str:
    return f"{captions:,} captions and {len(ledger):,} answers are kept, and the same command goes on from there"


def _written(done: Boosted, stages: list[Stage]) -> Written:
    captions = tuple(" ".join(done.texts[stage.name].split()) for stage in stages)
    return Written(done.item, captions[0], samples=captions)


def _total(by_stage: Mapping[str, Tally]) -> Tally:
    total = Tally()
    for own in by_stage.values():
        for name in ("kept", "asked", "second", "bad", "prompt_tokens", "completion_tokens"):
            setattr(total, name, getattr(total, name) + getattr(own, name))
        if own.cost is not None:
            total.cost = (total.cost or 0.0) + own.cost
    return total


def _announce(stages: list[Stage], todo: list[Item], ledger: Path) -> None:
    """How many requests there are, and what they cost."""
    backend, request = stages[0].backend, stages[0].build_request(todo[0], {})
    line = f"{backend.name}: {estimate([request] * (len(todo) * len(stages)), [], backend)}"
    say(f"{line}; answers in {ledger} are not requested again" if ledger.exists() else line)
