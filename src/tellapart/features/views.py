"""Views provide a captioner's input: features from its encoder (cached or recomputed), features from files, or prompts.

Training, captioning and the final evaluation share this interface.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tellapart.data import Skipped
from tellapart.errors import UsageError
from tellapart.features.feature_files import FeatureFiles
from tellapart.features.filling import BATCH_SIZE
from tellapart.features.row_makers import RowMaker, decodable, encoder_rows
from tellapart.features.store import FeatureStore
from tellapart.types import Encoder, Item, Rows
from tellapart.utils.blocks import blocks_of

if TYPE_CHECKING:
    from tellapart.captioners.captioner import Captioner

OFF = "off"  # value of ``features`` that means: recompute features on each access


class View(Protocol):
    """Provides the input for one captioner."""

    def readable(self, items: Sequence[Item], skipped: Skipped | None = None) -> list[Item]:
        """Returns the items that have an input, and adds all other items to ``skipped``."""
        ...

    def rows(self, items: Sequence[Item]) -> Rows:
        """Returns the captioner's input, one row per item."""
        ...


class EncodedView:
    """Provides an encoder's features: from a feature store or, if ``stored`` is False, recomputed on each access.

    Recomputing is for data sets that are too large for the store. The store then only remembers which pictures can be
    decoded, with one byte per picture. ``make_encoder`` hashes the weights, so it is called only on first use.
    """

    def __init__(
        self, make_encoder: Callable[[], Encoder], store: FeatureStore, progress: bool = True, stored: bool = True
    ) -> None:
        self.make_encoder, self.store, self.progress, self.stored = make_encoder, store, progress, stored

    @cached_property
    def encoder(self) -> Encoder:
        return self.make_encoder()

    def readable(self, items: Sequence[Item], skipped: Skipped | None = None) -> list[Item]:
        encoder = self.encoder if self.stored else decodable()
        return self.store.readable(items, encoder, skipped=skipped, progress=self.progress)

    def rows(self, items: Sequence[Item]) -> Rows:
        if not self.stored:
            return StreamedRows(items, encoder_rows(self.encoder))
        return self.store.features(items, self.encoder, progress=self.progress)


class FeatureFileView:
    """Provides features from files. Does not open the pictures."""

    def __init__(self, files: FeatureFiles, width: int | None) -> None:
        self.files, self.width = files, width

    def readable(self, items: Sequence[Item], skipped: Skipped | None = None) -> list[Item]:
        items_read = []
        for item, name in zip(items, self.files.names_of(items), strict=True):
            if name is not None:
                items_read.append(item)
            elif skipped is not None:
                skipped.add(item.id, f"no features in {self.files.path}")
        return items_read

    def rows(self, items: Sequence[Item]) -> Rows:
        return self.files.rows(items, self.width)


class PromptView:
    """Provides prompts as rows of token ids, for a text-only language model."""

    def __init__(self, captioner: Captioner) -> None:
        self.captioner = captioner

    def readable(self, items: Sequence[Item], skipped: Skipped | None = None) -> list[Item]:
        for item in items:
            if not hasattr(item.picture, "text"):
                raise UsageError(
                    f"{self.captioner.name} is a language model without vision, but {item.id} is a picture; use "
                    "data such as instructions:FILE.jsonl"
                )
        return list(items)

    def rows(self, items: Sequence[Item]) -> Rows:
        prompts = [(item.id, item.picture.text) for item in items]  # type: ignore[attr-defined]
        rows: np.ndarray = self.captioner.prompt_rows(prompts)  # type: ignore[attr-defined]
        return rows


def make_view(captioner: Captioner, store: FeatureStore, features: str | None = None, *, progress: bool = True) -> View:
    """Builds the view for a captioner.

    ``features``: path to features to use instead of the captioner's encoder, or "off" to disable the feature store.
    """
    if hasattr(captioner, "prompt_rows"):
        return PromptView(captioner)
    if features in (None, OFF):
        stored = features is None and captioner.makes_features  # otherwise the rows would be pixels
        return EncodedView(lambda: captioner.encoder, store, progress, stored)
    width = getattr(captioner.model.config, "visual_size", None)
    return FeatureFileView(FeatureFiles.open(features, equal=not captioner.masks_regions), width)


class StreamedRows:
    """Array-like access to items' rows by a slice or an index array. The rows equal those that the store would hold."""

    def __init__(self, items: Sequence[Item], maker: RowMaker, batch_size: int = BATCH_SIZE) -> None:
        self._items, self._maker, self._batch_size = items, maker, batch_size

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, places: slice | np.ndarray, /) -> np.ndarray:
        numbers = range(len(self))[places] if isinstance(places, slice) else places.tolist()
        pictures = [self._items[number].picture for number in numbers]
        step = max(1, self._batch_size // self._maker.frames)
        parts = [self._maker.rows([*map(self._maker.of, some)]) for some in blocks_of(pictures, step)]
        return np.concatenate(parts) if parts else np.zeros((0,), np.float32)
