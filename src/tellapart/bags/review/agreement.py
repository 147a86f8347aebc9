"""Inter-rater agreement: Cohen's κ of each pair of reviewers, on the bags that both have decided."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from tellapart.bags.review.store import FACETS, Decision


@dataclass(frozen=True)
class Agreement:
    """Two reviewers on the ``bags`` that both have decided.

    ``agreed`` is the share of equal verdicts, ``kappa`` that of keep and drop. ``facets`` has κ of each facet (named or
    not) on the ``kept`` bags that both keep. κ is None where it is undefined: no bag in common, or both
    always gave the same one answer.
    """

    reviewers: tuple[str, str]
    bags: int
    agreed: float | None
    kappa: float | None
    kept: int
    facets: dict[str, float | None]

    def to_json(self) -> dict[str, Any]:
        """The JSON of the page and of review.json."""
        return asdict(self)


def cohen_kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Agreement beyond chance of two raters on the same things, −1 to 1 (Cohen, 1960).

    κ = (p_o − p_e) / (1 − p_e): p_o is the share of equal labels, p_e what two raters with these shares of labels
    would reach by chance. None where nothing was rated, or p_e = 1. Raises `ValueError` for unequal lengths.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} ratings and {len(second)}; both raters must have rated the same things")
    n = len(first)
    one, two = Counter(first), Counter(second)
    # In whole numbers: p_e = 1 is then met exactly, and 1 − p_e never a rounding error.
    equal = sum(a == b for a, b in zip(first, second, strict=True))
    chance = sum(one[label] * two[label] for label in one)
    if n * n == chance:  # n = 0, too
        return None
    return (n * equal - chance) / (n * n - chance)


def agreements(decisions: Iterable[Decision]) -> list[Agreement]:
    """Every two reviewers, by name, from the decisions that stand."""
    by_reviewer: dict[str, dict[str, Decision]] = {}
    for decision in decisions:
        by_reviewer.setdefault(decision.reviewer, {})[decision.bag] = decision
    return [_pair((a, b), by_reviewer[a], by_reviewer[b]) for a, b in combinations(sorted(by_reviewer), 2)]


def _pair(names: tuple[str, str], first: dict[str, Decision], second: dict[str, Decision]) -> Agreement:
    both = [(first[bag], second[bag]) for bag in first if bag in second]
    kept = [(a, b) for a, b in both if a.verdict == b.verdict == "keep"]
    return Agreement(
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
