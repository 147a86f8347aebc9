"""Runs every item through the stages, many items concurrently, and yields the results in the order of the data.

The result for an item depends only on the item, the stages and the answers. Answers come from the ledger. If an answer
is missing, the backend provides it, and it is added to the ledger. An interrupted or sharded job therefore writes the
same lines as an uninterrupted one.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

from tellapart.boost.ledger import Ledger, Note, address
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
from tellapart.utils.ordered_pool import in_order
from tellapart.utils.untrusted_text import clean_text

WINDOW = 64  # maximum number of items that are started but not yet written, per item in flight
SAME_REFUSALS = 8  # the job ends if this many requests are rejected with the same message before any is answered
FIRST_ITEMS = 20  # the job ends if the new answers for this many items are bad before any answer is good
IN_A_ROW = 32  # the job ends if this many consecutive requests receive no answer
STRIPES = 4096
SPARE = 4  # one extra thread per this many items in flight sends requests while others flush answers to disk
COMPLETE = ("stop", "eos", "end_turn")  # finish reasons of complete answers
CUT = ("length", "max_tokens")  # finish reasons of truncated answers


@dataclass(slots=True)
class Tally:
    """Counts for one stage.

    kept: answers that came from the ledger.
    asked: new answers; one of the ``requests`` can return several.
    second: retries of bad answers.
    bad: items without a good answer.
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
        return replace(Tally(*map(sum, counts)), cost=sum(known) if known else None)


class BoostJob:
    """Runs items through stages.

    tally: counts for each stage so far.
    stop: ends the job early when set.
    failure: why the last failed request failed.
    per_reference: whether the stages in `PER_REFERENCE` write one text per reference. For each text, its reference
    comes first in the input.
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
        self._refusals: Counter[str] = Counter()  # number of rejections by message, ignoring digits
        self._good: set[str] = set()  # stages with a good answer
        self._bad = {stage.name: Counter[str]() for stage in stages}  # why answers before the first good one are bad
        self._arrived: set[str] = set()  # addresses of choices that came with another stage's answer and are unused

    @property
    def retries(self) -> int:
        """Returns how many times a request was repeated because a backend failed."""
        return sum(backend.retries for backend in self._backends.values())

    def run(self, items: Iterator[Item], finished: Callable[[], None] = lambda: None) -> Iterator[Boosted]:
        """Yields the boosted items in order. Raises `TellapartError` if no request can succeed."""

        def waiting() -> None:
            for backend in self._backends.values():
                backend.report_silence()

        threads, window = self.in_flight + self.in_flight // SPARE, WINDOW * self.in_flight
        done = in_order(self.boost, items, threads, self.stop, window=window, finished=finished, waiting=waiting)
        with contextlib.closing(done):  # type: ignore[type-var]
            yield from done

    def boost(self, item: Item) -> Boosted:
        """Runs one item through the stages. If a stage has no good answer, records why, and still runs the later
        stages, which may not need that answer.
        """
        first = self._run_stages(item, self.stages, {})
        again = [stage for stage in self.stages if stage.name in PER_REFERENCE]
        if not self.per_reference or not again or first.unreadable is not None:
            return first
        shared = {name: text for name, text in first.texts.items() if name not in PER_REFERENCE}
        others, unanswered = [], first.unanswered
        for place in range(1, len(item.references)):
            references = item.references[place:] + item.references[:place]
            done = self._run_stages(replace(item, references=references), again, shared)
            others.append({name: text for name, text in done.texts.items() if name in PER_REFERENCE})
            unanswered |= done.unanswered
        return replace(first, others=tuple(others), unanswered=unanswered)

    def _run_stages(self, item: Item, stages: Sequence[Stage], earlier: Mapping[str, str]) -> Boosted:
        texts, unanswered = dict(earlier), False
        bad: dict[str, str] = {}
        for stage in stages:
            new = False
            try:
                text, why, new = self._read_stage(stage, item, texts)
            except PictureError as error:
                return Boosted(item, texts, bad, unreadable=error)
            except BackendError as error:
                text, why, unanswered = "", f"no answer: {clean_text(str(error))}", True
                self._raise_if_hopeless(error)
            if why is None:
                texts[stage.name] = text
                self._good.add(stage.name)
                continue
            bad[stage.name] = why
            self._count(stage, Tally(bad=1))
            if new:
                self._raise_if_all_bad(stage, why)
        return Boosted(item, texts, bad, unanswered)

    def _read_stage(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> tuple[str, str | None, bool]:
        """Returns (text, why it is bad or None, whether it is new) for a stage. Retries once after a bad answer."""
        try:
            request = stage.build_request(item, texts)
        except BackendError as error:  # the item lacks an input of the stage
            return "", str(error), False
        answer, new = self._answer(stage, item, texts, request, 0)
        text, why = usable_text(stage, item, texts, request, answer)
        if why is not None:
            self._count(stage, Tally(second=1))
            request = stage.build_retry(item, texts, text)
            answer, new = self._answer(stage, item, texts, request, 1)
            text, why = usable_text(stage, item, texts, request, answer)
        return text, why, new

    def _answer(
        self, stage: Stage, item: Item, texts: Mapping[str, str], request: Request, attempt: int
    ) -> tuple[Answer, bool]:
        """Returns the answer and whether it is new. Takes it from the ledger or, if it is missing there, from the
        backend. While a request is running, identical requests wait for its answer.

        One request asks for the choices of all stages in the group that have no answer yet.
        """
        key = address(stage, item, request, attempt)
        with self._stripes[int(key[:8], 16) % STRIPES]:
            if (answer := self.ledger.get(key)) is not None:
                with self._lock:
                    new = key in self._arrived
                    self._arrived.discard(key)
                self._count(stage, Tally(asked=1) if new else Tally(kept=1))
                return answer, new
            notes = {key: _note(stage, item)}
            if stage.group and not attempt:
                notes |= self._later_choices(stage, item, texts)
            answer = self._send(stage, replace(request, n=len(notes)), notes, attempt)
        self._failed_in_a_row, self._served = 0, True
        self._count(stage, Tally.of(answer, stage.backend))
        return answer, True

    def _later_choices(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> dict[str, Note]:
        """Returns the addresses of further choices that the same request can ask for: one for each later stage in the
        group that has no answer yet.
        """
        most = most_choices(stage.backend) - 1
        notes: dict[str, Note] = {}
        for other in self.stages[self.stages.index(stage) + 1 :] if most else ():
            if other.group == stage.group and len(notes) < most:
                key = address(other, item, other.build_request(item, texts), 0)
                if self.ledger.get(key) is None:
                    notes[key] = _note(other, item)
        return notes

    def _send(self, stage: Stage, request: Request, notes: Mapping[str, Note], attempt: int) -> Answer:
        """Sends a request and stores its choices under the addresses in ``notes``. Returns the first choice."""
        with self._slots:
            answer = self._backends[id(stage.backend)].complete(request)
        first, *others = self.ledger.put_all(choices_at(notes, answer))
        with self._lock:
            self._arrived |= {*[*notes][1 : 1 + len(others)]}
        return first

    def _raise_if_hopeless(self, error: BackendError) -> None:
        """Raises ``error``, or a `TellapartError` that summarizes several, if no other request is likely to succeed."""
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

    def _raise_if_all_bad(self, stage: Stage, why: str) -> None:
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

    def _count(self, stage: Stage, more: Tally) -> None:
        with self._lock:
            self.tally[stage.name] += more


def _note(stage: Stage, item: Item) -> Note:
    return {"stage": stage.name, "model": stage.backend.name, "id": item.id}


def choices_at(notes: Mapping[str, Note], answer: Answer) -> list[tuple[str, Answer, Note]]:
    """Pairs the choices with their addresses for the ledger. A server can return fewer choices than requested."""
    choices = [replace(answer, others=()), *answer.others]
    return [(key, choice, note) for (key, note), choice in zip(notes.items(), choices, strict=False)]


def usable_text(
    stage: Stage, item: Item, texts: Mapping[str, str], request: Request, answer: Answer
) -> tuple[str, str | None]:
    """Returns an answer's text without reasoning and control tokens, and why it is unusable (None if usable)."""
    text, finish = answer_text(answer.text), answer.finish.lower()
    if finish in CUT:
        during = ", during its reasoning" if text is None else ""
        return text or "", f"truncated after {request.max_tokens} tokens{during}"
    if finish not in COMPLETE:
        stopped = f"the server stopped with finish reason '{answer.finish}'"
        return text or "", "a refusal" if finish == "refusal" else stopped
    if text is None:
        return "", "unfinished reasoning"
    why = stage.check(item, texts, text)
    if why is None and stage.edit is not None:
        text = stage.edit(item, texts, answer, text)
    return text, why
