"""``replication objectives``: recent objectives and rewards on scenes, compared with self-retrieval at equal truth.

Every arm is a shipped recipe with a changed objective: ``scenes_rloo`` for policy gradients, ``scenes_smile`` for
likelihood training. Likelihood training has a table but no rule. The rule was pre-registered
(docs/research/objectives.md): a method beats ``base`` if R@1 among look-alikes is higher and the precision of claims is
at most one point lower. Settings were chosen on seeds 0 to 4. The verdict is given once, on seeds 60 to 64.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from replication import cores
from replication.arms import TEST_SETS
from replication.claim import Arm, Claim, Control, Measurement, Part, greater
from replication.lab import Lab
from replication.multiple import ALPHA
from replication.power import ClaimPower
from replication.replay import ClaimResult, evaluate_part, replay
from replication.seeds import VERDICTS, Seeds
from replication.tradeoff import systems_json
from replication.verdict import RECORDS as CLAIMS_RECORDS
from replication.verdict import claims_power, claims_verdict, to_json
from replication.worker_pool import Task, WorkerPool
from tellapart.metrics.holm import holm
from tellapart.models.decoding import Decoding
from tellapart.recipe.shipped_recipes import find_recipe

COMMAND = "objectives"
FOLDER, RECORDS = Path("runs") / COMMAND, CLAIMS_RECORDS / COMMAND
SMALLEST_EFFECT, TRUTH_TOLERANCE = 2.0, 1.0  # in points of R@1; and points of precision that may be lost
DECODINGS = {
    "beams": Decoding(kind="beam", beams=3, max_tokens=35),
    "long": Decoding(kind="beam", beams=3, max_tokens=40),  # as in scenes_smile
    "samples": Decoding(kind="sample", samples=5, max_tokens=40),
}
RETRIEVAL = {"kind": "self_retrieval"}
# Fewer steps than in the recipes, at a higher learning rate.
TRAINING: dict[str, dict[str, Any]] = {
    "scenes_rloo": {"steps": 40, "learning_rate": 4e-4, "schedule": "linear", "warmup": 5},
    "scenes_smile": {"steps": 100, "learning_rate": 3e-4},
}


def beside(kind: str, weight: float) -> dict[str, Any]:
    """Returns the change of an objective that adds a reward to self-retrieval."""
    return {"rewards": [RETRIEVAL, {"kind": kind, "weight": weight}]}


METHODS: dict[str, dict[str, Any]] = {  # changes to the objective of scenes_rloo
    "max2": {"max_at_k": {"k": 2, "k_end": 1, "steps": 20}},
    "marginal": {"set_quality": {"form": "marginal", "weight": 0.5}},
    "claims": beside("claims", 0.5),
    "calibration": beside("calibration", 5.0),
}
RLOO: dict[str, dict[str, Any]] = {"base": {}, **METHODS}
SUBSET: dict[str, dict[str, Any]] = {  # objectives that replace the one of scenes_smile
    "mle": {"kind": "mle"},
    "smile": {},
    "gem": {"kind": "gem", "beta": 0.7},
    "sparsemax": {"kind": "sparsemax"},
}
LONG_MEASURES = ("length", "hard", "precision")  # measures of the subset losses; div1 is measured on samples
MEASURES = ("hard", "precision", "hallucination", "length")


def changed(name: str, recipe: str, change: Mapping[str, Any]) -> Arm:
    """Returns an arm: a shipped recipe with a changed objective. A changed ``kind`` replaces the whole objective.
    Results use the last weights, as in all arms of `replication`.
    """
    table = tomllib.loads(find_recipe(recipe).read_text(encoding="utf-8"))
    objective = change if "kind" in change else {**table["objective"], **change}
    training = {**table["training"], **TRAINING[recipe]}
    training["checkpoint_every"] = training["steps"]
    validation = {"every": training["steps"], "limit": 100, "decoding": {"kind": "greedy", "max_tokens": 35}}
    data = {key: table["data"][key] for key in ("train", "validation")}
    parts = {"data": data, "captioner": {}, "scorer": table["scorer"], "objective": dict(objective)}
    return Arm(name, {**parts, "training": training, "validation": validation}, "start")


def arms() -> dict[str, Arm]:
    """Returns every arm by name."""
    every = [Arm("start", model="scenes")]
    every += [changed(name, "scenes_rloo", change) for name, change in RLOO.items()]
    every += [changed(name, "scenes_smile", change) for name, change in SUBSET.items()]
    return {arm.name: arm for arm in every}


def of(arm: str, measure: str) -> Measurement:
    return Measurement(arm, measure, "plain", "beams")


def beats_base(
    name: str,
    of: Callable[[str, str], Measurement] = of,
    truth: str = "precision",
    prefix: str = "objectives",
) -> Claim:
    """Returns the claim that a method finds more pictures than ``base`` at equal truth.

    of: function that returns a measurement of an arm. truth: the measure of truth. prefix: the beginning of the claim's
        id.
    """
    return Claim(
        f"{prefix}-{name}", 3, "beyond the papers", f"{name} finds more pictures than self-retrieval at equal truth",
        "no figures",
        (
            greater("R@1 among look-alikes gained", of(name, "hard"), of("base", "hard"), effect=SMALLEST_EFFECT),
            greater("precision at most 1 lower", of(name, truth), of("base", truth), tolerance=TRUTH_TOLERANCE,
                    effect=TRUTH_TOLERANCE),
        ),
        # An added reward of weight 0 gives the results of `base`, so it cannot be the control.
        Control(f"{name} replaced by the start of both", {name: "start"}),
    )  # fmt: skip


CLAIMS = tuple(beats_base(name) for name in METHODS)


def make_lab(folder: Path = FOLDER) -> Lab:
    """Creates the lab of these arms."""
    return Lab(folder, arms(), TEST_SETS, DECODINGS)


@dataclass(frozen=True)
class Comparison:
    """Methods compared with ``base`` by one lab; ``rows`` are the measurements of each arm in the table."""

    command: str  # command whose seeds the verdict uses
    claims: Sequence[Claim]
    rows: Mapping[str, Sequence[Measurement]]
    lab: Callable[[], Lab]
    records: Path

    def run(self, seeds: Sequence[int], workers: int = 0) -> dict[str, Any]:
        """Trains and measures all arms of the comparison on these seeds; an interrupted run resumes.

        workers: processes; 0: one per core. Returns ``{"claims": […], "holm": {ID: p}, "beats_base": [ID, …],
        "systems": {ARM: {MEASURE: {…}}}, "seeds": […]}``.
        """
        results = replay(self.claims, self.lab(), seeds, workers=workers or cores())
        systems = measure_table(self.lab(), self.rows, seeds, workers)
        return {**to_json(results), **judge(results), "systems": systems, "seeds": list(seeds)}

    def power(self, seeds: Seeds) -> tuple[list[ClaimPower], dict[str, Any]]:
        """Computes the power with the verdict's number of seeds, and stores its record for the verdict.

        Raises `UsageError` if an arm of these seeds is not trained.
        """
        return claims_power(self.claims, self.lab(), seeds, self.records, self.command)

    def verdict(self, workers: int = 0) -> dict[str, Any]:
        """Returns the verdict on its reserved seeds, given once per settings after the power is stored."""
        seeds = VERDICTS[self.command]
        return claims_verdict(self.claims, self.lab(), lambda: self.run(seeds, workers), self.records, self.command)


ON_SCENES = Comparison(
    COMMAND, CLAIMS, {row: [of(row, name) for name in MEASURES] for row in ("start", *RLOO)}, make_lab, RECORDS
)


def judge(results: Sequence[ClaimResult]) -> dict[str, Any]:
    """Returns ``{"holm": {ID: p of R@1, adjusted over all comparisons}, "beats_base": [ID, …]}``."""
    adjusted = holm([result.parts[0].p for result in results])
    by_id = {result.claim.id: p for result, p in zip(results, adjusted, strict=True)}
    beats = [result.claim.id for result in results if result.holds and by_id[result.claim.id] < ALPHA]
    return {"holm": by_id, "beats_base": beats}


def subset_losses(seeds: Sequence[int], folder: Path = FOLDER, workers: int = 0) -> dict[str, Any]:
    """Trains and measures MLE, SMILE, GEM and sparsemax: ``{"systems": {ARM: {MEASURE: {…}}}, "seeds": […]}``."""
    rows = {
        row: [*(Measurement(row, name, "plain", "long") for name in LONG_MEASURES), of_samples(row)]
        for row in ("start", *SUBSET)
    }
    return {"systems": measure_table(make_lab(folder), rows, seeds, workers), "seeds": list(seeds)}


def of_samples(arm: str) -> Measurement:
    return Measurement(arm, "div1", "plain", "samples")


def measure_table(
    lab: Lab, rows: Mapping[str, Sequence[Measurement]], seeds: Sequence[int], workers: int
) -> dict[str, Any]:
    """Returns ``{ROW: {MEASURE: {"value", "low", "high", "n"}}}`` after training missing arms."""
    tasks = [
        Task(row, seed, tuple(dict.fromkeys((one.test_set, one.decoding) for one in measurements)))
        for row, measurements in rows.items()
        for seed in seeds
    ]
    if (workers := workers or cores()) > 1:
        with WorkerPool(lab, tasks, workers) as pool:
            pool.finish({task.key for task in tasks})
    table = {}
    for row, measurements in rows.items():
        for one in measurements:
            for seed in seeds:
                lab.prepare(one, seed)
        parts = {one.measure: Part(one.measure, (one,), lower=-math.inf) for one in measurements}
        table[row] = {name: evaluate_part(part, lab, seeds) for name, part in parts.items()}
    return systems_json(table, len(seeds))
