"""Holds the texts that are made from captions, with the edits that a person should check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

MAX_LISTED = 20  # maximum number of words, examples or pictures in a message


@dataclass(frozen=True)
class Edited:
    """A text made from a caption.

    text: "" if no text could be made.
    doubts: (kind, detail) for each edit that a person should check.
    long: a second, longer text; "" if there is none.
    accepted: whether a person accepted the text as it is. An accepted empty text marks a decorative picture.
    language: the language code; "" if unspecified.
    variation: what the picture's captions agree on (`tellapart.purposes.variation`); {} for one or two captions.
    """

    text: str
    doubts: tuple[tuple[str, str], ...] = ()
    long: str = ""
    accepted: bool = False
    language: str = ""
    variation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def decorative(self) -> bool:
        """Returns whether a person marked the picture as needing no text."""
        return self.accepted and not self.text


def several(edited: Mapping[str, Edited]) -> dict[str, Edited]:
    """Joins the distinct texts of each picture, one per line. The keys are those of `LoraCaptions.edited`."""
    found: dict[str, Edited] = {}
    for key, one in edited.items():
        first = found.setdefault(key.partition("\n")[0], one)
        texts = dict.fromkeys(text for text in (*first.text.split("\n"), one.text) if text)
        doubts = () if texts and not first.text else first.doubts
        found[key.partition("\n")[0]] = replace(first, text="\n".join(texts), doubts=doubts)
    return found


def without_text(edited: Mapping[str, Edited]) -> Iterator[str]:
    """Yields a line with the reason for each picture without a text, up to `MAX_LISTED` lines."""
    bad = [(key, one.doubts[0][1]) for key, one in edited.items() if not one.text]
    yield from (f"no text for {key}: the caption is {why}" for key, why in bad[:MAX_LISTED])
    if len(bad) > MAX_LISTED:
        yield f"no text for {len(bad) - MAX_LISTED:,} other pictures"
