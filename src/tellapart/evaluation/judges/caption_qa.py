"""CaptionQA (Yang et al. 2025): a judge answers questions about a picture from its caption only."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tellapart.data.caption_matching import match_ids
from tellapart.errors import UsageError
from tellapart.evaluation.judges.answers import letter_in
from tellapart.evaluation.judges.judge import Judge, Question
from tellapart.evaluation.matching import captioned_ids, note_of
from tellapart.language.english_words import word_set
from tellapart.types import Item
from tellapart.utils.listed_names import preview_ids
from tellapart.utils.strict_json import parse_json

CANNOT = "Cannot answer from the caption"
_CANNOT_BONUS = 0.05
_YES_NO = word_set("is are was were do does did have has had can could will would should shall may might must")


@dataclass(frozen=True)
class ChoiceQuestion:
    """A CaptionQA question with its choices and the index of the correct choice."""

    question: str
    choices: tuple[str, ...]
    answer: int


def read_questions(path: Path) -> dict[str, list[ChoiceQuestion]]:
    """Reads CaptionQA's file ``{picture: [{"question", "choices", "answer"}]}``. The answer must be one of the choices.

    Raises `UsageError` for any other layout.
    """
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        found = {
            str(picture): [_question(path, str(picture), entry) for entry in entries]
            for picture, entries in value.items()
        }
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected CaptionQA's questions") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"{path}: {type(error).__name__}: {error}; expected {{picture: [{{question, choices, answer}}]}}"
        ) from None
    if not any(found.values()):
        raise UsageError(f"{path} contains no question")
    return found


def _question(path: Path, picture: str, entry: Mapping[str, object]) -> ChoiceQuestion:
    given = entry["choices"]
    if not isinstance(given, list):
        raise TypeError("choices is not a list")
    choices = tuple(str(choice["text"] if isinstance(choice, dict) else choice).strip() for choice in given)
    answer = str(entry["answer"]).strip()
    if answer not in choices or len(choices) < 2:
        raise UsageError(
            f"{path}: the answer '{answer}' about {picture} is not one of the choices {', '.join(choices)}"
        )
    return ChoiceQuestion(str(entry["question"]), choices, choices.index(answer))


def captionqa(
    judge: Judge,
    ids: Sequence[str],
    captions: Sequence[str],
    questions: Mapping[str, Sequence[ChoiceQuestion]],
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Computes CaptionQA (Yang et al. 2025): a judge answers questions from the caption alone. Returns a score and an
    accuracy for each of N captions, 0..1.

    A correct answer scores 1. "Cannot answer from the caption", a choice offered for all but yes-no questions, scores 1
    / number of choices + 0.05. The order of the choices depends on ``seed``. Values are NaN for a picture without a
    usable answer.
    """
    asked: list[Question] = []
    keys: list[tuple[int, ChoiceQuestion, list[str]]] = []
    for number, (id_, caption) in enumerate(zip(ids, captions, strict=True)):
        for place, question in enumerate(questions.get(id_, ())):
            options = [*question.choices, *(() if _is_yes_no(question) else (CANNOT,))]
            random.Random(f"{seed}/{id_}/{place}").shuffle(options)
            lines = "\n".join(f"{chr(ord('A') + n)}. {text}" for n, text in enumerate(options))
            values = {"caption": caption, "question": question.question, "options": lines}
            asked.append(Question(f"{id_}#{place}", values, partial(letter_in, options=len(options))))
            keys.append((number, question, options))
    scores: list[list[tuple[float, float]]] = [[] for _ in captions]
    for (number, question, options), picked in zip(keys, judge.ask("captionqa", asked), strict=True):
        if picked is not None:
            correct = float(options[picked] == question.choices[question.answer])
            unknown = 1 / len(question.choices) + _CANNOT_BONUS if options[picked] == CANNOT else 0.0
            scores[number].append((correct or unknown, correct))
    score_N, accuracy_N = np.array([np.mean(own, axis=0) if own else (np.nan, np.nan) for own in scores]).T
    return score_N, accuracy_N


def _is_yes_no(question: ChoiceQuestion) -> bool:
    words = {choice.lower() for choice in question.choices}
    return {"yes", "no"} <= words or question.question.lower().split(" ", 1)[0] in _YES_NO


def read_choice_questions(
    path: Path | None, ids: Sequence[str], items: Sequence[Item] | None
) -> tuple[dict[str, list[ChoiceQuestion]], list[str]]:
    """Returns CaptionQA's questions by picture id, and notes on how pictures were matched and which have no questions.

    The questions file may identify pictures by file name. Raises `UsageError` if no question is about a captioned
    picture.
    """
    if path is None:
        return {}, []
    questions = read_questions(path)
    names, how = match_ids(questions, captioned_ids(ids, items), str(path))
    matched = {names[picture]: own for picture, own in questions.items() if picture in names and own}
    if not matched:
        raise UsageError(f"{path}: none of its pictures (such as '{next(iter(questions))}') has a caption")
    notes = note_of(how)
    if lacking := [id_ for id_ in ids if id_ not in matched]:
        notes.append(
            f"{path}: {len(lacking):,} of {len(ids):,} captioned pictures have no question "
            f"({preview_ids(lacking)}); CaptionQA leaves them out"
        )
    return matched, notes
