"""Threads wait for each other, so that they never decode more than a bound at once."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from tellapart.data import decode_memory
from tellapart.data.decode import decode
from tellapart.errors import PictureError


def test_threads_decode_no_more_bytes_at_once_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what is decoded at one time; a picture larger than the bound is decoded alone, and a failed one gives back."""
    Image.new("RGB", (200, 100)).save(tmp_path / "a.png")
    data, now, most, lock = (tmp_path / "a.png").read_bytes(), [0], [0], threading.Lock()
    monkeypatch.setattr(decode_memory, "MAX_DECODE_BYTES", 3 * 200 * 100 * decode_memory.PIXEL_BYTES)

    def decode_one(number: int) -> None:
        if number % 5 == 0:
            with contextlib.suppress(PictureError):
                decode(data[:-30], "half")
            return
        with decode_memory.decode_memory():
            decode(data, "whole")
            with lock:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.01)
            with lock:
                now[0] -= 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(decode_one, range(60)))
    assert most[0] == 3
    monkeypatch.setattr(decode_memory, "MAX_DECODE_BYTES", 1)
    most[0] = 0
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(decode_one, range(20)))
    assert most[0] == 1
