"""The job: every item through the stages, many at once, out in the data's order.

What becomes of an item is a function of the item, the stages and the answers. Answers come from the ledger where it has
them, else from the backend and into the ledger. So a job that was killed, or shared among machines, writes the same
lines as one that ran through.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart.boost.ledger import Ledger, address
from tellapart.boost.pool import in_order
from tellapart.boost.retry import Patient
from tellapart.boost.types import Answer, BackendError, Request, Stage, prices_of
from tellapart.errors import PictureError, TellapartError
from tellapart.types import Item
from tellapart.utils.text import clean_text

WINDOW = 64  # items taken and not yet written, for each one in flight
IN_A_ROW = 32  # items without an answer, with none in between that has one: the job ends
STRIPES = 4096
SPARE = 4  # one thread more for so many in flight: while an answer is flushed to disk, another question is asked


@dataclass(frozen=True, slots=True)
class Boosted:
    """What became of an item: good answers by stage, and why the other stages have none.

    ``unanswered``: a server failed, so the same job may do better another time. ``unreadable``: what is wrong with the
    picture; such an item is left out of the result.
    """

    item: Item
    texts: Mapping[str, str]
    bad: Mapping[str, str] = field(default_factory=dict)
    unanswered: bool = False
    unreadable: PictureError | None = None


@dataclass(slots=True)
class Tally:
    """Of one stage: answers from the ledger, answers asked for now and their tokens, second tries, items marked bad."""

    kept: int = 0
    asked: int = 0
    second: int = 0
    bad: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None  # None: no price was given


class Job:
    """Stages over items. ``tally`` by stage and ``retries`` count while it runs; ``stop`` ends it early."""

    def __init__(self, stages: Sequence[Stage], ledger: Ledger, in_flight: int = 16, **patience: Any) -> None:
        self.stages, self.ledger, self.in_flight = stages, ledger, in_flight
        self.stop = threading.Event()
        self.tally = {stage.name: Tally(cost=0.0 if prices_of(stage.backend) else None) for stage in stages}
        backends = {id(stage.backend): stage.backend for stage in stages}
        self._patient = {key: Patient(backend, self.stop, **patience) for key, backend in backends.items()}
        self._lock, self._slots = threading.Lock(), threading.Semaphore(in_flight)
        self._stripes = [threading.Lock() for _ in range(STRIPES)]
        self._failed_in_a_row = 0

    @property
    def retries(self) -> int:
        """How often a backend was asked again because it failed."""
        return sum(patient.again for patient in self._patient.values())

    def run(self, items: Iterator[Item], finished: Callable[[], None] = lambda: None) -> Iterator[Boosted]:
        """The items boosted, in their order. Raises `TellapartError` where no request can succeed."""
        threads, window = self.in_flight + self.in_flight // SPARE, WINDOW * self.in_flight
        found = in_order(self.boost, items, threads, self.stop, window=window, finished=finished)
        with contextlib.closing(found):  # type: ignore[type-var]
            yield from found

    def boost(self, item: Item) -> Boosted:
        """One item through the stages. A stage that gets no good answer is marked; the next may do without it."""
        texts: dict[str, str] = {}
        bad: dict[str, str] = {}
        unanswered = False
        for stage in self.stages:
            try:
                text, why = self._asked_twice(stage, item, texts)
            except PictureError as error:
                return Boosted(item, texts, bad, unreadable=error)
            except BackendError as error:
                text, why, unanswered = "", f"no answer: {clean_text(str(error))}", True
                self._failed(error)
            if why is None:
                texts[stage.name] = text
            else:
                bad[stage.name] = why
                self._count(stage, bad=1)
        return Boosted(item, texts, bad, unanswered)

    def _asked_twice(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> tuple[str, str | None]:
        """A stage's text and why it is bad, or None; a bad one is asked for a second time, in another way."""
        try:
            request = stage.ask(item, texts)
        except BackendError as error:  # the item lacks what the stage reads
            return "", str(error)
        text, why = self._asked(stage, item, texts, request, 0)
        if why is None:
            return text, None
        self._count(stage, second=1)
        return self._asked(stage, item, texts, stage.again(item, texts, text), 1)

    def _asked(
        self, stage: Stage, item: Item, texts: Mapping[str, str], request: Request, attempt: int
    ) -> tuple[str, str | None]:
        answer = self._answer(stage, item, request, attempt)
        text = answer.text.strip()
        why = stage.check(item, texts, text)
        if why is None and answer.finish == "length":
            why = f"cut off after {request.max_tokens} tokens"
        return text, why

    def _answer(self, stage: Stage, item: Item, request: Request, attempt: int) -> Answer:
        """From the ledger, or asked for and kept. Who asks the same at the same time waits for the first."""
        key = address(stage, item, request, attempt)
        with self._stripes[int(key[:8], 16) % STRIPES]:
            answer = self.ledger.get(key)
            if answer is not None:
                self._count(stage, kept=1)
                return answer
            with self._slots:
                answer = self._patient[id(stage.backend)].complete(request)
            answer = self.ledger.put(key, answer, {"stage": stage.name, "model": stage.backend.name, "id": item.id})
        self._failed_in_a_row = 0
        self._count(stage, asked=1, prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
        if (prices := prices_of(stage.backend)) is not None:
            price_in, price_out = prices
            cost = (answer.prompt_tokens * price_in + answer.completion_tokens * price_out) / 1e6
            self._count(stage, cost=cost)
        return answer

    def _failed(self, error: BackendError) -> None:
        """Go on without an answer, unless nobody gets one."""
        if error.fatal:
            raise error
        with self._lock:
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= max(IN_A_ROW, 2 * self.in_flight):
                raise TellapartError(f"{self._failed_in_a_row} requests in a row got no answer; the last: {error}")

    def _count(self, stage: Stage, **more: float) -> None:
        tally = self.tally[stage.name]
        with self._lock:
            for name, amount in more.items():
                setattr(tally, name, getattr(tally, name) + amount)
