"""Power analysis: how many participants and items a study needs. Simulates the study's power with the same analysis as
the report.

In the model, a rating is the sum of a system's mean and the random effects of the participant and the item. The sum is
in log-odds for ``pick`` and ``compare``. For ``rate``, it is on the rating scale and is then rounded to 1 to 5.
``agreement`` says how consistently people answer the same item. It is the fraction of the answers' variance that the
item explains, which Krippendorff's alpha estimates. Half of it is due to the picture, which all systems share, and half
is due to the caption.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from tellapart.errors import UsageError
from tellapart.study.intervals import Floats, Ratings, system_means
from tellapart.study.questions import check_kind
from tellapart.utils.progress import Progress

PERSON_LOGIT = 0.3  # standard deviation between participants, in log-odds
PERSON_SHARE = 0.1  # fraction of the variance that participants explain, out of what items do not explain
RATING_SD = 1.0  # standard deviation of single ratings, on the scale from 1 to 5
RESAMPLES = 200  # number of bootstrap resamples for each simulated study
CONFIDENCE = 0.95
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(41)


@dataclass(frozen=True)
class Assumptions:
    """The assumptions of a power analysis.

    base, difference: the first system's mean, and how much higher the second system's mean is. For ``pick``, these are
        fractions (0.05 is five percentage points), and for ``rate``, points on the rating scale. For ``compare``, the
        difference is between the systems' fractions of "tells more", and base is 0.5.
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

    def __post_init__(self) -> None:
        check_kind(self.kind)
        low, high = (1.0, 5.0) if self.kind == "rate" else (0.0, 1.0)
        if not self.difference or not all(low < mean < high for mean in self.means):
            raise UsageError(
                f"--base {self.base:g} and --difference {self.difference:g}: expected both systems "
                f"between {low:g} and {high:g}, and a nonzero difference"
            )

    @property
    def means(self) -> tuple[float, float]:
        """The two systems' means. For ``compare``, they lie half the difference below and above ``base``."""
        first = self.base - (self.difference / 2 if self.kind == "compare" else 0)
        return first, first + self.difference

    @property
    def conditions(self) -> int:
        """The number of conditions in which an item is shown, i.e. the number of systems or pairs of systems."""
        return math.comb(self.systems, 2) if self.kind == "compare" else self.systems

    def deviations(self) -> tuple[float, float]:
        """Returns the standard deviations of the participants' effects and of the items' effects."""
        if self.kind == "rate":
            return math.sqrt(PERSON_SHARE * (1 - self.agreement)) * RATING_SD, math.sqrt(self.agreement) * RATING_SD
        return PERSON_LOGIT, spread_for(self.base, self.agreement)


@dataclass(frozen=True)
class PlannedDesign:
    """A design's size, cost and power. Power is the fraction of simulated studies that detect the difference."""

    items: int
    raters: int
    participants: int
    answers: int
    cost: float
    power: float


def planned_designs(
    assumed: Assumptions, items: Sequence[int], raters: Sequence[int], *, studies: int = 200, seed: int = 0
) -> list[PlannedDesign]:
    """Computes the power of each combination of items and raters. Returns the cheapest design first."""
    designs = []
    with Progress(len(items) * len(raters), "simulating studies") as progress:
        for count in items:
            for each in raters:
                participants = -(-count // assumed.block) * assumed.conditions * each
                answers = count * assumed.conditions * each
                cost = participants * assumed.pay * (1 + assumed.fee)
                streams = (np.random.default_rng([seed, count, each, number]) for number in range(studies))
                power = sum(_detects(assumed, count, each, rng) for rng in streams) / studies
                designs.append(PlannedDesign(count, each, participants, answers, cost, power))
                progress.advance()
    return sorted(designs, key=lambda design: (design.cost or design.participants, -design.power))


def cheapest(designs: Sequence[PlannedDesign], power: float, budget: float | None = None) -> PlannedDesign | None:
    """Returns the first design that reaches ``power`` within ``budget`` (if given), or None if no design does."""
    affordable = (design for design in designs if budget is None or design.cost <= budget)
    return next((design for design in affordable if design.power >= power), None)


def _detects(assumed: Assumptions, items: int, raters: int, rng: np.random.Generator) -> bool:
    """Simulates one study. Returns whether its interval lies entirely on the correct side of zero."""
    ratings = simulated_ratings(assumed, items, raters, rng)
    difference = system_means(ratings, 2, RESAMPLES, int(rng.integers(1 << 29))).difference(0, 1, CONFIDENCE)
    return difference.low > 0 if assumed.difference > 0 else difference.high < 0


def simulated_ratings(assumed: Assumptions, items: int, raters: int, rng: np.random.Generator) -> Ratings:
    """Simulates the answers about the two compared systems, for all of the design's blocks.

    A participant sees every item of the block's part once, in one condition: with one system or, for ``compare``, with
    one pair of systems. A comparison yields two ratings, one for the winner and one for the loser.
    """
    compare, turns = assumed.kind == "compare", assumed.conditions
    item_M, turn_M, rater_M = np.indices((items, turns, raters)).reshape(3, -1)
    condition_M = (item_M + turn_M) % turns
    part_M = item_M * -(-items // assumed.block) // items
    person_M = (part_M * turns + turn_M) * raters + rater_M
    shown_M = condition_M < (1 if compare else 2)
    item_M, condition_M, person_M = item_M[shown_M], condition_M[shown_M], person_M[shown_M]

    people, item = assumed.deviations()
    person_P, picture_I = rng.normal(0, people, person_M.max() + 1), rng.normal(0, item / math.sqrt(2), items)
    caption_IC = rng.normal(0, item / math.sqrt(2), (items, 2))
    tendency_M = person_P[person_M] + picture_I[item_M] + caption_IC[item_M, condition_M]
    spread = math.hypot(people, item)
    if assumed.kind == "rate":
        rest = math.sqrt(max(RATING_SD**2 - spread**2, 1e-6))
        center_C = np.array([rating_center(mean, math.hypot(spread, rest)) for mean in assumed.means])
        opinion_M = center_C[condition_M] + tendency_M + rng.normal(0, rest, len(person_M))
        return Ratings(person_M, item_M, condition_M, np.clip(np.round(opinion_M), 1, 5))
    center_C = np.array([center(mean, spread) for mean in assumed.means])
    if compare:
        win_M = (rng.random(len(person_M)) < _expit(center_C[1] + tendency_M)).astype(float)
        system_M = np.repeat([0, 1], len(win_M))
        return Ratings(np.tile(person_M, 2), np.tile(item_M, 2), system_M, np.concatenate([1 - win_M, win_M]))
    right_M = rng.random(len(person_M)) < _expit(center_C[condition_M] + tendency_M)
    return Ratings(person_M, item_M, condition_M, right_M.astype(float))


@lru_cache(256)
def center(mean: float, spread: float) -> float:
    """Returns the center, in log-odds, at which answers with the given spread have the given mean."""
    return _solve(lambda middle: _moments(middle, spread)[0], mean, -60.0, 60.0)


@lru_cache(256)
def rating_center(mean: float, deviation: float) -> float:
    """Returns the mean that normally distributed opinions need for their ratings (the opinions rounded to 1 to 5) to
    have the given mean. ``deviation``: the opinions' standard deviation.
    """
    return _solve(
        lambda middle: 1 + sum(1 - NormalDist(middle, deviation).cdf(rating + 0.5) for rating in range(1, 5)),
        mean, -60.0, 60.0,
    )  # fmt: skip


@lru_cache(256)
def spread_for(mean: float, agreement: float) -> float:
    """Returns the standard deviation of items, in log-odds, at which two answers to the same item have ``agreement`` as
    their correlation.
    """

    def correlation(spread: float) -> float:
        first, second = _moments(center(mean, spread), spread)
        return (second - first**2) / (first * (1 - first))

    return _solve(correlation, agreement, 0.0, 40.0)


def _solve(increasing: Callable[[float], float], value: float, low: float, high: float) -> float:
    """Finds by bisection where a function reaches ``value``. Returns an end of the range if the function does not reach
    it.
    """
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if increasing(middle) < value else (low, middle)
    return (low + high) / 2


def _moments(middle: float, spread: float) -> tuple[float, float]:
    """Returns the mean and mean square of probabilities whose log-odds are normally distributed."""
    share = _expit(middle + spread * _NODES)
    weight = _WEIGHTS / _WEIGHTS.sum()
    return float(share @ weight), float(share**2 @ weight)


def _expit(value: Floats) -> Floats:
    return np.asarray(1 / (1 + np.exp(-np.clip(value, -500, 500))), float)
