"""Results computed ahead of their use: order, errors, and how far it reads."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tellapart.errors import PictureError
from tellapart.utils.ahead import ahead


def test_ahead_keeps_order_and_raises_in_its_place() -> None:
    def work(number: int) -> int:
        time.sleep(0.02 * (number % 3))
        if number == 5:
            raise PictureError("five")
        return number * number

    found = ahead(work, range(9), buffer=4, threads=3)
    assert [next(found) for _ in range(5)] == [0, 1, 4, 9, 16]
    with pytest.raises(PictureError, match="five"):
        next(found)


def test_ahead_holds_no_more_bytes_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.utils.ahead.MOST_BYTES", 100)
    begun: list[int] = []

    def begin() -> Iterator[int]:
        for number in range(50):
            begun.append(number)
            yield number

    found = ahead(lambda number: number, begin(), buffer=30, size=lambda n: 40)
    for number in range(50):
        assert next(found) == number and len(begun) <= number + 1 + 3
    assert len(begun) == 50


def test_ahead_reads_no_further_than_its_buffer() -> None:
    begun: list[int] = []
    found = ahead(lambda number: begun.append(number), iter(range(1000)), buffer=5, threads=2)
    next(found)
    found.close()
    assert len(begun) <= 7
