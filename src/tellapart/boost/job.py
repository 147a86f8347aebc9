"""An ordered thread pool: threads process a stream, and results come in the stream's order.

Retries of failed requests: exponential backoff with full jitter, ``Retry-After``, and when to give up.

Full jitter (M. Brooker, "Exponential Backoff And Jitter", 2015): wait n is uniform in [0, min(cap, base · 2ⁿ)] seconds,
so that requests that failed together are not repeated together.

What requests will cost, before they are sent: tokens by rules of thumb, and the price where the backend has one.

The job: runs every item through the stages, many at a time, and yields them in the order of the data.

The result for an item is a function of the item, the stages and the answers. Answers come from the ledger where it has
them, otherwise from the backend, and then go into the ledger. So an interrupted or sharded job writes the same lines as
an uninterrupted one.

A whole job from a data set to a file: its shard of the data, progress, and summary.
"""

from __future__ import annotations

import contextlib
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from tellapart.boost.ledger import Ledger, address
from tellapart.boost.output import Output, made_by, made_file, read_records, record
from tellapart.boost.stages import PER_REFERENCE
from tellapart.boost.types import Answer, Backend, BackendError, Boosted, Request, Stage, most_choices, prices_of
from tellapart.data import Dataset
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.language.answers import answer_text
from tellapart.types import Item
from tellapart.utils.files import check_output
from tellapart.utils.messages import Progress, clean_text, say

T = TypeVar("T")
R = TypeVar("R")
GRACE_SECONDS = 10.0
TICK_SECONDS = 1.0


def in_order(
    work: Callable[[T], R],
    values: Iterable[T],
    threads: int,
    stop: threading.Event,
    *,
    window: int,
    finished: Callable[[], None] = lambda: None,
    waiting: Callable[[], None] = lambda: None,
) -> Iterator[R]:
    """Yield ``work(value)`` for every value, in order; ``threads`` work at a time.

    At most ``window`` values are taken and not yet yielded: one slow value holds up the others only then, and memory is
    bounded. ``finished`` is called for each as soon as it is done, ``waiting`` every second in which none is. The first
    error is raised here. Whatever ends the iteration (an error, Ctrl-C, the caller) sets ``stop`` and waits for those
    at work, for `GRACE_SECONDS` at most: the threads are daemons, so a program can end without them.
    """
    tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run() -> None:
        while (task := tasks.get()) is not None:
            if stop.is_set():
                continue
            place, value = task
            try:
                done.put((place, work(value), None))
            except BaseException as error:
                done.put((place, None, error))

    workers = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for worker in workers:
        worker.start()
    source = enumerate(values)
    ready: dict[int, R] = {}
    given = taken = 0
    try:
        while True:
            while given - taken < window and (task := next(source, None)) is not None:
                tasks.put(task)
                given += 1
            if taken == given:
                return
            try:
                place, result, error = done.get(timeout=TICK_SECONDS)
            except queue.Empty:
                waiting()
                continue
            if error is not None:
                raise error
            finished()
            ready[place] = result
            while taken in ready:
                yield ready.pop(taken)
                taken += 1
    finally:
        stop.set()
        for _ in workers:
            tasks.put(None)
        deadline = time.monotonic() + GRACE_SECONDS
        for worker in workers:
            worker.join(max(0.0, deadline - time.monotonic()))


TRIES = 8
BASE_SECONDS, CAP_SECONDS = 0.5, 30.0
PATIENCE_SECONDS = 900.0
SILENT_SECONDS = 10.0  # without an answer: a line says so


class Stopped(Exception):
    """The job ends: a request that waits for its next attempt is dropped."""


class RetryingBackend:
    """A backend that repeats the failed requests of ``backend`` where that may help. Thread-safe.

    A request fails after ``tries`` attempts while other requests succeed: the request itself is at fault. While no
    request succeeds, the server is down: all requests wait for up to ``patience`` seconds since its last answer; a
    server that never answered gets ``tries`` attempts. A "not now" reply counts as no attempt, and its ``Retry-After``
    delays the requests of all threads.
    """

    def __init__(
        self,
        backend: Backend,
        stop: threading.Event,
        *,
        tries: int = TRIES,
        patience: float = PATIENCE_SECONDS,
        base: float = BASE_SECONDS,
        cap: float = CAP_SECONDS,
    ) -> None:
        self.backend, self.name = backend, backend.name
        self.retries = 0  # repeated requests so far
        self._stop = stop
        self._tries, self._patience, self._base, self._cap = tries, patience, base, cap
        self._lock = threading.Lock()
        self._answered: float | None = None  # time of the server's last answer to any request
        self._not_before = 0.0
        self._waiting, self._waiting_since = 0, 0.0  # requests without an answer yet, and since when there are any
        self._told, self._failure = -1.0, ""

    def complete(self, request: Request) -> Answer:
        """The backend's answer. Raises `BackendError` after the last attempt, `Stopped` when the job ends."""
        with self._lock:
            self._waiting += 1
            if self._waiting == 1:
                self._waiting_since = time.monotonic()
        try:
            return self._complete(request)
        finally:
            with self._lock:
                self._waiting -= 1

    def tell_silence(self) -> None:
        """Say once that a server gives no answer: where it is, since when, and until when requests wait for it.

        Called now and then. Raises `BackendError` when that time has come, also where a request still hangs.
        """
        since = max(self._waiting_since, self._answered or 0.0)
        silent = time.monotonic() - since
        if not self._waiting or silent < SILENT_SECONDS or (address := getattr(self.backend, "address", None)) is None:
            return
        patience = max(self._patience, getattr(self.backend, "timeout", 0.0))
        if silent > patience:
            raise BackendError(f"{self.name}: {address} has answered nothing for {silent:.0f} s", fatal=True)
        if self._told != since:
            self._told = since
            begun, end = (time.strftime("%H:%M:%S", time.localtime(time.time() - silent + s)) for s in (0, patience))
            why = f" ({self._failure.removeprefix(f'{self.name}: ')})" if self._failure else ""
            say(f"{self.name}: no answer from {address} since {begun}{why}; waiting until {end} at the latest")

    def _complete(self, request: Request) -> Answer:

        started, failed = time.monotonic(), 0

        def give_up(state: RetryCallState) -> bool:
            nonlocal failed
            error = state.outcome.exception() if state.outcome is not None else None
            assert isinstance(error, BackendError)
            failed += error.after is None
            self._check(error, started, failed)
            self._record(error)
            return False

        attempts = Retrying(
            retry=retry_if_exception_type(BackendError),
            wait=wait_random_exponential(multiplier=self._base, max=self._cap),
            stop=give_up,
            sleep=self._sleep,
        )
        return attempts(self._attempt, request)

    def _attempt(self, request: Request) -> Answer:
        self._sleep(self._not_before - time.monotonic())
        answer = self.backend.complete(request)
        self._answered, self._failure = time.monotonic(), ""
        return answer

    def _check(self, error: BackendError, started: float, failed: int) -> None:
        """Raise where a further attempt cannot help."""
        if not error.retry:
            raise error
        now = time.monotonic()
        since = started if self._answered is None else self._answered
        if now - since + (error.after or 0.0) > self._patience:
            raise BackendError(f"{error}; nothing was answered for {now - since:.0f} s", fatal=True) from None
        if failed < self._tries and now - started <= self._patience:
            return
        if self._answered is None:
            raise BackendError(f"{error}; {failed} tries, and it has answered nothing yet", fatal=True) from None
        if self._answered > started:
            raise BackendError(f"{error}; given up after {failed} tries") from None

    def _record(self, error: BackendError) -> None:
        with self._lock:
            self.retries, self._failure = self.retries + 1, str(error)
            self._not_before = max(self._not_before, time.monotonic() + (error.after or 0.0))

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped


LETTERS_PER_TOKEN, TOKENS_PER_PICTURE = 4, 1000


def tokens_read(request: Request) -> int:
    """About how many tokens the model reads."""
    letters = sum(len(message.text) for message in request.messages)
    return letters // LETTERS_PER_TOKEN + (TOKENS_PER_PICTURE if request.picture is not None else 0)


@dataclass(frozen=True, slots=True)
class Load:
    """Requests, and the tokens that the model reads and may write for them."""

    requests: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    @classmethod
    def of(cls, requests: Iterable[Request]) -> Load:
        """The load of these requests."""
        return sum((cls(1, tokens_read(each), each.max_tokens * each.n) for each in requests), cls())

    def __add__(self, other: Load) -> Load:
        return Load(
            self.requests + other.requests, self.tokens_in + other.tokens_in, self.tokens_out + other.tokens_out
        )

    def __mul__(self, times: int) -> Load:
        return Load(self.requests * times, self.tokens_in * times, self.tokens_out * times)

    def cost(self, backend: Backend) -> float | None:
        """Returns what it costs; None where the backend has no prices."""
        prices = prices_of(backend)
        return None if prices is None else (self.tokens_in * prices[0] + self.tokens_out * prices[1]) / 1e6


def estimate(first: Sequence[Request], again: Sequence[Request], backend: Backend) -> str:
    """Returns what ``first`` requests cost, and at most, with a second try of each and the tries ``again`` of earlier
    answers.

    Such as ``12 requests expected, at most 24 with second tries; about 12,036 tokens in and up to 3,072 out, at most
    24,072 and 6,144``. ``again`` are expected.
    """
    once, repeated = Load.of(first), Load.of(again)
    return estimate_line(once + repeated, once * 2 + repeated, backend)


def estimate_line(expected: Load, most: Load, backend: Backend, note: str = "") -> str:
    """Returns what requests cost, and at most; ``note`` follows the number that is expected."""
    line = (
        f"{expected.requests:,} requests expected{note}, at most {most.requests:,} with second tries of bad answers; "
        f"about {expected.tokens_in:,} tokens in and up to {expected.tokens_out:,} out, at most {most.tokens_in:,} and "
        f"{most.tokens_out:,}"
    )
    low, high = expected.cost(backend), most.cost(backend)
    if low is not None and high is not None:
        line += f"; cost up to {low:.2f}, at most {high:.2f} (a picture taken as {TOKENS_PER_PICTURE:,} tokens)"
    return line


WINDOW = 64  # items taken and not yet written, for each one in flight
SAME_REFUSALS = 8  # requests refused with the same words before any was answered: the job ends
FIRST_ITEMS = 20  # items with new answers, all bad, before a stage has a good one: the job ends
IN_A_ROW = 32  # items without an answer, with none in between that has one: the job ends
STRIPES = 4096
SPARE = 4  # one thread more for so many in flight: while an answer is flushed to disk, another question is asked


@dataclass(slots=True)
class Tally:
    """Counts of one stage: answers from the ledger, new ones and their tokens, retries of bad answers, bad items.

    An answer of the server to one of the ``requests`` may hold several of those ``asked`` for.
    """

    kept: int = 0
    asked: int = 0
    second: int = 0
    bad: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None  # None: no price was given


class BoostJob:
    """Stages over items. ``tally`` by stage and ``retries`` count while it runs; ``stop`` ends it early.

    ``failure``: why the last request without an answer has none. ``per_reference``: the stages `PER_REFERENCE` make a
    text for each reference of an item, with that one first among those that they read.
    """

    def __init__(
        self, stages: Sequence[Stage], ledger: Ledger, in_flight: int = 16, per_reference: bool = False, **retry: Any
    ) -> None:
        self.stages, self.ledger, self.in_flight, self.per_reference = stages, ledger, in_flight, per_reference
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
        self._arrived = set[str]()  # keys of choices that came with another stage's answer, until they are read

    @property
    def retries(self) -> int:
        """Returns how many requests were repeated because a backend failed."""
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
        answer, new = self._answer(stage, item, texts, request, attempt)
        return *read_text(stage, item, texts, request, answer), new

    def _answer(
        self, stage: Stage, item: Item, texts: Mapping[str, str], request: Request, attempt: int
    ) -> tuple[Answer, bool]:
        """The answer from the ledger, else from the backend. Equal requests at the same time wait for the first one.

        One request asks for the choices of all stages of its group that have none yet.
        """
        key = address(stage, item, request, attempt)
        with self._stripes[int(key[:8], 16) % STRIPES]:
            answer = self.ledger.get(key)
            if answer is not None:
                with self._lock:
                    new = key in self._arrived
                    self._arrived.discard(key)
                self._count(stage, **({"asked": 1} if new else {"kept": 1}))
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
        self._count(
            stage, requests=1, asked=1, prompt_tokens=answer.prompt_tokens, completion_tokens=answer.completion_tokens
        )
        if (prices := prices_of(stage.backend)) is not None:
            price_in, price_out = prices
            cost = (answer.prompt_tokens * price_in + answer.completion_tokens * price_out) / 1e6
            self._count(stage, cost=cost)
        return answer, True

    def _without_answer(self, stage: Stage, item: Item, texts: Mapping[str, str]) -> list[tuple[Stage, str]]:
        """The stages after this one in its group whose first request has no answer yet, with its address."""
        most = most_choices(stage.backend)
        later = self.stages[self.stages.index(stage) + 1 :] if most > 1 else ()
        found: list[tuple[Stage, str]] = []
        for other in later:
            if other.group == stage.group and len(found) + 1 < most:
                key = address(other, item, other.build_request(item, texts), 0)
                found += [(other, key)] if self.ledger.get(key) is None else []
        return found

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


COMPLETE = ("stop", "eos", "end_turn")  # a server's words for an answer that its model ended
CUT = ("length", "max_tokens")  # for one that the request's limit ended


def read_text(
    stage: Stage, item: Item, texts: Mapping[str, str], request: Request, answer: Answer
) -> tuple[str, str | None]:
    """Returns what an answer says after its reasoning and without control tokens, and why that is bad or None."""
    text = answer_text(answer.text)
    if answer.finish.lower() in CUT:
        return text or "", f"cut off after {request.max_tokens} tokens" + (", in its reasoning" if text is None else "")
    if answer.finish.lower() not in COMPLETE:
        return text or "", f"ended by the server with '{answer.finish}'"
    if text is None:
        return "", "reasoning without an end"
    why = stage.check(item, texts, text)
    if why is None and stage.edit is not None:
        text = stage.edit(item, texts, answer, text)
    return text, why


IN_FLIGHT = 16


@dataclass(frozen=True, slots=True)
class Summary:
    """Tells what a job did: items written, with the last stage's caption, without an answer because a server failed.

    ``captions_of``: the stage whose texts are the captions; empty where no stage has a good answer.
    """

    out: Path
    ledger: Path
    items: int
    boosted: int
    unanswered: int
    retries: int
    stages: dict[str, Tally]
    captions_of: str
    without: tuple[str, ...]
    """Stages that ran and have no good answer about any item."""
    failure: str = ""  # why the last request without an answer has none

    def to_json(self) -> dict[str, Any]:
        """The JSON of ``boost --json``."""
        counts: dict[str, Any] = {key: getattr(self, key) for key in ("items", "boosted", "unanswered", "retries")}
        counts["captions_of"] = self.captions_of
        stages = {name: asdict(tally) for name, tally in self.stages.items()}
        return {"out": str(self.out), "ledger": str(self.ledger), **counts, "stages": stages}


def boost_dataset(
    dataset: Dataset,
    stages: Sequence[Stage],
    out: Path,
    ledger: Path | None = None,
    *,
    in_flight: int = IN_FLIGHT,
    shard: tuple[int, int] = (1, 1),
    per_reference: bool = False,
    each: Callable[[Boosted], None] = lambda done: None,
    **retry: Any,
) -> Summary:
    """Boost a data set into ``out``; answers are kept in ``ledger`` (default: beside it), which a job goes on from.

    ``shard`` (i, n): the i-th of n consecutive parts. ``each`` is called with every item that is written. ``retry``:
    options of `RetryingBackend`; ``per_reference``: see `BoostJob`. Unreadable pictures are skipped and added to the
    data set's list of them. Raises `TellapartError` where no request can succeed; the answers up to then are in the
    ledger.
    """
    check_out(out)
    check_same_data(out, dataset)
    ledger = ledger or ledger_of(out)
    made = made_by(dataset.spec, dataset, stages, shard, per_reference)
    place, of = shard
    part = range(len(dataset) * (place - 1) // of, len(dataset) * place // of)
    unanswered = written = 0
    good = {stage.name: 0 for stage in stages}
    last = stages[-1].name
    with Ledger.open(ledger) as kept, Output.open(out, made) as output, Progress(len(part), "boosting") as progress:
        job = BoostJob(stages, kept, in_flight, per_reference, **retry)
        try:
            for done in job.run((dataset[row] for row in part), progress.advance):
                if done.unreadable is not None:
                    dataset.unreadable.add_error(done.item.picture.name, done.unreadable)
                    continue
                output.write(record(done, last, out))
                each(done)
                written += 1
                unanswered += done.unanswered
                for name in done.texts:
                    good[name] += 1
            captions_of = output.fall_back(good, last)
        except KeyboardInterrupt:
            say(f"stopped; {len(kept):,} answers are in {ledger}, and the same command goes on from there")
            raise
    without = tuple(name for name, count in good.items() if written and not count)
    boosted = good.get(captions_of, 0)
    return Summary(out, ledger, written, boosted, unanswered, job.retries, job.tally, captions_of, without, job.failure)


def ledger_of(out: Path) -> Path:
    """The ledger of a result where none is named."""
    return out.with_name(f"{out.stem}.ledger.jsonl")


def check_out(out: Path) -> None:
    """A `UsageError` for a name that would not be read again, or a file that must not be replaced."""
    if out.parts and out.parts[0].endswith(":"):  # s3://bucket/x.jsonl as a path is s3:/bucket/x.jsonl
        raise UsageError(
            f"{out}: an address; boost writes to a disk (upload the result then), such as -o boosted.jsonl"
        )
    if out.suffix != ".jsonl":
        raise UsageError(f"{out}: the result is JSON lines; type a name such as -o boosted.jsonl")
    for path in (out, made_file(out), out.with_suffix(".html")):
        check_output(path)


def check_same_data(out: Path, dataset: Dataset) -> None:
    """A `UsageError` where ``out`` is the result of other pictures, which this one would take the place of."""
    if not out.exists():
        return
    known = {item.id for item in dataset}
    if known.isdisjoint(value["id"] for value in read_records(out)):
        raise UsageError(f"{out}: has captions of other pictures than {dataset.spec}; name another file with -o")


def parse_shard(text: str) -> tuple[int, int]:
    """``2/8`` as (2, 8). Raises `UsageError`."""
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise UsageError(f"--shard {text} is not like 2/8: the second of eight parts")
    return int(match[1]), int(match[2])
