"""Metrics in which an LLM judge gives a number: CLAIR, and a rating from 1 to 10."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tellapart.data.text_picture import TextPicture
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.judges.answers import json_in, number_in
from tellapart.evaluation.judges.judge import Question
from tellapart.evaluation.metrics.judge_metric import bullets, judge_metric
from tellapart.metrics.corpus_scores import UNBOUNDED, Measurement
from tellapart.metrics.slots import CaptionSlot

REQUEST = "Describe the following image."  # paper 1, appendix D
CATEGORIES = ("generic", "knowledge", "roleplay", "common-sense", "fermi", "counterfactual", "writing")
"""Categories of Vicuna's questions in paper 1's table 7. Coding and math are excluded, even from the total."""


@judge_metric(
    "clair",
    needs=("references", "judge"),
    signature="0-100",
    label="CLAIR",
    help="probability, in %, that the caption and the references describe the same picture, according to a judge",
    prompts=("clair",),
)
def clair(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes CLAIR (Chan et al. 2023) × 100: the probability that a caption describes the same picture as its
    references.
    """
    rows = zip(context.ids, slot.captions, slot.references or [], strict=True)
    questions = [
        Question(id_, {"candidate": f"- {caption}", "references": bullets(texts)}, partial(number_in, low=0, high=100))
        for id_, caption, texts in rows
    ]
    return Measurement(np.array(context.loaded_judge.ask("clair", questions), dtype=float))


def _first_references(method: str, context: EvalContext) -> str:
    """Returns the signature of a metric that reads only each picture's first reference."""
    return f"{method}|first-references:{context.first_references_digest}"


@judge_metric(
    "smile_rating",
    needs=("references", "judge"),
    signature=partial(_first_references, "1-10|against:first-reference|helpfulness,relevance,accuracy,detail"),
    label="rating",
    help="a judge's rating, from 1 to 10, of helpfulness, relevance, accuracy and detail, given the first reference "
    "for comparison (paper 1)",
    prompts=("rating",),
    digits=2,
    bounds=(1.0, 10.0),
)
def rating(context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes the GPT-4 rating from paper 1's appendix B, 1 to 10. As in Vicuna's evaluation, the judge treats the
    caption and the first reference as two assistants' answers, and rates helpfulness, relevance, accuracy and detail.
    """
    return Measurement(np.array(_ratings("rating", partial(number_in, low=1, high=10), context, slot), dtype=float))


def _ratings(prompt: str, read: Callable[[str], Any], context: EvalContext, slot: CaptionSlot) -> list[Any]:
    """Asks for ratings of captions as answers to an instruction, which is to describe the picture, or is the text that
    stands in place of a picture.
    """
    pictures = [item.picture for item in context.items or ()]
    requests = [picture.asked for picture in pictures if isinstance(picture, TextPicture)]
    if len(requests) < len(context.ids):
        requests = [REQUEST] * len(context.ids)
    rows = zip(context.ids, slot.captions, slot.references or [], requests, strict=True)
    questions = [
        Question(id_, {"request": request, "reference": texts[0], "candidate": caption}, read)
        for id_, caption, texts, request in rows
    ]
    return context.loaded_judge.ask(prompt, questions)


def _both_ratings(text: str) -> list[Any] | None:
    value = json_in(text)
    both: list[Any] = [value.get(whose) for whose in ("candidate", "reference")] if isinstance(value, dict) else [None]
    return both if all(type(each) in (int, float) and 1 <= each <= 10 for each in both) else None


def relative_rating(category: str | None, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes 100 × summed ratings of the captions / summed ratings of the references. The judge rates both in one
    answer, as in Vicuna's evaluation.
    """
    answers = context.once(("smile_relative", id(slot)), lambda: _ratings("ratings", _both_ratings, context, slot))
    rating_N2 = np.array([answer or (np.nan, np.nan) for answer in answers]).reshape(-1, 2)
    kinds = [getattr(item.picture, "category", "") for item in context.items or ()] or [""] * len(context.ids)
    counted_N = np.array([kind == category if category else kind not in ("coding", "math") for kind in kinds])
    value_N = np.where(counted_N, 100 * rating_N2[:, 0] / rating_N2[:, 1], np.nan)
    return Measurement(value_N, weight_N=np.where(np.isnan(value_N), 0.0, rating_N2[:, 1]))


for _category in (None, *CATEGORIES):
    judge_metric(
        f"smile_relative.{_category}" if _category else "smile_relative",
        needs=("references", "judge"),
        signature=partial(_first_references, f"candidate/reference|{_category or 'without:coding,math'}"),
        label=f"relative rating, {_category}" if _category else "relative rating",
        help="a judge's ratings of captions or answers, as a percentage of its ratings of the first references "
        f"(paper 1, table 7){f'; only questions in the category {_category}' if _category else ''}",
        prompts=("ratings",),
        bounds=UNBOUNDED,
    )(partial(relative_rating, _category))
