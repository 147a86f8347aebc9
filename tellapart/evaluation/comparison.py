"""Systems side by side: each metric for every system, then for every pair, picture by picture."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tellapart import __version__
from tellapart.errors import UsageError
from tellapart.evaluation.registry import METRICS, Corpus, EvalContext, Measurement, Metric, Slot, metrics_of
from tellapart.metrics.results import Candidates, Pair, Results
from tellapart.metrics.significance import (
    Difference,
    Interval,
    MeanStatistic,
    Resampled,
    Statistic,
    mean_interval,
    paired_difference,
    paired_resampled,
    resample,
)
from tellapart.metrics.words import Association
from tellapart.utils.messages import detail

HUMAN = "human"
CHANCE = "chance"
HUMAN_CHOICES = ("first", "random", "mean")


class Comparison:
    """Fills a `Results` metric by metric: every system, then every pair of systems."""

    def __init__(
        self, results: Results, slots: Mapping[str, list[Slot]], resamples: int, seed: int, human: str
    ) -> None:
        self.results, self.slots, self.human = results, slots, human
        self.draw: dict[str, Any] = {"resamples": resamples, "seed": seed}

    def measure(self, name: str, suffix: str, context: EvalContext, chance: bool) -> None:
        metric, key = metrics_of(context)[name], name + suffix
        started = time.monotonic()
        found = {
            system: measured
            for system, slots in self.slots.items()
            if not (system == HUMAN and self._has_no_references(metric, slots))
            and (measured := _measured(metric, context, slots)) is not None
        }
        detail(f"measured {key} of {len(found)} systems in {time.monotonic() - started:.2f} s")
        several = {len(slots) for system, slots in self.slots.items() if system in found and system != HUMAN} - {1}
        if chance and metric.chance is not None:
            asked_N = next((measured.weight_N for measured in found.values()), None)
            found[CHANCE] = Measurement(metric.chance(context), weight_N=asked_N)
        bootstrap = f"bootstrap:{self.draw['resamples']}@{self.draw['seed']}"
        self.results.signatures[key] = (
            f"{metric.short or name}|{metric.signature(context)}|{bootstrap}|tellapart:{__version__}"
            + (self.human if HUMAN in found else "")
            + (f"|captions:{','.join(map(str, sorted(several)))}" if several else "")
        )
        self.results.formats[key] = metric.digits
        if (among := metric.candidates(context)) is not None:
            self.results.candidates[key] = among
        drawn = self._resampled(found)
        for system, measured in found.items():
            self.results.systems.setdefault(system, {})[key] = self._interval(system, measured, drawn)
            if measured.value_N is not None:
                self.results.values.setdefault(system, {})[key] = measured.value_N
        for a, b in itertools.combinations((system for system in found if system != CHANCE), 2):
            self.results.pairs.append(Pair(a, b, key, self._difference(a, b, found, drawn)))

    def _has_no_references(self, metric: Metric, slots: list[Slot]) -> bool:
        """A reference is scored against the others; where a picture has no other, people cannot be scored."""
        if "references" not in metric.needs:
            return False
        alone = any(not held for slot in slots for held in slot.references or [[]])
        note = f"{HUMAN} has no metric that needs references: some pictures have only one, which is the one scored"
        if alone and note not in self.results.notes:
            self.results.notes.append(note)
        return alone

    def _resampled(self, found: Mapping[str, Measurement]) -> dict[str, Resampled]:
        return {
            system: resample(measured.corpus.build(measured.corpus.rows), len(measured.corpus.rows), **self.draw)
            for system, measured in found.items()
            if measured.corpus is not None
        }

    def _interval(self, system: str, measured: Measurement, drawn: Mapping[str, Resampled]) -> Interval:
        if system in drawn:
            return drawn[system].interval()
        assert measured.value_N is not None
        return mean_interval(measured.value_N, weight_N=measured.weight_N, **self.draw)

    def _difference(
        self, a: str, b: str, found: Mapping[str, Measurement], drawn: Mapping[str, Resampled]
    ) -> Difference:
        base, system = found[a], found[b]
        if base.corpus is not None and system.corpus is not None:
            rows, base_rows = _as_wide(system.corpus.rows, base.corpus.rows)
            return paired_resampled(drawn[b], drawn[a], system.corpus.build(rows + base_rows), **self.draw)
        assert base.value_N is not None and system.value_N is not None
        return paired_difference(system.value_N, base.value_N, weight_N=system.weight_N, **self.draw)


def _measured(metric: Metric, context: EvalContext, slots: list[Slot]) -> Measurement | None:
    """A metric of a system; None where it is about several captions of a picture and there is one."""
    if metric.measure is not None:
        return _merged([metric.measure(context, slot) for slot in slots], slots)
    if metric.over_slots is not None:
        return metric.over_slots(context, slots) if len(slots) > 1 else None
    assert metric.together is not None
    return _merged([metric.together(context, caption_lists(slots))], slots[:1]) if len(slots) > 1 else None


def _merged(measured_S: list[Measurement], slots: list[Slot]) -> Measurement:
    """A system's measurement: that of its captions, or the mean over several captions of a picture."""
    values = [measured.value_N for measured in measured_S if measured.value_N is not None]
    value_N = values[0] if values else None
    if len(values) > 1:
        # A slot that repeats a reference (a picture with fewer than the others) counts for corpus numbers only.
        value_SN = np.array([_unless(slot.repeats, own_N) for slot, own_N in zip(slots, values, strict=True)])
        count_N = np.count_nonzero(~np.isnan(value_SN), axis=0)
        value_N = np.where(count_N > 0, np.nansum(value_SN, axis=0) / np.maximum(count_N, 1), np.nan)
    corpora = [measured.corpus for measured in measured_S if measured.corpus is not None]
    if not corpora:
        return Measurement(value_N, weight_N=measured_S[0].weight_N)
    rows = list(zip(*[corpus.rows for corpus in corpora], strict=True))
    return Measurement(value_N, Corpus(rows, partial(_slot_mean, corpora[0].build)))


def _unless(repeats_N: np.ndarray | None, value_N: np.ndarray) -> np.ndarray:
    return value_N if repeats_N is None else np.where(repeats_N, np.nan, value_N)


def _slot_mean(build: Callable[[list[Any]], Statistic], rows: list[tuple[Any, ...]]) -> Statistic:
    statistics = [build(list(column)) for column in zip(*rows, strict=True)]
    return statistics[0] if len(statistics) == 1 else MeanStatistic(statistics)


def _as_wide(rows: list[Any], base: list[Any]) -> tuple[list[Any], list[Any]]:
    """Rows of equally many slots: a system with fewer captions of a picture says them again."""
    width = math.lcm(len(rows[0]), len(base[0]))
    return [row * (width // len(row)) for row in rows], [row * (width // len(row)) for row in base]


def system_slots(lists: list[list[str]], held: list[list[str]] | None) -> list[Slot]:
    """A system's captions as slots: every picture's first ones, every picture's second ones, and so on.

    A picture with fewer captions than others says them again; that counts for corpus numbers of one caption only.
    """
    width = max(map(len, lists))
    return [
        Slot(
            [texts[number % len(texts)] for texts in lists],
            held,
            np.array([number >= len(texts) for texts in lists]) if width > 1 else None,
        )
        for number in range(width)
    ]


def caption_lists(slots: list[Slot]) -> list[list[str]]:
    """All captions of each picture, those that a slot only says again left out."""
    kept = [np.zeros(len(slot.captions), bool) if slot.repeats is None else slot.repeats for slot in slots]
    return [
        [slot.captions[number] for slot, repeats_N in zip(slots, kept, strict=True) if not repeats_N[number]]
        for number in range(len(slots[0].captions))
    ]


def human_slots(choice: str, held: list[list[str]] | None, seed: int) -> list[Slot]:
    """People's captions as a system, each held against the picture's other references."""
    if choice not in HUMAN_CHOICES:
        raise UsageError(f"human is '{choice}'; expected one of {', '.join(HUMAN_CHOICES)}")
    if held is None:
        raise UsageError("to score people, references are needed; add --references FILE, or --data with references")
    if choice == "first":
        return [_human_slot(held, [0] * len(held), 0)]
    if choice == "random":
        rng = np.random.default_rng(seed)
        return [_human_slot(held, [int(rng.integers(len(texts))) for texts in held], 0)]
    return [_human_slot(held, [slot % len(texts) for texts in held], slot) for slot in range(max(map(len, held)))]


def _human_slot(held: list[list[str]], picks: list[int], slot: int) -> Slot:
    captions = [texts[pick] for texts, pick in zip(held, picks, strict=True)]
    others = [texts[:pick] + texts[pick + 1 :] for texts, pick in zip(held, picks, strict=True)]
    return Slot(captions, others, np.array([slot >= len(texts) for texts in held]))


def results_from_json(value: Mapping[str, Any]) -> Results:
    """Results as they are printed, from their fixed JSON; what each picture contributed is not in it."""

    def interval(found: Mapping[str, Any]) -> Interval:
        numbers: dict[str, Any] = {key: math.nan if number is None else number for key, number in found.items()}
        return Interval(**numbers)

    def pair(found: Mapping[str, Any]) -> Pair:
        inner: dict[str, Any] = {
            key: math.nan if found[key] is None else found[key] for key in ("low", "high", "n", "p")
        }
        difference = math.nan if found["difference"] is None else found["difference"]
        return Pair(found["a"], found["b"], found["metric"], Difference(value=difference, **inner))

    systems = {
        name: {metric: interval(found) for metric, found in metrics.items()}
        for name, metrics in value["systems"].items()
    }
    count = max((found.n for metrics in systems.values() for found in metrics.values()), default=0)
    formats = {
        key: metric.digits
        for key in value["signatures"]
        if (metric := METRICS.get(key) or METRICS.get(key.rpartition("@")[0]))
    }
    pairs = [pair(found) for found in value["pairs"]]
    signatures, notes = dict(value["signatures"]), list(value.get("notes", []))
    words = {name: [Association(**word) for word in found] for name, found in value.get("words", {}).items()}
    candidates = {key: Candidates(**found) for key, found in value.get("candidates", {}).items()}
    pictures = value.get("pictures", {"n": count, "ids": ""})
    return Results(
        [str(i) for i in range(pictures["n"])],
        systems,
        pairs,
        signatures,
        notes,
        formats=formats,
        candidates=candidates,
        words=words,
        ids_digest=pictures["ids"],
    )
