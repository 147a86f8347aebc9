"""``caption openai:MODEL?batch=1`` and ``anthropic:MODEL?batch=1``, against servers that behave as the real ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from batch_server import ANTHROPIC_KEY, OPENAI_KEY, BatchServer
from command_line import Cli
from PIL import Image

from tellapart.boost import batch_backend, batch_servers

COUNT = 6


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    monkeypatch.setenv("OPENAI_API_KEY", OPENAI_KEY)
    monkeypatch.setenv("ANTHROPIC_API_KEY", ANTHROPIC_KEY)
    monkeypatch.setattr(batch_servers, "RETRY_SECONDS", (0.01, 0.01))
    monkeypatch.setattr(batch_backend, "POLL_SECONDS", 0.01)
    with BatchServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photos").mkdir()
    for number in range(COUNT):
        Image.new("RGB", (32, 24), (40 * number, 90, 60)).save(tmp_path / "photos" / f"{number}.png")
    return tmp_path


def caption(cli: Cli, server: BatchServer, folder: Path, kind: str, *more: Any, settings: str = "") -> Any:
    model = f"{kind}:org/vlm@{server.url}?batch=1{settings}"
    return cli("caption", model, folder / "photos", "-o", folder / "c.jsonl", *more)


def captions(folder: Path) -> dict[str, Any]:
    rows = map(json.loads, (folder / "c.jsonl").read_text(encoding="utf-8").splitlines())
    return {row["id"]: row.get("caption") or row["captions"] for row in rows}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_captions_come_in_one_batch_in_the_order_of_the_pictures(
    kind: str, cli: Cli, server: BatchServer, folder: Path
) -> None:
    texts = iter(range(100))
    server.says = lambda key, body: [f"Number {next(texts)}."]
    done = caption(cli, server, folder, kind, settings="&in=2&out=10")
    assert done.status == 0, done.err
    assert list(captions(folder)) == [f"{n}.png" for n in range(COUNT)]
    assert len(server.batches) == 1 and len(set(captions(folder).values())) == COUNT
    assert "sent 6 requests as a batch, which may take 24 hours; after" in done.err
    cost = COUNT * (100 * 1 + 10 * 5) / 1e6
    assert f"6 server answers (600 tokens in, 60 out, cost {cost:.2f}), 0 from" in done.err
    body = server.asked[0]
    content = body["messages"][0]["content"]
    if kind == "openai":
        assert body["max_completion_tokens"] == 256 and content[0]["image_url"]["url"].startswith("data:image/png")
    else:
        assert body["max_tokens"] == 256 and content[0]["source"]["media_type"] == "image/png"
        assert content[1] == {"type": "text", "text": "Describe the image in one sentence."}
    assert "6 already done" in caption(cli, server, folder, kind, settings="&in=2&out=10").err
    assert len(server.batches) == 1
    assert OPENAI_KEY not in done.err + (folder / "c.ledger.jsonl").read_text()


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_bad_answers_are_asked_again_and_failed_and_expired_lines_are_named(
    kind: str, cli: Cli, server: BatchServer, folder: Path
) -> None:
    """Two refusals, of which one is mended by the second batch; one failed line; one that expired."""
    order: list[str] = []

    def says(key: str, body: dict[str, Any]) -> Any:
        picture = json.dumps(body["messages"][0]["content"][0])
        if picture not in order:
            order.append(picture)
        number, again = order.index(picture), "temperature" in body
        if number == 0:
            return ["I'm sorry, but I cannot help with that."]
        if number == 1:
            return ["A cat."] if again else ["I'm sorry, but I cannot help with that."]
        return (400, "image too strange") if number == 2 else None if number == 3 else ["A dog."]

    server.says = says
    done = caption(cli, server, folder, kind)
    assert done.status == 1
    assert len(server.batches) == 2 and len(server.batches["batch_1"]["lines"]) == 2
    assert Counter(captions(folder).values()) == {"A dog.": 2, "A cat.": 1}
    assert "2 pictures have no caption" in done.err
    assert "image too strange" in done.err and ("expired" in done.err)
    assert "a refusal" in done.err
    server.says = lambda key, body: ["A horse."]
    done = caption(cli, server, folder, kind)
    assert done.status == 0, done.err
    assert len(server.batches["batch_2"]["lines"]) == 2, "only what failed or expired is asked again"
    assert Counter(captions(folder).values()) == {"A dog.": 2, "A cat.": 1, "A horse.": 2}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_an_interrupted_command_waits_for_the_batch_that_it_sent(
    kind: str, cli: Cli, server: BatchServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tellapart.boost.batch_backend.time.sleep", interrupted)
        done = caption(cli, server, folder, kind)
    assert done.status != 0 and "the batch continues on the server; run the same command again" in done.err
    assert list(json.loads((folder / "c.batches.json").read_text())) == ["batch_0"]
    server.fails = [500, 429]
    done = caption(cli, server, folder, kind)
    assert done.status == 0, done.err
    assert len(captions(folder)) == COUNT and len(server.batches) == 1, "it was not paid for twice"
    assert json.loads((folder / "c.batches.json").read_text()) == {}


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_batch_that_the_server_may_have_created_is_not_created_again(
    kind: str, cli: Cli, server: BatchServer, folder: Path
) -> None:
    """An upload is repeated: a second file creates no batch."""
    server.fails = {"openai": [502, 200, 504], "anthropic": [504]}[kind]
    done = caption(cli, server, folder, kind)
    assert done.status == 1 and "server error (504: overloaded); the answers so far are kept; run the same" in done.err
    assert len(server.requests) == {"openai": 3, "anthropic": 1}[kind] and not server.batches
    server.fails = [429, 503]
    assert caption(cli, server, folder, kind).status == 0
    assert len(server.batches) == 1


def test_several_samples_are_the_choices_of_one_request(cli: Cli, server: BatchServer, folder: Path) -> None:
    server.says = lambda key, body: [f"A dog, number {n}." for n in range(body.get("n", 1))]
    done = caption(cli, server, folder, "openai", "--samples", 3)
    assert done.status == 0, done.err
    assert [body["n"] for body in server.asked] == [3] * COUNT
    assert captions(folder)["0.png"] == [f"A dog, number {n}." for n in range(3)]
    done = caption(cli, server, folder, "anthropic", "--samples", 3, "--overwrite")
    assert len(server.asked) == COUNT + 3 * COUNT, "Anthropic gives one choice a request"


def test_large_requests_go_into_several_batches(
    cli: Cli, server: BatchServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_backend, "MAX_REQUESTS", 4)
    assert caption(cli, server, folder, "openai").status == 0
    assert [len(batch["lines"]) for batch in server.batches.values()] == [4, 2]
    monkeypatch.setattr(batch_backend, "MAX_BYTES", 1)
    assert caption(cli, server, folder, "openai", "--overwrite", settings="&temperature=1").status == 0
    assert len(server.batches) == 2 + COUNT
    assert len(captions(folder)) == COUNT


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_schema_goes_through_a_batch(kind: str, cli: Cli, server: BatchServer, folder: Path) -> None:
    (folder / "s.json").write_text('{"type": "object", "properties": {"tags": {"type": "array"}}}')
    server.says = lambda key, body: ['{"tags": ["dog"]}' if "temperature" in body else '{"tags": 1}']
    done = caption(cli, server, folder, kind, "--schema", folder / "s.json")
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in (folder / "c.jsonl").read_text().splitlines()]
    assert [row["structured"] for row in rows] == [{"tags": ["dog"]}] * COUNT
    assert ("response_format" in server.asked[0]) == (kind == "openai")


def test_what_stops_a_batch_is_one_line(
    cli: Cli, server: BatchServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.refuses = "Enqueued token limit reached for org/vlm."
    done = caption(cli, server, folder, "openai")
    assert done.status == 1 and "the server rejected batch batch_0: Enqueued token limit reached" in done.err
    server.refuses = ""
    assert caption(cli, server, folder, "openai").status == 0, "the refused batch is not waited for"
    assert len(server.batches) == 2
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-other-99999999")
    done = caption(cli, server, folder, "anthropic", "--overwrite")
    assert done.status == 1 and "invalid x-api-key" in done.err and "sk-ant-other" not in done.err
    server.fails = [503] * 10
    monkeypatch.setenv("ANTHROPIC_API_KEY", ANTHROPIC_KEY)
    done = caption(cli, server, folder, "anthropic")
    assert done.status == 1 and "the answers so far are kept; run the same command again to" in done.err
    assert len(server.requests) < 60
    line = caption(cli, server, folder, "openai", "--drop-guesses").line
    assert "--drop-guesses needs additional requests for each caption and" in line
    sent = len(server.requests)
    line = caption(cli, server, folder, "anthropic", "--decoding", "confidence=0.4", "--overwrite").line
    assert "--decoding confidence requires log-probabilities, which the batch endpoint of anthropic:org/vlm" in line
    assert len(server.requests) == sent, "nothing was sent"
    line = cli("caption", "anthropic:m", folder / "photos", "-o", folder / "d.jsonl").line
    assert "batch=1' for the batch endpoint, or openai:m@" in line
    line = cli("caption", "openai:m?batch=yes", folder / "photos", "-o", folder / "d.jsonl").line
    assert "or batch=0, got yes" in line


def test_the_estimate_of_a_batch_is_half_the_price(cli: Cli, server: BatchServer, folder: Path) -> None:
    costs = []
    for batch in ("", "&batch=1"):
        model = f"openai:org/vlm@{server.url}?in=1000&out=1000{batch}"
        done = cli("caption", model, folder / "photos", "-o", folder / "c.jsonl", "--estimate")
        assert done.status == 0, done.err
        costs.append(float(done.out.partition("cost up to ")[2].split(",")[0].split(" ")[0]))
        assert ("at the batch price" in done.out) == bool(batch)
    assert costs[1] == pytest.approx(costs[0] / 2, abs=0.01) and costs[0] > 1
    assert not server.requests and not (folder / "c.jsonl").exists()
    line = cli("caption", "openai:m", folder / "photos", "-o", folder / "c.jsonl", "--estimate", "--price", 1).line
    assert "--price is the hourly price of a worker; to specify prices per million" in line
