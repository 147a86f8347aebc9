"""Records the items that were skipped, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from tellapart.errors import PictureError

MAX_NAME = 255  # characters of a name in a message; damaged base64 is longer


def short_name(name: str) -> str:
    """Returns a name for use in a message, shortened in the middle if it is too long for a file name."""
    return name if len(name) <= MAX_NAME else f"{name[:40]}…{name[-40:]}"


class Skipped(Sequence[tuple[str, str]]):
    """Items that were skipped, as (name, reason) pairs with unique names. Commands print `line` at the end.

    Keeps at most ``MAX_NAMED`` names and only counts the rest, because a third of a web corpus can be missing.
    """

    MAX_NAMED = 10_000

    def __init__(self, entries: Iterable[tuple[str, str]] = ()) -> None:
        self._reasons: dict[str, str] = {}
        self._unnamed = 0
        for name, reason in entries:
            self.add(name, reason)

    def add(self, name: str, reason: str) -> None:
        """Adds an item. A name that is already present keeps its first reason."""
        if name in self._reasons or len(self._reasons) < self.MAX_NAMED:
            self._reasons.setdefault(name, reason)
        else:
            self._unnamed += 1

    def extend(self, others: Skipped) -> None:
        """Adds all items of ``others``."""
        for name, reason in others:
            self.add(name, reason)
        self._unnamed += others._unnamed

    def add_error(self, name: str, error: PictureError) -> None:
        """Adds a picture with its `PictureError`, whose message is usually ``name: reason``."""
        self.add(name, str(error).removeprefix(f"{name}: "))

    def line(self, total: int, *, what: str = "pictures could not be read", shown: int = 5) -> str | None:
        """Returns e.g. ``3 of 1,000 pictures could not be read: a.jpg (truncated), …``, or None without items."""
        if not self._reasons:
            return None
        some = ", ".join(f"{short_name(name)} ({reason})" for name, reason in list(self)[:shown])
        more = f", and {len(self) - shown:,} more" if len(self) > shown else ""
        return f"{len(self):,} of {total:,} {what}: {some}{more}"

    @overload
    def __getitem__(self, index: int) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, index: slice) -> list[tuple[str, str]]: ...
    def __getitem__(self, index: int | slice) -> tuple[str, str] | list[tuple[str, str]]:
        return list(self._reasons.items())[index]

    def __len__(self) -> int:
        return len(self._reasons) + self._unnamed

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._reasons.items())

    def __repr__(self) -> str:
        return f"Skipped({list(self)!r})"
