"""Captions that people rated or compared: what every published layout becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RatedCaption:
    """One caption of one picture, its references, and people's ratings: none where it was only compared."""

    picture: str
    caption: str
    references: tuple[str, ...]
    ratings: tuple[float, ...] = ()
    system: str = ""


@dataclass(frozen=True)
class ComparedPair:
    """Two captions of one picture, by their places in `Judgements.captions`; people prefer ``better``.

    tied: as many prefer the one as the other, so a metric is right with either half of the time.
    """

    better: int
    worse: int
    category: str = ""
    tied: bool = False


@dataclass(frozen=True)
class Judgements:
    """A published set. ``tau``: the variant ("b" or "c") that papers print; "" where they print accuracy on pairs.

    rule: what was done with captions that are themselves a reference, for the signature. judges: who rated.
    """

    layout: str
    captions: tuple[RatedCaption, ...]
    pairs: tuple[ComparedPair, ...] = ()
    tau: str = "c"
    rule: str = ""
    judges: str = "people"
    notes: tuple[str, ...] = ()

    @property
    def ratings(self) -> int:
        """How many ratings there are."""
        return sum(len(caption.ratings) for caption in self.captions)

    def with_pairs_of_ratings(self) -> Judgements:
        """Where there are ratings and no pairs: every two captions of a picture whose mean ratings differ."""
        if self.pairs:
            return self
        of_picture: dict[str, list[int]] = {}
        for row, caption in enumerate(self.captions):
            if caption.ratings:
                of_picture.setdefault(caption.picture, []).append(row)
        mean = [sum(caption.ratings) / len(caption.ratings) if caption.ratings else 0.0 for caption in self.captions]
        pairs = [
            ComparedPair(*((first, second) if mean[first] > mean[second] else (second, first)))
            for rows in of_picture.values()
            for place, first in enumerate(rows)
            for second in rows[place + 1 :]
            if mean[first] != mean[second]
        ]
        return replace(self, pairs=tuple(pairs))


def without_reference_captions(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """The captions that are no reference of their picture (Flickr8k-Expert and -CF)."""
    return tuple(row for row in rows if _same(row.caption) not in {_same(text) for text in row.references})


def without_own_reference(rows: Sequence[RatedCaption]) -> tuple[RatedCaption, ...]:
    """All captions; one that is a reference is taken out of its references (Composite, THumB, FOIL).

    A picture that has no other reference keeps nothing, and is left out.
    """
    kept = [
        replace(row, references=tuple(text for text in row.references if _same(text) != _same(row.caption)))
        for row in rows
    ]
    return tuple(row for row in kept if row.references)


def _same(text: str) -> str:
    return " ".join(text.split()).rstrip(" .").lower()
