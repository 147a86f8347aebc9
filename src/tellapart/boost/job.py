"""Runs every item through the stages, many items concurrently, and yields them in the order of the data.

The result for an item depends only on the item, the stages and the answers. Answers come from the ledger. If it lacks
one, the backend answers, and the answer is added to the ledger. An interrupted or sharded job therefore writes the same
lines as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from tellapart.boost.ledger import Ledger, address
from tellapart.boost.ordered_pool import in_order
from tellapart.boost.retries import RetryingBackend
from tellapart.boost.stages import PER_REFERENCE
from tellapart.boost.types import (
    Answer,
    Backend,
    BackendError,
    Boosted,
    Request,
    Stage,
    UnansweredError,
    cost_of,
    most_choices,
)
from tellapart.errors import PictureError, TellapartError
from tellapart.language.answers import answer_text
from tellapart.types import Item
from tellapart.utils.untrusted_text import clean_text

WINDOW = 64  # items that are started but not yet written, per item in flight
SAME_REFUSALS = 8  # number of identical rejections before any answer that end the job
FIRST_ITEMS = 20  # the job ends if all new answers for this many first items are bad
IN_A_ROW = 32  # number of consecutive items without an answer that end the job
STRIPES = 4096
SPARE = 4  # one extra thread per this many in flight, to send requests while answers are flushed to disk


@dataclass(slots=True)
class Tally:
    """Counts for one stage: ledger answers, new answers and their tokens, retries of bad answers, bad items.

    One request (``requests``) can return several answers (``asked``).
    """

    kept: int = 0
    asked: int = 0
    second: int = 0
    bad: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None  # None: unknown price

    @classmethod
    def of(cls, answer: Answer, backend: Backend, asked: int = 1) -> Tally:
        """Counts the answer to one request."""
        read, written = answer.prompt_tokens, answer.completion_tokens
        cost = cost_of(backend, read, written)
        return cls(asked=asked, requests=1, prompt_tokens=read, completion_tokens=written, cost=cost)

    def __add__(self, other: Tally) -> Tally:
        *counts, costs = zip(astuple(self), astuple(other), strict=True)
        known = [cost for cost in costs if cost is not None]
        total = Tally(*map(sum, counts))
        total.cost = sum(known) if known else None
        return total


class BoostJob:
    """Runs items through stages. ``tally`` (by stage) and ``retries`` count while it runs; ``stop`` ends it early.

    failure: reason of the last failed request.
    per_reference: whether the stages in `PER_REFERENCE` write one text per reference, which comes first in their input.
    """

    def __init__(
        self, stages: Sequence[Stage], ledger: Ledger, in_flight: int = 16, per_reference: bool = False, **retry: Any
    ) -> None:
        self.stages, self.ledger, self.in_flight, self.per_reference = stages, ledger, in_flight, per_reference
        self.stop = threading.Event()
        self.tally = {stage.name: Tally(cost=cost_of(stage.backend, 0, 0)) for stage in stages}
        backends = {id(stage.backend): stage.backend for stage in stages}
        self._backends = {key: RetryingBackend(backend, self.stop, **retry) for key, backend in backends.items()}
        self._lock, self._slots = threading.Lock(), threading.Semaphore(in_flight)
        self._stripes = [threading.Lock() for _ in range(STRIPES)]
        self.failure = ""
        self._failed_in_a_row = 0
        self._served = False  # whether a server has answered any request of this job
        self._refusals: Counter[str] = Counter()  # counts by message, without digits
        self._good: set[str] = set()  # stages with a good answer
        self._bad: dict[str, Counter[str]] = {
            stage.name: Counter() for stage in stages
        }  # counts by reason, until the first good answer
        # addresses of choices that came with another stage's answer and have not been used yet
        self._arrived = set[str]()

    @property
    def retries(self) -> int:
        """Returns the number of requests repeated because a backend failed."""
        return sum(backend.retries for backend in self._backends.values())

    def run(self, items: Iterator[Item], finished: Callable[[], None] = lambda: None) -> Iterator[Boosted]:
        """Yields the boosted items in order. Raises `TellapartError` if no request can succeed."""
        threads, window = self.in_flight + self.in_flight // SPARE, WINDOW * self.in_flight
        found = in_order(
            self.boost, items, threads, self.stop, window=window, finished=finished, waiting=self._tell_silence
        )
        with contextlib.closing(found):  # type: ignore[type-var]
            yield from found

    def boost(self, item: Item) -> Boosted:
        """Runs one item through the stages. Marks a stage without a good answer as bad, but still runs later stages,
        which may not need it.
        """
        first = self._run_stages(item, self.stages, {})
        again = [stage for stage in self.stages if stage.name in PER_REFERENCE]
        if not self.per_reference or not again or first.unreadable is not None:
            return first
        kept = {name: text for name, text in first.texts.items() if name not in PER_REFERENCE}
        others, unanswered = [], first.unanswered
        for place in range(1, len(item.references)):
            references = item.references[place:] + item.references[:place]
            done = self._run_stages(replace(item, references=references), again, kept)
            others.append({name: text for name, text in done.texts.items() if name in PER_REFERENCE})
            unanswered |= done.unanswered
        return replace(first, others=tuple(others), unanswered=unanswered)

    def _run_stages(self, item: Item, stages: Sequence[Stage], earlier: Mapping[str, str]) -> Boosted:
        texts = dict(earlier)
        bad: dict[str, str] = {}
        unanswered = False
        for stage in stages:
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
                self._count(stage, Tally(bad=1))
                if new:
                    self._end_if_all_bad(stage, why)
        return Boosted(item, texts, bad, unanswered)

    def _answer_with_retry(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> tuple[str, str | None, bool]:
        """Returns (text, reason if it is bad, whether it is new) for a stage. Retries a bad answer once."""
        try:
            request = stage.build_request(item, texts)
        except BackendError as error:  # the item lacks an input of the stage
            return "", str(error), False
        text, why, new = self._attempt(stage, item, texts, request, 0)
        if why is None:
            return text, None, new
        self._count(stage, Tally(second=1))
        return self._attempt(stage, item, texts, stage.build_retry(item, texts, text), 1)

    def _attempt(
        self, stage: Stage, item: Item, texts: Mapping[str, str], request: Request, attempt: int
    ) -> tuple[str, str | None, bool]:
        answer, new = self._answer(stage, item, texts, request, attempt)
        return *read_text(stage, item, texts, request, answer), new

    def _answer(
        self, stage: Stage, item: Item, texts: Mapping[str, str], request: Request, attempt: int
    ) -> tuple[Answer, bool]:
        """Returns the answer from the ledger, otherwise from the backend. Identical requests wait for the first one.

        One request asks for the choices of all stages in the group that have no answer yet.
        """
        key = address(stage, item, request, attempt)
        with self._stripes[int(key[:8], 16) % STRIPES]:
            answer = self.ledger.get(key)
            if answer is not None:
                with self._lock:
                    new = key in self._arrived
                    self._arrived.discard(key)
                self._count(stage, Tally(asked=1) if new else Tally(kept=1))
                return answer, new
            rest = self._without_answer(stage, item, texts) if stage.group and not attempt else []
            with self._slots:
                found = self._backends[id(stage.backend)].complete(replace(request, n=1 + len(rest)))
            note = {"model": stage.backend.name, "id": item.id}
            kept = [(key, found, {"stage": stage.name, **note})]
            for (other, at), choice in zip(rest, found.others, strict=False):
                kept.append((at, choice, {"stage": other.name, **note}))
            answer = self.ledger.put_all(kept)[0]
            with self._lock:
                self._arrived |= {at for at, _, _ in kept[1:]}
        self._failed_in_a_row, self._served = 0, True
        self._count(stage, Tally.of(answer, stage.backend))
        return answer, True

    def _without_answer(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> list[tuple[Stage, str]]:
        """Returns the later stages in the group whose first request has no answer yet, each with the
        request's address.
        """
        most = most_choices(stage.backend)
        later = self.stages[self.stages.index(stage) + 1 :] if most > 1 else ()
        found: list[tuple[Stage, str]] = []
        for other in later:
            if other.group == stage.group and len(found) + 1 < most:
                key = address(other, item, other.build_request(item, texts), 0)
                found += [(other, key)] if self.ledger.get(key) is None else []
        return found

    def _failed(self, error: BackendError) -> None:
        """Continues without an answer; raises the error if no request can succeed."""
        if error.fatal:
            raise error
        if isinstance(error, UnansweredError):
            return
        with self._lock:
            self.failure = clean_text(str(error))
            self._failed_in_a_row += 1
            if not error.retry:
                self._refusals[re.sub(r"\w*\d\w*", "#", str(error))] += 1  # request numbers differ
            if not self._served and [*self._refusals.values()] == [SAME_REFUSALS]:
                raise TellapartError(
                    f"{error}; the server rejected the first {SAME_REFUSALS} requests with the same message"
                )
            if self._failed_in_a_row >= max(IN_A_ROW, 2 * self.in_flight):
                raise TellapartError(
                    f"{self._failed_in_a_row} consecutive requests received no answer; the last error: {error}"
                )

    def _end_if_all_bad(self, stage: Stage, why: str) -> None:
        """Raises `TellapartError` if the answers for the first items are all bad."""
        with self._lock:
            reasons = self._bad[stage.name]
            reasons[why] += 1
            if stage.name in self._good or reasons.total() < FIRST_ITEMS:
                return
        named = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common(3))
        raise TellapartError(
            f"{stage.backend.name}: all answers for the first {FIRST_ITEMS} items (stage "
            f"{stage.name}) are unusable ({named}); try another model, another prompt, or a "
            "larger token limit"
        )

    def _tell_silence(self) -> None:
        for backend in self._backends.values():
            backend.tell_silence()

    def _count(self, stage: Stage, more: Tally) -> None:
        with self._lock:
            self.tally[stage.name] += more


COMPLETE = ("stop", "eos", "end_turn")  # finish reasons of complete answers
CUT = ("length", "max_tokens")  # finish reasons of truncated answers


def read_text(
    stage: Stage, item: Item, texts: Mapping[str, str], request: Request, answer: Answer
) -> tuple[str, str | None]:
    """Returns an answer's text without reasoning and control tokens, and the reason if it is bad (otherwise None)."""
    text = answer_text(answer.text)
    if answer.finish.lower() in CUT:
        return text or "", f"truncated after {request.max_tokens} tokens" + (
            ", during its reasoning" if text is None else ""
        )
    if answer.finish.lower() == "refusal":
        return text or "", "a refusal"
    if answer.finish.lower() not in COMPLETE:
        return text or "", f"the server stopped with finish reason '{answer.finish}'"
    if text is None:
        return "", "unfinished reasoning"
    why = stage.check(item, texts, text)
    if why is None and stage.edit is not None:
        text = stage.edit(item, texts, answer, text)
    return text, why
