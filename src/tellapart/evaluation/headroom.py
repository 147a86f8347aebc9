"""Measures a captioner's headroom: compares its claims, ranked by the captioner's own confidence, with its greedy
captions.

The captioner samples several captions per picture. Each distinct claim in these captions gets a confidence: its
frequency times the probability of its words given the picture and the preceding words. Ranking claims by confidence
gives a precision-recall curve; the greedy captions are a single point. The distance between the point and the curve is
the headroom: the gain that is possible without better vision.

On `scenes`, claims are verified against the scene, and recall is over the scene's attributes. On other data, claims are
content words; a claim is true if a reference contains the word, and recall is over the references' content words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tellapart.captioners import Captioner, load_captioner
from tellapart.data import open_many
from tellapart.errors import UsageError
from tellapart.evaluation.headroom_claims import (
    ConfidentClaim,
    Pool,
    captions_with_log_probs,
    claims_of,
    distinct,
    fact_count,
    without_implied,
)
from tellapart.features.store import FeatureStore
from tellapart.features.views import make_view
from tellapart.metrics.draws import bootstrap_weights
from tellapart.models.decoding import Decoding
from tellapart.models.devices import resolve_device
from tellapart.types import Item
from tellapart.utils.rng import ItemSeeds

Interval = tuple[float, float, float]  # a value and its 95% interval over pictures

PICTURES_PER_BATCH = 50
PRECISION_LEVELS = (99, 95, 90, 80, 70)  # precision levels at which recall is printed
QUANTILES = (0.025, 0.975)


@dataclass(frozen=True)
class Point:
    """Precision and recall in percent, with 95% intervals over pictures."""

    precision: Interval
    recall: Interval


@dataclass(frozen=True)
class Headroom:
    """The claims in a captioner's samples and in its greedy captions.

    known: the claims in all captions. of_greedy: the claims in the greedy captions. facts_N: the number of facts about
        each picture.
    """

    known: tuple[ConfidentClaim, ...]
    of_greedy: tuple[ConfidentClaim, ...]
    facts_N: np.ndarray
    truth: str

    @cached_property
    def weight_RN(self) -> np.ndarray:
        """Returns bootstrap weights for the pictures. The first row is the original sample."""
        n = len(self.facts_N)
        drawn = np.concatenate(list(bootstrap_weights(n, 1000, 0)))
        return np.concatenate([np.ones((1, n)), drawn])

    @cached_property
    def _ranked(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns each claim's picture, and whether the claim is true, in descending order of confidence."""
        ranked = sorted(self.known, key=lambda claim: -claim.confidence)
        return np.array([c.picture for c in ranked], dtype=int), np.array([c.true for c in ranked], dtype=float)

    def curve(self, weight_N: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Returns precision and recall in percent after each claim, starting with the most confident claim.
        ``weight_N``: picture weights.
        """
        picture_C, true_C = self._ranked
        weight_N = np.ones(len(self.facts_N)) if weight_N is None else weight_N
        weight_C = weight_N[picture_C]
        found_C = np.cumsum(weight_C * true_C)
        stated_C = np.maximum(np.cumsum(weight_C), 1e-9)
        return 100 * found_C / stated_C, 100 * found_C / max(float(weight_N @ self.facts_N), 1e-9)

    def greedy(self) -> Point:
        """Returns the precision and recall of the greedy captions."""
        true_N, stated_N = (np.zeros(len(self.facts_N)) for _ in range(2))
        for claim in self.of_greedy:
            stated_N[claim.picture] += 1
            true_N[claim.picture] += claim.true
        true_R = self.weight_RN @ true_N
        return Point(
            _interval(100 * true_R / np.maximum(self.weight_RN @ stated_N, 1e-9)),
            _interval(100 * true_R / (self.weight_RN @ self.facts_N)),
        )

    def recall_at(self, precision: float) -> Interval:
        """Returns the highest recall, in percent, at which the curve reaches this precision, with its interval."""
        found = []
        for weight_N in self.weight_RN:
            precision_C, recall_C = self.curve(weight_N)
            found.append(float(recall_C[precision_C >= precision].max(initial=0.0)))
        return _interval(np.array(found))

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"truth", "pictures", "greedy", "at_greedy_precision", "recall_at", "curve"}``, with 50 curve
        points.
        """
        greedy = self.greedy()
        precision_C, recall_C = self.curve()
        places = np.unique(np.linspace(0, max(0, len(self.known) - 1), 50).astype(int))[: len(self.known)]
        return {
            "truth": self.truth,
            "pictures": len(self.facts_N),
            "greedy": {"precision": _named(greedy.precision), "recall": _named(greedy.recall)},
            "at_greedy_precision": _named(self.recall_at(greedy.precision[0])),
            "recall_at": {str(level): _named(self.recall_at(level)) for level in PRECISION_LEVELS},
            "curve": [
                {"precision": round(float(precision_C[c]), 2), "recall": round(float(recall_C[c]), 2)} for c in places
            ],
        }

    def title(self, model: str) -> str:
        """Returns the title of the table made of `rows`."""
        return f"{model}: {len(self.facts_N):,} pictures, by {self.truth}; 95% intervals over pictures"

    def rows(self) -> list[tuple[str, str, str]]:
        """Returns rows for the terminal: the greedy captions' precision and recall, then points on the curve."""
        greedy = self.greedy()
        levels = ((f"at a precision of {level}", level) for level in PRECISION_LEVELS)
        points = [("at the same precision", greedy.precision[0]), *levels]
        curve = [(name, f"{level:.1f}", _cell(self.recall_at(level))) for name, level in points]
        return [("of the greedy captions", _cell(greedy.precision), _cell(greedy.recall)), *curve]


def _cell(value: Interval) -> str:
    return f"{value[0]:.1f} [{value[1]:.1f}, {value[2]:.1f}]"


def _interval(value_R: np.ndarray) -> Interval:
    """Returns the value (the first element) and its 95% interval (from the resamples, the remaining elements)."""
    low, high = np.quantile(value_R[1:], QUANTILES)
    return float(value_R[0]), float(low), float(high)


def _named(value: Interval) -> dict[str, float]:
    return dict(zip(("value", "low", "high"), (round(number, 2) for number in value), strict=True))


def headroom_of(model: str, specs: Sequence[str], *, device: str, **settings: Any) -> tuple[Headroom, list[str]]:
    """Loads a captioner and data sets, and returns the result of `measure_headroom` and notes on skipped pictures."""
    captioner, dataset = load_captioner(model, resolve_device(device), "fp32"), open_many(specs)
    view = make_view(captioner, FeatureStore())
    items = view.readable(dataset, dataset.unreadable)
    return measure_headroom(captioner, items, view.rows(items), **settings), dataset.report()


def measure_headroom(
    captioner: Captioner, items: Sequence[Item], visual: Any, *, samples: int = 10, max_tokens: int = 40, seed: int = 0
) -> Headroom:
    """For each picture, generates one greedy and ``samples`` sampled captions, and ranks their claims.

    visual: the captioner's inputs for the pictures, N×…. Raises `UsageError` if a picture has neither a scene nor a
        reference to compare with.
    """
    on_scenes = all(hasattr(item.truth, "facts") for item in items)
    if not on_scenes and (bare := [item.id for item in items if not item.references]):
        raise UsageError(
            f"{bare[0]} has no reference; claims are verified against references or against a scene's ground truth"
        )
    known: Pool = {}
    of_greedy: Pool = {}
    ways = (
        (Decoding(kind="greedy", max_tokens=max_tokens), (known, of_greedy)),
        (Decoding(kind="sample", samples=samples, max_tokens=max_tokens), (known,)),
    )
    for start in range(0, len(items), PICTURES_PER_BATCH):
        block = items[start : start + PICTURES_PER_BATCH]
        rows = torch.as_tensor(np.asarray(visual[start : start + PICTURES_PER_BATCH])).to(captioner.device)
        seeds = ItemSeeds(tuple(item.id for item in block), seed)
        for decoding, pools in ways:
            rollout, log_p_RT = captions_with_log_probs(captioner, rows, decoding, seeds)
            for claim, fact in claims_of(rollout, log_p_RT, captioner, block, on_scenes):
                own = replace(claim, picture=start + claim.picture)
                for pool in pools:
                    pool.setdefault((own.picture, fact), []).append(own)
    facts_N = np.array([fact_count(item, on_scenes) for item in items], dtype=float)
    known_claims = distinct(known, samples + 1)
    if on_scenes:
        known_claims = without_implied(known_claims, items)
    truth = "the scenes' ground truth" if on_scenes else "the references' words"
    return Headroom(tuple(known_claims.values()), tuple(distinct(of_greedy, 1).values()), facts_N, truth)
