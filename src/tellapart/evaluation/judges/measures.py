"""What judges measure of one caption: CLAIR, DCScore, a rating from 1 to 10, and answers to questions from it.

NaN where the judge abstains, everywhere. The prompts' wording is ours, or that of ``Judge.prompts``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tellapart.errors import UsageError
from tellapart.evaluation.facts.verdict import Verdict
from tellapart.evaluation.judges.answers import flags_in, letter_in, number_in, places_in, strings_in
from tellapart.evaluation.judges.judge import Judge, Question
from tellapart.evaluation.judges.prompts import read_prompt
from tellapart.types import Picture
from tellapart.utils.text import parse_json

References = Sequence[Sequence[str]]
REQUEST = "Describe the following image."  # paper 1, appendix D
CANNOT = "Cannot answer from the caption"
_CANNOT_BONUS = 0.05
_YES_NO = frozenset(
    (
        "is",
        "are",
        "was",
        "were",
        "do",
        "does",
        "did",
        "have",
        "has",
        "had",
        "can",
        "could",
        "will",
        "would",
        "should",
        "shall",
        "may",
        "might",
        "must",
    )
)


def clair(judge: Judge, ids: Sequence[str], captions: Sequence[str], references: References) -> np.ndarray:
    """CLAIR (Chan et al. 2023): how likely the caption describes the references' picture, 0..1, N."""
    questions = [
        Question(id_, {"candidate": f"- {caption}", "references": _bullets(texts)})
        for id_, caption, texts in zip(ids, captions, references, strict=True)
    ]
    read = partial(number_in, low=0, high=100)
    answers = judge.ask(read_prompt("clair", judge.prompts), questions, lambda text: read(text) is not None)
    return np.array([np.nan if text is None else (read(text) or 0.0) / 100 for text in answers])


def rating(judge: Judge, ids: Sequence[str], captions: Sequence[str], references: References) -> np.ndarray:
    """The rating by GPT-4 of paper 1's appendix B, 1..10, N: the caption against the first reference as the answer of
    another assistant, by helpfulness, relevance, accuracy and detail (after Vicuna's evaluation)."""
    questions = [
        Question(id_, {"request": REQUEST, "reference": texts[0], "candidate": caption})
        for id_, caption, texts in zip(ids, captions, references, strict=True)
    ]
    read = partial(number_in, low=1, high=10)
    answers = judge.ask(read_prompt("rating", judge.prompts), questions, lambda text: read(text) is not None)
    return np.array([np.nan if text is None else read(text) for text in answers], dtype=float)


def dcscore(
    judge: Judge, ids: Sequence[str], captions: Sequence[str], references: References, pictures: Sequence[Picture]
) -> list[Verdict | None]:
    """DCScore (Ye et al. 2025): the caption's units of information, which of them are true of the picture, and which of
    the references' units they say. None where the judge abstains at any step.

    Precision is true units / units; recall (Q + T) / (O + T), with O the references' units, Q those that a true unit
    says, and T the true units that say none of them.
    """
    prompt = read_prompt("dcscore_units", judge.prompts)
    texts = [text for text in dict.fromkeys([*captions, *map(_bullets, references)]) if text.strip()]
    answers = judge.ask(prompt, [Question(str(n), {"caption": text}) for n, text in enumerate(texts)], _is_list)
    units_of: dict[str, list[str] | None] = {text: [] for text in captions if not text.strip()}
    units_of |= {
        text: None if answer is None else strings_in(answer) for text, answer in zip(texts, answers, strict=True)
    }
    rows = [
        (number, units, known)
        for number, (caption, own) in enumerate(zip(captions, references, strict=True))
        if (units := units_of[caption]) is not None and (known := units_of[_bullets(own)]) is not None
    ]
    asked = [row for row in rows if row[1]]
    verify = [
        Question(ids[n], {"units": _numbered(units), "references": _bullets(references[n])}, pictures[n])
        for n, units, _ in asked
    ]
    match = [
        Question(ids[n], {"units": _numbered(units), "facts": _numbered(known)}) for n, units, known in asked if known
    ]
    true = iter(judge.ask(read_prompt("dcscore_verify", judge.prompts), verify, _is_list))
    marked = iter(judge.ask(read_prompt("dcscore_match", judge.prompts), match, _is_list))
    found: list[Verdict | None] = [None] * len(captions)
    for number, units, known in rows:
        if not units:
            found[number] = Verdict(0, 0, len(known), 0)
            continue
        flags = flags_in(next(true) or "", len(units))
        places = places_in(next(marked) or "", len(known), len(units)) if known else []
        if flags is not None and places is not None:
            found[number] = _dcscore(flags, places)
    judge.abstained["dcscore"] += sum(verdict is None for verdict in found)
    judge.questions["dcscore"] += len(found)
    return found


def _dcscore(true: Sequence[bool], places: Sequence[int]) -> Verdict:
    matched = {place - 1 for place in places if place}
    stated = sum(1 for place in places if place and true[place - 1])
    beyond = sum(1 for number, flag in enumerate(true) if flag and number not in matched)
    return Verdict(len(true), sum(true), len(places) + beyond, stated + beyond)


@dataclass(frozen=True)
class ChoiceQuestion:
    """A question of CaptionQA: its choices, and the place of the right one."""

    question: str
    choices: tuple[str, ...]
    answer: int


def read_questions(path: Path) -> dict[str, list[ChoiceQuestion]]:
    """CaptionQA's file: ``{picture: [{"question", "choices", "answer"}]}``, the answer as one of the choices.

    Raises `UsageError` for anything else.
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
        raise UsageError(f"{path}: has no question")
    return found


def _question(path: Path, picture: str, entry: Mapping[str, object]) -> ChoiceQuestion:
    given = entry["choices"]
    if not isinstance(given, list):
        raise TypeError("choices is no list")
    choices = tuple(str(choice["text"] if isinstance(choice, dict) else choice).strip() for choice in given)
    answer = str(entry["answer"]).strip()
    if answer not in choices or len(choices) < 2:
        raise UsageError(f"{path}: the answer '{answer}' about {picture} is none of the choices {', '.join(choices)}")
    return ChoiceQuestion(str(entry["question"]), choices, choices.index(answer))


def captionqa(
    judge: Judge,
    ids: Sequence[str],
    captions: Sequence[str],
    questions: Mapping[str, Sequence[ChoiceQuestion]],
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """CaptionQA (Yang et al. 2025): what a reader of the caption alone answers. Two arrays N: score and accuracy.

    A right answer scores 1; "cannot answer from the caption", which is offered except for yes-no questions, 1 over the
    number of choices plus 0.05. Choices are shuffled by ``seed``. NaN for a picture without a usable answer.
    """
    asked: list[Question] = []
    keys: list[tuple[int, ChoiceQuestion, list[str]]] = []
    for number, (id_, caption) in enumerate(zip(ids, captions, strict=True)):
        for place, question in enumerate(questions.get(id_, ())):
            options = [*question.choices, *(() if _is_yes_no(question) else (CANNOT,))]
            random.Random(f"{seed}/{id_}/{place}").shuffle(options)
            lines = "\n".join(f"{chr(ord('A') + n)}. {text}" for n, text in enumerate(options))
            values = {"caption": caption, "question": question.question, "options": lines}
            asked.append(Question(f"{id_}#{place}", values))
            keys.append((number, question, options))
    most = max((len(options) for *_, options in keys), default=0)
    prompt = read_prompt("captionqa", judge.prompts)
    answers = judge.ask(prompt, asked, lambda text: letter_in(text, most) is not None)
    score: list[list[float]] = [[] for _ in captions]
    right: list[list[float]] = [[] for _ in captions]
    for (number, question, options), text in zip(keys, answers, strict=True):
        picked = None if text is None else letter_in(text, len(options))
        if picked is None:
            continue
        correct = options[picked] == question.choices[question.answer]
        unknown = 1 / len(question.choices) + _CANNOT_BONUS if options[picked] == CANNOT else 0.0
        score[number].append(1.0 if correct else unknown)
        right[number].append(float(correct))
    return _means(score), _means(right)


def _is_yes_no(question: ChoiceQuestion) -> bool:
    words = {choice.lower() for choice in question.choices}
    return {"yes", "no"} <= words or question.question.lower().split(" ", 1)[0] in _YES_NO


def _means(values: Sequence[Sequence[float]]) -> np.ndarray:
    return np.array([np.mean(own) if own else np.nan for own in values])


def _is_list(text: str) -> bool:
    from tellapart.evaluation.judges.answers import json_in

    return isinstance(json_in(text), list)


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _numbered(texts: Sequence[str]) -> str:
    return "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
