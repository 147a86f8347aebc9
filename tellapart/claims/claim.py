"""The nouns: an arm is what is trained, a term what is measured of it, a claim what the paper says about terms."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Arm:
    """A recipe as a plain table (without name and seed) that starts from another arm, or from what ships.

    ``table`` None: nothing is trained, the captioner ``model`` is measured as it is; ``model`` None too: the
    pictures' own captions are measured, the first reference, that of number ``reference``, or what the stage
    ``boosted`` makes of them all (`tellapart.boost`). With a table, what it makes of the training pictures is learned.
    """

    name: str
    table: Mapping[str, Any] | None = None
    start: str | None = None
    model: str | None = None
    reference: int = 0
    boosted: str = ""


@dataclass(frozen=True)
class Term:
    """``factor`` · the ``measure`` of an arm's captions of the ``test`` pictures, decoded so."""

    arm: str
    measure: str
    test: str = "plain"
    decoding: str = "greedy"
    factor: float = 1.0


@dataclass(frozen=True)
class Part:
    """The sum of terms lies above ``above`` and below ``below``; both finite: "about equal", with that margin."""

    says: str
    terms: tuple[Term, ...]
    above: float = 0.0
    below: float = math.inf


@dataclass(frozen=True)
class Control:
    """What the claim becomes with more MLE in place of the objective under test; it must come out false.

    ``arms``: which arm stands in for which; ``measures``, ``tests``: what is measured instead, of terms whose arm was
    replaced (of all terms where no arm is).
    """

    says: str
    arms: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, str] = field(default_factory=dict)
    tests: Mapping[str, str] = field(default_factory=dict)

    def of(self, part: Part) -> Part:
        return replace(part, terms=tuple(self._swapped(term) for term in part.terms))

    def _swapped(self, term: Term) -> Term:
        if self.arms and term.arm not in self.arms:
            return term
        return replace(
            term,
            arm=self.arms.get(term.arm, term.arm),
            measure=self.measures.get(term.measure, term.measure),
            test=self.tests.get(term.test, term.test),
        )


@dataclass(frozen=True)
class Claim:
    """One finding of a paper. ``pending``: what it waits for; such a claim has no parts yet."""

    id: str
    number: int
    place: str
    says: str
    paper: str
    parts: tuple[Part, ...] = ()
    control: Control | None = None
    pending: str = ""

    def terms(self) -> Iterator[Term]:
        """All that must be measured, the control's included; each once."""
        parts = [*self.parts, *(self.control.of(part) for part in self.parts if self.control)]
        yield from dict.fromkeys(replace(term, factor=1.0) for part in parts for term in part.terms)


def more(says: str, high: Term, low: Term, *, times: float = 1.0, by: float = 0.0, short: float = 0.0) -> Part:
    """``high`` is more than ``times`` · ``low``, ``by`` at least; ``short``: or lacks at most so much."""
    return Part(says, (high, replace(low, factor=-times)), above=by - short)


def equal(says: str, one: Term, other: Term, margin: float) -> Part:
    return Part(says, (one, replace(other, factor=-1.0)), above=-margin, below=margin)
