"""Calibration of claims: how well the share of a picture's captions that make a claim predicts whether the claim is
true.

A picture's captions are treated as samples. The confidence q of a distinct claim is the share of samples that make it.
y is 1 if the claim is true, that is, if a reference makes it or, with ground truth, if it holds in the scene. Each
distinct claim about a picture counts once. If a file has one caption per picture, q is the share that ``tellapart
caption --claims`` stored for the claim.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from tellapart.evaluation.context import UNSTATED, EvalContext
from tellapart.evaluation.facts import check_tagger, claim_extractor
from tellapart.language.distinct_claims import Judged, confidences, judged_by_references
from tellapart.metrics.corpus_scores import Measurement, Sums
from tellapart.metrics.metric import CaptionSetMetric
from tellapart.metrics.metric_info import CLOSE, TRUTH
from tellapart.metrics.registry import metric, on_request
from tellapart.metrics.slots import HUMAN, CaptionSlot, caption_lists
from tellapart.scenes.stated_claims import judged_by_scene
from tellapart.utils.progress import track

BINS = 10  # bins of equal width, for the expected calibration error
Claims = Sequence[tuple[float, bool]]  # (confidence, truth value) of each distinct claim about a picture
Key = TypeVar("Key", bound=Hashable)


def histograms(systems: Mapping[Key, Sequence[Claims]]) -> tuple[np.ndarray, dict[Key, np.ndarray]]:
    """Counts each system's claims by picture, confidence and truth value.

    Returns the G distinct confidences that occur in any system, in ascending order, and for each system counts N×2G:
    first the false claims by confidence, then the true claims.
    """
    level_G = np.array(sorted({q for claims_N in systems.values() for claims in claims_N for q, _ in claims}))
    place = {q: g for g, q in enumerate(level_G.tolist())}
    counts = {}
    for name, claims_N in systems.items():
        count_N2G = np.zeros((len(claims_N), 2, len(level_G)))
        for n, claims in enumerate(claims_N):
            for q, true in claims:
                count_N2G[n, int(true), place[q]] += 1
        counts[name] = count_N2G.reshape(len(claims_N), 2 * len(level_G))
    return level_G, counts


def brier(level_G: np.ndarray, count_RC: np.ndarray) -> np.ndarray:
    """Computes the mean of (q − y)² over claims, 0 to 1."""
    false_RG, true_RG = np.split(count_RC, 2, axis=-1)
    error_R = (false_RG * level_G**2 + true_RG * (1 - level_G) ** 2).sum(-1)
    return _ratio(error_R, count_RC.sum(-1))


def auroc(level_G: np.ndarray, count_RC: np.ndarray) -> np.ndarray:
    """Computes the probability that a true claim has a higher confidence than a false claim. Ties count half."""
    false_RG, true_RG = np.split(count_RC, 2, axis=-1)
    above_RG = true_RG.sum(-1, keepdims=True) - true_RG.cumsum(-1)
    return _ratio((false_RG * (above_RG + true_RG / 2)).sum(-1), false_RG.sum(-1) * true_RG.sum(-1))


def expected_calibration_error(level_G: np.ndarray, count_RC: np.ndarray) -> np.ndarray:
    """Computes |mean confidence − share of true claims| for each bin, averaged over claims, 0 to 1 (Guo et al. 2017).

    The bins are (0, 0.1], (0.1, 0.2], … (0.9, 1].
    """
    false_RG, true_RG = np.split(count_RC, 2, axis=-1)
    excess_RG = (false_RG + true_RG) * level_G - true_RG
    # Confidences are ratios of small integers; rounding keeps 3/10 in the bin whose upper end is 0.3.
    bin_G = np.ceil(np.round(BINS * level_G, 9)).astype(int) - 1
    inside_GB = bin_G[:, None] == np.arange(BINS)
    return _ratio(np.abs(excess_RG @ inside_GB).sum(-1), count_RC.sum(-1))


def _ratio(above_R: np.ndarray, below_R: np.ndarray) -> np.ndarray:
    return np.where(below_R > 0, above_R / np.where(below_R > 0, below_R, 1), np.nan)


@dataclass(frozen=True, kw_only=True)
class CalibrationMetric(CaptionSetMetric):
    """A metric computed from the claims' confidences and truth values: ``factory(level_G, count_RC) -> number_R``.

    exact: whether a claim is true if it holds in the scene, rather than if a reference makes it.
    """

    exact: bool

    def measure(self, context: EvalContext, slots: Sequence[CaptionSlot]) -> Measurement | None:
        """Measures a system's claims. Returns None if the system has one caption per picture and no stored confidences.

        The counts have a column for every confidence in any system, because paired tests swap rows between systems.
        """
        level_G, counts = context.once(("calibration", self.exact), lambda: self._histograms(context))
        count_NC = counts.get(id(slots[0]))
        if count_NC is None or not count_NC.any():
            return None
        return Measurement(None, Sums(count_NC, partial(self.factory, level_G), (0.0, 1.0), n=int(count_NC.sum())))

    def _histograms(self, context: EvalContext) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        """Returns the distinct confidences of all systems, and each system's counts by the id of its first slot."""
        systems = [slots for name, slots in context.slots.items() if name != HUMAN or self.exact]
        claims = {id(slots[0]): self._claims(context, slots) for slots in systems}
        return histograms({key: claims_N for key, claims_N in claims.items() if claims_N is not None})

    def _claims(self, context: EvalContext, slots: Sequence[CaptionSlot]) -> list[Claims] | None:
        """Returns the claims about each picture, or None if the system states no confidences."""
        stated = None if self.exact or len(slots) > 1 else slots[0].confidences
        if len(slots) < 2 and stated is None:
            return None
        judge: Callable[[str, Any], Judged] = judged_by_scene if self.exact else judged_by_references
        known_N = [item.truth for item in context.items or ()] if self.exact else context.references or []
        pairs = list(zip(caption_lists(slots), known_N, strict=True))
        judged_N = [[judge(text, known) for text in texts] for texts, known in track(pairs, label="extracting claims")]
        found: list[Claims] = []
        unstated = []
        for n, samples in enumerate(judged_N):
            true_of = {claim: true for claims in samples for claim, true in claims.items()}
            share_of = confidences(samples) if stated is None else stated[n]
            found.append([(share_of[claim], true) for claim, true in true_of.items() if claim in share_of])
            unstated.append(true_of.keys() - share_of.keys())
        context.once((UNSTATED, id(slots[0])), lambda: unstated)
        return found


def _signature(verifier: str, measure: str, context: EvalContext) -> str:
    bins = f"|bins:{BINS}" if measure == "ece" else ""
    extractor = f"|extractor:{claim_extractor()}|synonyms:none" if verifier == "references" else ""
    stated = verifier == "references" and bool(context.inputs.confidences)
    q = "share-of-captions" * context.several + "+" * (context.several and stated) + "share-in-file" * stated
    return f"distinct-claims-of-a-picture|q:{q}{bins}{extractor}|verifier:{verifier}"


_MEASURES = {
    "brier": (brier, "Brier score", "mean of (q − y)² over claims", "lower"),
    "auroc": (auroc, "AUROC", "probability that a true claim has a higher q than a false one", "higher"),
    "ece": (expected_calibration_error, "calibration error", "expected calibration error over ten bins", "lower"),
}
_JUDGES = {
    "calibration": ("references", "confirmed by a reference", check_tagger, CLOSE),
    "calibration_exact": ("truth", "true of the scene", on_request, TRUTH),
}
for _name, (_need, _true, _check, _group) in _JUDGES.items():
    for _measure, (_score, _label, _help, _direction) in _MEASURES.items():
        metric(
            f"{_name}_{_measure}",
            kind=CalibrationMetric,
            exact=_need == "truth",
            needs=("confidences" if _need == "references" else "several", _need),
            signature=partial(_signature, _need, _measure),
            label=f"{_label} of claims ({_need}) ",
            help=f"{_help}, where q is the fraction of the picture's samples that make a claim, and y is 1 "
            f"for claims {_true}",
            direction=_direction,
            digits=3,
            group=_group,
            check=_check,
            families=(_name.replace("_", ""),),
        )(_score)
