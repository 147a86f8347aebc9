"""Computes the agreement between reviewers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from tellapart.bags.review.store import FACETS, Decision


@dataclass(frozen=True)
class ReviewerAgreement:
    """The agreement between two reviewers.

    bags: number of bags that both have judged.
    agreed: share of equal verdicts.
    kappa: κ of the verdicts.
    kept: number of bags that both keep.
    facets: κ of each facet (selected or not) on the bags that both keep.
    κ is None if it is undefined, because the reviewers have no bag in common or always gave the same answer.
    """

    reviewers: tuple[str, str]
    bags: int
    agreed: float | None
    kappa: float | None
    kept: int
    facets: dict[str, float | None]

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON for the page and review.json."""
        return asdict(self)


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Computes Cohen's κ, the agreement of two raters beyond chance, −1 to 1 (Cohen, 1960).

    κ = (p_o − p_e) / (1 − p_e), where p_o is the share of equal labels and p_e the agreement expected by chance from
    the raters' label shares. None if there are no ratings or p_e = 1. Raises `ValueError` if the lengths differ.
    """
    if len(first) != len(second):
        raise ValueError(f"both raters must have rated the same items, got {len(first)} and {len(second)} ratings")
    n = len(first)
    one, two = Counter(first), Counter(second)
    # Integers, so that p_e = 1 is detected exactly and 1 − p_e is never a rounding error.
    equal = sum(a == b for a, b in zip(first, second, strict=True))
    chance = sum(one[label] * two[label] for label in one)
    if n * n == chance:  # also true for n = 0
        return None
    return (n * equal - chance) / (n * n - chance)


def agreements(decisions: Iterable[Decision]) -> list[ReviewerAgreement]:
    """Computes the agreement of every pair of reviewers, by name, from the valid decisions."""
    by_reviewer: dict[str, dict[str, Decision]] = {}
    for decision in decisions:
        by_reviewer.setdefault(decision.reviewer, {})[decision.bag] = decision
    return [_pair((a, b), by_reviewer[a], by_reviewer[b]) for a, b in combinations(sorted(by_reviewer), 2)]


def _pair(names: tuple[str, str], first: dict[str, Decision], second: dict[str, Decision]) -> ReviewerAgreement:
    both = [(first[bag], second[bag]) for bag in first if bag in second]
    kept = [(a, b) for a, b in both if a.verdict == b.verdict == "keep"]
    return ReviewerAgreement(
        reviewers=names,
        bags=len(both),
        agreed=sum(a.verdict == b.verdict for a, b in both) / len(both) if both else None,
        kappa=cohen_kappa([a.verdict for a, _ in both], [b.verdict for _, b in both]),
        kept=len(kept),
        facets={
            facet: cohen_kappa([facet in a.facets for a, _ in kept], [facet in b.facets for _, b in kept])
            for facet in FACETS
        },
    )
