"""Computes the claims' power, given the smallest effects of interest: ``replication claims --power``.

Development seeds give the covariance of the parts over seeds and, by the rule's own bootstrap, over pictures. The
latter is split into a component that all seeds share, because they see the same pictures, and one for each seed. Values
of all parts are then drawn jointly for new seeds and pictures, from a normal distribution around the assumed true
values: each part's smallest effect of interest, inside its bound. The rule (`replication.bootstrap.verdict`, with its
percentile bootstrap over seeds and pictures) is applied to each draw, and the power is the fraction of draws in which
every part holds. This accounts for correlated parts, the sign rule on every seed (harder with more seeds) and the
interval (narrower with more seeds).

Approximations: values are normal; estimated covariances are taken as exact (although with six seeds, an SD is known
    only to about a third); a measure's variance over pictures falls as 1 / n (only roughly true for counts of distinct
    words); pictures of different test sets are independent.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from replication.bootstrap import draw_seeds, resampled_seeds
from replication.claim import Claim, Part
from replication.lab import Lab
from replication.multiple import ALPHA
from replication.seeds import TYPED, VERDICTS
from replication.stamp import commit, now
from tellapart.errors import UsageError
from tellapart.utils.progress import Progress
from tellapart.utils.strict_json import json_value

if TYPE_CHECKING:
    from rich.table import Table

GOAL = 0.98
SEEDS = 5  # number of seeds in a verdict
MOST_SEEDS = 12
PICTURES = (1, 2, 4, 8)  # multiples of the test sets' size
TRIALS, FEW_TRIALS = 10_000, 2_000  # numbers of trials, for the printed power and for the search
RESAMPLES = 400  # number of resamples for each trial's interval
BLOCK = 500  # trials per block: 500 · 400 resamples · 8 bytes per part


@dataclass(frozen=True)
class Variation:
    """Covariances of P parts: over seeds (seeds_PP) and over pictures (shared_PP, own_PP). See the module docstring."""

    value_P: np.ndarray
    seeds_PP: np.ndarray
    shared_PP: np.ndarray
    own_PP: np.ndarray
    pictures_P: np.ndarray

    def picture_sd(self) -> np.ndarray:
        """Returns each part's SD over pictures, for one seed."""
        sd_P: np.ndarray = np.sqrt(np.diag(self.shared_PP) + np.diag(self.own_PP))
        return sd_P


@dataclass(frozen=True)
class PartPower:
    """Power of one part: its bounds, smallest effect of interest, assumed true value, SDs, and ``power`` on its own.

    value: the value on the development seeds. detectable: the effect that these seeds and pictures detect with 98%
        power; None if there is none.
    """

    says: str
    lower: float | None
    upper: float | None
    effect: float
    truth: float
    value: float
    sd_seeds: float
    sd_pictures: float
    pictures: int
    power: float
    detectable: float | None


@dataclass
class ClaimPower:
    """Power of one claim: all parts together, with five seeds and the available pictures.

    expected: the power if the true values are those of the development seeds. needed_seeds, needed_pictures: the
        smallest number of seeds, then the smallest multiple of the pictures, that reaches 98%; None if none does.
        control: the fraction of trials in which the control comes out false, if its true values are those of the
        development seeds.
    """

    id: str
    power: float
    expected: float
    control: float
    needed_seeds: int | None
    needed_pictures: int | None
    parts: list[PartPower] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def estimate(parts: Sequence[Part], lab: Lab, seeds: Sequence[int]) -> Variation:
    """Estimates the variation of these parts from at least two development seeds, whose arms must be trained."""
    values, draws, pictures = [], [], []
    for part in parts:
        statistics = [(one.factor, [lab.statistic(one, seed) for seed in seeds]) for one in part.measurements]
        value_S, drawn_SR = draw_seeds(statistics)
        if not np.isfinite(drawn_SR).all():
            raise UsageError(
                f"{part.statement!r} is not a number in some resamples of the pictures, so its power is unknown; "
                "use a test set with more pictures"
            )
        values.append(value_S)
        draws.append(drawn_SR - value_S[:, None])
        pictures.append(statistics[0][1][0].n)
    return variation(np.stack(values, axis=1), np.stack(draws, axis=2), np.array(pictures))


def variation(value_SP: np.ndarray, error_SRP: np.ndarray, pictures_P: np.ndarray) -> Variation:
    """Computes the variation from each seed's values, and from their changes in each resample of the pictures.

    The covariance of two seeds in the same resample is the effect that the pictures have on all seeds. The rest of a
    seed's variance over pictures is its own. It is also part of the variance over seeds, from which it is subtracted.
    """
    count, resamples, _ = error_SRP.shape
    sum_RP = error_SRP.sum(0)
    each_PP = np.einsum("srp,srq->pq", error_SRP, error_SRP) / (count * resamples)
    all_PP = sum_RP.T @ sum_RP / resamples  # over all ordered pairs of seeds, including a seed with itself
    shared_PP = semidefinite((all_PP - count * each_PP) / (count * (count - 1)))
    own_PP = semidefinite(each_PP - shared_PP)
    total_PP = np.atleast_2d(np.cov(value_SP, rowvar=False, ddof=1))
    return Variation(value_SP.mean(0), semidefinite(total_PP - own_PP), shared_PP, own_PP, pictures_P)


def semidefinite(matrix_PP: np.ndarray) -> np.ndarray:
    """Returns the nearest covariance matrix: symmetric, with negative eigenvalues set to zero."""
    value_P, vector_PP = np.linalg.eigh((matrix_PP + matrix_PP.T) / 2)
    nearest_PP: np.ndarray = (vector_PP * np.clip(value_P, 0, None)) @ vector_PP.T
    return nearest_PP


def simulate(
    truth_P: np.ndarray, spread: Variation, bounds: Sequence[tuple[float, float]], seeds: int, pictures: int = 1,
    trials: int = TRIALS,
) -> np.ndarray:  # fmt: skip
    """Returns holds_TP: whether each part holds in each trial, with this many seeds and multiple of the pictures."""
    rng = np.random.default_rng([seeds, pictures, len(truth_P)])
    count_RS = np.stack([(resampled_seeds(seeds, RESAMPLES) == seed).sum(1) for seed in range(seeds)], axis=1)
    squares_R = (count_RS**2).sum(1) / seeds**2
    # What resampling the pictures adds to a trial's draws of the mean: a shared part, and one for each seed.
    deviation_PR = np.sqrt(
        (np.diag(spread.shared_PP)[:, None] + np.diag(spread.own_PP)[:, None] * squares_R) / pictures
    )
    shared_root = root(spread.shared_PP / pictures)
    seed_root = root(spread.seeds_PP + spread.own_PP / pictures)
    holds = []
    for start in range(0, trials, BLOCK):
        size = min(BLOCK, trials - start)
        shared_TP = rng.standard_normal((size, len(truth_P))) @ shared_root.T
        value_TSP = rng.standard_normal((size, seeds, len(truth_P))) @ seed_root.T + (truth_P + shared_TP)[:, None]
        block_TP = np.empty((size, len(truth_P)), dtype=bool)
        for p, (lower, upper) in enumerate(bounds):
            mean_TR = value_TSP[:, :, p] @ (count_RS.T / seeds)
            mean_TR += rng.standard_normal(RESAMPLES) * deviation_PR[p]
            low_T, high_T = np.quantile(mean_TR, [ALPHA, 1 - ALPHA], axis=1)
            block_TP[:, p] = (low_T > lower) & (high_T < upper)
            if not (math.isfinite(lower) and math.isfinite(upper)):  # every seed must have the right sign
                block_TP[:, p] &= ((value_TSP[:, :, p] > lower) & (value_TSP[:, :, p] < upper)).all(1)
        holds.append(block_TP)
    return np.concatenate(holds)


def root(matrix_PP: np.ndarray) -> np.ndarray:
    """Returns a matrix whose product with its transpose is ``matrix_PP``, which may be singular."""
    value_P, vector_PP = np.linalg.eigh(matrix_PP)
    root_PP: np.ndarray = vector_PP * np.sqrt(np.clip(value_P, 0, None))
    return root_PP


def claim_power(claim: Claim, lab: Lab, seeds: Sequence[int], planned: int = SEEDS) -> ClaimPower:
    """Computes the power of a claim with ``planned`` seeds, from development seeds whose arms are trained."""
    bounds = [(part.lower, part.upper) for part in claim.parts]
    spread = estimate(claim.parts, lab, seeds)
    truth_P = np.array([part.planned for part in claim.parts])
    holds_TP = simulate(truth_P, spread, bounds, planned)
    expected = float(simulate(spread.value_P, spread, bounds, planned).all(1).mean())
    control = 1.0
    if claim.control:
        other = estimate([claim.control.apply(part) for part in claim.parts], lab, seeds)
        control = 1 - float(simulate(other.value_P, other, bounds, planned).all(1).mean())
    power = float(holds_TP.all(1).mean())
    enough = (planned, 1) if power >= GOAL else fewest(truth_P, spread, bounds, planned)
    needed_seeds, needed_pictures = enough or (None, None)
    parts = [_part_power(part, n, spread, float(holds_TP[:, n].mean()), planned) for n, part in enumerate(claim.parts)]
    return ClaimPower(claim.id, power, expected, control, needed_seeds, needed_pictures, parts)


def fewest(
    truth_P: np.ndarray, spread: Variation, bounds: Sequence[tuple[float, float]], planned: int = SEEDS
) -> tuple[int, int] | None:
    """Returns the smallest number of seeds (at least ``planned``), then of pictures, that reaches 98% power. Returns
    None if no number suffices.
    """
    for seeds in range(planned, MOST_SEEDS + 1):
        for pictures in PICTURES:
            if simulate(truth_P, spread, bounds, seeds, pictures, FEW_TRIALS).all(1).mean() >= GOAL:
                return seeds, pictures
    return None


def _part_power(part: Part, n: int, spread: Variation, power: float, planned: int) -> PartPower:
    alone = Variation(*(values[n : n + 1] if values.ndim == 1 else values[n : n + 1, n : n + 1] for values in (
        spread.value_P, spread.seeds_PP, spread.shared_PP, spread.own_PP, spread.pictures_P
    )))  # fmt: skip
    return PartPower(
        says=part.statement,
        lower=json_value(part.lower),
        upper=json_value(part.upper),
        effect=part.effect,
        truth=part.planned,
        value=float(spread.value_P[n]),
        sd_seeds=float(np.sqrt(spread.seeds_PP[n, n])),
        sd_pictures=float(spread.picture_sd()[n]),
        pictures=int(spread.pictures_P[n]),
        power=power,
        detectable=None if part.equivalence else detectable(part, alone, planned),
    )


def detectable(part: Part, alone: Variation, planned: int = SEEDS) -> float:
    """Returns the effect at which a one-sided part alone has 98% power, by bisection to a relative error of 0.01.
    Infinite if the spread is not finite.
    """
    sign, bound = (1.0, part.lower) if math.isfinite(part.lower) else (-1.0, part.upper)

    def found(effect: float) -> bool:
        truth_P = np.array([bound + sign * effect])
        return bool(simulate(truth_P, alone, [(part.lower, part.upper)], planned, 1, FEW_TRIALS).mean() >= GOAL)

    spread = math.sqrt(float(alone.seeds_PP[0, 0] + alone.shared_PP[0, 0] + alone.own_PP[0, 0]))
    if spread == 0:
        return 0.0
    if not math.isfinite(spread):
        return math.inf
    low, high = 0.0, 2 * spread
    while not found(high):
        low, high = high, 2 * high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if found(middle) else (middle, high)
    return high


def untrained(claims: Sequence[Claim], lab: Lab, seeds: Sequence[int]) -> list[str]:
    """Returns the untrained arms and seeds that the claims need, such as "sr, seed 3"."""
    arms = dict.fromkeys(arm for claim in claims for one in claim.measurements() for arm in lab.lineage(one.arm))
    trained = [arm for arm in arms if lab.arms[arm].table is not None]
    return [f"{arm}, seed {seed}" for arm in trained for seed in seeds if not lab.run_of(arm, seed).finished]


def measure_power(claims: Sequence[Claim], lab: Lab, seeds: Sequence[int], command: str = "claims") -> list[ClaimPower]:
    """Computes each claim's power from these development seeds, whose results must be in the lab's folder.

    command: the command that gives the verdict, which determines the number of seeds. Raises `UsageError` if there are
        fewer than two seeds or if an arm is not trained.
    """
    if len(seeds) < 2:
        raise UsageError(
            f"the spread over seeds requires at least two seeds; run: python -m replication {TYPED[command]} "
            "--power --seeds dev"
        )
    if missing := untrained(claims, lab, seeds):
        numbers = ",".join(map(str, seeds))
        raise UsageError(
            f"{len(missing)} of the arms are not trained ({missing[0]}); first run: python -m replication "
            f"{TYPED[command]} --seeds {numbers}"
        )
    found = []
    with Progress(len(claims), "claims") as progress:
        for claim in claims:
            found.append(claim_power(claim, lab, seeds, len(VERDICTS[command])))
            progress.advance()
    return found


def power_record(
    found: Sequence[ClaimPower], seeds: Sequence[int], settings: str, command: str, planned: int = SEEDS
) -> dict[str, Any]:
    """Returns the record that is stored before a verdict of ``planned`` seeds and printed by ``--json``."""
    return {
        "date": now(),
        "commit": commit(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "command": command,
        "settings": settings,
        "development_seeds": list(seeds),
        "goal": GOAL,
        "seeds": planned,
        "power": [one.to_json() for one in found],
    }


def power_table(found: Sequence[ClaimPower], planned: int = SEEDS) -> Table:
    """Returns the table for the terminal: one row per claim, with one line per part."""
    from rich.table import Table

    enough = sum(one.power >= GOAL for one in found)
    shown = Table(
        title=f"{enough} of {len(found)} claims have a power of at least {GOAL:.0%} with {planned} seeds, if "
        "they are true"
    )
    for name in (
        "claim",
        "power",
        "as on dev",
        "control false",
        f"for {GOAL:.0%}",
        "part: effect, SD of seeds, pictures",
    ):
        shown.add_column(name)
    for one in found:
        parts = "\n".join(
            f"{part.says}: {'the middle' if not part.effect else f'{part.effect:g}'}, "
            f"{part.sd_seeds:.3g}, {part.sd_pictures:.3g}; {part.power:.1%}"
            + (f", found from {part.detectable:.3g}" if part.detectable is not None and part.power < GOAL else "")
            for part in one.parts
        )
        cells = (f"{one.power:.1%}", f"{one.expected:.1%}", f"{one.control:.1%}")
        shown.add_row(one.id, *cells, needed_text(one), parts, end_section=True)
    return shown


def needed_text(one: ClaimPower) -> str:
    """Formats the number of seeds and pictures that a claim needs, e.g. "5 seeds, pictures × 2"."""
    if one.needed_seeds is None:
        return f"none up to {MOST_SEEDS} seeds, pictures × {PICTURES[-1]}"
    return f"{one.needed_seeds} seeds, pictures × {one.needed_pictures}"
