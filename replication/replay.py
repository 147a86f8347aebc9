"""Replays claims: trains their arms, takes the measurements, and applies the rule to the claim and its control."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from replication.bootstrap import PartResult, compare_with_bounds
from replication.claim import Claim, Measurement, Part, outcome
from replication.examples import Example, find_examples
from replication.lab import Lab
from replication.multiple import holm_levels
from replication.worker_pool import Task, WorkerPool
from tellapart.errors import UsageError, nearest
from tellapart.metrics.holm import holm
from tellapart.utils.messages import say


@dataclass(frozen=True)
class Corrected:
    """A part's adjusted one-sided p-value, and its interval at Holm's level."""

    p: float
    low: float
    high: float


@dataclass
class ClaimResult:
    """The result of one claim.

    parts, control: results of the claim's parts, and of the same parts under its control. means: the mean of each
    measurement over seeds. settings: n, candidates and chance of measurements that are recalls. seconds: the time for
    training, captioning and measuring. examples: three pictures with the captions of each arm's first seed.
    """

    claim: Claim
    seeds: tuple[int, ...] = ()
    parts: list[PartResult] = field(default_factory=list)
    control: list[PartResult] = field(default_factory=list)
    means: dict[Measurement, float] = field(default_factory=dict)
    seconds: float = 0.0
    settings: dict[Measurement, str] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)

    @property
    def all_parts_hold(self) -> bool:
        return all(part.holds for part in self.parts)

    @property
    def control_false(self) -> bool | None:
        """Returns whether the control came out false, as it must, or None if the control was not run."""
        return None if not self.control else not all(part.holds for part in self.control)

    @property
    def outcome(self) -> str:
        """Returns "holds", "not worse" or "fails" (`replication.claim.outcome`); "pending" if the claim was not run."""
        if self.claim.pending:
            return "pending"
        parts = [(part.holds, part.value) for part in self.parts]
        return outcome(self.claim, parts, [part.holds for part in self.control])

    @property
    def holds(self) -> bool | None:
        """Returns whether the outcome is "holds", or None if the claim is pending."""
        return None if self.claim.pending else self.outcome == "holds"

    def corrected(self) -> list[Corrected]:
        """Applies Holm's correction over the claim's parts. Returns results in order, see `replication.multiple`."""
        p_values = [part.p for part in self.parts]
        return [
            Corrected(p, *part.interval(level))
            for part, p, level in zip(self.parts, holm(p_values), holm_levels(p_values), strict=True)
        ]

    def summary(self) -> str:
        """Returns our figures in one line of text."""
        if self.claim.pending:
            return f"pending: {self.claim.pending}"
        parts = [
            f"{part.statement}: {format_interval(part)} ({self.arm_values(n)}){self._remark(n)}"
            for n, part in enumerate(self.parts)
        ]
        verdict = "the control came out false" if self.control_false else "but the CONTROL came out true as well"
        return "; ".join([*parts, verdict])

    def _remark(self, part: int) -> str:
        """Returns the reason why part number ``part`` does not support the claim, or "" if it does."""
        found, declared = self.parts[part], self.claim.parts[part]
        if not found.holds:
            return ", not so"
        return "" if declared.has_paper_sign(found.value) else f", the paper has {declared.paper_value:+.3g}"

    def arm_values(self, part: int) -> str:
        """Formats a part's measurements, mean over seeds: "smile 12.3, start 5.44", followed by recall settings."""
        measurements = [replace(one, factor=1.0) for one in self.claim.parts[part].measurements]
        values = ", ".join(f"{one.arm} {self.means[one]:.4g}" for one in measurements)
        settings = dict.fromkeys(self.settings[one] for one in measurements if self.settings.get(one))
        return "; ".join([values, *settings])

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON of ``--json``: id, holds, paper, ours, seconds, and details."""
        means = {f"{m.arm}: {m.measure}@{m.test_set}/{m.decoding}": _finite(value) for m, value in self.means.items()}
        return {
            "id": self.claim.id,
            "holds": self.holds,
            "outcome": self.outcome,
            "paper": self.claim.paper_result,
            "ours": self.summary(),
            "seconds": round(self.seconds, 1),
            "seeds": list(self.seeds),
            "parts": [
                {
                    **_part_to_json(part),
                    **_corrected_to_json(corrected),
                    "test": "tost" if of.equivalence else "one-sided",
                    "paper": of.paper_value,
                }
                for part, corrected, of in zip(self.parts, self.corrected(), self.claim.parts, strict=True)
            ],
            "control": [_part_to_json(part) for part in self.control],
            "measured": means,
        }


def format_interval(part: PartResult) -> str:
    """Formats a value and its interval, e.g. "+1.23 [+0.9, +1.5]"."""
    return f"{part.value:+.3g} [{part.low:+.3g}, {part.high:+.3g}]"


def _part_to_json(part: PartResult) -> dict[str, Any]:
    interval = {"value": _finite(part.value), "low": _finite(part.low), "high": _finite(part.high)}
    return {"says": part.statement, **interval, "seeds": [_finite(v) for v in part.seeds], "holds": part.holds,
            "p": _finite(part.p)}  # fmt: skip


def _corrected_to_json(corrected: Corrected) -> dict[str, Any]:
    return {"p_holm": _finite(corrected.p), "low_holm": _finite(corrected.low), "high_holm": _finite(corrected.high)}


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


def select_claims(ids: Sequence[str], claims: Sequence[Claim], command: str = "claims") -> list[Claim]:
    """Returns the claims with these ids, or all claims if there are no ids. Raises `UsageError` with the nearest id if
    one is unknown.

    ``command``: the command of `replication` that lists them.
    """
    known = {claim.id: claim for claim in claims}
    for id in ids:
        if id not in known:
            raise UsageError(
                f"unknown claim '{id}'{nearest(id, known)}; for a list, run: python -m replication {command} --list"
            )
    return [known[id] for id in dict.fromkeys(ids)] or list(claims)


def replay(
    claims: Sequence[Claim],
    lab: Lab,
    seeds: Sequence[int],
    on_result: Callable[[ClaimResult], None] = lambda result: None,
    workers: int = 1,
) -> list[ClaimResult]:
    """Runs the claims and returns their results in order. Calls ``on_result`` with each result as soon as it is
    available.

    Arms are trained in this process or in ``workers`` others. An arm's time counts for the first claim that needs it.
    It is divided by the number of processes, so that the times add up to the duration of the call.
    """
    counted: set[tuple[str, int]] = set()
    results = []
    with WorkerPool(lab, make_tasks(claims, lab, seeds), workers) if workers > 1 else nullcontext() as pool:
        for number, claim in enumerate(claims, 1):
            say(f"claim {number} of {len(claims)}: {claim.id}" + (f" ({claim.pending})" if claim.pending else ""))
            arms = dict.fromkeys(arm for one in claim.measurements() for arm in lab.lineage(one.arm))
            needed = {(arm, seed) for arm in arms for seed in seeds} - counted
            if pool is not None:
                pool.finish(needed)
            result = evaluate_claim(claim, lab, tuple(seeds))
            result.seconds += sum(lab.seconds(arm, seed) for arm, seed in needed) / workers
            counted |= needed
            results.append(result)
            on_result(result)
    return results


def make_tasks(claims: Sequence[Claim], lab: Lab, seeds: Sequence[int]) -> list[Task]:
    """Returns a task for each arm and seed, with the captions to write, in the order in which the claims need them."""
    captions: dict[str, dict[tuple[str, str], None]] = {}
    for measurement in (one for claim in claims for one in claim.measurements()):
        for arm in lab.lineage(measurement.arm):
            captions.setdefault(arm, {})
        if lab.writes_captions(measurement):
            captions[measurement.arm][measurement.test_set, measurement.decoding] = None
    return [Task(arm, seed, tuple(needed)) for arm, needed in captions.items() for seed in seeds]


def evaluate_claim(claim: Claim, lab: Lab, seeds: tuple[int, ...]) -> ClaimResult:
    """Evaluates one claim, after training missing arms. ``seconds`` covers only the measurements."""
    if claim.pending:
        return ClaimResult(claim)
    measurements = list(claim.measurements())
    for seed in seeds:
        for measurement in measurements:
            lab.prepare(measurement, seed)
    started, result = time.monotonic(), ClaimResult(claim, seeds)
    result.parts = [evaluate_part(part, lab, seeds) for part in claim.parts]
    if claim.control:
        result.control = [evaluate_part(claim.control.apply(part), lab, seeds) for part in claim.parts]
    for measurement in measurements:
        statistics = [lab.statistic(measurement, seed) for seed in seeds]
        result.means[measurement] = sum(statistic.value() for statistic in statistics) / len(seeds)
        result.settings[measurement] = statistics[0].setting
    result.examples = find_examples(claim, lab, seeds[0])
    result.seconds = time.monotonic() - started
    return result


def evaluate_part(part: Part, lab: Lab, seeds: Sequence[int]) -> PartResult:
    """Evaluates one part of a claim on these seeds."""
    statistics = [(one.factor, [lab.statistic(one, seed) for seed in seeds]) for one in part.measurements]
    return compare_with_bounds(part.statement, statistics, part.lower, part.upper)
