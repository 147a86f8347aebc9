"""What a server must not be able to do: end a job for ever, or bring the API key into a file."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Cli
from fault_server import FaultServer

from tellapart.boost import statistics as counted
from tellapart.boost.ledger import Ledger
from tellapart.boost.redaction import redact
from tellapart.boost.replies import Reply
from tellapart.boost.types import REDACTED, Answer, BackendError
from tellapart.language.answers import answer_text

KEY = "sk-very-secret-0123456789abcdef"
GOOD = "A brown dog lies on the lawn with a red ball in the sun."


@pytest.fixture(autouse=True)
def few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """HanTa takes seconds to load."""
    monkeypatch.setattr(counted, "word_analyser", lambda: lambda text: [(word, word, "NN1") for word in text.split()])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with FaultServer() as running:
        yield running


def boost(cli: Cli, server: FaultServer, out: Path, *more: object) -> tuple[int, str, str]:
    model = f"openai:m@{server.url}"
    return cli("boost", "scenes:plain?n=3", "--one-caption", "-o", out, "--llm", model, "--mllm", model, *more)


def seen(body: bytes) -> bool:
    """Whether the request shows a picture: stage describe."""
    return isinstance(json.loads(body)["messages"][-1]["content"], list)


def rows(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.long
@pytest.mark.parametrize(
    "text", ["A dog \ud83d on the lawn.", "A dog\x00 on the lawn.", "\x1b]0;x\x07A dog on the lawn."]
)
def test_broken_text_is_asked_again_then_set_aside(cli: Cli, server: FaultServer, tmp_path: Path, text: str) -> None:
    asked: list[bytes] = []

    def says(body: bytes) -> str:
        asked.append(body)
        return text if seen(body) else GOOD

    server.says = says
    out = tmp_path / "b.jsonl"
    for repeat in range(2):  # the ledger holds the bad answers: the repeat asks nothing, and ends as well
        status, _, err = boost(cli, server, out)
        assert status == 1 and "stage describe has no usable answer for any of 3 items (3 broken text" in err
        assert len(asked) == 3 + 2 * 3 and repeat in (0, 1)
    for row in rows(out):
        assert row["captions"] == [GOOD] and row["stages"] == {"blend": GOOD}
        assert str(row["bad"]["describe"]).startswith("broken text")  # type: ignore[index]
    assert "\x00" not in (page := (tmp_path / "b.html").read_text(encoding="utf-8")) and "\x1b" not in page


def test_a_ledger_that_holds_broken_text_is_read_again(cli: Cli, server: FaultServer, tmp_path: Path) -> None:
    """Version 0.1 kept the answer of stage blend, and died of it in stage holistic at every repeat."""
    server.says = lambda body: GOOD
    assert boost(cli, server, tmp_path / "b.jsonl")[0] == 0
    ledger = tmp_path / "b.ledger.jsonl"
    kept = rows(ledger)
    kept[0]["text"] = "A dog \ud83d on the lawn."
    kept[1]["text"] = 7
    ledger.write_text("".join(json.dumps(row) + "\n" for row in kept))
    status, _, err = boost(cli, server, tmp_path / "b.jsonl")
    assert status == 0 and "1 lines could not be read" in err
    assert all(row["captions"] == [GOOD] for row in rows(tmp_path / "b.jsonl"))


@pytest.mark.long
def test_workers_end_with_the_same_error(cli: Cli, server: FaultServer, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    server.says = lambda body: "I'm sorry, but I cannot do that." if seen(body) else GOOD
    lines = []
    for name, options in (("plain", ()), ("workers", ("--workers", 1))):
        (tmp_path / name).mkdir()
        status, _, err = boost(cli, server, tmp_path / name / "b.jsonl", *options)
        lines.append((status, err.splitlines()[-1].replace(f"/{name}/", "/")))
    assert lines[0] == lines[1] and lines[0][0] == 1 and "stage describe has no usable answer for any of" in lines[0][1]


@pytest.mark.parametrize(("bad", "instead"), [("describe", "blend"), ("blend", "describe"), ("", "")])
def test_a_stage_without_a_good_answer_leaves_the_captions_of_the_others(
    cli: Cli, server: FaultServer, tmp_path: Path, bad: str, instead: str
) -> None:
    server.says = lambda body: GOOD if (bad == "blend") == seen(body) and bad else "I'm sorry, but I cannot do that."
    out = tmp_path / "b.jsonl"
    status, told, err = boost(cli, server, out, "--json")
    summary = json.loads(told)
    assert status == 1 and err.splitlines()[-1].startswith(f"tellapart: stage {bad or 'blend'} has no usable answer")
    assert summary["captions_of"] == instead and summary["boosted"] == (3 if instead else 0)
    for row in rows(out):
        assert row["captions"] == ([GOOD] if instead else row["references"])
    made = json.loads((tmp_path / "b.jsonl.made.json").read_text())
    assert made.get("captions_of", "") == instead


def test_boost_reads_what_follows_the_reasoning(cli: Cli, server: FaultServer, tmp_path: Path) -> None:
    server.says = lambda body: f"<think>\nWhat is it? A dog, I'm sorry to say.\n</think>\n\n{GOOD}"
    status, _, err = boost(cli, server, tmp_path / "b.jsonl")
    assert status == 0, err
    assert all(row["captions"] == [GOOD] for row in rows(tmp_path / "b.jsonl"))
    assert answer_text("[THINK]a[/THINK] b") == answer_text("a</think>b") == answer_text("b") == "b"
    assert answer_text("◁think▷ a") is answer_text("x</think><think>b") is None


@pytest.mark.long
@pytest.mark.parametrize("says", ["<think>What is it? A dog", "I'm sorry, but I cannot do that."])
def test_a_job_whose_first_answers_are_all_bad_stops(cli: Cli, server: FaultServer, tmp_path: Path, says: str) -> None:
    server.says, model = lambda body: says, f"openai:m@{server.url}"
    arguments = (
        "boost",
        "scenes:plain?n=280",
        "--one-caption",
        "-o",
        tmp_path / "b.jsonl",
        "--llm",
        model,
        "--mllm",
        model,
    )
    done = cli(*arguments)
    reason = "unfinished reasoning" if "think" in says else "a refusal"
    said = f"openai:m: all answers for the first 20 items (stage blend) are unusable (20 {reason}); try another model"
    assert done.status == 1 and said in done.err
    assert sum(map(len, server.asked.values())) < 4 * (20 + 20), "those under way are finished"
    server.says = lambda body: GOOD
    assert cli(*arguments).status == 0, "what was answered does not stand in the way of another try"


def test_a_refusal_ends_with_the_servers_words(cli: Cli, server: FaultServer, tmp_path: Path) -> None:
    server.status = 400
    status, _, err = boost(cli, server, tmp_path / "b.jsonl")
    assert status == 1 and "3 of 3 items have no answer (openai:m: the server rejected the request (400: no such" in err


def test_without_a_price_there_is_no_cost(cli: Cli, server: FaultServer, tmp_path: Path) -> None:
    server.says = lambda body: GOOD
    done = boost(cli, server, tmp_path / "b.jsonl")
    assert done[0] == 0 and "0.00" not in done[1].split("3 items")[0] and "–" in done[1]
    stages = json.loads(boost(cli, server, tmp_path / "b.jsonl", "--json")[1])["stages"]
    assert [stage["cost"] for stage in stages.values()] == [None] * 3


def test_the_key_is_struck_out_whole_cut_or_split() -> None:
    assert redact(f"bad key {KEY}.", KEY) == f"bad key {REDACTED}."
    assert redact(f"a {KEY[:20]} b", KEY) == f"a {REDACTED} b" and redact(f"a {KEY[12:]}", KEY) == f"a {REDACTED}"
    assert redact(f"{KEY[:9]}\n {KEY[9:]}", KEY) == REDACTED
    assert redact("sk-very good", KEY) == "sk-very good" and redact("EMPTY", "EMPTY") == "EMPTY" == redact("EMPTY", "")
    assert redact(KEY * 2 + "x" + KEY, KEY) == f"{REDACTED}x{REDACTED}"


@pytest.mark.parametrize("before", ["", "u", "me", "me:", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_the_key_is_struck_out_in_base64(before: str, encode: Callable[[bytes], bytes]) -> None:
    encoded = encode(f"{before}{KEY}".encode()).decode()
    told = redact(f"Authorization: Basic {encoded} refused", KEY)
    assert REDACTED in told and told.startswith("Authorization: Basic ") and told.endswith(" refused")
    assert not any(encoded[at : at + 8] in told for at in range(4, len(encoded) - 8))


@pytest.mark.parametrize("before", [0, 40, 50, 60, 180, 190, 199])
def test_the_key_is_struck_out_before_a_message_is_cut(before: int) -> None:
    for status, reply in ((401, {"error": {"message": "x" * before + " " + KEY}}), (200, ["x" * before + " " + KEY])):
        with pytest.raises(BackendError) as error:
            Reply(status, json.dumps(reply).encode(), KEY).answer()
        assert not any(KEY[:size] in str(error.value) for size in (4, 8, 12, len(KEY)))


def test_the_key_in_an_answer_reaches_no_file(cli: Cli, server: FaultServer, tmp_path: Path) -> None:
    server.says = lambda body: f"A dog with the tag {KEY} on the lawn." if seen(body) else GOOD
    status, out, err = boost(cli, server, tmp_path / "b.jsonl")
    assert status == 1 and "an echo of the API key" in err and KEY not in out + err
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 4 and not any(KEY.encode() in path.read_bytes() for path in written)
    reply = {"choices": [{"message": {"content": [{"text": KEY[:9]}, {"text": KEY[9:]}]}, "finish_reason": KEY}]}
    assert Reply(200, json.dumps(reply).encode(), KEY).answer() == Answer(REDACTED, 0, 0, REDACTED)


def test_a_ledger_line_of_another_form_is_no_answer(tmp_path: Path) -> None:
    good = {"key": "0" * 32, "text": "a", "prompt_tokens": 1, "completion_tokens": 1, "finish": "stop"}
    wrong = [{"text": 7}, {"finish": None}, {"prompt_tokens": "1"}, {"completion_tokens": 10**30}, {"key": "zz"}]
    path = tmp_path / "l.jsonl"
    path.write_text("".join(json.dumps(good | one) + "\n" for one in [*wrong, {}]))
    with Ledger.open(path) as ledger:
        assert len(ledger) == 1 and ledger.get("0" * 32) == Answer("a", 1, 1, "stop")
