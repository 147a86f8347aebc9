"""Claims replayed: arms trained, terms measured, the rule applied, the control too."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from tellapart.claims.claim import Claim, Part, Term
from tellapart.claims.crew import Crew, Task
from tellapart.claims.lab import Lab
from tellapart.claims.rule import Finding, find
from tellapart.errors import UsageError, nearest
from tellapart.utils.messages import say

SEEDS = {"dev": (0, 1, 2), "verdict": (10, 11, 12), "quick": (10,)}


@dataclass
class Outcome:
    """What came of a claim. ``means`` are the arms' own numbers by term, ``settings`` what stands
    beside those that are recalls; ``control_false`` None: it was not asked."""

    claim: Claim
    seeds: tuple[int, ...] = ()
    parts: list[Finding] = field(default_factory=list)
    control: list[Finding] = field(default_factory=list)
    means: dict[Term, float] = field(default_factory=dict)
    seconds: float = 0.0
    settings: dict[Term, str] = field(default_factory=dict)

    @property
    def found(self) -> bool:
        return all(part.holds for part in self.parts)

    @property
    def control_false(self) -> bool | None:
        return None if not self.control else not all(part.holds for part in self.control)

    @property
    def holds(self) -> bool | None:
        """The claim: every part was found, and not with more MLE in the objective's place as well."""
        return None if self.claim.pending else self.found and self.control_false is True

    def ours(self) -> str:
        """Our figures in one line of text."""
        if self.claim.pending:
            return f"pending: {self.claim.pending}"
        told = [
            f"{part.says}: {figure(part)} ({self.numbers(place)}){'' if part.holds else ', not so'}"
            for place, part in enumerate(self.parts)
        ]
        verdict = "the control came out false" if self.control_false else "but the CONTROL came out true as well"
        return "; ".join([*told, verdict])

    def numbers(self, place: int) -> str:
        """What the arms of a part measured themselves, mean over seeds: "smile 12.3, start 5.44".

        Of recalls n, candidates and chance follow.
        """
        terms = [replace(term, factor=1.0) for term in self.claim.parts[place].terms]
        told = ", ".join(f"{term.arm} {self.means[term]:.4g}" for term in terms)
        settings = dict.fromkeys(self.settings[term] for term in terms if self.settings.get(term))
        return "; ".join([told, *settings])

    def to_json(self) -> dict[str, Any]:
        """The claim as ``--json`` has it: the five keys, and what stands behind them."""
        claim = self.claim
        told = {"id": claim.id, "holds": self.holds, "paper": claim.paper, "ours": self.ours()}
        parts = {"parts": [as_json(part) for part in self.parts], "control": [as_json(part) for part in self.control]}
        means = {f"{t.arm}: {t.measure}@{t.test}/{t.decoding}": finite(value) for t, value in self.means.items()}
        return {**told, "seconds": round(self.seconds, 1), "seeds": list(self.seeds), **parts, "measured": means}


def figure(part: Finding) -> str:
    return f"{part.value:+.3g} [{part.low:+.3g}, {part.high:+.3g}]"


def as_json(part: Finding) -> dict[str, Any]:
    told = {"value": part.value, "low": part.low, "high": part.high}
    seeds = [finite(value) for value in part.seeds]
    return {"says": part.says, **{k: finite(v) for k, v in told.items()}, "seeds": seeds, "holds": part.holds}


def finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def chosen(ids: Sequence[str], claims: Sequence[Claim]) -> list[Claim]:
    """The claims of these ids, or all; `UsageError` with the nearest for an unknown one."""
    known = {claim.id: claim for claim in claims}
    for id in ids:
        if id not in known:
            raise UsageError(f"no claim is called '{id}'{nearest(id, known)}; tellapart claims --list shows them")
    return [known[id] for id in dict.fromkeys(ids)] or list(claims)


def replay(
    claims: Sequence[Claim],
    lab: Lab,
    seeds: Sequence[int],
    each: Callable[[Outcome], None] = lambda outcome: None,
    workers: int = 1,
) -> list[Outcome]:
    """The outcomes of the claims, in order; ``each`` hears of one as soon as it is there.

    Arms are trained in this process, or by ``workers`` others. An arm's time is told with the first claim of the list
    that needs it, and shared among the processes that run at once, so that the times add up to that of the call.
    """
    told: set[tuple[str, int]] = set()
    outcomes = []
    with Crew(lab, tasks(claims, lab, seeds), workers) if workers > 1 else nullcontext() as crew:
        for number, claim in enumerate(claims, 1):
            say(f"claim {number} of {len(claims)}: {claim.id}" + (f" ({claim.pending})" if claim.pending else ""))
            needed = {(arm, seed) for t in claim.terms() for arm in lab.needs(t.arm) for seed in seeds} - told
            if crew is not None:
                crew.finish(needed)
            outcome = settle(claim, lab, tuple(seeds))
            outcome.seconds += sum(lab.seconds(arm, seed) for arm, seed in needed) / workers
            told |= needed
            outcomes.append(outcome)
            each(outcome)
    return outcomes


def tasks(claims: Sequence[Claim], lab: Lab, seeds: Sequence[int]) -> list[Task]:
    """Each arm with each seed once, in the order in which the claims need them, and what is heard of it."""
    heard: dict[str, dict[tuple[str, str], None]] = {}
    for term in (term for claim in claims for term in claim.terms()):
        for arm in lab.needs(term.arm):
            heard.setdefault(arm, {})
        if lab.captioned(term):
            heard[term.arm][term.test, term.decoding] = None
    return [Task(arm, seed, tuple(asked)) for arm, asked in heard.items() for seed in seeds]


def settle(claim: Claim, lab: Lab, seeds: tuple[int, ...]) -> Outcome:
    """One claim. ``seconds`` is the time of measuring alone."""
    if claim.pending:
        return Outcome(claim)
    terms = list(claim.terms())
    for seed in seeds:
        for term in terms:
            lab.prepare(term, seed)
    started, outcome = time.monotonic(), Outcome(claim, seeds)
    outcome.parts = [finding(part, lab, seeds) for part in claim.parts]
    if claim.control:
        outcome.control = [finding(claim.control.of(part), lab, seeds) for part in claim.parts]
    for term in terms:
        samples = [lab.sample(term, seed) for seed in seeds]
        outcome.means[term] = sum(sample.value() for sample in samples) / len(seeds)
        outcome.settings[term] = samples[0].setting
    outcome.seconds = time.monotonic() - started
    return outcome


def finding(part: Part, lab: Lab, seeds: Sequence[int]) -> Finding:
    terms = [(term.factor, [lab.sample(term, seed) for seed in seeds]) for term in part.terms]
    return find(part.says, terms, part.above, part.below)
