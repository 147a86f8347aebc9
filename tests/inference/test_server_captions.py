"""Captions by a model behind a server: a real HTTP server that answers, refuses, fails, dies and limits the rate."""

from __future__ import annotations

import base64
import io
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from fault_server import FaultServer
from PIL import Image

from tellapart.captioners import load_captioner
from tellapart.data import Dataset, open_data
from tellapart.errors import TellapartError, UsageError
from tellapart.inference.caption_by_server import ServerSummary, caption_by_server
from tellapart.inference.captions_file import system_name
from tellapart.inference.server_backend import PROMPT, open_server
from tellapart.models.decoding import Decoding

COUNT = 12
LONG = " ".join(["a brown dog on a lawn beside a red ball, and"] * 40) + " nothing else"  # 400 words
GREEDY = Decoding(max_tokens=200)
FAST = {"base": 0.01, "cap": 0.05}  # waits of retries, in seconds


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        running.keep_bodies, running.says = True, lambda body: f"A picture of {shade(body)}."
        yield running


@pytest.fixture
def photos(tmp_path: Path) -> Dataset:
    """3:2 photos as JPEG, with noise, each of its own brightness."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(COUNT):
        noise = Image.effect_noise((480, 320), 12).point(lambda value, n=number: value // 8 + 16 * n)
        noise.convert("RGB").save(folder / f"{number:02}.jpg", quality=90)
    return open_data(str(folder))


def shade(body: bytes) -> int:
    """Which of `photos` a request shows."""
    url = json.loads(body)["messages"][-1]["content"][0]["image_url"]["url"]
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("L")
    assert image.size == (480, 320)
    return round((image.resize((1, 1), Image.Resampling.BOX).getpixel((0, 0)) - 16) / 16)  # type: ignore[operator]


def run(server: FaultServer, photos: Dataset, out: Path | None, **options: Any) -> ServerSummary:
    settings: dict[str, Any] = {"decoding": Decoding(max_tokens=200), "progress": False, "retry": FAST} | options
    return caption_by_server(f"openai:org/vlm@{server.url}", photos, out, **settings)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_photo_is_shown_once_and_captions_are_in_order(
    server: FaultServer, photos: Dataset, tmp_path: Path
) -> None:
    summary = run(server, photos, tmp_path / "a.jsonl", concurrency=5)
    assert records(tmp_path / "a.jsonl") == [
        {"id": f"{n:02}.jpg", "caption": f"A picture of {n}."} for n in range(COUNT)
    ]
    assert len(server.bodies) == COUNT == summary.tally.asked
    body = server.bodies[0]
    picture, text = body["messages"][0]["content"]
    sent = base64.b64decode(picture["image_url"]["url"].partition(",")[2])
    assert sent in {file.read_bytes() for file in (tmp_path / "photos").iterdir()}, "the file itself, not drawn anew"
    assert text["text"] == PROMPT
    assert (body["model"], body["max_tokens"]) == ("org/vlm", 200)
    assert body.keys() == {"model", "messages", "max_tokens"}, "sampling that nobody set is the server's"
    with pytest.raises(UsageError, match="was started with a different captioner"):
        caption_by_server(f"openai:org/vlm@{server.url}?temperature=0", photos, tmp_path / "a.jsonl", decoding=GREEDY)
    caption_by_server(f"openai:org/vlm@{server.url}?temperature=0", photos, tmp_path / "b.jsonl", decoding=GREEDY)
    assert (server.bodies[-1]["temperature"], len(server.bodies)) == (0.0, 2 * COUNT)
    sampled = Decoding(kind="sample", samples=2)
    with pytest.raises(UsageError, match="the temperature is set by --decoding temperature; remove it from the name"):
        caption_by_server(f"openai:m@{server.url}?temperature=0", photos, tmp_path / "c.jsonl", decoding=sampled)


def test_fields_that_a_model_refuses_are_left_out(
    server: FaultServer, photos: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.unsupported = ("max_tokens", "temperature", "top_p")
    name = f"openai:o9@{server.url}?temperature=0&top_p=0.5"
    summary = caption_by_server(name, photos, tmp_path / "a.jsonl", decoding=Decoding(max_tokens=200), concurrency=1)
    assert (summary.written, summary.tally.asked, len(server.bodies)) == (COUNT, COUNT, COUNT + 3)
    assert server.bodies[-1].keys() == {"model", "messages", "max_completion_tokens"}
    told = [line for line in capsys.readouterr().err.splitlines() if "from now on" in line]
    assert len(told) == 3 and all("Unsupported parameter" in line for line in told)
    assert "'max_tokens' is sent as 'max_completion_tokens' from now on" in told[0]
    server.unsupported = ("max_tokens", "max_completion_tokens", "messages")
    with pytest.raises(TellapartError, match="'max_completion_tokens' is not supported"):
        run(server, photos, tmp_path / "b.jsonl")


def test_the_same_refusal_of_the_first_photos_ends_the_job_with_the_servers_words(
    server: FaultServer, photos: Dataset, tmp_path: Path
) -> None:
    server.status = 400
    with pytest.raises(TellapartError, match=r"\(400: no such model\); the server rejected the first 8 requests"):
        run(server, photos, tmp_path / "a.jsonl", concurrency=1)
    assert len(server.bodies) < COUNT
    one = tmp_path / "one"
    one.mkdir()
    (one / "00.jpg").write_bytes((tmp_path / "photos" / "00.jpg").read_bytes())
    with pytest.raises(TellapartError, match=r"1 pictures have no caption, .*\(400: no such model\)"):
        run(server, open_data(str(one)), tmp_path / "b.jsonl").refuse_unanswered()
    (tmp_path / "photos" / "00.jpg").unlink()


@pytest.mark.long
def test_a_server_that_does_not_answer_is_named_after_some_seconds(
    server: FaultServer, photos: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr("tellapart.boost.retries.SILENT_SECONDS", 0.3)
    monkeypatch.setattr("tellapart.utils.ordered_pool.TICK_SECONDS", 0.05)
    clock = r"\d\d:\d\d:\d\d"
    server.delay = 1.5  # it hangs
    run(server, photos, tmp_path / "a.jsonl", concurrency=COUNT)
    line = next(line for line in capsys.readouterr().err.splitlines() if "no answer from" in line)
    said = f"openai:org/vlm: no answer from {re.escape(server.url)} since {clock}; waiting until {clock} at the latest"
    assert re.fullmatch(said, line)
    server.delay = 60
    started = time.monotonic()
    with pytest.raises(TellapartError, match=r"(no answer|not answered) for \d s"):
        caption_by_server(
            f"openai:m@{server.url}?timeout=2", photos, tmp_path / "b.jsonl", decoding=GREEDY, retry={"patience": 1.0}
        )
    assert time.monotonic() - started < 30
    monkeypatch.setattr("tellapart.boost.retries.SILENT_SECONDS", 1.0)  # after the first failed try
    with pytest.raises(TellapartError, match="is unreachable"):  # nobody listens
        caption_by_server(
            "openai:m@http://127.0.0.1:9/v1",
            photos,
            tmp_path / "c.jsonl",
            decoding=GREEDY,
            retry={"base": 0.5, "tries": 6},
        )
    lines = [line for line in capsys.readouterr().err.splitlines() if "no answer from http://127.0.0.1:9/v1" in line]
    assert len(lines) == 1 and "(127.0.0.1:9 is unreachable or closed the connection" in lines[0]


def test_requests_are_sent_at_the_same_time(server: FaultServer, photos: Dataset, tmp_path: Path) -> None:
    server.delay = 0.2
    started = time.monotonic()
    run(server, photos, tmp_path / "a.jsonl", concurrency=COUNT)
    assert time.monotonic() - started < 0.2 * COUNT / 2
    with pytest.raises(UsageError, match="concurrent requests: expected at least 1, got 0"):
        run(server, photos, tmp_path / "a.jsonl", concurrency=0)


def test_a_server_that_fails_now_and_then_changes_nothing(server: FaultServer, photos: Dataset, tmp_path: Path) -> None:
    """Dropped connections, 429 with Retry-After, 500, 503, half a JSON, another JSON, no JSON."""
    run(server, photos, tmp_path / "calm.jsonl")
    server.rate, server.hang = 0.5, 0.0
    summary = run(server, photos, tmp_path / "rough.jsonl", retry=FAST | {"tries": 30})
    assert server.faults > 3
    assert not summary.failed
    assert (tmp_path / "rough.jsonl").read_bytes() == (tmp_path / "calm.jsonl").read_bytes()


def test_a_server_that_dies_half_way_leaves_a_file_that_goes_on(photos: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"

    def says(body: bytes) -> str:
        if shade(body) >= 5:  # of two requests at once the second may arrive first
            raise ConnectionError("the process is gone")
        return f"A picture of {shade(body)}."

    with FaultServer() as dying:
        dying.says = says
        with pytest.raises(TellapartError, match=r"captions and 5 answers were saved; run the same command again"):
            run(dying, photos, out, concurrency=2, retry=FAST | {"patience": 0.5})
    there = len(records(out))
    assert 0 < there <= 5
    with FaultServer() as another:  # at another address
        another.says, another.keep_bodies = (lambda body: f"A picture of {shade(body)}."), True
        summary = run(another, photos, out)
    assert (summary.already, summary.written, summary.tally.kept) == (there, COUNT - there, 5 - there)
    assert len(another.bodies) == COUNT - 5, "what was answered is not asked again"
    assert [record["id"] for record in records(out)] == [item.id for item in photos]


def test_a_photo_that_gets_no_caption_is_listed_with_its_reason(
    server: FaultServer, photos: Dataset, tmp_path: Path
) -> None:
    answers = {2: "", 4: "I'm sorry, but I cannot help with that.", 6: "<think>What is it? A dog"}
    server.says = lambda body: answers.get(shade(body), "<think>A dog?</think>\nA dog\n\non a lawn.")
    (tmp_path / "photos" / "09.jpg").write_bytes(b"\xff\xd8 not a picture")
    summary = run(server, photos, tmp_path / "a.jsonl")
    reasons = {Path(name).name: reason for name, reason in summary.failed}
    assert reasons == {"02.jpg": "empty", "04.jpg": "a refusal", "06.jpg": "unfinished reasoning"}
    assert [Path(name).name for name, _ in photos.unreadable] == ["09.jpg"]
    assert summary.tally.second == 3, "each was asked once more"
    assert {record["caption"] for record in records(tmp_path / "a.jsonl")} == {"A dog on a lawn."}
    assert any("04.jpg: a refusal" in line for line in summary.lines())
    asked = len(server.bodies)
    assert len(run(server, photos, tmp_path / "a.jsonl").failed) == 3
    assert len(server.bodies) == asked, "and not a third time"


def test_long_captions_are_whole(server: FaultServer, photos: Dataset, tmp_path: Path) -> None:
    server.says = lambda body: LONG.replace(", and", ",\n\nand")
    run(server, photos, tmp_path / "a.csv")
    run(server, photos, None, format="txt", ledger=tmp_path / "l.jsonl")
    assert (tmp_path / "photos" / "03.txt").read_text() == f"{LONG}\n"
    assert (tmp_path / "a.csv").read_text().count(LONG) == COUNT


def test_an_answer_that_is_cut_off_is_no_caption(photos: Dataset, tmp_path: Path, cli: Cli) -> None:
    with FaultServer() as server:
        server.finish = "length"
        done = cli("caption", f"openai:m@{server.url}", str(tmp_path / "photos"), "-o", str(tmp_path / "a.jsonl"))
    assert done.status == 1
    assert "truncated after 256 tokens" in done.err
    assert "prompt=, model or --max-tokens" in done.err
    assert not (tmp_path / "a.jsonl").exists()


def test_a_ledger_in_the_current_folder_is_announced(
    server: FaultServer, photos: Dataset, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = ("caption", f"openai:m@{server.url}", str(tmp_path / "photos"), "-o", "-")
    done = cli(*typed)
    assert done.status == 0 and "answers are stored in captions.ledger.jsonl, so that" in done.err, done.err
    assert (tmp_path / "captions.ledger.jsonl").is_file()
    again = cli(*typed)
    assert again.out == done.out and "are stored in" not in again.err
    assert "answers in captions.ledger.jsonl are not requested again" in again.err
    other = cli(*typed[:1], f"{typed[1]}?ledger=other.jsonl", *typed[2:])
    assert other.status == 0 and "are stored in" not in other.err and (tmp_path / "other.jsonl").is_file()


def test_samples_differ_by_their_seed_alone(server: FaultServer, photos: Dataset, tmp_path: Path) -> None:
    server.says = lambda body: f"{shade(body)} by seed {json.loads(body)['seed']}"
    decoding = Decoding(kind="sample", samples=3, temperature=0.9, max_tokens=20)
    run(server, photos, tmp_path / "a.jsonl", decoding=decoding)
    assert records(tmp_path / "a.jsonl")[1]["captions"] == ["1 by seed 0", "1 by seed 1", "1 by seed 2"]
    assert {body["temperature"] for body in server.bodies} == {0.9}
    with pytest.raises(UsageError, match="--beams requires a local model"):
        run(server, photos, tmp_path / "b.jsonl", decoding=Decoding(kind="beam"))
    server.says = lambda body: "A dog."
    with pytest.raises(TellapartError, match=r"does not return log-probabilities of its answers \(logprobs\)"):
        run(server, photos, tmp_path / "b.jsonl", decoding=Decoding(confidence=0.3))


def test_price_prompt_and_key(
    server: FaultServer, photos: Dataset, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret-0123456789")
    name = f"openai:m@{server.url}?key=MY_KEY&in=2.5&prompt=Was siehst du%3F&out=10"
    done = cli("caption", name, str(tmp_path / "photos"), "-o", str(tmp_path / "a.jsonl"), "--batch-size", "3")
    assert done.status == 0, done.err
    before, after = (
        done.err.index("openai:m: 12 requests expected, at most 24 including retries"),
        done.err.index("12 server answers"),
    )
    assert before < after
    assert "about 12,036 tokens in and up to 3,072 out, at most 24,072 and 6,144; cost up to 0.06 without" in done.err
    assert "(1,200 tokens in, 120 out, cost 0.00)" in done.err
    assert server.bodies[0]["messages"][0]["content"][1]["text"] == "Was siehst du?"
    assert server.headers[0]["Authorization"] == "Bearer sk-very-secret-0123456789"
    assert not [file for file in tmp_path.glob("a*") if "sk-very" in file.read_text()]
    assert cli("caption", name, str(tmp_path / "photos"), "-o", str(tmp_path / "a.jsonl")).err.startswith("0 captions")
    other = cli("caption", f"openai:m@{server.url}", str(tmp_path / "photos"), "-o", str(tmp_path / "a.jsonl"))
    assert "was started with a different prompt" in other.line


def test_wrong_models_addresses_and_options_are_one_line(
    photos: Dataset, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = str(tmp_path / "photos"), str(tmp_path / "a.jsonl")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with FaultServer() as server:
        server.status = 404
        done = cli("caption", f"openai:typo@{server.url}", folder, "-o", out)
        assert done.status == 1
        assert "the server does not know this model or path; its URL usually" in done.err.splitlines()[-1]
    with pytest.raises(TellapartError, match="no answer after 2 attempts"):
        run(server, photos, tmp_path / "a.jsonl", retry=FAST | {"tries": 2})  # it is closed by now
    assert not Path(out).exists()
    for options, expected in {
        ("--beams", "3"): "--beams requires a local model",
        ("--precision", "bf16"): "--precision requires a local model",
        ("--device", "cpu"): "--device requires a local model",
        (
            "--decoding",
            "temperature=0.5",
        ): "--decoding temperature requires sampling; add --best-of 10 --scorer MODEL, --consensus",
        ("--workers", "2"): "--workers and --ray require a local model; remove them, or",
    }.items():
        assert expected in cli("caption", "openai:m@http://127.0.0.1:9/v1", folder, "-o", out, *options).line
    assert "@http://127.0.0.1:8000/v1, or set" in cli("caption", "openai:m", folder, "-o", out).line
    assert (
        "unknown setting 'promt'; did you mean 'prompt'"
        in cli("caption", "openai:m@http://127.0.0.1:9/v1?promt=x", folder, "-o", out).line
    )


def test_training_with_it_is_refused(cli: Cli, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="openai:m runs on a server and has no local weights, so it"):
        load_captioner("openai:m@http://127.0.0.1:9/v1")
    (tmp_path / "r.toml").write_text(
        'name = "r"\n[data]\ntrain = "scenes:plain?n=20"\nvalidation = "scenes:plain?n=20"\n'
        '[captioner]\nname = "openai:m@http://127.0.0.1:9/v1"\n[objective]\nkind = "mle"\n'
        '[training]\nsteps = 1\nbatch_size = 2\nlearning_rate = 1e-3\n[validation]\nevery = 1\nselect = "cider"\n'
    )
    done = cli("train", str(tmp_path / "r.toml"), "--out", str(tmp_path / "run"))
    assert "openai:m runs on a server" in done.err
    assert done.status != 0
    assert done.err.count("\n") == 1


def test_no_more_is_asked_than_was_said_to_be_at_most(
    server: FaultServer, photos: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every second first answer is bad, and all second tries are."""
    server.says = lambda body: "" if shade(body) % 2 else "A dog."
    run(server, photos, tmp_path / "a.jsonl")
    promised = re.search(r"(\d+) requests expected, at most (\d+)", capsys.readouterr().err)
    assert promised is not None and (int(promised[1]), int(promised[2])) == (COUNT, 2 * COUNT)
    assert COUNT < len(server.bodies) == COUNT + COUNT // 2 <= 2 * COUNT


def test_eval_captions_with_a_server_first(
    server: FaultServer, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    server.says = lambda body: "a red square and a blue circle"
    arguments = (
        *("eval", "--captioner", f"openai:org/vlm:7b@{server.url}", "--captioner", "scenes"),
        *("--data", "scenes:plain?n=12&seed=3", "--metrics", "bleu4,length", "--json"),
    )
    done = cli(*arguments)
    assert done.status == 0, done.err
    assert list(json.loads(done.out)["systems"]) == ["vlm-7b", "scenes"]
    assert json.loads(done.out)["systems"]["vlm-7b"]["length"]["value"] == 7
    asked = len(server.bodies)
    assert json.loads(cli(*arguments).out) == json.loads(done.out)
    assert len(server.bodies) == asked
    assert "add --data SPEC" in cli("eval", "--captioner", "scenes").line


def test_names_of_systems() -> None:
    names = {"openai:gpt-4o@https://h/v1?key=K": "gpt-4o", "org/blip-base?prompt=a": "blip-base", "runs/x/": "x"}
    assert {name: system_name(name) for name in names} == names
    assert open_server("openai:m@http://h/v1?temperature=0&timeout=3")[0].name == "openai:m?temperature=0"
    assert open_server("openai:m@http://h/v1")[1] == PROMPT
    assert open_server("openai:m@http://h/v1?prompt=One %26 two&timeout=3")[1] == "One & two"
