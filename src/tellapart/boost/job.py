"""The job: runs every item through the stages, many at a time, and yields them in the order of the data.

The result for an item is a function of the item, the stages and the answers. Answers come from the ledger where it has
them, otherwise from the backend, and then go into the ledger. So an interrupted or sharded job writes the same lines as
an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart.boost.ledger import Ledger, address
from tellapart.boost.pool import in_order
from tellapart.boost.retry import RetryingBackend
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
    """The result for an item: good answers by stage, and why the other stages have none.

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
    """Counts of one stage: answers from the ledger, new answers and their tokens, retries of bad answers, bad items."""

    kept: int = 0
    asked: int = 0
    second: int = 0
    bad: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None  # None: no price was given


class Job:
    """Stages over items. ``tally`` by stage and ``retries`` count while it runs; ``stop`` ends it early."""

    def __init__(self, stages: Sequence[Stage], ledger: Ledger, in_flight: int = 16, **retry: Any) -> None:
        self.stages, self.ledger, self.in_flight = stages, ledger, in_flight
        self.stop = threading.Event()
        self.tally = {stage.name: Tally(cost=0.0 if prices_of(stage.backend) else None) for stage in stages}
        backends = {id(stage.backend): stage.backend for stage in stages}
        self._backends = {key: RetryingBackend(backend, self.stop, **retry) for key, backend in backends.items()}
        self._lock, self._slots = threading.Lock(), threading.Semaphore(in_flight)
        self._stripes = [threading.Lock() for _ in range(STRIPES)]
        self._failed_in_a_row = 0

    @property
    def retries(self) -> int:
        """How many requests were repeated because a backend failed."""
        return sum(backend.retries for backend in self._backends.values())

    def run(self, items: Iterator[Item], finished: Callable[[], None] = lambda: None) -> Iterator[Boosted]:
        """Yield the boosted items in order. Raises `TellapartError` where no request can succeed."""
        threads, window = self.in_flight + self.in_flight // SPARE, WINDOW * self.in_flight
        found = in_order(self.boost, items, threads, self.stop, window=window, finished=finished)
        with contextlib.closing(found):  # type: ignore[type-var]
            yield from found

    def boost(self, item: Item) -> Boosted:
        """Run one item through the stages. A stage without a good answer is marked bad; the next may not need it."""
        texts: dict[str, str] = {}
        bad: dict[str, str] = {}
        unanswered = False
        for stage in self.stages:
            try:
                text, why = self._answer_with_retry(stage, item, texts)
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

    def _answer_with_retry(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> tuple[str, str | None]:
        """A stage's text, and why it is bad or None; a bad answer is requested once more with another prompt."""
        try:
            request = stage.build_request(item, texts)
        except BackendError as error:  # the item lacks what the stage reads
            return "", str(error)
        text, why = self._attempt(stage, item, texts, request, 0)
        if why is None:
            return text, None
        self._count(stage, second=1)
        return self._attempt(stage, item, texts, stage.build_retry(item, texts, text), 1)

    def _attempt(
        self, stage: Stage, item: Item, texts: Mapping[str, str], request: Request, attempt: int
    ) -> tuple[str, str | None]:
        answer = self._answer(stage, item, request, attempt)
        text = answer.text.strip()
        why = stage.check(item, texts, text)
        if why is None and answer.finish == "length":
            why = f"cut off after {request.max_tokens} tokens"
        return text, why

    def _answer(self, stage: Stage, item: Item, request: Request, attempt: int) -> Answer:
        """The answer from the ledger, else from the backend. Equal requests at the same time wait for the first one."""
        key = address(stage, item, request, attempt)
        with self._stripes[int(key[:8], 16) % STRIPES]:
            answer = self.ledger.get(key)
            if answer is not None:
                self._count(stage, kept=1)
                return answer
            with self._slots:
                answer = self._backends[id(stage.backend)].complete(request)
            answer = self.ledger.put(key, answer, {"stage": stage.name, "model": stage.backend.name, "id": item.id})
        self._failed_in_a_row = 0
        self._count(stage, asked=1, prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
        if (prices := prices_of(stage.backend)) is not None:
            price_in, price_out = prices
            cost = (answer.prompt_tokens * price_in + answer.completion_tokens * price_out) / 1e6
            self._count(stage, cost=cost)
        return answer

    def _failed(self, error: BackendError) -> None:
        """Continue without an answer, unless no request gets one."""
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
