"""Human judgements of captions: ratings, and comparisons of caption pairs."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class RatedCaption:
    """A caption with its picture's references and its human ratings. ``ratings`` is empty if people only compared the
    caption with others.
    """

    picture: str
    caption: str
    references: tuple[str, ...]
    ratings: tuple[float, ...] = ()
    system: str = ""


@dataclass(frozen=True)
class ComparedPair:
    """Two captions of one picture, as indices into `Judgements.captions`. People prefer ``better``.

    tied: whether as many people prefer one caption as the other. A metric is then half right, whichever it prefers.
    """

    better: int
    worse: int
    category: str = ""
    tied: bool = False


@dataclass(frozen=True)
class Judgements:
    """A published set of human judgements.

    tau: the variant ("b" or "c") that papers report; "" if they report accuracy on pairs.
    table: the key in `tellapart.evaluation.human_judgements.published_agreement`, if it is not the layout.

    rule: how captions that are also references are treated, for the signature.
    judges: who rated the captions.
    """

    layout: str
    captions: tuple[RatedCaption, ...]
    pairs: tuple[ComparedPair, ...] = ()
    tau: str = "c"
    rule: str = ""
    judges: str = "people"
    notes: tuple[str, ...] = ()
    table: str = ""

    @property
    def ratings(self) -> int:
        """Returns the number of ratings."""
        return sum(len(caption.ratings) for caption in self.captions)

    def with_pairs_of_ratings(self) -> Judgements:
        """If there are only ratings, adds all pairs of captions of the same picture whose mean ratings differ."""
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
