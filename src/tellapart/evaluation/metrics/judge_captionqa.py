"""CaptionQA (Yang et al. 2025): a judge answers questions about a picture from its caption only."""

from __future__ import annotations

import random
from functools import partial

import numpy as np

from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.judges.answers import letter_in
from tellapart.evaluation.judges.captionqa_questions import ChoiceQuestion
from tellapart.evaluation.judges.judge import Question
from tellapart.evaluation.metrics.judge_metric import judge_metric
from tellapart.language.english_words import word_set
from tellapart.metrics.corpus_scores import Measurement
from tellapart.metrics.slots import CaptionSlot

CANNOT = "Cannot answer from the caption"
_CANNOT_BONUS = 0.05
_YES_NO = word_set("is are was were do does did have has had can could will would should shall may might must")


def captionqa_scores(context: EvalContext, slot: CaptionSlot) -> np.ndarray:
    """Asks the questions about each picture, and returns a score and an accuracy for each of N captions, 2×N, 0..1.

    A correct answer scores 1. "Cannot answer from the caption", a choice offered for all but yes-no questions, scores 1
    / number of choices + 0.05. The order of the choices depends on the seed. Values are NaN for a picture without a
    usable answer.
    """
    asked: list[Question] = []
    keys: list[tuple[int, ChoiceQuestion, list[str]]] = []
    for number, (id_, caption) in enumerate(zip(context.ids, slot.captions, strict=True)):
        for place, question in enumerate(context.inputs.questions.get(id_, ())):
            options = [*question.choices, *(() if _is_yes_no(question) else (CANNOT,))]
            random.Random(f"{context.inputs.seed}/{id_}/{place}").shuffle(options)
            lines = "\n".join(f"{chr(ord('A') + n)}. {text}" for n, text in enumerate(options))
            values = {"caption": caption, "question": question.question, "options": lines}
            asked.append(Question(f"{id_}#{place}", values, partial(letter_in, options=len(options))))
            keys.append((number, question, options))
    scores: list[list[tuple[float, float]]] = [[] for _ in slot.captions]
    for (number, question, options), picked in zip(keys, context.loaded_judge.ask("captionqa", asked), strict=True):
        if picked is not None:
            correct = float(options[picked] == question.choices[question.answer])
            unknown = 1 / len(question.choices) + _CANNOT_BONUS if options[picked] == CANNOT else 0.0
            scores[number].append((correct or unknown, correct))
    return np.array([np.mean(own, axis=0) if own else (np.nan, np.nan) for own in scores]).T


def _is_yes_no(question: ChoiceQuestion) -> bool:
    words = {choice.lower() for choice in question.choices}
    return {"yes", "no"} <= words or question.question.lower().split(" ", 1)[0] in _YES_NO


def captionqa(which: int, context: EvalContext, slot: CaptionSlot) -> Measurement:
    """Computes CaptionQA's score (``which`` = 0) or accuracy (1) × 100, averaged over pictures. Pictures are weighted
    by their number of questions.
    """
    value_2N = context.once(("captionqa", id(slot)), lambda: captionqa_scores(context, slot))
    weight_N = np.array([len(context.inputs.questions.get(id_, ())) for id_ in context.ids])
    return Measurement(100 * value_2N[which], weight_N=weight_N)


def _with_questions(method: str, context: EvalContext) -> str:
    """Returns the signature of a metric that asks the questions of the setting ``questions``."""
    return f"{method}|questions:{context.questions_digest}"


captionqa_metric = partial(judge_metric, needs=("questions", "judge"), prompts=("captionqa",))
captionqa_metric(
    "captionqa",
    signature=partial(_with_questions, "score|cannot-answer:1/choices+0.05|choices:shuffled"),
    label="CaptionQA, score",
    help="score, in %, of a judge that answers questions about the picture from the caption alone",
)(partial(captionqa, 0))
captionqa_metric(
    "captionqa_accuracy",
    signature=partial(_with_questions, "accuracy|cannot-answer:0|choices:shuffled"),
    label="CaptionQA, accuracy",
    help="accuracy, in %, of a judge that answers questions about the picture from the caption alone",
)(partial(captionqa, 1))
