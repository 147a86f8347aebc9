"""The endpoint, asked by OpenAI's own client, and by our captioning of a server."""

from __future__ import annotations

import base64
import io
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import torch
from captioners.families import FAMILIES
from PIL import Image
from serving import served

from tellapart.captioners import load_captioner
from tellapart.captioners.generated_captions import without_gaps
from tellapart.errors import UsageError
from tellapart.inference.chat_request import ChatRequest, read_messages
from tellapart.inference.endpoint import LARGEST_BODY, WAITING
from tellapart.inference.service import Service, plain_pictures
from tellapart.models.decoding import Decoding
from tellapart.scorers import load_scorer


def photo(width: int = 96, height: int = 64, colour: str = "red") -> str:
    """A 3:2 photo as a data: address."""
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), colour).save(buffer, "JPEG")
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def asks(address: str, text: str = "") -> list[Any]:
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": address}}]
    return [{"role": "user", "content": [*([{"type": "text", "text": text}] if text else []), *parts]}]


@pytest.fixture(scope="module")
def service(tiny_captioner: Path, tiny_scorer: Path) -> Service:
    captioner = load_captioner(str(tiny_captioner))
    decoding = Decoding(kind="beam", beams=2, max_tokens=6)
    return Service(captioner, decoding, load_scorer(str(tiny_scorer)), "s3cret", plain_pictures())


@pytest.fixture(scope="module")
def address(service: Service) -> Iterator[str]:
    with served(service) as where:
        yield where


@pytest.fixture
def client(address: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{address}/v1", api_key="s3cret", max_retries=0)


@pytest.fixture(scope="module")
def trained() -> Iterator[str]:
    """The address of a captioner whose captions end."""
    with served(Service(load_captioner("scenes"), Decoding(max_tokens=49), None, "s3cret", plain_pictures())) as where:
        yield where


def test_a_caption_that_is_cut_says_so(trained: str) -> None:
    client = openai.OpenAI(base_url=f"{trained}/v1", api_key="s3cret", max_retries=0)

    def finish(**fields: Any) -> list[str]:
        answer = client.chat.completions.create(model="default", messages=asks(photo()), **fields)
        return [choice.finish_reason for choice in answer.choices]

    for more in ({}, {"consensus": 4}, {"confidence": 0.2}, {"drop_guesses": True}):
        assert finish(max_tokens=2, extra_body=more) == ["length"]
        assert finish(max_tokens=49, extra_body=more) == ["stop"]
    assert finish(max_tokens=2, n=2) == ["length"] * 2 and finish(max_tokens=49, n=2) == ["stop"] * 2
    assert finish(max_tokens=2, logprobs=True) == ["length"] and finish(max_tokens=49, logprobs=True) == ["stop"]


def test_more_tokens_than_fit_are_as_many_as_fit(trained: str) -> None:
    """Clients ask for 256 or 4,096 tokens of every model, `tellapart caption openai:` too."""
    client = openai.OpenAI(base_url=f"{trained}/v1", api_key="s3cret", max_retries=0)
    told = [
        client.chat.completions.create(model="default", messages=asks(photo()), max_tokens=most, logprobs=asked)
        for most in (49, 4096)
        for asked in (False, True)
    ]
    assert len({answer.choices[0].message.content for answer in told}) == 1
    assert {answer.choices[0].finish_reason for answer in told} == {"stop"}


def test_openais_client_gets_the_caption_that_the_command_writes(
    client: openai.OpenAI, service: Service, tiny_captioner: Path, tmp_path: Path
) -> None:
    (model,) = client.models.list().data
    assert model.id == service.captioner.name
    answer = client.chat.completions.create(model=model.id, messages=asks(photo()))
    (choice,) = answer.choices
    assert choice.finish_reason == "length" and answer.usage is not None  # random weights never end
    again = client.chat.completions.create(model=model.id, messages=asks(photo()), stream=True)
    streamed = "".join(piece.choices[0].delta.content or "" for piece in again)
    assert streamed == choice.message.content
    data = base64.b64decode(photo().partition(",")[2])
    (tmp_path / "a.jpg").write_bytes(data)
    captions = load_captioner(str(tiny_captioner)).caption(
        [Image.open(tmp_path / "a.jpg")], Decoding(kind="beam", beams=2, max_tokens=6)
    )
    assert captions == [choice.message.content]


def test_a_stream_ends_with_the_usage_that_is_asked_for(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": "default", "messages": asks(photo()), "stream": True}
    pieces = list(client.chat.completions.create(**options, stream_options={"include_usage": True}))
    assert pieces[-1].usage is not None and pieces[-1].choices == [] and pieces[-1].usage.completion_tokens > 0
    assert all(piece.usage is None and piece.choices for piece in pieces[:-1])
    assert all(piece.choices for piece in client.chat.completions.create(**options))


def test_who_comes_when_many_wait_is_told_when_to_come_again(service: Service, address: str) -> None:
    service.waiting += WAITING
    try:
        request = urllib.request.Request(f"{address}/v1/chat/completions", b"{}", {"Authorization": "Bearer s3cret"})
        with pytest.raises(urllib.error.HTTPError) as told:
            urllib.request.urlopen(request, timeout=60)
        assert told.value.code == 429 and int(told.value.headers["Retry-After"]) > 0
    finally:
        service.waiting -= WAITING


def test_who_has_left_is_not_captioned(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    free, began, answered = threading.Event(), threading.Event(), []

    def answer(asked: ChatRequest) -> dict[str, Any]:
        answered.append(asked.seed)
        began.set()
        assert free.wait(20)
        return {"choices": []}

    monkeypatch.setattr(service, "answer", answer)
    with served(service) as where:
        host, _, port = where.partition("://")[2].partition(":")
        sockets = []
        for seed in range(3):
            body = json.dumps({"messages": asks(photo()), "model": "default", "seed": seed}).encode()
            sockets.append(socket.create_connection((host, int(port))))
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer s3cret\r\n"
            sockets[-1].sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert began.wait(20)
            while service.waiting <= seed:
                time.sleep(0.01)
        sockets[1].close()
        time.sleep(0.2)  # until the server has seen it
        free.set()
        assert b"200 OK" in sockets[2].recv(1000)
        sockets[0].close()
        sockets[2].close()
    assert answered == [0, 2]


@pytest.mark.parametrize(
    "fields",
    [
        {"consensus": 6}, {"consensus": 6, "scorer_weight": 0.1}, {"best_of": 4}, {"confidence": 0.2},
        {"drop_guesses": True}, {"truthful": True, "consensus": 4}, {"beams": 3},
    ],
    ids=str,
)  # fmt: skip
def test_what_caption_offers_is_a_field(client: openai.OpenAI, fields: dict[str, Any]) -> None:
    answers = [
        client.chat.completions.create(model="default", messages=asks(photo()), extra_body={**fields, "max_tokens": 5})
        for _ in range(2)
    ]
    texts = [answer.choices[0].message.content for answer in answers]
    assert texts[0] == texts[1] and isinstance(texts[0], str)


@pytest.mark.parametrize("fields", [{}, {"n": 3, "temperature": 1.5}], ids=str)
def test_logprobs_are_those_of_the_captioner_token_by_token(
    client: openai.OpenAI, service: Service, fields: dict[str, Any]
) -> None:
    answer = client.chat.completions.create(
        model="default", messages=asks(photo()), logprobs=True, max_tokens=6, seed=3, **fields
    )
    plain = client.chat.completions.create(model="default", messages=asks(photo()), max_tokens=6, seed=3, **fields)
    texts = [choice.message.content for choice in answer.choices]
    assert len(texts) == fields.get("n", 1) and texts == [choice.message.content for choice in plain.choices]
    captioner = service.captioner
    visual = captioner._encode_frozen(captioner.pixels([read_messages(asks(photo()))[0].image()]))
    for text, choice in zip(texts, answer.choices, strict=True):
        assert choice.logprobs is not None and choice.logprobs.content is not None and text is not None
        content = choice.logprobs.content
        assert b"".join(bytes(token.bytes or ()) for token in content).decode().split() == text.split()
        (ids,) = captioner.tokenize([text])
        tokens_1T, valid_1T = captioner.pad([ids[: len(content)]])
        with torch.no_grad():
            log_p_TV = captioner.logits(visual, tokens_1T, valid_1T)[0].log_softmax(-1)
        expected = log_p_TV.gather(1, tokens_1T[0, :, None])[:, 0].tolist()
        assert [token.logprob for token in content] == pytest.approx(expected, abs=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("family", ["glm4v", "aya_vision", "deepseek_vl", "ovis2", "janus", "gemma4", "qwen3_5"])
def test_every_newer_family_behind_the_server_says_how_sure_it_is(family: str, tmp_path: Path) -> None:
    """The captions of pictures of two shapes, and the log-probabilities of their tokens."""
    captioner = load_captioner(str(FAMILIES[family](tmp_path)))
    with served(Service(captioner, Decoding(max_tokens=6), None, "s3cret", plain_pictures())) as where:
        client = openai.OpenAI(base_url=f"{where}/v1", api_key="s3cret", max_retries=0)
        for size in ((96, 64), (40, 90)):
            asked = asks(photo(*size))
            answer = client.chat.completions.create(model="default", messages=asked, logprobs=True, max_tokens=6)
            visual = captioner._encode_frozen(captioner.pixels([read_messages(asked)[0].image()]))
            with without_gaps(captioner):
                told = captioner.generate(visual, Decoding(max_tokens=6))
            (choice,) = answer.choices
            assert choice.message.content == told.texts[0].strip() and choice.logprobs is not None
            with torch.no_grad():
                log_p_1TV = captioner.logits(visual, told.tokens_RT, told.valid_RT).log_softmax(-1)
            expected = log_p_1TV.gather(2, told.tokens_RT[..., None])[0, :, 0].tolist()
            found = [token.logprob for token in choice.logprobs.content or ()]
            assert found == pytest.approx(expected[: len(found)], abs=1e-4) and len(found) >= len(expected) - 1


def test_a_text_that_the_client_gives_is_scored(client: openai.OpenAI, service: Service) -> None:
    given = "a red star on the snow"
    answer = client.chat.completions.create(
        model="default", messages=[*asks(photo()), {"role": "assistant", "content": given}], max_tokens=1,
        extra_body={"prompt_logprobs": 0, "add_generation_prompt": False, "continue_final_message": True},
    )  # fmt: skip
    first, *tokens = list(answer.model_extra["prompt_logprobs"])  # type: ignore[index]
    assert first is None and answer.choices[0].message.content == ""
    found = [next(iter(token.values())) for token in tokens]
    captioner = service.captioner
    tokens_1T, valid_1T = captioner.pad(captioner.tokenize([given]))
    assert [int(next(iter(token))) for token in tokens] == tokens_1T[0].tolist()
    assert "".join(one["decoded_token"] for one in found) == given
    visual = captioner._encode_frozen(captioner.pixels([read_messages(asks(photo()))[0].image()]))
    with torch.no_grad():
        log_p_TV = captioner.logits(visual, tokens_1T, valid_1T)[0].log_softmax(-1)
    expected = log_p_TV.gather(1, tokens_1T[0, :, None])[:, 0].tolist()
    assert [one["logprob"] for one in found] == pytest.approx(expected, abs=1e-5)


def test_several_captions_are_samples_and_a_seed_draws_others(client: openai.OpenAI) -> None:
    def texts(**fields: Any) -> list[str | None]:
        answer = client.chat.completions.create(model="default", messages=asks(photo()), n=5, temperature=2.0, **fields)
        return [choice.message.content for choice in answer.choices]

    assert len(texts()) == 5 and texts(seed=1) == texts(seed=1) != texts(seed=2)


def test_text_that_is_not_read_is_said(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="default", messages=asks(photo(), "What is this?"))
    assert "the text of the message was ignored" in answer.model_extra["warnings"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ({"model": "gpt-4"}, "unknown model 'gpt-4'; this server provides '"),
        ({"consensus": 4, "best_of": 4}, "consensus and best_of cannot be combined; remove one of them"),
        ({"beams": 3, "temperature": 1.0}, "beams cannot be combined with sampling"),
        ({"top_p": 0.5}, "top_p = 0.5 is not supported; remove it"),
        ({"concensus": 4}, "unknown field 'concensus'; did you mean 'consensus'?"),
        ({"consensus": 2}, "consensus: Input should be greater than or equal to 3"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "expected one picture"),
        ({"messages": asks("http://127.0.0.1/secret.jpg")}, "this server does not download pictures"),
        ({"messages": asks("file:///etc/passwd")}, "this server does not download pictures"),
        ({"messages": asks("data:image/png;base64,AAAA")}, "cannot be read"),
        ({"messages": asks("data:image/png;base64,!!")}, "image_url: invalid base64 data"),
        ({"messages": []}, "messages"),
        ({"logprobs": True, "consensus": 4}, "log-probabilities are not available for edited or selected"),
        ({"top_logprobs": 3}, "top_logprobs = 3 is not supported"),
        ({"prompt_logprobs": 0}, "send one, with continue_final_message = true"),
        ({"prompt_logprobs": 5}, "prompt_logprobs: Input should be less than or equal to 0"),
        ({"continue_final_message": True}, "continue_final_message and add_generation_prompt require prompt_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options requires stream = true"),
        ({"stream": True, "stream_options": {"every": 1}}, "stream_options.every"),
    ],
)  # fmt: skip
def test_what_cannot_be_met_is_a_400_of_one_line(address: str, body: dict[str, Any], line: str) -> None:
    status, answer = post(address, {"messages": asks(photo()), **body})
    assert status == 400 and line in answer["error"]["message"] and "\n" not in answer["error"]["message"]


@pytest.mark.parametrize(
    ("path", "method", "status"), [("/v1/chat/completion", "POST", 404), ("/", "GET", 404), ("/v1/models", "PUT", 405)]
)
def test_what_is_not_served_is_said_in_json(address: str, path: str, method: str, status: int) -> None:
    headers = {"Authorization": "Bearer s3cret"}
    request = urllib.request.Request(f"{address}{path}", b"{}" if method != "GET" else None, headers, method=method)
    with pytest.raises(urllib.error.HTTPError) as told:
        urllib.request.urlopen(request, timeout=60)
    assert told.value.code == status and told.value.headers["Content-Type"] == "application/json"
    text = json.load(told.value)["error"]["message"]
    assert text == f"{method} {path} does not exist; expected POST /v1/chat/completions or GET /v1/models"


def test_base64_in_lines_is_read(address: str) -> None:
    """As the command ``base64`` of Linux and Python's ``encodebytes`` write it."""
    head, _, data = photo().partition(",")
    lines = base64.encodebytes(base64.b64decode(data)).decode()
    assert "\n" in lines.strip()
    assert post(address, {"messages": asks(f"{head},{lines}")})[0] == 200


def post(address: str, body: Any, **headers: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    own = {"Authorization": "Bearer s3cret", "Content-Type": "application/json", **headers}
    request = urllib.request.Request(f"{address}/v1/chat/completions", data, own)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def test_strangers_are_refused(address: str) -> None:
    asked = {"messages": asks(photo())}
    assert post(address, asked, Authorization="Bearer no")[0] == 401
    assert post(address, asked, Authorization="")[0] == 401
    assert post(address, asked, Host="evil.example")[0] == 403
    assert post(address, asked, Origin="https://evil.example")[0] == 403
    assert post(address, b"{")[0] == 400
    assert post(address, b"x" * (LARGEST_BODY + 1))[0] == 413


def test_messages_of_other_kinds_are_named() -> None:
    with pytest.raises(
        UsageError, match="messages: unsupported part of type 'input_audio'; expected text or image_url"
    ):
        read_messages([{"role": "user", "content": [{"type": "input_audio"}]}])
    with pytest.raises(UsageError, match="got 2"):
        read_messages(asks(photo()) + asks(photo(colour="blue")))


def test_our_own_captioning_of_a_server_reads_it(
    trained: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    for colour in ("red", "green", "blue"):
        Image.new("RGB", (96, 64), colour).save(tmp_path / f"{colour}.jpg")
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    done = cli(
        "caption", f"openai:default@{trained}/v1", tmp_path, "-o", tmp_path / "captions.jsonl", "--max-tokens", 49
    )
    assert done.status == 0, done.err
    rows = [json.loads(line) for line in (tmp_path / "captions.jsonl").read_text().splitlines()]
    assert len(rows) == 3


def test_a_server_that_others_reach_needs_a_key(
    cli: Any, tiny_captioner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TELLAPART_SERVE_KEY", raising=False)
    done = cli("serve", tiny_captioner, "--host", "box.example:443", "--port", "0")
    assert done.status == 2 and "export TELLAPART_SERVE_KEY=" in done.err
