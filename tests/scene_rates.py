"""Rates of claims over captions of scenes, each computed on its own: what the metrics of an evaluation must give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tellapart.scenes.claims import ClaimCounts


def caption_rates(judgements: Sequence[ClaimCounts]) -> dict[str, np.ndarray]:
    """The values of `corpus_rates` for each caption, in percent; NaN where a caption's denominator is 0."""

    def ratio(above: list[int], below: list[int]) -> np.ndarray:
        top, bottom = np.array(above, float), np.array(below, float)
        ratios: np.ndarray = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
        return 100 * ratios

    js = judgements
    return {
        "attribute_precision": ratio([j.correct for j in js], [j.claims for j in js]),
        "attribute_recall": ratio([j.recalled for j in js], [j.attributes for j in js]),
        "hallucination_rate": ratio([j.hallucinations for j in js], [j.claims for j in js]),
        "binding_error_rate": ratio([j.binding_errors for j in js], [j.bound for j in js]),
        "repetition_rate": ratio([j.repetitions > 0 for j in js], [1] * len(js)),
    }


def corpus_rates(judgements: Sequence[ClaimCounts]) -> dict[str, float]:
    """Rates over a corpus, in percent, counts summed over captions before dividing; NaN without a denominator.

    attribute_precision  correct claims of all claims
    attribute_recall     attributes stated of all attributes of the scenes
    hallucination_rate   hallucinations of all claims
    binding_error_rate   binding errors of all bound claims
    repetition_rate      captions with at least one repetition of all captions
    """

    def rate(above: Iterable[int], below: Iterable[int]) -> float:
        bottom = sum(below)
        return 100 * sum(above) / bottom if bottom else float("nan")

    js = judgements
    return {
        "attribute_precision": rate((j.correct for j in js), (j.claims for j in js)),
        "attribute_recall": rate((j.recalled for j in js), (j.attributes for j in js)),
        "hallucination_rate": rate((j.hallucinations for j in js), (j.claims for j in js)),
        "binding_error_rate": rate((j.binding_errors for j in js), (j.bound for j in js)),
        "repetition_rate": rate((j.repetitions > 0 for j in js), (1 for _ in js)),
    }
