"""The engine of `caption`: pixels ahead of the model, large batches, order, memory."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.data import open_data
from tellapart.errors import TellapartError
from tellapart.inference.caption import caption_pictures
from tellapart.models.decoding import Decoding
from tellapart.models.out_of_memory import is_out_of_memory

GREEDY = Decoding(max_tokens=5)
WORDS = ["a", "red", "dog", "on", "the", "grass", "two", "cats"]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Twenty pictures of 3:2 and 2:3, one of which is cut off."""
    folder = tmp_path / "photos"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(20):
        size = (96, 64) if number % 3 else (64, 96)
        Image.fromarray(rng.integers(0, 255, (*size, 3), np.uint8)).save(folder / f"{number:02}.jpg", quality=90)
    whole = (folder / "07.jpg").read_bytes()
    (folder / "07.jpg").write_bytes(whole[: len(whole) // 2])
    return folder


@pytest.fixture
def blip(tmp_path: Path) -> Any:
    (tmp_path / "blip").mkdir()
    return load_captioner(str(save_blip(tmp_path / "blip", WORDS)))


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def one_by_one(captioner: Any, photos: Path) -> dict[str, str]:
    """Captions in the plain way: the processor, the encoder and `generate`, a picture at a time."""
    found = {}
    for path in sorted(photos.iterdir()):
        if path.name != "07.jpg":
            with Image.open(path) as image:
                pixels = captioner.processor(images=[image.convert("RGB")], return_tensors="pt")["pixel_values"]
            with torch.no_grad():
                found[path.name] = captioner.generate(captioner.encode(pixels), GREEDY).texts[0]
    return found


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_captions_are_those_of_the_plain_way_in_order(blip: Any, photos: Path, tmp_path: Path, batch_size: int) -> None:
    data, out = open_data(str(photos)), tmp_path / "c.jsonl"
    summary = caption_pictures(blip, data, out, decoding=GREEDY, batch_size=batch_size, progress=False)
    assert [(line["id"], line["caption"]) for line in lines(out)] == list(one_by_one(blip, photos).items())
    assert summary.written == 19 and len(summary.skipped) == 1


@pytest.mark.long
def test_out_of_memory_halves_the_batch_and_goes_on(
    blip: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes: dict[str, list[int]] = {"encode": [], "generate": []}

    def small_memory(name: str, limit: int) -> None:
        plain = getattr(blip, name)

        def limited(rows: torch.Tensor, *more: Any) -> Any:
            sizes[name].append(len(rows))
            if len(rows) > limit:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
            return plain(rows, *more)

        monkeypatch.setattr(blip, name, limited)

    expected = one_by_one(blip, photos)
    small_memory("encode", 3)
    small_memory("generate", 5)
    out = tmp_path / "c.jsonl"
    caption_pictures(blip, open_data(str(photos)), out, decoding=GREEDY, batch_size=16, progress=False)
    assert {line["id"]: line["caption"] for line in lines(out)} == expected
    assert sizes["generate"][:5] == [15, 7, 3, 3, 3] and max(sizes["generate"][2:]) == 3
    assert sizes["encode"][:3] == [8, 4, 2] and max(sizes["encode"][2:]) == 2
    said = capsys.readouterr().err
    assert "out of memory with batches of 15 pictures (writing captions); continuing with batches of 7" in said


@pytest.mark.long
def test_one_picture_that_does_not_fit_is_one_line(
    blip: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> None:
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(blip, "generate", none)
    with pytest.raises(TellapartError, match=r"out of memory with a single picture .* --precision"):
        caption_pictures(blip, open_data(str(photos)), tmp_path / "c.jsonl", decoding=GREEDY, progress=False)
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied")) and not is_out_of_memory(ValueError("x"))


def test_another_error_of_the_model_is_not_tried_again(
    blip: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def broken(*_: Any) -> None:
        calls.append(1)
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(blip, "generate", broken)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        caption_pictures(blip, open_data(str(photos)), tmp_path / "c.jsonl", decoding=GREEDY, progress=False)
    assert len(calls) == 1


@pytest.mark.long
def test_slow_pictures_are_read_while_the_model_works(
    blip: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_pixels, plain_generate = blip.pixels, blip.generate
    working, meanwhile = threading.Event(), 0

    def pixels(images: Any) -> Any:
        nonlocal meanwhile
        meanwhile += working.is_set()
        time.sleep(0.05)
        return plain_pixels(images)

    def generate(*more: Any) -> Any:
        working.set()
        time.sleep(0.1)
        try:
            return plain_generate(*more)
        finally:
            working.clear()

    monkeypatch.setattr(blip, "pixels", pixels)
    monkeypatch.setattr(blip, "generate", generate)
    monkeypatch.setattr("tellapart.utils.ahead.os.cpu_count", lambda: 1)
    caption_pictures(blip, open_data(str(photos)), tmp_path / "c.jsonl", decoding=GREEDY, batch_size=2, progress=False)
    assert meanwhile >= 8, "of nineteen; read by the model's own thread it would be none"


def test_a_captioner_of_the_users_own_is_called_by_one_thread_at_a_time(
    blip: Any, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, most, plain, lock = 0, 0, blip.pixels, threading.Lock()

    def pixels(images: Any) -> Any:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.01)
        with lock:
            inside -= 1
        return plain(images)

    monkeypatch.setattr(blip, "pixels", pixels)
    monkeypatch.setattr("tellapart.utils.ahead.os.cpu_count", lambda: 4)
    for threads, expected in ((False, {1}), (True, {2, 3, 4})):
        most = 0
        monkeypatch.setattr(type(blip), "pixels_in_threads", threads)
        out = tmp_path / f"{threads}.jsonl"
        caption_pictures(blip, open_data(str(photos)), out, decoding=GREEDY, progress=False)
        assert most in expected
