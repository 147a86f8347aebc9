"""A server's model: what is sent, what its replies mean, and where the key does not go."""

from __future__ import annotations

import base64
import gc
import io
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli
from fault_server import FaultServer
from PIL import Image

from tellapart.boost.backends import open_backend
from tellapart.boost.data_url import data_url
from tellapart.boost.replies import Reply, seconds
from tellapart.boost.types import Answer, BackendError, Message, Request
from tellapart.data.pictures import BytesPicture, FilePicture
from tellapart.errors import PictureError, UsageError
from tellapart.scenes import Scenes

KEY = "sk-very-secret-0123456789"
ASKED = Request((Message("system", "S"), Message("user", "first"), Message("assistant", "A"), Message("user", "last")))


@pytest.fixture
def server() -> Iterator[FaultServer]:
    with FaultServer() as running:
        running.keep_bodies, running.refuses = True, 10**15
        yield running


def test_what_is_sent(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    scene = Scenes(1)[0]
    model = open_backend(f"openai:org/model:tag@{server.url}?limit=max_completion_tokens")
    assert model.name == "openai:org/model:tag"
    answer = model.complete(Request(ASKED.messages, scene, 0.5, 77, 0.9, 3, ("\n",), truth=scene))
    assert answer.text.startswith("A dog that is called") and (answer.prompt_tokens, answer.completion_tokens) == (
        100,
        10,
    )
    (body,) = server.bodies
    picture, text = body["messages"][-1].pop("content")
    assert body == {
        "model": "org/model:tag",
        "messages": [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "first"},
            {"role": "assistant", "content": "A"},
            {"role": "user"},
        ],
        "max_completion_tokens": 77, "temperature": 0.5, "top_p": 0.9, "seed": 3, "stop": ["\n"],
    }  # fmt: skip
    assert text == {"type": "text", "text": "last"}
    assert shown(picture["image_url"]["url"]).tobytes() == scene.image().tobytes()
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_connections_are_closed_with_the_backend(server: FaultServer) -> None:
    model = open_backend(f"openai:m@{server.url}")
    model.complete(Request((Message("user", "last"),)))
    client = model._client  # type: ignore[attr-defined]
    assert not client.is_closed()
    del model
    gc.collect()
    until = time.monotonic() + 10
    while not client.is_closed() and time.monotonic() < until:
        time.sleep(0.01)
    assert client.is_closed()


def shown(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))).convert("RGB")


def test_pictures_go_as_they_are_or_upright_and_smaller(tmp_path: Path) -> None:
    Image.effect_noise((300, 200), 80).convert("RGB").save(tmp_path / "plain.jpg")
    plain = FilePicture(tmp_path / "plain.jpg")
    assert base64.b64decode(data_url(plain).partition(",")[2]) == (tmp_path / "plain.jpg").read_bytes()
    turned = Image.new("RGB", (300, 200), "red")
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    assert shown(data_url(FilePicture(tmp_path / "turned.jpg"))).size == (200, 300)
    Image.new("RGB", (4000, 1000)).save(tmp_path / "wide.png")
    assert shown(data_url(FilePicture(tmp_path / "wide.png"))).size == (1024, 256)
    Image.new("RGBA", (9, 9), (255, 0, 0, 0)).save(tmp_path / "clear.png")
    assert shown(data_url(FilePicture(tmp_path / "clear.png"))).getpixel((0, 0)) == (255, 255, 255)
    with pytest.raises(PictureError, match="truncated"):
        data_url(BytesPicture((tmp_path / "plain.jpg").read_bytes()[:-400], "cut.jpg"))


GOOD = {"choices": [{"message": {"content": "a dog"}, "finish_reason": "length"}], "usage": {"prompt_tokens": 5}}


@pytest.mark.parametrize(
    ("status", "retry_after", "reply", "retry", "after", "fatal"),
    [
        (429, "7", b'{"error": {"message": "slow down"}}', True, 7.0, False),
        (429, None, b"", True, 0.0, False),
        (503, "soon", b"", True, 0.0, False),
        (500, None, b"<html>", True, None, False),
        (502, "2", b"", True, 2.0, False),
        (401, None, b"{}", False, None, True),
        (404, None, b'{"error": "no such model"}', False, None, True),
        (301, None, b"", False, None, True),
        (500, None, b'{"error": {"message": "image input is not supported - hint: ..."}}', False, None, True),
        (404, None, b'{"error": {"message": "No endpoints found that support image input"}}', False, None, True),
        (400, None, b'{"error": "Model does not support images. Please use a model that does."}', False, None, True),
        (400, None, b'{"message": "facebook/opt-125m is not a multimodal model", "code": 400}', False, None, True),
        (200, None, b'{"error": "Unexpected endpoint or method. (POST /chat/completions)"}', False, None, True),
        (400, None, b'{"error": {"message": "too long"}}', False, None, False),
        (422, None, b"", False, None, False),
        (200, None, json.dumps(GOOD).encode()[:-20], True, None, False),
        (200, None, b'{"choices": [{"message": {"content": 7}}]}', True, None, False),
        (200, None, b'{"choices": [{"message": {}}]}', True, None, False),
        (200, None, b'{"choices": "none"}', True, None, False),
        (200, None, b"[" * 100_000, True, None, False),
        (200, None, b"\xff\xfe", True, None, False),
        (200, None, b"", True, None, False),
    ],
)
def test_what_a_failure_means(
    status: int, retry_after: str | None, reply: bytes, retry: bool, after: float | None, fatal: bool
) -> None:
    with pytest.raises(BackendError) as error:
        Reply(status, reply, after=retry_after).answer()
    assert (error.value.retry, error.value.after, error.value.fatal) == (retry, after, fatal)


def test_answers_in_the_forms_that_servers_write() -> None:
    assert Reply(200, json.dumps(GOOD).encode()).answer() == Answer("a dog", 5, 0, "length")
    null = {"choices": [{"message": {"content": None}, "finish_reason": None}], "usage": None}
    assert Reply(200, json.dumps(null).encode()).answer() == Answer("")
    parts = {"choices": [{"message": {"content": [{"type": "text", "text": "a "}, {"text": "dog"}]}}]}
    assert Reply(200, json.dumps(parts).encode()).answer() == Answer("a dog")


def test_retry_after_in_seconds_or_as_a_date() -> None:
    assert seconds("1.5") == 1.5 and seconds("-3") == 0.0 and seconds(None) is seconds("nan") is seconds("x") is None
    at = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 60))
    assert 57 < (seconds(at) or 0) <= 60
    assert seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0.0


class _Odd(BaseHTTPRequestHandler):
    """Repeats the key that it was given; with ``/slow`` it trickles one byte at a time."""

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        if self.path.startswith("/slow"):
            self.send_response(200)
            self.end_headers()
            for _ in range(50):
                self.wfile.write(b" ")
                time.sleep(0.1)
            return
        self.send_response(401)
        self.end_headers()
        self.wfile.write(json.dumps({"error": {"message": f"bad {self.headers['Authorization']}"}}).encode())


@pytest.fixture
def odd() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Odd) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.long
@pytest.mark.parametrize("sent", [b"HTTP/1.1 102 Processing\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Slow: ", b"H"])
def test_one_deadline_for_the_whole_answer(server: FaultServer, sent: bytes) -> None:
    server.trickle = sent
    start = time.monotonic()
    with pytest.raises(BackendError, match=r"no answer within 0\.5 s") as error:
        open_backend(f"openai:m@{server.url}?timeout=0.5").complete(ASKED)
    server.trickle = b""
    assert error.value.retry and time.monotonic() - start < 4


def test_a_server_that_trickles_or_is_not_there(odd: str) -> None:
    start = time.monotonic()
    with pytest.raises(BackendError, match=r"no answer within 0\.5 s") as error:
        open_backend(f"openai:m@{odd}/slow?timeout=0.5").complete(ASKED)
    assert error.value.retry and time.monotonic() - start < 4
    with pytest.raises(BackendError, match="is unreachable or closed the connection") as error:
        open_backend("openai:m@http://127.0.0.1:9/v1").complete(ASKED)
    assert error.value.retry


def test_the_key_is_nowhere_but_in_the_header(
    odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli, server: FaultServer
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    for address in (odd, server.url):
        model = f"openai:m@{address}?key=MY_KEY"
        told = cli("boost", "scenes:plain?n=3", "-o", tmp_path / "b.jsonl", "--llm", model, "--mllm", model)
        assert KEY not in told.out + told.err and told.status == (address == odd)
    assert "401: bad Bearer [API key]" in cli("boost", "scenes:plain?n=3", "-o", tmp_path / "c.jsonl", "--llm",
                                        f"openai:m@{odd}?key=MY_KEY", "--stages", "blend").line  # fmt: skip
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written and all(KEY.encode() not in path.read_bytes() for path in written)
    assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
    assert KEY not in repr(vars(open_backend(f"openai:m@{odd}?key=MY_KEY")).get("_client"))


def test_nothing_of_the_environment_but_the_key_reaches_a_server(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenAI's SDK reads more than the key from the environment, and HTTP clients follow its proxies."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY", "OPENAI_WEBHOOK_SECRET"):
        monkeypatch.setenv(name, "of-the-account")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    open_backend(f"openai:m@{server.url}").complete(ASKED)
    assert "Authorization" not in server.headers[0]
    assert not any("of-the-account" in value for value in server.headers[0].values())


class _Elsewhere(_Odd):
    """Redirects every request."""

    target = ""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(307)
        self.send_header("Location", self.target)
        self.send_header("Content-Length", "0")
        self.end_headers()


def test_a_redirect_is_not_followed(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(_Elsewhere, "target", f"{server.url}/chat/completions")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Elsewhere) as other:
        threading.Thread(target=other.serve_forever, args=(0.05,), daemon=True).start()
        with pytest.raises(BackendError, match="the server redirects to another URL") as error:
            open_backend(f"openai:m@http://127.0.0.1:{other.server_address[1]}/v1").complete(ASKED)
        other.shutdown()
    assert error.value.fatal and not server.bodies


def test_an_endless_answer_is_cut_off(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.boost.openai_server.LARGEST_REPLY", 1000)
    server.says = lambda body: "dog " * 1000
    with pytest.raises(BackendError, match="the answer exceeds") as error:
        open_backend(f"openai:m@{server.url}").complete(ASKED)
    assert error.value.retry


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("openai:m", "@http://127.0.0.1:8000/v1, or set"),
        ("openai:@http://127.0.0.1:1/v1", "openai: missing model; use"),
        ("openai:m@http://u:secret@127.0.0.1/v1", "the server's URL must not contain a user, password or '"),
        ("openai:m@http://[::1/v1", "' is not a server URL; expected one such as"),
        ("openai:m@http://127.0.0.1/v1?kee=A", "unknown setting 'kee'; did you mean 'key'"),
        ("openai:m@http://127.0.0.1/v1?key=NOT_THERE", "the environment variable NOT_THERE"),
        ("openai:m@http://127.0.0.1/v1?timeout=x", "timeout=x: expected a number of at least 0"),
        ("opnai:m", "did you mean 'openai'"),
        ("local:", "local: missing folder; use local:FOLDER"),
        ("scripted:error=2", "must be a probability"),
    ],
)
def test_specifications_that_are_none(spec: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(UsageError, match=line) as error:
        open_backend(spec)
    assert "secret" not in str(error.value)


def test_the_cost_is_counted(server: FaultServer, tmp_path: Path, cli: Cli) -> None:
    model = f"openai:m@{server.url}?in=2&out=10"
    arguments = ["boost", "scenes:plain?n=4", "--one-caption", "-o", tmp_path / "b.jsonl", "--llm", model]
    arguments += ["--stages", "blend", "--json"]
    blend = json.loads(cli(*arguments).out)["stages"]["blend"]
    assert (blend["asked"], blend["prompt_tokens"], blend["completion_tokens"]) == (4, 400, 40)
    assert blend["cost"] == pytest.approx((400 * 2 + 40 * 10) / 1e6)
    blend = json.loads(cli(*arguments).out)["stages"]["blend"]
    assert (blend["kept"], blend["asked"], blend["cost"]) == (4, 0, 0.0) and len(server.bodies) == 4


REASONS = (
    b'{"error": {"message": "roles must alternate"}}',
    b'{"object": "error", "message": "roles must alternate", "type": "BadRequestError", "code": 400}',
    b'{"detail": "roles must alternate"}',
    b'{"error": "roles must alternate"}',
)


@pytest.mark.parametrize("reply", REASONS)
def test_a_refusal_is_told_in_the_servers_words(reply: bytes) -> None:
    """As OpenAI, vLLM before and after its 0.10, FastAPI and llama.cpp write them."""
    with pytest.raises(BackendError, match=r"rejected the request \(400: roles must alternate\)"):
        Reply(400, reply).answer()


class _NoSystem(_Odd):
    """As a server of Mistral-7B-Instruct-v0.1: its chat template knows no system prompt."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"]
        refused = asked[0]["role"] == "system"
        self.send_response(400 if refused else 200)
        self.end_headers()
        content = [message["content"] for message in asked]
        good = {"choices": [{"message": {"content": json.dumps(content)}}]}
        self.wfile.write(REASONS[1] if refused else json.dumps(good).encode())


def test_a_system_prompt_that_a_server_refuses_goes_into_the_user_turn(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _NoSystem) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        model = open_backend(f"openai:m@http://127.0.0.1:{server.server_address[1]}")
        turns = (("system", "Blend."), ("user", "a"), ("assistant", "b"), ("user", "c"))
        for _ in range(2):
            answer = model.complete(Request(tuple(Message(*turn) for turn in turns)))
            assert json.loads(answer.text) == ["Blend.\n\na", "b", "c"]
        server.shutdown()
    said = capsys.readouterr().err
    assert said.count("the system prompt is sent as part of the user turn") == 1 and "roles must alternate" in said
