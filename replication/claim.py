"""Data classes for claims. A claim states how measurements of trained arms compare."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Arm:
    """One arm of an experiment: a recipe (without name and seed) that starts from another arm or a shipped model.

    table: the recipe as a plain dict. If None, nothing is trained and the captions come from ``model``; if ``model`` is
        None, too, they come from the pictures' references (see ``reference`` and ``boosted``).
    start: the arm whose captioner is trained further.
    model: name of a captioner that is measured without training.
    reference: index of the reference that serves as the caption.
    boosted: a stage of `tellapart.boost`. Without a table, its texts are the captions; with a table, they replace the
        training pictures' references. With a table, it can also be "simplest": only the references' articles and nouns.
    options: appended to the name of the captioner of ``start`` (NAME?key=value) when it is measured.
    """

    name: str
    table: Mapping[str, Any] | None = None
    start: str | None = None
    model: str | None = None
    reference: int = 0
    boosted: str = ""
    options: str = ""


@dataclass(frozen=True)
class Measurement:
    """``factor`` times a measure (`replication.measures`) of an arm's captions on ``test_set``."""

    arm: str
    measure: str
    test_set: str = "plain"
    decoding: str = "greedy"
    factor: float = 1.0


@dataclass(frozen=True)
class Part:
    """States that the sum of the measurements is above ``lower`` and below ``upper``. Both finite: "about equal".

    effect: the smallest effect size of interest in the measurements' unit, pre-registered. A part whose true value lies
    this far inside its bound should be detected. Between two bounds, the true value is assumed to be the middle.
    paper: the paper's figures for the measurements, in order, without factors; empty if the paper has none.
    """

    statement: str
    measurements: tuple[Measurement, ...]
    lower: float = 0.0
    upper: float = math.inf
    effect: float = 0.0
    paper: tuple[float, ...] = ()

    @property
    def equivalence(self) -> bool:
        """Returns whether the part states "about equal", i.e. both bounds are finite."""
        return math.isfinite(self.lower) and math.isfinite(self.upper)

    @property
    def planned(self) -> float:
        """Returns the true value assumed for planning: ``effect`` inside the bound, or the middle."""
        if self.equivalence:
            return (self.lower + self.upper) / 2
        return self.lower + self.effect if math.isfinite(self.lower) else self.upper - self.effect

    @property
    def paper_value(self) -> float | None:
        """Returns the paper's figures, summed in the same way as ours, or None if the paper has no figures."""
        if not self.paper:
            return None
        return sum(one.factor * value for one, value in zip(self.measurements, self.paper, strict=True))

    @property
    def not_worse(self) -> bool:
        """Returns whether the part also accepts the opposite sign: "no more than 2 below", "gained, below 2"."""
        return not self.equivalence and (self.lower < 0 if math.isfinite(self.lower) else self.upper > 0)

    def has_paper_sign(self, value: float) -> bool:
        """Returns whether ``value`` has the paper's sign. True if the paper has no figure or states "about equal"."""
        paper = self.paper_value
        return paper is None or self.equivalence or paper * value > 0


@dataclass(frozen=True)
class Control:
    """A claim's control, which uses more MLE instead of the objective under test. It must come out false.

    With the replacements, no part may compare an arm with itself, because that would be trivially false (or true).

    arms: maps arms to their replacements. measures, test_sets: replacements in measurements whose arm was replaced, or
    in all measurements if ``arms`` is empty.
    """

    description: str
    arms: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, str] = field(default_factory=dict)
    test_sets: Mapping[str, str] = field(default_factory=dict)

    def apply(self, part: Part) -> Part:
        """Returns the part with the replacements applied."""
        return replace(part, measurements=tuple(self._replaced(one) for one in part.measurements))

    def _replaced(self, measurement: Measurement) -> Measurement:
        if self.arms and measurement.arm not in self.arms:
            return measurement
        return replace(
            measurement,
            arm=self.arms.get(measurement.arm, measurement.arm),
            measure=self.measures.get(measurement.measure, measurement.measure),
            test_set=self.test_sets.get(measurement.test_set, measurement.test_set),
        )


@dataclass(frozen=True)
class Claim:
    """One finding of a paper.

    paper_number, location: paper 1 to 4, and its table or figure. paper_result: the paper's figures.
    pending: says what the claim is waiting for; pending claims have no parts yet.
    """

    id: str
    paper_number: int
    location: str
    statement: str
    paper_result: str
    parts: tuple[Part, ...] = ()
    control: Control | None = None
    pending: str = ""

    def measurements(self) -> Iterator[Measurement]:
        """Yields each measurement that the parts and the control need once, without its factor."""
        parts = [*self.parts, *(self.control.apply(part) for part in self.parts if self.control)]
        yield from dict.fromkeys(replace(one, factor=1.0) for part in parts for one in part.measurements)


def outcome(claim: Claim, parts: Sequence[tuple[bool, float]], control: Sequence[bool]) -> str:
    """Returns "holds", "not worse" or "fails".

    A claim holds if every part holds with the sign of the paper's figures, and its control comes out false. If the only
    parts with the opposite sign are those that state "not worse", the outcome is "not worse" and counted separately.

    Args:
        parts: for each part of the claim, whether it lies within its bounds on every seed, and its value.
        control: for each part of the control, whether it lies within its bounds.
    """
    if not all(within for within, _ in parts) or not control or all(control):
        return "fails"
    other = [part for part, (_, value) in zip(claim.parts, parts, strict=True) if not part.has_paper_sign(value)]
    return "holds" if not other else "not worse" if all(part.not_worse for part in other) else "fails"


def greater(
    statement: str, high: Measurement, low: Measurement, *, factor: float = 1.0, margin: float = 0.0,
    tolerance: float = 0.0, effect: float = 0.0, paper: tuple[float, ...] = (),
) -> Part:  # fmt: skip
    """States that ``high`` > ``factor`` · ``low`` by more than ``margin``, or falls short by less than ``tolerance``.

    effect, paper: see `Part`; ``paper`` has the figures of ``high`` and ``low``.
    """
    return Part(statement, (high, replace(low, factor=-factor)), lower=margin - tolerance, effect=effect, paper=paper)


def about_equal(
    statement: str, one: Measurement, other: Measurement, margin: float, paper: tuple[float, ...] = ()
) -> Part:
    """States that two measurements differ by less than ``margin``. ``paper``: the paper's figures for both of them."""
    return Part(statement, (one, replace(other, factor=-1.0)), lower=-margin, upper=margin, paper=paper)
