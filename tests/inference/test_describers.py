"""Captioners and caption files as describers of ``tellapart boost``, with tiny models of the real classes."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from command_line import Cli
from PIL import Image

from tellapart.boost.backends import open_backend
from tellapart.boost.types import BackendError, Message, Request
from tellapart.captioners.generated_captions import generate_captions
from tellapart.captioners.load import load_captioner
from tellapart.data import open_data
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.inference.captioner_backend import CaptionerBackend
from tellapart.inference.describers import open_describer
from tellapart.models.decoding import Decoding

sys.path += [str(Path(__file__).parent.parent / folder) for folder in ("captioners", "boost")]

import families
import tiny_models

QUESTION = "Briefly describe the content of the image."


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    for number in range(5):
        Image.effect_noise((40, 32), 30 + 20 * number).convert("RGB").save(folder / f"{number}.png")
    return folder


def asked(photo: Path, question: str = QUESTION, **more: object) -> Request:
    return Request((Message("user", question),), picture=FilePicture(photo), max_tokens=9, item=photo.stem, **more)  # type: ignore[arg-type]


def test_instructblip_is_asked_the_question_and_writes_as_in_caption(photos: Path, tmp_path: Path) -> None:
    """It has no chat template. The question is the request's; a ``?prompt=`` of the name stays."""
    model = str(families.instructblip(tmp_path))
    describer = open_describer(f"local:{model}", open_data(str(photos)), "cpu", "fp32")
    files = sorted(photos.glob("*.png"))
    for question, name in ((QUESTION, f"{model}?prompt={QUESTION}"), ("what is it", f"{model}?prompt=what is it")):
        captioner = load_captioner(name, "cpu")
        with torch.no_grad():
            visual = captioner.encode(captioner.pixels([Image.open(file).convert("RGB") for file in files]))
            told = generate_captions(captioner, visual, Decoding(kind="greedy", max_tokens=9))
        with ThreadPoolExecutor(5) as pool:
            answers = list(pool.map(lambda file, q=question: describer.complete(asked(file, q)), files))
        assert [answer.text for answer in answers] == [" ".join(text.split()) for text in told]
    fixed = open_describer(f"local:{model}?prompt=what is it", open_data(str(photos)), "cpu", "fp32")
    assert fixed.complete(asked(files[0])).text == answers[0].text
    with pytest.raises(BackendError, match="a captioner cannot answer text-only requests; pass it with --mllm"):
        describer.complete(Request((Message("user", "x"),)))


def test_any_captioner_describes_in_batches(
    photos: Path, tiny_captioner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that wait while others are described share a batch; a damaged picture has an error of its own."""
    describer = open_describer(f"local:{tiny_captioner}", open_data(str(photos)), "cpu", "fp32")
    assert isinstance(describer, CaptionerBackend) and describer.name.startswith("captioner:")
    sizes: list[int] = []
    write, begun, go = describer._batcher._work, threading.Event(), threading.Event()

    def slow(requests: list[Request], prepared: list[None]) -> object:
        sizes.append(len(requests))
        begun.set()
        assert go.wait(60)
        return write(requests, prepared)

    monkeypatch.setattr(describer._batcher, "_work", slow)
    damaged = photos.parent / "damaged.png"
    damaged.write_bytes(b"no picture")
    files = [*sorted(photos.glob("*.png")), damaged]
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(describer.complete, asked(files[0]))
        assert begun.wait(60)
        others = [pool.submit(describer.complete, asked(file)) for file in files[1:]]
        while len(describer._batcher._queue) < 5:
            threading.Event().wait(0.01)
        go.set()
        texts = [future.result().text for future in (first, *others[:-1])]
        with pytest.raises(Exception, match=r"damaged\.png"):
            others[-1].result()
    assert sizes == [1, 5]
    assert texts == [describer.complete(asked(file)).text for file in files[:-1]]


def test_a_system_prompt_that_a_template_refuses_goes_into_the_user_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Mistral-7B-Instruct-v0.1's: it refuses a first role but the user's. Batches are padded at the left."""
    refusing = "{% if messages[0]['role'] != 'user' %}{{ raise_exception('roles must alternate') }}{% endif %}"
    model = tiny_models.language_model(tmp_path, refusing + tiny_models.TEXT)
    backend = open_backend(f"local:{model}", "cpu", "fp32")
    texts = ["a cat", "two dogs on a lawn beside a house", "it"]
    requests = [Request((Message("system", "Blend."), Message("user", text)), max_tokens=8) for text in texts]
    merged = [Request((Message("user", f"Blend.\n\n{text}"),), max_tokens=8) for text in texts]
    alone = [backend.complete(request) for request in merged]
    assert alone == [backend.complete(request) for request in requests]
    assert "the system prompt is sent as part of the user turn" in capsys.readouterr().err
    together = backend._generate(requests, [None] * 3)  # type: ignore[attr-defined]
    assert together == alone and len({answer.text for answer in alone}) == 3


def test_descriptions_come_from_a_file(photos: Path, tiny_captioner: Path, tmp_path: Path, cli: Cli) -> None:
    """What ``tellapart caption`` wrote; a picture that it lacks is named, and keeps its references."""
    written = tmp_path / "captions.jsonl"
    done = cli("caption", str(tiny_captioner), str(photos), "-o", str(written), "--device", "cpu", "--max-tokens", "9")
    assert done.status == 0, done.err
    told = {row["id"]: row["caption"] for row in map(json.loads, written.read_text().splitlines())}
    describer = open_describer(f"file:{written}", open_data(str(photos)))
    assert {id: describer.complete(Request((), item=id)).text for id in told} == told
    with pytest.raises(BackendError, match="no caption for this picture"):
        describer.complete(Request((), item="another"))
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "x", "caption": "a cat"}\n')
    with pytest.raises(UsageError, match="contains no captions for the pictures in"):
        open_describer(f"file:{other}", open_data(str(photos)))
    texts = [f"a picture of thing {number} on a green lawn" for number in range(5)]
    written.write_text("".join(json.dumps({"id": f"{n}.png", "caption": text}) + "\n" for n, text in enumerate(texts)))
    boosted = tmp_path / "boosted.jsonl"
    done = cli("boost", str(photos), "--stages", "describe", "--mllm", f"file:{written}", "-o", str(boosted), "--json")
    assert done.status == 0, done.err
    assert [json.loads(line)["captions"] for line in boosted.read_text().splitlines()] == [[text] for text in texts]
