"""Plans how many participants and items a study needs: simulates its power with the same analysis as the report.

In the model, a rating is the sum of a system's mean and random effects of participant and item, on the scale of
log-odds (``pick``, ``compare``) or of the ratings (``rate``, then rounded to 1 to 5). ``agreement`` says how
consistently people answer the same item: it is the fraction of the variance of answers that the item explains, which
Krippendorff's alpha estimates. Half of it is due to the picture (shared by all systems), half to the caption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tellapart.errors import UsageError
from tellapart.study.design import STUDY_KINDS
from tellapart.study.intervals import Ratings, difference, means, resampled_means
from tellapart.utils.progress import Progress

PERSON_LOGIT = 0.3  # standard deviation between participants, in log-odds
PERSON_SHARE = 0.1  # share of the variance of ratings that participants explain
RATING_SD = 1.0  # standard deviation of single ratings, on the scale from 1 to 5
RESAMPLES = 200  # number of bootstrap resamples for each simulated study
CANDIDATE_RATERS = (1, 2, 3, 5, 8, 12)
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of a power analysis.

    base, difference: shares for ``pick`` (0.05 is five percentage points); points on the rating scale for ``rate``; for
        ``compare``, the difference between the systems' shares of "tells more" (base is 0.5).
    pay: pay per participant.
    fee: the platform's fee, as a fraction of the pay.
    """

    kind: str
    base: float
    difference: float
    agreement: float
    systems: int = 2
    block: int = 100
    pay: float = 0.0
    fee: float = 0.0
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.kind not in STUDY_KINDS:
            raise UsageError(f"unknown kind of study '{self.kind}'; expected {', '.join(STUDY_KINDS)}")
        low, high = (1.0, 5.0) if self.kind == "rate" else (0.0, 1.0)
        # The two systems' shares lie half the difference above and below one half.
        first = self.base - (self.difference / 2 if self.kind == "compare" else 0)
        if not (low < first < high and low < first + self.difference < high and self.difference):
            raise UsageError(
                f"--base {self.base:g} and --difference {self.difference:g}: expected both systems "
                f"between {low:g} and {high:g}, and a nonzero difference"
            )
        if not 0 <= self.agreement < 1:
            raise UsageError(f"--agreement {self.agreement:g}: expected at least 0 and below 1")
        if self.systems < 2:
            raise UsageError("--systems: expected at least 2")


@dataclass(frozen=True)
class PlannedDesign:
    """A design: its size, cost and power. Power is the share of simulated studies that detect the difference."""

    items: int
    raters: int
    participants: int
    answers: int
    cost: float
    power: float


def plan(
    assumed: Assumptions, items: Sequence[int], raters: Sequence[int] = CANDIDATE_RATERS, *, studies: int = 200,
    seed: int = 0,
) -> list[PlannedDesign]:  # fmt: skip
    """Computes the power of each combination of items and raters, cheapest first."""
    rows = []
    with Progress(len(items) * len(raters), "simulating studies") as progress:
        for count in items:
            for each in raters:
                rows.append(_row(assumed, count, each, studies, seed))
                progress.advance()
    return sorted(rows, key=lambda row: (row.cost or row.participants, -row.power))


def cheapest(rows: Sequence[PlannedDesign], power: float, budget: float | None = None) -> PlannedDesign | None:
    """Returns the first design that reaches ``power`` within ``budget`` (if given); None if there is none."""
    return next((row for row in rows if row.power >= power and (budget is None or row.cost <= budget)), None)


def _row(assumed: Assumptions, items: int, raters: int, studies: int, seed: int) -> PlannedDesign:
    conditions = math.comb(assumed.systems, 2) if assumed.kind == "compare" else assumed.systems
    blocks = -(-items // assumed.block) * conditions
    participants = blocks * raters
    found = sum(_finds(assumed, items, raters, np.random.default_rng([seed, items, raters, n])) for n in range(studies))
    cost = participants * assumed.pay * (1 + assumed.fee)
    return PlannedDesign(items, raters, participants, items * conditions * raters, cost, found / studies)


def _finds(assumed: Assumptions, items: int, raters: int, rng: np.random.Generator) -> bool:
    """Returns whether the interval of one simulated study excludes zero on the correct side."""
    ratings = simulated_ratings(assumed, items, raters, rng)
    value_S = means(ratings, 2)
    draws = resampled_means(ratings, 2, RESAMPLES, int(rng.integers(1 << 29)))
    found = difference(float(value_S[1] - value_S[0]), draws[1] - draws[0], 0, assumed.confidence)
    return found.low > 0 if assumed.difference > 0 else found.high < 0


def simulated_ratings(assumed: Assumptions, items: int, raters: int, rng: np.random.Generator) -> Ratings:
    """Simulates the answers about the two systems that are compared, for all blocks of the design.

    A participant sees every item of the block's part once. In a Latin square of S systems, a fraction of about 2 / S of
    these items shows one of the two systems.
    """
    if assumed.kind == "compare":
        return _comparisons(assumed, items, raters, rng)
    parts = -(-items // assumed.block)
    unit_I = np.arange(items)
    part_I = unit_I * parts // items
    rows = []
    for turn in range(assumed.systems):  # the block of each part that shows this item with that system
        system_I = (unit_I + turn) % assumed.systems
        for rater in range(raters):
            person_I = (part_I * assumed.systems + turn) * raters + rater
            keep_I = system_I < 2
            rows.append(np.stack([person_I[keep_I], unit_I[keep_I], system_I[keep_I]]))
    person_M, item_M, system_M = np.concatenate(rows, 1)
    people, shared, own = _deviations(assumed)
    person_P = rng.normal(0, people, parts * assumed.systems * raters)
    tendency_M = rng.normal(0, shared, items)[item_M] + rng.normal(0, own, (items, 2))[item_M, system_M]
    tendency_M = tendency_M + person_P[person_M]
    spread = math.sqrt(people**2 + shared**2 + own**2)
    targets = (assumed.base, assumed.base + assumed.difference)
    if assumed.kind == "rate":
        rest = math.sqrt(max(RATING_SD**2 - spread**2, 1e-6))
        middle_M = np.array([rating_center(mean, math.hypot(spread, rest)) for mean in targets])[system_M]
        value_M = np.clip(np.round(middle_M + tendency_M + rng.normal(0, rest, len(middle_M))), 1, 5)
    else:
        middle_M = np.array([center(mean, spread) for mean in targets])[system_M]
        value_M = (rng.random(len(middle_M)) < _expit(middle_M + tendency_M)).astype(float)
    return Ratings(person_M, item_M, system_M, value_M)


def _comparisons(assumed: Assumptions, items: int, raters: int, rng: np.random.Generator) -> Ratings:
    """Simulates comparisons. Each yields two ratings, one of the winner and one of the loser.

    With more than two systems, a participant sees a given pair only in some items: each part has one block per pair.
    """
    parts, turns = -(-items // assumed.block), math.comb(assumed.systems, 2)
    unit_M = np.repeat(np.arange(items), raters)
    block_M = (unit_M * parts // items) * turns + unit_M % turns
    person_M = block_M * raters + np.tile(np.arange(raters), items)
    people, shared, own = _deviations(assumed)
    item = math.hypot(shared, own)
    tendency_M = rng.normal(0, people, parts * turns * raters)[person_M] + rng.normal(0, item, items)[unit_M]
    middle = center(0.5 + assumed.difference / 2, math.hypot(people, item))
    win_M = (rng.random(len(unit_M)) < _expit(middle + tendency_M)).astype(float)
    systems = np.concatenate([np.zeros(len(unit_M), int), np.ones(len(unit_M), int)])
    return Ratings(np.tile(person_M, 2), np.tile(unit_M, 2), systems, np.concatenate([1 - win_M, win_M]))


def _deviations(assumed: Assumptions) -> tuple[float, float, float]:
    """Returns the standard deviations of three random effects: participants, items across systems, and items within a
    system.
    """
    if assumed.kind == "rate":
        item = math.sqrt(assumed.agreement) * RATING_SD
        return math.sqrt(PERSON_SHARE * (1 - assumed.agreement)) * RATING_SD, item / math.sqrt(2), item / math.sqrt(2)
    base = 0.5 if assumed.kind == "compare" else assumed.base
    item = spread_for(base, assumed.agreement)
    return PERSON_LOGIT, item / math.sqrt(2), item / math.sqrt(2)


@lru_cache(256)
def center(mean: float, spread: float) -> float:
    """Returns the center, in log-odds, for which answers with this spread have this mean."""
    return _solve(lambda middle: _moments(middle, spread)[0], mean, -60.0, 60.0)


@lru_cache(256)
def rating_center(mean: float, deviation: float) -> float:
    """Returns the mean of normally distributed opinions whose ratings (rounded to 1 to 5) have the given mean. The
    opinions have this standard deviation.
    """
    return _solve(
        lambda middle: 1 + sum(1 - NormalDist(middle, deviation).cdf(rating + 0.5) for rating in range(1, 5)),
        mean, -60.0, 60.0,
    )  # fmt: skip


@lru_cache(256)
def spread_for(mean: float, agreement: float) -> float:
    """Returns the standard deviation of items, in log-odds, for which two answers to an item have this correlation."""

    def correlation(spread: float) -> float:
        first, second = _moments(center(mean, spread), spread)
        return (second - first**2) / (first * (1 - first))

    return _solve(correlation, agreement, 0.0, 40.0)


def _solve(increasing: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Returns where a function reaches ``value``, by bisection; an end of the range if it does not reach it."""
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < value else (low, middle)
    return (low + high) / 2


def _moments(middle: float, spread: float) -> tuple[float, float]:
    """Returns the mean and the mean square of probabilities whose log-odds are normally distributed."""
    share = _expit(middle + spread * _NODES)
    weight = _WEIGHTS / _WEIGHTS.sum()
    return float(share @ weight), float(share**2 @ weight)


def _expit(value: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(value, -500, 500))), float)
