"""Captions data sets with a model behind a server, using the backends and the ledger of `tellapart.boost`.

Requests are sent concurrently, so that servers such as vLLM and SGLang can batch them, and captions are written in the
order of the data set. Every answer is stored in the ledger before it is used, so no answer is paid for twice. If an
answer is invalid (empty, truncated or a refusal), the request is repeated once with sampling. If that fails too, the
picture is listed as failed, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tellapart.boost.batches import BatchBackend
from tellapart.boost.dataset import ledger_of
from tellapart.boost.job import BoostJob, Tally
from tellapart.boost.ledger import Ledger
from tellapart.boost.types import Backend, LacksFeature
from tellapart.captions.formats import PRINTED
from tellapart.captions.replacement import Replace
from tellapart.captions.writers import Writer, open_writer
from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.inference.best_of import BestOf
from tellapart.inference.prompts import Prompts
from tellapart.inference.server_backend import open_server
from tellapart.inference.server_captions import ServerCaptions
from tellapart.inference.server_estimate import announcement
from tellapart.inference.setting_checks import check_lines, check_request, check_schema
from tellapart.inference.structured import AnswerSchema
from tellapart.models.decoding import EVIDENCE, Decoding
from tellapart.models.digests import files_digest
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.scorers.base import Scorer
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

MAX_TOKENS = 256  # longer answers are not captions
MAX_STRUCTURED_TOKENS = 1024  # limit for structured captions and several paragraphs
CONCURRENCY = 16
MAX_FAILED_LISTED = 20  # maximum number of failed pictures that are listed by name


@dataclass(frozen=True)
class ServerSummary:
    """The result of `caption_by_server`.

    failed: the pictures without a caption, each with the reason.
    unanswered: how many of the failed pictures the server did not answer. Repeating the call requests them again.
    tally: the number of requests and tokens, and the cost.
    samples_lost: the number of samples that were invalid answers. They are never chosen.
    unspelled: the number of captions that do not match the server's tokens. Their words have no probabilities, so these
        captions were not edited.
    """

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
        """Returns lines on the requests, tokens and cost, and on up to `MAX_FAILED_LISTED` failed pictures."""
        used = self.tally
        cost = "" if used.cost is None else f", cost {used.cost:.2f}"
        several = f" to {used.requests:,} requests" if used.requests != used.asked else ""
        asked = f"{used.asked:,} server answers{several}"
        tokens = f"{used.prompt_tokens:,} tokens in, {used.completion_tokens:,} out"
        found = [f"{asked} ({tokens}{cost}), {used.kept:,} from {self.ledger}"] if used.asked or used.kept else []
        if self.samples_lost:
            found.append(
                f"{self.samples_lost:,} samples were not usable captions; the caption was chosen "
                "from the remaining samples of the picture"
            )
        if self.unspelled:
            found.append(
                f"{self.unspelled:,} captions were not edited, because the server's tokens do not match their text"
            )
        found += [f"no caption for {name}: {reason}" for name, reason in self.failed[:MAX_FAILED_LISTED]]
        more = len(self.failed) - MAX_FAILED_LISTED
        return [*found, f"no caption for {more:,} other pictures"] if more > 0 else found

    def refuse_unanswered(self) -> None:
        """Raises `TellapartError` if the server did not answer for some pictures, or if no picture has a caption."""
        if self.unanswered:
            reason = next((why for _, why in self.failed if why.startswith("no answer: ")), "no answer")
            raise TellapartError(
                f"{self.unanswered:,} pictures have no caption, because the server did not answer "
                f"({reason.partition(': ')[2]}); run the same command again to request only these"
            )
        if self.failed and not self.written and not self.already:
            raise TellapartError(
                f"none of the {len(self.failed):,} answers is a usable caption ({self.failed[0][1]}); "
                "try another ?prompt=, model or --max-tokens"
            )


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
    schema: AnswerSchema | None = None,
    claims: bool = False,
    progress: bool = True,
    **retry: Any,
) -> ServerSummary:
    """Captions all pictures in ``dataset`` and writes ``out``. `caption_pictures` does the same with local models.

    Prints the expected and maximum number of requests, and their cost if the name has prices.

    Args:
        decoding: ``greedy`` requests one caption, at the server's default temperature unless the name sets one
            (``?temperature=0``); ``sample`` and ``consensus`` request several captions per picture. ``confidence``
            works as in `caption_pictures`.
        best_of, scorer: as in `caption_pictures`.
        drop_guesses: as in `caption_pictures`, except that pictures are compared with a grey picture.
        ledger: the file that stores the answers [default: a file beside ``out``].
        prompts: one prompt per picture. If None, prompts are made from the prompt in the name if it contains fields.
        schema: request structured captions that match this schema. If an answer does not match, the request is repeated
            once.
        claims: add each claim's confidence, with log-probabilities if the server returns them.
        retry: options of `tellapart.boost.retries.RetryingBackend`.

    Raises:
        UsageError: if the settings are inconsistent or not supported by the server.
        TellapartError: if no request can succeed, or if the server does not return the required log-probabilities;
            captions and answers received before are kept.
    """
    started = time.monotonic()
    check_request(decoding, best_of, scorer, drop_guesses, concurrency)
    check_lines(out, format, decoding, best_of, schema=schema is not None, claims=claims)
    check_schema(name, decoding, best_of, schema, drop_guesses)
    backend, prompt = open_server(name)
    prompts = prompts or Prompts.read(prompt, dataset)
    if (best_of or decoding.kind != "greedy") and "temperature" in getattr(backend, "sampling", ()):
        raise UsageError(f"{backend.name}: the temperature is set by --decoding temperature; remove it from the name")
    settings = _settings(backend, prompt, dataset, decoding, best_of, scorer, drop_guesses)
    settings |= ({"schema": schema.text} if schema else {}) | ({"claims": True} if claims else {})
    ledger = ledger or (ledger_of(out) if out is not None and out != PRINTED else Path("captions.ledger.jsonl"))
    captions = ServerCaptions(backend, prompt, decoding, best_of, drop_guesses, prompts, schema=schema, claims=claims)
    counts = Counts()
    with closing(open_writer(dataset, out, format, settings, resume, Replace(overwrite, replace_edited))) as writer:
        todo = [item for item in dataset if item.id not in writer.done]
        already = len(dataset) - len(todo)
        if scorer is not None and todo:
            wanted = [item.id for item in todo]
            captions.chooser = BestOf.among(dataset, scorer, store, wanted=wanted, progress=progress)
            todo = [item for item in todo if item.id in captions.chooser.places]
        if todo:
            say(announcement(captions, todo, ledger))
            with Ledger.open(ledger) as answers:
                if isinstance(backend, BatchBackend):
                    _fill(backend, captions, todo, answers)
                job = BoostJob(captions.stages, answers, concurrency, **retry)
                _write_answers(job, captions, todo, dataset, writer, counts, already, progress)
                if isinstance(backend, BatchBackend):
                    counts.tally = _with_batch(counts.tally, backend.tally)
    if todo and not counts.written and not already and not counts.failed:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    seconds = time.monotonic() - started
    return ServerSummary(
        out, ledger, counts.written, already, dataset.unreadable, counts.failed, counts.unanswered, counts.tally,
        seconds, captions.lost, captions.unspelled,
    )  # fmt: skip


@dataclass
class Counts:
    """Counts the results of a run."""

    written: int = 0
    unanswered: int = 0
    failed: Skipped = field(default_factory=Skipped)
    tally: Tally = field(default_factory=Tally)


def _settings(
    backend: Backend,
    prompt: str,
    dataset: Dataset,
    decoding: Decoding,
    best_of: int | None,
    scorer: Scorer | None,
    drop_guesses: bool,
) -> dict[str, Any]:
    """Returns a run's settings. Runs with different settings must not append to the same file."""
    settings: dict[str, Any] = {
        **{"captioner": backend.name, "captioner_files": None, "prompt": prompt, "data": dataset.spec},
        **{"decoding": decoding.model_dump(), "best_of": best_of, "scorer": scorer.name if scorer else None},
    }
    if scorer is not None:
        warn_outside_scenes(scorer.name, dataset, "scorer")
        digest = files_digest(scorer.name, "scorer")
        settings |= {"scorer_files": digest, "scorer_weights": scorer.fingerprint}
    return settings | ({"truthful": EVIDENCE} if drop_guesses else {})


def _write_answers(
    job: BoostJob,
    captions: ServerCaptions,
    todo: Sequence[Item],
    dataset: Dataset,
    writer: Writer,
    counts: Counts,
    already: int,
    progress: bool,
) -> None:
    """Requests captions for the items in ``todo``, and writes the valid captions."""
    try:
        with Progress(len(todo), "captioning", enabled=progress) as shown:
            for done in job.run(iter(todo), shown.advance):
                if done.unreadable is not None:
                    dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                elif (why := captions.trouble(done)) is not None:
                    counts.failed.add(done.item.picture.name, why)
                    counts.unanswered += done.unanswered
                else:
                    writer.write([captions.written(done)])
                    counts.written += 1
    except TellapartError as error:
        goes_on = not isinstance(error, LacksFeature)
        raise TellapartError(f"{error}; {_kept(counts.written + already, job.ledger, goes_on)}") from None
    except KeyboardInterrupt:
        say(_kept(counts.written + already, job.ledger, goes_on=False))
        raise
    counts.tally = sum(job.tally.values(), Tally())


def _kept(captions: int, ledger: Ledger, goes_on: bool = True) -> str:
    """Returns a message on what was saved before a failure. ``goes_on``: whether repeating the command may help."""
    kept = f"{captions:,} captions and {len(ledger):,} answers were saved"
    return f"{kept}; run the same command again to resume" if goes_on else kept


def _fill(backend: BatchBackend, captions: ServerCaptions, todo: Sequence[Item], answers: Ledger) -> None:
    """Gets all answers from the batch endpoint. If interrupted with Ctrl-C, the batch continues on the server."""
    try:
        backend.fill(captions.samples, todo, answers)
    except KeyboardInterrupt:
        say(f"{backend.name}: the batch continues on the server; run the same command again to wait for it")
        raise


def _with_batch(tally: Tally, batch: Tally) -> Tally:
    """Counts a batch's answers as newly requested, although the job reads them from the ledger."""
    return replace(tally + batch, kept=max(0, tally.kept - batch.asked))
