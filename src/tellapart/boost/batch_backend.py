"""Answers all requests of a job in advance, through a provider's batch endpoint.

`BatchBackend.fill` sends all requests whose answers are not in the ledger, waits for the answers, and stores them in
the ledger, where the job then finds them. A file next to the ledger lists the batches that were sent, so that repeating
the command waits for them instead of paying twice. A request's id is the address of its answer in the ledger. After a
bad answer, the request is repeated once, in a second batch. Requests that failed or expired remain unanswered.
Repeating the command sends them again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tellapart.boost.batch_servers import BatchServer, Result, open_batch_server
from tellapart.boost.dry_run import MissingAnswer, missing_answers
from tellapart.boost.job import Tally, choices_at
from tellapart.boost.ledger import Ledger, Note
from tellapart.boost.types import Answer, BackendError, Request, Stage, UnansweredError
from tellapart.errors import PictureError, TellapartError
from tellapart.types import Item
from tellapart.utils.atomic_writes import replace_text
from tellapart.utils.messages import say
from tellapart.utils.strict_json import parse_json

MAX_REQUESTS = 50_000  # maximum number of requests per batch at OpenAI; Anthropic's limit is 100,000
MAX_BYTES = 190 << 20  # bytes per batch; OpenAI's limit is 200 MB, Anthropic's limit is 256 MB
POLL_SECONDS = 20.0
PUT_AT_ONCE = 256  # answers per flush of the ledger


class BatchBackend:
    """A backend whose requests are all answered in advance, by `fill`."""

    def __init__(self, server: BatchServer) -> None:
        self._server, self.name, self.most_choices = server, server.name, server.most_choices
        self.prices, self.sampling, self.logprobs = server.model.prices, server.model.sampling, server.logprobs
        self.tally = Tally()
        self._failures: dict[str, str] = {}  # from item id to error message
        self._notes: dict[str, Mapping[str, Note]] = {}  # from request id to the notes of the request's choices

    @classmethod
    def open(cls, spec: str) -> BatchBackend:
        """Opens the batch endpoint of ``openai:MODEL@URL?key=…`` or ``anthropic:MODEL``. Raises `UsageError`."""
        return cls(open_batch_server(spec))

    def complete(self, request: Request) -> Answer:
        """Always raises `UnansweredError`: the job calls it only if `fill` has stored no answer in the ledger."""
        reason = self._failures.get(request.item, "the batch contains no answer")
        raise UnansweredError(f"{self.name}: {reason}")

    def fill(self, stages: Sequence[Stage], items: Sequence[Item], ledger: Ledger) -> None:
        """Requests the answers that are not in the ledger, and returns when all batches have ended.

        stages: several samples of the answer to one question, so that no stage depends on another stage's answer.

        Raises `TellapartError` if the server rejects a batch or cannot be reached. Repeating the command resumes.
        """
        log = BatchLog(ledger.path.with_name(ledger.path.name.removesuffix(".ledger.jsonl") + ".batches.json"))
        for attempt in (0, 1):
            missing = self._missing(stages, items, ledger, attempt)
            if log.pending(self.name):
                self._collect(log, ledger)
                missing = self._missing(stages, items, ledger, attempt)
            if missing:
                self._send(missing, log)
                self._collect(log, ledger)

    def _missing(
        self, stages: Sequence[Stage], items: Sequence[Item], ledger: Ledger, attempt: int
    ) -> list[MissingAnswer]:
        missing = missing_answers(stages, items, ledger)
        self._notes |= {each.address: each.notes for each in missing}  # a pending batch may be of another attempt
        return [each for each in missing if each.attempt == attempt]

    def _send(self, missing: Sequence[MissingAnswer], log: BatchLog) -> None:
        """Sends the requests in as few batches as the provider's limits allow."""
        lines = self._lines(missing)
        line = next(lines, None)
        while line is not None:
            with tempfile.TemporaryFile() as file:
                count = 0
                while line and (not count or (count < MAX_REQUESTS and file.tell() + len(line) <= MAX_BYTES)):
                    file.write(line)
                    count, line = count + 1, next(lines, None)
                log.add(self._server.send(file), self.name)
        say(
            f"{self.name}: sent {len(missing):,} requests as a batch, which may take 24 hours; after "
            "Ctrl-C, run the same command again to wait for it"
        )

    def _lines(self, missing: Sequence[MissingAnswer]) -> Iterator[bytes]:
        for each in missing:
            with suppress(PictureError):  # the job reports the picture later
                yield self._server.line(each.address, each.request) + b"\n"

    def _collect(self, log: BatchLog, ledger: Ledger) -> None:
        """Waits for the batches and stores their answers."""
        shown = ""
        while pending := log.pending(self.name):
            states = {batch: self._server.state(batch) for batch in pending}
            line = ", ".join(f"{batch} {state.done:,} of {state.total:,}" for batch, state in states.items())
            if line != shown:
                say(f"{self.name}: {line} done")
                shown = line
            for batch, state in states.items():
                if state.refusal:
                    log.end(batch)
                    raise TellapartError(
                        f"{self.name}: the server rejected batch {batch}: {state.refusal}; fix the "
                        "problem and run the same command again"
                    )
                if state.ended:
                    self._store(self._server.results(batch), ledger)
                    log.end(batch)
            if not any(state.ended for state in states.values()):
                time.sleep(POLL_SECONDS)

    def _store(self, results: Iterator[Result], ledger: Ledger) -> None:
        """Adds the answers to the ledger, and records the reasons for missing answers in ``_failures``."""
        waiting: list[tuple[str, Answer, Note]] = []
        for key, result in results:
            notes = self._notes.get(key, {key: {"stage": "", "model": self.name, "id": ""}})
            if isinstance(result, BackendError):
                self._failures[notes[key]["id"]] = f"the batch contains no answer: {result}"
                continue
            waiting += choices_at(notes, result)
            self.tally += Tally.of(result, self, 1 + len(result.others))
            if len(waiting) >= PUT_AT_ONCE:
                ledger.put_all(waiting)
                waiting = []
        ledger.put_all(waiting)


class BatchLog:
    """Lists the submitted batches whose answers are not in the ledger yet, in a JSON object that maps ids to models."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pending(self, name: str) -> list[str]:
        """Returns the ids of this model's batches."""
        return [batch for batch, model in self._read().items() if model == name]

    def add(self, batch: str, name: str) -> None:
        """Records a batch. The record is on disk when this method returns."""
        self._write(self._read() | {batch: name})

    def end(self, batch: str) -> None:
        """Removes a batch after its answers were added to the ledger, or after the server rejected it."""
        self._write({other: model for other, model in self._read().items() if other != batch})

    def _read(self) -> dict[str, str]:
        batches: dict[str, str] = parse_json(self._path.read_text(encoding="utf-8")) if self._path.is_file() else {}
        return batches

    def _write(self, batches: Mapping[str, str]) -> None:
        replace_text(self._path, json.dumps(batches, indent=1) + "\n")
