"""Defines data sets: items in a fixed order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Self, overload

from PIL import Image

from tellapart.data.skipped import Skipped
from tellapart.errors import PictureError, TellapartError
from tellapart.types import Item


class Items(Sequence[Item]):
    """Items whose slices have the same type, so that items created on access are never copied to a list."""

    @abstractmethod
    def item_at(self, index: int) -> Item:
        """Returns one item."""

    @abstractmethod
    def subset(self, indices: Iterable[int]) -> Self:
        """Returns the items at these indices, in this order."""

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Item | Self:
        return self.subset(range(len(self))[index]) if isinstance(index, slice) else self.item_at(index)


ReadItems = tuple[Sequence[Item], Skipped]  # what a reader returns: items, and those that it skipped


def select_items(items: Sequence[Item], indices: Iterable[int]) -> Sequence[Item]:
    """Returns the items at these indices, in this order: as a list, or of the type of ``items`` if they are `Items`."""
    return items.subset(indices) if isinstance(items, Items) else [items[index] for index in indices]


class Dataset(Items):
    """Items in a fixed order. Slicing returns a data set.

    spec: the specification that was opened.
    missing: what the data set lacks, found when it is opened: mostly pictures that are listed but not on disk.
    unreadable: pictures that could not be read later; `load_image` and the commands add to it.
    items: any sequence. Items that a reader creates on demand are never copied to a list.
    """

    def __init__(self, spec: str, items: Sequence[Item], missing: Skipped | None = None) -> None:
        self.spec = spec
        self._items = items
        self.missing = missing if missing is not None else Skipped()
        self.unreadable = Skipped()

    def item_at(self, index: int) -> Item:
        """Returns one item."""
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def subset(self, indices: Iterable[int]) -> Self:
        """Returns the items at these indices, in this order. Shares `missing` and `unreadable` with this data set."""
        part = type(self)(self.spec, select_items(self._items, indices), self.missing)
        part.unreadable = self.unreadable
        return part

    def load_image(self, item: Item) -> Image.Image | None:
        """Loads the item's picture. If it cannot be read, adds it to `unreadable` and returns None."""
        try:
            return item.picture.image()
        except PictureError as error:
            self.unreadable.add_error(item.picture.name, error)
            return None

    def report(self) -> list[str]:
        """Returns lines about skipped items, to print when a command finishes, or an empty list."""
        total = len(self) + len(self.missing)
        lines = [
            self.missing.line(total, what="could not be opened and were skipped"),
            self.unreadable.line(len(self)),
        ]
        return [line for line in lines if line]

    def refuse_mostly_unreadable(self) -> None:
        """Raises `TellapartError` if more than half of the pictures could not be read.

        The output for the other pictures is already written, but is hardly what the user wanted.
        """
        if 2 * len(self.unreadable) > len(self) > 0:
            raise TellapartError(
                f"{len(self.unreadable):,} of {len(self):,} pictures could not be read, which is "
                "more than half; the results for the other pictures were written; fix or "
                "remove the unreadable pictures"
            )

    def __repr__(self) -> str:
        return f"Dataset({self.spec!r}, {len(self):,} items)"


class Changed(Items):
    """Items transformed by ``change`` on access."""

    def __init__(self, items: Sequence[Item], change: Callable[[Item], Item]) -> None:
        self._items, self._change = items, change

    def __len__(self) -> int:
        return len(self._items)

    def item_at(self, index: int) -> Item:
        """Returns one transformed item."""
        return self._change(self._items[index])

    def subset(self, indices: Iterable[int]) -> Self:
        """Returns the items at these indices, in this order, which are also transformed on access."""
        return type(self)(select_items(self._items, indices), self._change)
