"""Compares two systems picture by picture: where CIDEr falls most and why, and which pictures only the later system
retrieves.

Paper 2 (appendix C.7, figures 7 and 8) examines the pictures where self-retrieval loses most CIDEr, and finds both
correct, more detailed captions and hallucinated ones. Paper 3 (figure 2) shows pictures that only DiscriTune's caption
retrieves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from tellapart.evaluation.candidate_sets import random_pools
from tellapart.evaluation.context import POOL
from tellapart.evaluation.retrieval import retrieve
from tellapart.language.distinct_claims import judged_by_references
from tellapart.metrics.cider import cider_d
from tellapart.scenes.marked_captions import mark_caption
from tellapart.scenes.world import Scene
from tellapart.types import Item
from tellapart.utils.progress import track

Kind = Literal["better", "equal", "hallucinated"]


@dataclass(frozen=True)
class Fall:
    """A picture whose CIDEr drops. Each tuple holds the values before and after.

    cider: the CIDEr in percent.
    correct, false: the number of correct and false claims in the caption.
    """

    id: str
    kind: Kind
    before: str
    after: str
    cider: tuple[float, float]
    correct: tuple[int, int]
    false: tuple[int, int]


@dataclass(frozen=True)
class OnlyRight:
    """A picture that the later caption retrieves from the candidates, but the earlier caption does not."""

    id: str
    before: str
    after: str


@dataclass(frozen=True)
class Changes:
    """Differences between two systems.

    falls: the largest drops of each kind, largest first.
    kinds: the number of drops of each kind; they sum to ``fallen``.
    retrieval: the number of pictures that both, only one, or neither of the systems retrieves.
    """

    pictures: int
    fallen: int
    kinds: dict[str, int]
    judged_by: str
    falls: list[Fall]
    retrieval: dict[str, int] = field(default_factory=dict)
    only_after: list[OnlyRight] = field(default_factory=list)


def find_falls(
    items: Sequence[Item], references: Sequence[Sequence[str]], before: Sequence[str], after: Sequence[str], top: int
) -> tuple[list[Fall], dict[str, int]]:
    """For each kind, returns the ``top`` largest drops in CIDEr-D from ``before`` to ``after``, and the number of
    drops.

    The kinds are "hallucinated" (more false claims than before), "better" (no more false claims and more correct ones)
    and "equal" (all other drops).
    """
    old_N, new_N = (100 * cider_d(texts, references)[1] for texts in (before, after))
    order = [int(n) for n in np.argsort(new_N - old_N, kind="stable") if new_N[n] < old_N[n]]
    falls, kinds = [], dict.fromkeys(get_args(Kind), 0)
    for n in track(order, label="falls"):
        counts = [count_claims(text, items[n], references[n]) for text in (before[n], after[n])]
        correct, false = zip(*counts, strict=True)
        kind: Kind = "hallucinated" if false[1] > false[0] else "better" if correct[1] > correct[0] else "equal"
        kinds[kind] += 1
        if kinds[kind] <= top:
            ciders = round(float(old_N[n]), 2), round(float(new_N[n]), 2)
            falls.append(Fall(items[n].id, kind, before[n], after[n], ciders, correct, false))
    return falls, kinds


def count_claims(caption: str, item: Item, references: Sequence[str]) -> tuple[int, int]:
    """Returns the number of (correct, false) claims. Compares claims with the scene's ground truth if it is known,
    otherwise with the references' claims.
    """

    if isinstance(item.truth, Scene):
        marked = mark_caption(caption, item.truth)
        return marked.correct, marked.claims - marked.correct
    stated = judged_by_references(caption, references).values()
    return sum(stated), len(stated) - sum(stated)


def find_only_right(
    ids: Sequence[str], before: Sequence[str], after: Sequence[str], features: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[dict[str, int], list[OnlyRight]]:
    """For each picture, finds which systems retrieve it from its block of 100 consecutive pictures.

    features: features N×D for the earlier captions, the later captions, and the pictures.
    Ignores an incomplete last block, as paper 3 does.
    """
    *texts, image_ND = features
    sets = random_pools(len(ids), min(POOL, len(ids)))
    hit_SN = [retrieve(sets, text_ND, image_ND).hit(1) for text_ND in texts]
    names = {(1, 1): "both", (1, 0): "only_before", (0, 1): "only_after", (0, 0): "neither"}
    who = [names.get(pair, "") for pair in zip(*hit_SN, strict=True)]  # "" in an incomplete block, whose hits are NaN
    only = [OnlyRight(*row) for *row, right in zip(ids, before, after, who, strict=True) if right == "only_after"]
    return {name: who.count(name) for name in names.values()}, only
