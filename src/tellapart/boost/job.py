"""The job: runs every item through the stages, many at a time, and yields them in the order of the data.

The result for an item is a function of the item, the stages and the answers. Answers come from the ledger where it has
them, otherwise from the backend, and then go into the ledger. So an interrupted or sharded job writes the same lines as
an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart.boost.ledger import Ledger, address
from tellapart.boost.pool import in_order
from tellapart.boost.retry import RetryingBackend
from tellapart.boost.types import Answer, BackendError, Request, Stage, prices_of
from tellapart.errors import PictureError, TellapartError
from tellapart.types import Item
from tellapart.utils.text import clean_text, without_reasoning

WINDOW = 64  # items taken and not yet written, for each one in flight
SAME_REFUSALS = 8  # requests refused with the same words before any was answered: the job ends
FIRST_ITEMS = 20  # items with new answers, all bad, before a stage has a good one: the job ends
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
    """Stages over items. ``tally`` by stage and ``retries`` count while it runs; ``stop`` ends it early.

    ``failure``: why the last request without an answer has none.
    """

    def __init__(self, stages: Sequence[Stage], ledger: Ledger, in_flight: int = 16, **retry: Any) -> None:
        self.stages, self.ledger, self.in_flight = stages, ledger, in_flight
        self.stop = threading.Event()
        self.tally = {stage.name: Tally(cost=0.0 if prices_of(stage.backend) else None) for stage in stages}
        backends = {id(stage.backend): stage.backend for stage in stages}
        self._backends = {key: RetryingBackend(backend, self.stop, **retry) for key, backend in backends.items()}
        self._lock, self._slots = threading.Lock(), threading.Semaphore(in_flight)
        self._stripes = [threading.Lock() for _ in range(STRIPES)]
        self.failure = ""
        self._failed_in_a_row = 0
        self._served = False  # whether a server answered any request of this job
        self._refusals: Counter[str] = Counter()  # by their words, numbers left out
        self._good: set[str] = set()  # stages with a good answer
        self._bad: dict[str, Counter[str]] = {stage.name: Counter() for stage in stages}  # reasons, until then

    @property
    def retries(self) -> int:
        """How many requests were repeated because a backend failed."""
        return sum(backend.retries for backend in self._backends.values())

    def run(self, items: Iterator[Item], finished: Callable[[], None] = lambda: None) -> Iterator[Boosted]:
        """Yield the boosted items in order. Raises `TellapartError` where no request can succeed."""
        threads, window = self.in_flight + self.in_flight // SPARE, WINDOW * self.in_flight
        found = in_order(
            self.boost, items, threads, self.stop, window=window, finished=finished, waiting=self._tell_silence
        )
        with contextlib.closing(found):  # type: ignore[type-var]
            yield from found

    def boost(self, item: Item) -> Boosted:
        """Run one item through the stages. A stage without a good answer is marked bad; the next may not need it."""
        texts: dict[str, str] = {}
        bad: dict[str, str] = {}
        unanswered = False
        for stage in self.stages:
            new = False
            try:
                text, why, new = self._answer_with_retry(stage, item, texts)
            except PictureError as error:
                return Boosted(item, texts, bad, unreadable=error)
            except BackendError as error:
                text, why, unanswered = "", f"no answer: {clean_text(str(error))}", True
                self._failed(error)
            if why is None:
                texts[stage.name] = text
                self._good.add(stage.name)
            else:
                bad[stage.name] = why
                self._count(stage, bad=1)
                if new:
                    self._end_if_all_bad(stage, why)
        return Boosted(item, texts, bad, unanswered)

    def _answer_with_retry(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> tuple[str, str | None, bool]:
        """A stage's text, why it is bad or None, and whether it is new; a bad one is requested once more, otherwise."""
        try:
            request = stage.build_request(item, texts)
        except BackendError as error:  # the item lacks what the stage reads
            return "", str(error), False
        text, why, new = self._attempt(stage, item, texts, request, 0)
        if why is None:
            return text, None, new
        self._count(stage, second=1)
        return self._attempt(stage, item, texts, stage.build_retry(item, texts, text), 1)

    def _attempt(
        self, stage: Stage, item: Item, texts: Mapping[str, str], request: Request, attempt: int
    ) -> tuple[str, str | None, bool]:
        answer, new = self._answer(stage, item, request, attempt)
        return *read_text(stage, item, texts, request, answer), new

    def _answer(self, stage: Stage, item: Item, request: Request, attempt: int) -> tuple[Answer, bool]:
        """The answer from the ledger, else from the backend. Equal requests at the same time wait for the first one."""
        key = address(stage, item, request, attempt)
        with self._stripes[int(key[:8], 16) % STRIPES]:
            answer = self.ledger.get(key)
            if answer is not None:
                self._count(stage, kept=1)
                return answer, False
            with self._slots:
                answer = self._backends[id(stage.backend)].complete(request)
            answer = self.ledger.put(key, answer, {"stage": stage.name, "model": stage.backend.name, "id": item.id})
        self._failed_in_a_row, self._served = 0, True
        self._count(stage, asked=1, prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens)
        if (prices := prices_of(stage.backend)) is not None:
            price_in, price_out = prices
            cost = (answer.prompt_tokens * price_in + answer.completion_tokens * price_out) / 1e6
            self._count(stage, cost=cost)
        return answer, True

    def _failed(self, error: BackendError) -> None:
        """Continue without an answer, unless no request gets one."""
        if error.fatal:
            raise error
        with self._lock:
            self.failure = clean_text(str(error))
            self._failed_in_a_row += 1
            if not error.retry:
                self._refusals[re.sub(r"\w*\d\w*", "#", str(error))] += 1  # a request's number differs
            if not self._served and [*self._refusals.values()] == [SAME_REFUSALS]:
                raise TellapartError(f"{error}; the first {SAME_REFUSALS} requests were all refused with these words")
            if self._failed_in_a_row >= max(IN_A_ROW, 2 * self.in_flight):
                raise TellapartError(f"{self._failed_in_a_row} requests in a row got no answer; the last: {error}")

    def _end_if_all_bad(self, stage: Stage, why: str) -> None:
        """Raise `TellapartError` where the answers about the first items are all bad."""
        with self._lock:
            reasons = self._bad[stage.name]
            reasons[why] += 1
            if stage.name in self._good or reasons.total() < FIRST_ITEMS:
                return
        named = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        raise TellapartError(
            f"{stage.backend.name}: the answers about the first {FIRST_ITEMS} items (stage {stage.name}) are all bad "
            f"({named}); try another model, another prompt, or more tokens for an answer"
        )

    def _tell_silence(self) -> None:
        for backend in self._backends.values():
            backend.tell_silence()

    def _count(self, stage: Stage, **more: float) -> None:
        tally = self.tally[stage.name]
        with self._lock:
            for name, amount in more.items():
                setattr(tally, name, getattr(tally, name) + amount)


def read_text(
    stage: Stage, item: Item, texts: Mapping[str, str], request: Request, answer: Answer
) -> tuple[str, str | None]:
    """What an answer says after its reasoning, and why that is bad or None."""
    text = without_reasoning(answer.text)
    if answer.finish == "length":
        return text or "", f"cut off after {request.max_tokens} tokens" + (", in its reasoning" if text is None else "")
    if text is None:
        return "", "reasoning without an end"
    return text, stage.check(item, texts, text)
