"""``replication tradeoff``: detail against hallucination, compared with self-retrieval, controls and an upper bound.

All arms start from the same captioner and take the same number of steps. ``truthful`` is the recipe under test.
``speaker`` arms are the same recipe with other weights on the initial captioner's likelihood, which control how much
captions say; the curve of R@1 against hallucination is drawn from them, on development seeds only. All captions are
written with the same beam search. The recipe also removes nouns that it is not sure of (`Decoding.confidence`). The
effect of this removal alone is measured, too, and so is greedy decoding. Settings are chosen on seeds 0-5, and one
verdict is given on seeds 30-34.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from replication.arms import TEST_SETS
from replication.bootstrap import PartResult, compare_with_bounds
from replication.claim import Measurement, Part
from replication.lab import Lab, code_versions, digest
from replication.seeds import VERDICTS
from replication.stamp import give_verdict, given_verdict, require_commit
from replication.test_sets import ArmCaptions
from replication.tradeoff_arms import (
    DECODED_OTHERWISE,
    DECODINGS,
    JUDGED,
    MEASURED,
    PARTS,
    STEPS,
    TEST_SET,
    arms,
    captions_of,
    of,
)
from replication.verdict import RECORDS
from replication.worker_pool import Task, WorkerPool
from tellapart.features.nearest import Vectors
from tellapart.inference.best_of import BestOf
from tellapart.metrics.draws import RESAMPLES
from tellapart.metrics.intervals import LEVEL
from tellapart.utils.strict_json import json_value

FOLDER = Path("runs") / "tradeoff"
VERDICT_FILE = "tradeoff.json"


class ArmsLab(Lab):
    """A lab that reranks several samples: the first one is the best by the scorer among the picture's look-alikes."""

    def _arm_captions(self, measurement: Measurement, seed: int, written: bool, reference_stage: str) -> ArmCaptions:
        captions = super()._arm_captions(measurement, seed, written, reference_stage)
        return best_first(captions) if self.decodings[measurement.decoding].samples > 1 else captions


def best_first(captions: ArmCaptions) -> ArmCaptions:
    """Sorts each picture's captions by `BestOf`, best first, among the look-alikes that R@1 uses."""
    tests = captions.test_sets
    sets = tests.candidate_sets(captions, "lookalikes").sets  # the picture itself is the first member
    places = {item.id: row for row, item in enumerate(captions.items)}
    near = {int(members[0]): members[1:] for members in sets}
    best_of = BestOf(tests.scorer, places, Vectors.of(tests.image_features(captions)), near)
    ranked = best_of.rank(captions.items, captions.captions)
    return replace(captions, captions=[[text for text, _ in texts] for texts in ranked])


@dataclass
class TradeoffResult:
    """Result of `run_tradeoff`: each measure of each arm, and each part of the rule."""

    seeds: tuple[int, ...]
    table: dict[str, dict[str, PartResult]] = field(default_factory=dict)
    parts: list[PartResult] = field(default_factory=list)
    stamp: dict[str, Any] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        return bool(self.parts) and all(part.holds for part in self.parts)

    def closed(self, name: str) -> float | None:
        """Returns the fraction of the gap between self-retrieval and the ground-truth reward that is closed, for a
        measure.
        """
        if not {"sr", "truthful", "truth"} <= set(self.table):
            return None
        plain, ours, bound = (self.table[arm][name].value for arm in ("sr", "truthful", "truth"))
        share = (ours - plain) / (bound - plain) if bound != plain else math.nan
        return share if math.isfinite(share) else None

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"systems": {ARM: {METRIC: {"value", "low", "high", "n"}}}, "parts": […], "closed": {…}, "holds",
        …}``.
        """
        return {
            "systems": systems_json(self.table, len(self.seeds)),
            "parts": [{"says": part.statement, **interval(part), "holds": part.holds} for part in self.parts],
            "closed": {name: self.closed(name) for name in ("hard", "hallucination")} if self.table else {},
            "holds": self.holds,
            "seeds": list(self.seeds),
            "stamp": self.stamp,
        }


def systems_json(table: Mapping[str, Mapping[str, PartResult]], seeds: int) -> dict[str, Any]:
    """Returns ``{ARM: {METRIC: {"value", "low", "high", "n"}}}`` for a table from `measure_rows`."""
    return {arm: {name: {**interval(one), "n": seeds} for name, one in row.items()} for arm, row in table.items()}


def interval(part: PartResult) -> dict[str, float | None]:
    """Returns ``{"value", "low", "high"}``, with None instead of NaN (if captions make no claims)."""
    found: dict[str, float | None] = json_value({"value": part.value, "low": part.low, "high": part.high})
    return found


def run_tradeoff(
    seeds: Sequence[int],
    names: Sequence[str] = (),
    *,
    start: str = "scenes",
    steps: int = STEPS,
    folder: Path = FOLDER,
    workers: int = 1,
) -> TradeoffResult:
    """Trains and measures the arms of some rows (default: the verdict's), and applies the rule if its rows are among
    them.

    Resumes after Ctrl-C.
    """
    known = arms(start, steps)
    lab, rows = ArmsLab(folder, known, TEST_SETS, DECODINGS), list(names) or verdict_rows()
    result = TradeoffResult(tuple(seeds), measure_rows(lab, rows, seeds, workers))
    if {"start", "sr", "truthful"} <= set(result.table):
        result.parts = [_part(lab, seeds, part) for part in PARTS]
    return result


def measure_rows(
    lab: ArmsLab, rows: Sequence[str], seeds: Sequence[int], workers: int = 1
) -> dict[str, dict[str, PartResult]]:
    """Returns all measures in `MEASURED` by row, after training missing arms in ``workers`` processes."""
    decodings: dict[str, list[str]] = {}
    for arm, decoding in map(captions_of, rows):
        for one in lab.lineage(arm):
            decodings.setdefault(one, [])
        decodings[arm].append(decoding)
    tasks = [
        Task(arm, seed, tuple((TEST_SET, decoding) for decoding in some))
        for seed in seeds
        for arm, some in decodings.items()
    ]
    if workers > 1:
        with WorkerPool(lab, tasks, workers) as pool:
            pool.finish({task.key for task in tasks})
    table = {}
    for row in rows:
        for seed in seeds:
            lab.prepare(of(row, "hard"), seed)
        table[row] = {name: _measured(lab, seeds, of(row, name)) for name in MEASURED}
    return table


def verdict_rows() -> list[str]:
    """Returns the rows of a verdict's table: its arms, and some arms with other decodings."""
    return [*JUDGED, *DECODED_OTHERWISE]


def _measured(lab: Lab, seeds: Sequence[int], measurement: Measurement) -> PartResult:
    return _part(lab, seeds, Part(measurement.measure, (measurement,), lower=-math.inf))


def _part(lab: Lab, seeds: Sequence[int], part: Part) -> PartResult:
    statistics = [(one.factor, [lab.statistic(one, seed) for seed in seeds]) for one in part.measurements]
    return compare_with_bounds(part.statement, statistics, part.lower, part.upper, every_seed=False)


def settings_digest(start: str, steps: int, folder: Path = FOLDER) -> str:
    """Hashes everything that determines a verdict to eight hex digits, as `replication.verdict.settings_digest` does.

    These are: the fingerprint of each arm's recipe (with its initial weights, its data and the versions of the code),
    the rule's parts except their wordings, the measures, the pictures and the decodings.
    """
    lab = Lab(folder, arms(start, steps), TEST_SETS, DECODINGS)
    folders = sorted(lab.arm_folder(name, VERDICTS["tradeoff"][0]).name for name in JUDGED)
    parts = [repr(replace(part, statement="")) for part in PARTS]
    decodings = {name: DECODINGS[name].model_dump() for _, name in map(captions_of, verdict_rows())}
    versions = code_versions("scenes", "decoding", "boost")
    rule = ["intervals", LEVEL, RESAMPLES, lab.test_sets.scorer_name, MEASURED, versions]
    rows = [(row, *captions_of(row)) for row in verdict_rows()]
    return digest(json.dumps([folders, parts, TEST_SETS, decodings, rows, rule], sort_keys=True))


def verdict(
    *, start: str = "scenes", steps: int = STEPS, folder: Path = FOLDER, workers: int = 1,
    seeds: Sequence[int] = VERDICTS["tradeoff"], records: Path = RECORDS,
) -> dict[str, Any]:  # fmt: skip
    """Returns the verdict on seeds 30-34. It is given once per settings, and read from its record afterwards (`stamp`).

    Its record is in the repository, next to the claims' record. Raises `UsageError` outside a clone of the project.
    """
    path, settings = records / VERDICT_FILE, settings_digest(start, steps, folder)
    if given_verdict(path, settings) is None:
        require_commit("python -m replication tradeoff")

    def run() -> dict[str, Any]:
        return run_tradeoff(seeds, start=start, steps=steps, folder=folder, workers=workers).to_json()

    return give_verdict(path, settings, run, start=start)


def table_lines(found: Mapping[str, Any]) -> list[list[str]]:
    """Returns the header and rows of a table of `TradeoffResult.to_json`: means over seeds, and intervals."""
    rows = [["arm", *MEASURED]]
    for arm, values in found["systems"].items():
        rows.append([arm, *(format_cell(one) for one in values.values())])
    return rows


def format_cell(one: Mapping[str, Any]) -> str:
    """Formats a value and its interval, e.g. "39.0 [35.1, 43.2]". NaN becomes a dash."""
    found = [one[name] for name in ("value", "low", "high")]
    return "–" if None in found else "{:.1f} [{:.1f}, {:.1f}]".format(*found)
