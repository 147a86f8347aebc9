"""Errors in single rows of data."""

from __future__ import annotations

from tellapart.errors import UsageError


class RowError(UsageError):
    """An error that affects one row, which is then skipped and reported.

    For example, the row's caption is a file name or a broken list, or the row has several pictures.
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where, self.reason = where, reason
