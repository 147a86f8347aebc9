"""Reads the questions of CaptionQA (Yang et al. 2025), which a judge answers from a picture's caption only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tellapart.data.caption_matching import match_ids
from tellapart.errors import UsageError
from tellapart.evaluation.matching import captioned_ids, note_of
from tellapart.types import Item
from tellapart.utils.listed_names import preview_ids
from tellapart.utils.strict_json import parse_json


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
