"""Captions data sets with a model behind a server, using the backends and the ledger of `tellapart.boost`.

Requests are sent concurrently, so that servers such as vLLM and SGLang can batch them, and captions are written in the
order of the data set. Every answer is stored in the ledger before it is used, so no answer is paid for twice. If an
answer is invalid (empty, truncated or a refusal), the request is repeated once with sampling. If that fails too, the
picture is listed as failed, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tellapart.boost.batch_backend import BatchBackend
from tellapart.boost.job import BoostJob, Tally
from tellapart.boost.ledger import Ledger, ledger_of
from tellapart.boost.types import LacksFeature
from tellapart.captions.formats import PRINTED
from tellapart.captions.writers import Writer
from tellapart.data import Dataset, Skipped
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.caption_run import CaptionRun
from tellapart.inference.prompts import Prompts
from tellapart.inference.run_settings import server_request
from tellapart.inference.server_backend import open_server
from tellapart.inference.server_captions import ServerCaptions
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

MAX_TOKENS = 256  # longer answers are not captions
MAX_STRUCTURED_TOKENS = 1024  # limit for structured captions and several paragraphs
CONCURRENCY = 16
DEFAULT_LEDGER = "captions.ledger.jsonl"  # in the current folder, if the captions are printed or in .txt files
MAX_FAILED_LISTED = 20  # maximum number of failed pictures that are listed by name


@dataclass
class ServerSummary:
    """The result of `caption_by_server`.

    failed: the pictures without a caption, each with the reason.
    unanswered: how many of the failed pictures the server did not answer. Repeating the call requests them again.
    tally: the number of requests and tokens, and the cost.
    samples_lost: the number of samples that were invalid answers. They are never chosen.
    unspelled: the number of captions that do not match the server's tokens. Their words have no probabilities, so these
        captions were not edited.
    """

    ledger: Path
    written: int = 0
    already: int = 0
    failed: Skipped = field(default_factory=Skipped)
    unanswered: int = 0
    tally: Tally = field(default_factory=Tally)
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
        found += [f"no caption for {name}: {reason}" for name, reason in islice(self.failed, MAX_FAILED_LISTED)]
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
                f"none of the {len(self.failed):,} answers is a usable caption ({next(iter(self.failed))[1]}); "
                "try another ?prompt=, model or --max-tokens"
            )


def caption_by_server(
    name: str,
    dataset: Dataset,
    out: Path | None,
    *,
    concurrency: int = CONCURRENCY,
    ledger: Path | None = None,
    retry: Mapping[str, Any] | None = None,
    **options: Any,
) -> ServerSummary:
    """Captions all pictures in ``dataset`` and writes ``out``. `caption_pictures` does the same with local models.

    Prints the expected and maximum number of requests, and their cost if the name has prices.

    Args:
        ledger: the file that stores the answers [default: a file beside ``out``, or `DEFAULT_LEDGER` without a file].
        retry: options of `tellapart.boost.retries.RetryingBackend`.
        options: further fields of `CaptionRun`; ``decoding`` is required. ``greedy`` requests one caption, at the
            server's default temperature unless the name sets one (``?temperature=0``); ``sample`` and ``consensus``
            request several captions per picture.

    Raises:
        UsageError: if the settings are inconsistent or not supported by the server.
        TellapartError: if no request can succeed, or if the server does not return the required log-probabilities;
            captions and answers received before are kept.
    """
    run = CaptionRun(dataset=dataset, out=out, **options)
    decoding = run.decoding
    if decoding.kind == "beam":
        raise UsageError(
            "--beams requires a local model, because a server writes greedy or sampled captions; remove --beams"
        )
    if concurrency < 1:
        raise UsageError(f"concurrent requests: expected at least 1, got {concurrency}")
    run.check()
    backend, prompt = open_server(name)
    batch = backend if isinstance(backend, BatchBackend) else None
    if batch is not None and run.drop_guesses:
        raise UsageError(
            "--drop-guesses needs additional requests for each caption and cannot be combined with a batch; remove "
            "--drop-guesses or batch=1"
        )
    if batch is not None and decoding.confidence and not batch.logprobs:
        raise UsageError(
            f"--decoding confidence requires log-probabilities, which the batch endpoint of {batch.name} does not "
            "return; remove confidence, or use another model, such as openai:MODEL?batch=1"
        )
    if (run.best_of or decoding.kind != "greedy") and "temperature" in getattr(backend, "sampling", ()):
        raise UsageError(f"{backend.name}: the temperature is set by --decoding temperature; remove it from the name")
    prompts = run.prompts or Prompts.read(prompt, dataset)
    captions = ServerCaptions(
        backend, prompt, decoding, run.best_of, run.drop_guesses, prompts, schema=run.schema, claims=run.claims
    )
    beside = Path(DEFAULT_LEDGER) if out is None or out == PRINTED else ledger_of(out)
    summary = ServerSummary(ledger or beside)
    with run.opened(server_request(run, backend.name, prompt)) as (writer, todo, captions.chooser):
        summary.already = sum(item.id in writer.done for item in dataset)
        if todo:
            say(captions.announcement(todo, summary.ledger))
            if ledger is None and out in (None, PRINTED) and not beside.exists():
                say(
                    f"answers are stored in {DEFAULT_LEDGER}, so that they are not requested again; to choose another "
                    "file, add ?ledger=FILE to the model"
                )
            with Ledger.open(summary.ledger) as answers:
                if batch is not None:
                    _fill(batch, captions, todo, answers)
                job = BoostJob(captions.stages, answers, concurrency, **(retry or {}))
                _write_answers(job, captions, run, todo, writer, summary)
    if batch is not None:  # the job read the batch's answers from the ledger
        summary.tally = replace(summary.tally + batch.tally, kept=max(0, summary.tally.kept - batch.tally.asked))
    if todo and not summary.written and not summary.already and not summary.failed:
        raise TellapartError(dataset.unreadable.line(len(dataset)) or "no picture could be captioned")
    summary.samples_lost, summary.unspelled = captions.lost, captions.unspelled
    return summary


def _write_answers(
    job: BoostJob,
    captions: ServerCaptions,
    run: CaptionRun,
    todo: Sequence[Item],
    writer: Writer,
    summary: ServerSummary,
) -> None:
    """Requests captions for the items in ``todo``, and writes the valid captions."""
    try:
        with Progress(len(todo), "captioning", enabled=run.progress) as shown:
            for done in job.run(iter(todo), shown.advance):
                if done.unreadable is not None:
                    run.dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                elif (why := captions.trouble(done)) is not None:
                    summary.failed.add(done.item.picture.name, why)
                    summary.unanswered += done.unanswered
                else:
                    writer.write([captions.written(done)])
                    summary.written += 1
    except (TellapartError, KeyboardInterrupt) as error:
        saved = f"{summary.written + summary.already:,} captions and {len(job.ledger):,} answers were saved"
        if isinstance(error, KeyboardInterrupt):
            say(saved)
            raise
        hint = "" if isinstance(error, LacksFeature) else "; run the same command again to resume"
        raise TellapartError(f"{error}; {saved}{hint}") from None
    summary.tally = sum(job.tally.values(), Tally())


def _fill(backend: BatchBackend, captions: ServerCaptions, todo: Sequence[Item], answers: Ledger) -> None:
    """Gets all answers from the batch endpoint. If interrupted with Ctrl-C, the batch continues on the server."""
    try:
        backend.fill(captions.samples, todo, answers)
    except KeyboardInterrupt:
        say(f"{backend.name}: the batch continues on the server; run the same command again to wait for it")
        raise
