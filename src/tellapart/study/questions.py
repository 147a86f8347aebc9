"""The questions that each kind of study asks, with their options in display order."""

from __future__ import annotations

from dataclasses import dataclass

from tellapart.errors import UsageError

SCALE = ("terrible", "poor", "fair", "good", "excellent")  # paper 1, Table 2: 1 to 5
ASPECTS = ("descriptiveness", "accuracy", "fluency")
MORE, WRONG = "more", "wrong"


@dataclass(frozen=True)
class StudyQuestion:
    """One question and its options in display order. If the options are pictures, ``options`` is empty."""

    name: str
    text: str
    help: str = ""
    options: tuple[str, ...] = ()


QUESTIONS = {
    "pick": (StudyQuestion("picture", "Which picture does this description fit best?"),),
    "rate": (
        StudyQuestion(ASPECTS[0], "Descriptiveness", "How much correct detail does it give?", SCALE),
        StudyQuestion(ASPECTS[1], "Accuracy", "Is everything that it says really in the picture?", SCALE),
        StudyQuestion(ASPECTS[2], "Fluency", "Does it read like good English?", SCALE),
    ),
    "compare": (
        StudyQuestion(MORE, "Which caption tells you more about the picture?", options=("A", "About the same", "B")),
        StudyQuestion(WRONG, "Which caption says something wrong?", options=("Neither", "A", "B", "Both")),
    ),
}


def check_kind(kind: str) -> None:
    """Raises `UsageError` for an unknown kind of study."""
    if kind not in QUESTIONS:
        raise UsageError(f"unknown kind of study '{kind}'; expected {', '.join(QUESTIONS)}")
