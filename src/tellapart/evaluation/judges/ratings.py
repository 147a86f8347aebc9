"""Per-caption judge scores: CLAIR, and a rating from 1 to 10.

A score is NaN if the judge abstains. The prompts are our own unless ``Judge.prompts`` overrides them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from tellapart.evaluation.judges.answers import json_in, number_in
from tellapart.evaluation.judges.judge import Judge, Question
from tellapart.metrics.inputs import References

REQUEST = "Describe the following image."  # paper 1, appendix D


def clair(judge: Judge, ids: Sequence[str], captions: Sequence[str], references: References) -> np.ndarray:
    """Computes CLAIR (Chan et al. 2023) for N captions: the probability, 0..1, that a caption describes the same
    picture as its references.
    """
    questions = [
        Question(id_, {"candidate": f"- {caption}", "references": bullets(texts)}, partial(number_in, low=0, high=100))
        for id_, caption, texts in zip(ids, captions, references, strict=True)
    ]
    return np.array(judge.ask("clair", questions), dtype=float) / 100


def rating(
    judge: Judge,
    ids: Sequence[str],
    captions: Sequence[str],
    references: References,
    requests: Sequence[str] | None = None,
) -> np.ndarray:
    """Computes the GPT-4 rating from paper 1's appendix B, 1..10, for N captions. As in Vicuna's evaluation, the judge
    treats the caption and the first reference as two assistants' answers, and rates helpfulness, relevance, accuracy
    and detail.

    requests: the instruction that each caption answers, N [default: a request to describe the picture]."""
    questions = _pairs(ids, captions, references, requests, partial(number_in, low=1, high=10))
    return np.array(judge.ask("rating", questions), dtype=float)


def ratings(
    judge: Judge,
    ids: Sequence[str],
    captions: Sequence[str],
    references: References,
    requests: Sequence[str] | None = None,
) -> np.ndarray:
    """Returns ratings of the caption and of the first reference, 1..10, N×2. The judge rates both in one
    answer, as in Vicuna's evaluation.
    """
    answers = judge.ask("ratings", _pairs(ids, captions, references, requests, _both_ratings))
    return np.array([answer or (np.nan, np.nan) for answer in answers]).reshape(-1, 2)


def _both_ratings(text: str) -> list[Any] | None:
    value = json_in(text)
    both = [value.get(whose) for whose in ("candidate", "reference")] if isinstance(value, dict) else [None]
    return both if all(type(each) in (int, float) and 1 <= each <= 10 for each in both) else None


def _pairs(
    ids: Sequence[str],
    captions: Sequence[str],
    references: References,
    requests: Sequence[str] | None,
    read: Callable[[str], Any],
) -> list[Question]:
    return [
        Question(id_, {"request": request, "reference": texts[0], "candidate": caption}, read)
        for id_, caption, texts, request in zip(
            ids, captions, references, requests or [REQUEST] * len(ids), strict=True
        )
    ]


def bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
