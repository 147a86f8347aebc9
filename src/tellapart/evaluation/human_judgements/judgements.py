"""Human judgements of captions: ratings, and comparisons of caption pairs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import combinations


@dataclass(frozen=True)
class RatedCaption:
    """A caption with its picture's references and its human ratings. ``ratings`` is empty if people only compared the
    caption with others.
    """

    picture: str
    caption: str
    references: tuple[str, ...]
    ratings: tuple[float, ...] = ()


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
    rule: how captions that are also references are treated, for the signature.
    judges: who rated the captions.
    table: the key in `tellapart.evaluation.human_judgements.published_agreement`, if it is not the layout.
    """

    layout: str
    captions: tuple[RatedCaption, ...]
    pairs: tuple[ComparedPair, ...] = ()
    tau: str = "c"
    rule: str = ""
    judges: str = "people"
    notes: tuple[str, ...] = ()
    table: str = ""

    def with_pairs_of_ratings(self) -> Judgements:
        """If there are only ratings, adds all pairs of captions of the same picture whose mean ratings differ."""
        if self.pairs:
            return self
        mean_of: dict[str, dict[int, float]] = defaultdict(dict)  # by picture and index
        for row, caption in enumerate(self.captions):
            if caption.ratings:
                mean_of[caption.picture][row] = sum(caption.ratings) / len(caption.ratings)
        pairs = [
            ComparedPair(one, other) if mean[one] > mean[other] else ComparedPair(other, one)
            for mean in mean_of.values()
            for one, other in combinations(mean, 2)
            if mean[one] != mean[other]
        ]
        return replace(self, pairs=tuple(pairs))
