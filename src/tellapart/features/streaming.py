"""Rows that are made when they are asked for, and never kept: what ``features = "off"`` gives a captioner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import numpy as np

from tellapart.features.filling import RowMaker
from tellapart.types import Item

OFF = "off"  # in place of files with features: make them anew each time
BATCH = 64


def decodable() -> RowMaker:
    """A byte for each picture that can be decoded, so that broken ones are found once, before a training."""
    return RowMaker("decodes", lambda images: np.ones(1, np.uint8), np.stack)


class StreamedRows:
    """Rows of items as an array gives them, by a slice or an array of numbers: the same that the store would keep."""

    def __init__(self, items: Sequence[Item], maker: RowMaker, batch_size: int = BATCH) -> None:
        self._items, self._maker, self._batch_size = items, maker, batch_size

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, places: np.ndarray, /) -> np.ndarray: ...
    @overload
    def __getitem__(self, places: slice, /) -> np.ndarray: ...
    def __getitem__(self, places: Any, /) -> np.ndarray:
        numbers = range(len(self))[places] if isinstance(places, slice) else np.asarray(places).tolist()
        step = max(1, self._batch_size // self._maker.frames)
        chosen = [self._items[number].picture for number in numbers]
        parts = [
            self._maker.rows([self._maker.of(picture) for picture in chosen[at : at + step]])
            for at in range(0, len(chosen), step)
        ]
        return np.concatenate(parts) if parts else np.zeros((0,), np.float32)
