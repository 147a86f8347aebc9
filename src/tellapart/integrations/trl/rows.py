"""The rows that TRL passes to a reward function: completions and the data set's columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tellapart.errors import UsageError

Completion = str | Sequence[Mapping[str, Any]]  # a text, or the messages of a conversation


def text_of(completion: Completion) -> str:
    """Returns the caption in a completion: the completion itself if it is text, otherwise the text of the last message.

    Raises `UsageError` if the last message has no text, for example because it contains only tool calls.
    """
    if isinstance(completion, str):
        return completion.strip()
    content = completion[-1].get("content") if completion else None
    if content is None:
        shown = repr(completion)
        raise UsageError(
            f"a completion has no text ({shown if len(shown) < 80 else shown[:79] + '…'}); expected a string, or "
            "messages that end with a message with content; remove tools from the trainer"
        )
    if isinstance(content, str):
        return content.strip()
    return "".join(part.get("text") or "" for part in content).strip()


def column(columns: Mapping[str, Any], name: str, what: str) -> Sequence[Any]:
    """Returns a data set column that TRL passes to rewards. Raises `UsageError` if the column is missing."""
    if name not in columns:
        raise UsageError(f"the data set has no column '{name}'; expected a column with {what}")
    values: Sequence[Any] = columns[name]
    return values


class RewardFunction(Protocol):
    """A TRL reward function. Returns a number for each completion, or None to abstain."""

    __name__: str

    def __call__(self, completions: Sequence[Completion], **columns: Any) -> list[float | None]: ...
