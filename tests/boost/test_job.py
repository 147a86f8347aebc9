"""The job: order, second tries, marks, dedupe, failing servers, shards."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tellapart.boost.boost_dataset import boost_dataset
from tellapart.boost.job import BoostJob
from tellapart.boost.ledger import Ledger
from tellapart.boost.made_record import made_file
from tellapart.boost.merge import merge
from tellapart.boost.retries import RetryingBackend
from tellapart.boost.types import Answer, BackendError, Message, Request, Stage
from tellapart.cli.boost import parse_shard
from tellapart.data import Dataset, open_data
from tellapart.data.pictures import FilePicture
from tellapart.errors import TellapartError, UsageError
from tellapart.types import Item

QUICK = {"base": 0.001, "cap": 0.002}


class Scribe:
    """Answers with ``reply(question)``, which may raise; remembers what it was asked."""

    name = "scribe"

    def __init__(self, reply: Callable[[str], str] = lambda text: f"says {text}") -> None:
        self.reply, self.asked = reply, []  # type: ignore[var-annotated]

    def complete(self, request: Request) -> Answer:
        text = request.messages[-1].text
        self.asked.append(text)
        said = self.reply(text)
        return Answer(said.removesuffix("…"), 2, 3, "length" if said.endswith("…") else "stop")


def stage(name: str, backend: Scribe, prompt: str = "p") -> Stage:
    def ask(item: Item, answers: Mapping[str, str], more: str = "") -> Request:
        if name == "last" and "first" not in answers:
            raise BackendError("no answer from stage first")
        return Request((Message("user", " ".join([name, item.id, *answers.values()]) + more),))

    return Stage(
        name,
        backend,
        prompt,
        ask,
        lambda item, answers, text: "a refusal" if "sorry" in text else None,
        lambda item, answers, bad: ask(item, answers, " again"),
    )


@pytest.fixture
def items() -> Dataset:
    return open_data("scenes:plain?n=12")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.jsonl") as opened:
        yield opened


def run(ledger: Ledger, items: Dataset, *stages: Stage, **more: int) -> tuple[BoostJob, list]:  # type: ignore[type-arg]
    job = BoostJob(stages, ledger, **more, **QUICK)
    return job, list(job.run(iter(items)))


def test_results_come_in_order_though_they_are_done_in_another(ledger: Ledger, items: Dataset) -> None:
    first = Scribe(lambda text: [time.sleep(0.002 * (hash(text) % 7)), text][1])  # type: ignore[func-returns-value]
    job, found = run(ledger, items, stage("first", first), stage("last", Scribe()))
    assert [done.item.id for done in found] == [item.id for item in items]
    assert all(done.texts["last"] == f"says last {done.item.id} first {done.item.id}" for done in found)
    assert job.tally["first"].asked == 12 and job.tally["last"].prompt_tokens == 24


def test_a_bad_answer_is_asked_for_once_more_and_then_marked(ledger: Ledger, items: Dataset) -> None:
    item = items[0].id
    better = Scribe(lambda text: "good" if text.endswith("again") else "sorry")
    assert run(ledger, items[:1], stage("first", better))[1][0].texts == {"first": "good"}
    never = Scribe(lambda text: "sorry")
    done = run(ledger, items[:1], stage("first", never, "q"), stage("last", Scribe()))[1][0]
    assert done.texts == {} and done.bad == {"first": "a refusal", "last": "no answer from stage first"}
    assert never.asked == [f"first {item}", f"first {item} again"] and not done.unanswered
    cut = run(ledger, items[:1], stage("first", Scribe(lambda text: "a long story…"), "r"))[1][0]
    assert cut.bad == {"first": "truncated after 256 tokens"}


def test_nothing_is_asked_twice_and_a_changed_prompt_redoes_its_stage_only(ledger: Ledger, items: Dataset) -> None:
    first, last = Scribe(lambda text: "sorry" if text.endswith("7") else text), Scribe()
    before = run(ledger, items, stage("first", first), stage("last", last))[1]
    asked = len(first.asked), len(last.asked)
    job, after = run(ledger, items, stage("first", first), stage("last", last))
    assert [d.texts for d in before] == [d.texts for d in after] and (len(first.asked), len(last.asked)) == asked
    assert job.tally["first"].asked == 0 and job.tally["first"].kept == asked[0]
    run(ledger, items, stage("first", first), stage("last", last, "another prompt"))
    assert len(first.asked) == asked[0] and len(last.asked) == 2 * asked[1]


def test_equal_requests_at_the_same_time_are_one(ledger: Ledger, items: Dataset) -> None:
    slow = Scribe(lambda text: [time.sleep(0.02), "said"][1])  # type: ignore[func-returns-value]
    same = Dataset("same", [items[0]] * 8)
    _, found = run(ledger, same, stage("first", slow), in_flight=8)
    assert len(slow.asked) == 1 and [done.texts["first"] for done in found] == ["said"] * 8


def failing(times: int, **kind: object) -> Scribe:
    left = [times]

    def reply(text: str) -> str:
        left[0] -= 1
        if left[0] >= 0:
            raise BackendError("out of order", **kind)  # type: ignore[arg-type]
        return "good"

    return Scribe(reply)


def test_asking_again_until_it_is_of_no_use() -> None:
    request, stop = Request((Message("user", "q"),)), threading.Event()
    assert RetryingBackend(failing(7, retry=True), stop, **QUICK).complete(request).text == "good"
    with pytest.raises(BackendError, match="no answer after 8 attempts") as error:
        RetryingBackend(failing(8, retry=True), stop, **QUICK).complete(request)
    assert error.value.fatal
    answered_before = failing(0, retry=True)
    patient = RetryingBackend(answered_before, stop, **QUICK)
    patient.complete(request)
    answered_before.reply = failing(20, retry=True).reply  # an outage: longer than eight tries, and it is waited for
    assert patient.complete(request).text == "good" and patient.retries == 20
    refused = failing(1)
    with pytest.raises(BackendError):
        RetryingBackend(refused, stop, **QUICK).complete(request)
    assert len(refused.asked) == 1
    with pytest.raises(BackendError, match="no answer for"):
        RetryingBackend(failing(1, retry=True, after=1e6), stop, **QUICK).complete(request)


def test_a_request_that_alone_fails_is_given_up_and_not_now_holds_for_all() -> None:
    stop = threading.Event()

    def reply(text: str) -> str:
        if text == "poison":
            patient._answered = time.monotonic() + 1  # others are answered meanwhile
            raise BackendError("out of order", retry=True)
        return "good"

    patient = RetryingBackend(Scribe(reply), stop, **QUICK)
    with pytest.raises(BackendError, match="gave up after 8 attempts") as error:
        patient.complete(Request((Message("user", "poison"),)))
    assert not error.value.fatal
    slow = RetryingBackend(failing(12, retry=True, after=0.0), stop, **QUICK)  # "not now" is no try
    assert slow.complete(Request((Message("user", "q"),))).text == "good"
    waits = RetryingBackend(failing(1, retry=True, after=0.3), stop, **QUICK)
    threading.Thread(target=lambda: waits.complete(Request((Message("user", "q"),)))).start()
    time.sleep(0.1)
    start = time.monotonic()
    waits.complete(Request((Message("user", "another"),)))
    assert time.monotonic() - start > 0.1


def test_items_without_an_answer_keep_their_captions_and_are_asked_for_another_time(
    tmp_path: Path, items: Dataset
) -> None:
    broken = items[3].id

    def reply(text: str) -> str:
        if broken in text and not healed:
            raise BackendError("the server rejected the request")
        return f"a caption of {text}"

    healed: list[bool] = []
    out, backend = tmp_path / "b.jsonl", Scribe(reply)
    summary = boost_dataset(items, [stage("first", backend)], out, **QUICK)
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert (summary.items, summary.boosted, summary.unanswered) == (12, 11, 1)
    assert (
        lines[3]["captions"] == list(items[3].references)
        and "the server rejected the request" in lines[3]["bad"]["first"]
    )
    assert lines[4]["captions"] == [f"a caption of first {items[4].id}"]
    healed.append(True)
    backend.asked.clear()
    assert boost_dataset(items, [stage("first", backend)], out, **QUICK).boosted == 12 and len(backend.asked) == 1
    again = open_data(f"jsonl:{out}")
    assert [item.id for item in again] == [item.id for item in items] and again[0].picture.image().size == (64, 64)
    assert again[0].split == "train" and again[3].references == (f"a caption of first {broken}",)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "the server rejected the first 8 requests with the same message"),
        ("{}", "32 consecutive requests received no answer; the last error"),
    ],
)
def test_a_server_that_refuses_everything_ends_the_job(tmp_path: Path, words: str, said: str) -> None:
    letters = str.maketrans("0123456789", "abcdefghij")

    def reply(text: str) -> str:
        raise BackendError("the server rejected the request" + words.format(text.translate(letters)))

    with pytest.raises(TellapartError, match=said):
        boost_dataset(open_data("scenes:plain?n=60"), [stage("first", Scribe(reply))], tmp_path / "b.jsonl", **QUICK)
    assert not (tmp_path / "b.jsonl").exists() and not list(tmp_path.glob(".b.jsonl*"))


def test_an_unreadable_picture_is_left_out_and_said(tmp_path: Path, items: Dataset) -> None:
    data = Dataset("few", [items[0], Item("gone", FilePicture(tmp_path / "gone.jpg"), ("a dog",)), items[1]])
    summary = boost_dataset(data, [stage("first", Scribe())], tmp_path / "b.jsonl", **QUICK)
    assert summary.items == 2 and list(data.unreadable) == [(str(tmp_path / "gone.jpg"), "no such file")]


def test_parts_merge_into_what_one_job_writes(tmp_path: Path, items: Dataset) -> None:
    stages = [stage("first", Scribe()), stage("last", Scribe())]
    boost_dataset(items, stages, tmp_path / "whole.jsonl", **QUICK)
    parts = [tmp_path / "machines" / f"{k}" / "part.jsonl" for k in (1, 2, 3, 4, 5)]
    for k, part in enumerate(parts, start=1):
        boost_dataset(items, stages, part, shard=(k, 5), **QUICK)
    assert merge([parts[k] for k in (3, 0, 4, 2, 1)], tmp_path / "merged.jsonl") == 12
    one, other = (
        [json.loads(line) for line in (tmp_path / name).read_text().splitlines()]
        for name in ("whole.jsonl", "merged.jsonl")
    )
    assert [line | {"image": ""} for line in one] == [line | {"image": ""} for line in other]
    assert [open_data(f"jsonl:{tmp_path}/{name}")[7].picture.key() for name in ("whole.jsonl", "merged.jsonl")]
    with pytest.raises(UsageError, match="part 2/5 is missing"):
        merge([parts[0], *parts[2:]], tmp_path / "merged.jsonl")
    with pytest.raises(UsageError, match="are both part 1/5"):
        merge([parts[0], *parts], tmp_path / "merged.jsonl")
    boost_dataset(items, [stage("first", Scribe(), "other"), stages[1]], parts[1], shard=(2, 5), **QUICK)
    with pytest.raises(UsageError, match="are from different jobs: their stages differ"):
        merge(parts, tmp_path / "merged.jsonl")


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none(text: str) -> None:
    assert parse_shard("2/8") == (2, 8)
    with pytest.raises(UsageError, match="expected I/N, such as 2/8 for the second of eight parts"):
        parse_shard(text)


def test_a_file_that_boosting_did_not_write_is_left_alone(tmp_path: Path, items: Dataset) -> None:
    (tmp_path / "mine.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="already exists, and was not written by tellapart or has been"):
        boost_dataset(items, [stage("first", Scribe())], tmp_path / "mine.jsonl")
    assert (tmp_path / "mine.jsonl").read_text() == "{}\n"


def test_no_more_than_so_many_requests_are_in_flight(ledger: Ledger) -> None:
    now, most, lock = [0], [0], threading.Lock()

    def reply(text: str) -> str:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.01)
        with lock:
            now[0] -= 1
        return text

    run(ledger, open_data("scenes:plain?n=40"), stage("first", Scribe(reply)), in_flight=8)
    assert 4 < most[0] <= 8


def test_parts_merge_where_the_last_stage_has_no_good_answer_in_one(tmp_path: Path, items: Dataset) -> None:
    """That part has the captions of another stage, and the job as a whole has not."""
    refused = {item.id for item in list(items)[:3]}

    def reply(text: str) -> str:
        return (
            "I'm sorry, but I cannot do that."
            if any(id_ in text for id_ in refused)
            else f"A dog runs on the lawn of {text}."
        )

    stages = [
        stage("blend", Scribe(lambda text: f"A dog runs on the lawn near {text}.")),
        stage("holistic", Scribe(reply)),
    ]
    boost_dataset(items, stages, tmp_path / "whole.jsonl", **QUICK)
    parts = [tmp_path / f"part{k}.jsonl" for k in range(1, 5)]
    for k, part in enumerate(parts, start=1):
        boost_dataset(items, stages, part, shard=(k, 4), **QUICK)
    made = [json.loads(made_file(part).read_text()).get("captions_of") for part in parts]
    assert made == ["blend", None, None, None]
    assert merge(parts, tmp_path / "merged.jsonl") == 12
    whole, merged = (
        [json.loads(line)["captions"] for line in (tmp_path / name).read_text().splitlines()]
        for name in ("whole.jsonl", "merged.jsonl")
    )
    assert merged == whole and merged[0] == list(items[0].references)


def test_a_result_of_other_pictures_and_a_page_of_the_users_own_are_kept(tmp_path: Path, items: Dataset) -> None:
    out, stages = tmp_path / "b.jsonl", [stage("first", Scribe())]
    boost_dataset(items, stages, out, **QUICK)
    before = out.read_bytes()
    with pytest.raises(UsageError, match="contains captions of pictures that are not in"):
        boost_dataset(open_data("scenes:plain?n=3&split=test"), stages, out, **QUICK)
    assert out.read_bytes() == before
    (tmp_path / "notes.html").write_text("mine")
    with pytest.raises(UsageError, match=r"notes\.html already exists, and was not written by tellapart"):
        boost_dataset(items, stages, tmp_path / "notes.jsonl", **QUICK)
