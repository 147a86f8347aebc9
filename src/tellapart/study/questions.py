"""What each kind of study asks, and the texts that a researcher starts from.

An answer is one option's number for each question. *Canonical* options do not depend on what a participant saw: of
``pick`` option 0 is the target, of ``compare`` "first" is the caption of the first system.
"""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("pick", "rate", "compare")
SCALE = ("terrible", "poor", "fair", "good", "excellent")  # paper 1, Table 2: 1 to 5
ASPECTS = ("descriptiveness", "accuracy", "fluency")
MORE, WRONG = "more", "wrong"


@dataclass(frozen=True)
class Question:
    """One question and its options as the page shows them, in display order; pictures have no words."""

    name: str
    text: str
    help: str = ""
    options: tuple[str, ...] = ()


PICK = Question("picture", "Which picture does this description fit best?")
RATE = (
    Question("descriptiveness", "Descriptiveness", "How much correct detail of the picture does it give?", SCALE),
    Question("accuracy", "Accuracy", "Is everything that it says really in the picture?", SCALE),
    Question("fluency", "Fluency", "Does it read like good English?", SCALE),
)
COMPARE = (
    Question(MORE, "Which caption tells you more about the picture?", "", ("A", "About the same", "B")),
    Question(WRONG, "Which caption says something wrong?", "", ("Neither", "A", "B", "Both")),
)
# Canonical to displayed options (and back) where the two captions change places.
FLIPPED = ((2, 1, 0), (0, 2, 1, 3))


def questions(kind: str) -> tuple[Question, ...]:
    """The questions of one item."""
    return {"pick": (PICK,), "rate": RATE, "compare": COMPARE}[kind]


def option_counts(kind: str, pictures: int) -> tuple[int, ...]:
    """How many options each question has."""
    return (pictures,) if kind == "pick" else tuple(len(question.options) for question in questions(kind))


INSTRUCTIONS = {
    "pick": (
        "You will see a description and several pictures that look alike. Choose the picture that the description fits "
        "best.",
        "Some descriptions were written by a computer and may be vague or partly wrong. Always choose the picture that "
        "you find most plausible.",
        "There is no time limit. Some items are checks with an obvious answer; they show us that answers are given "
        "with care.",
    ),
    "rate": (
        "You will see a picture and a caption. Give the caption three ratings from 1 (terrible) to 5 (excellent).",
        "Descriptiveness: how much correct detail of the picture it gives. Accuracy: whether everything that it says "
        "is in the picture. Fluency: whether it reads like good English.",
        "A short caption can be accurate and say little; a long one can tell much and be partly wrong. Rate the three "
        "independently of each other.",
        "There is no time limit. Some items are checks with an obvious answer; they show us that answers are given "
        "with care.",
    ),
    "compare": (
        "You will see a picture and two captions, A and B. Say which of them tells you more about the picture, and "
        "which says something that is wrong.",
        "A caption that tells more may also be the one that is wrong: answer the two questions independently.",
        "There is no time limit. Some items are checks with an obvious answer; they show us that answers are given "
        "with care.",
    ),
}
CONSENT = (
    "You are invited to take part in a research study about descriptions of pictures. Please read this page before you "
    "decide.",
    "What you do: {task} It takes about {minutes} minutes. {payment}",
    "Pictures and descriptions come from public collections or were written by a computer, and may contain content "
    "that upsets you. You may stop at any time, without giving a reason, by closing the page or with the button "
    "“Leave”, which also deletes your answers if you ask for it.",
    "What is stored: your answers, the time that each took and, where a recruiting platform sent you, the identifier "
    "that it gave you. We use the identifier only to pay you and delete it afterwards; it is never published. We store "
    "no name, no address and nothing about your device. Your browser keeps a random number, so that you can pause and "
    "go on later.",
    "Answers without identifiers are published together with the results, so that others can check them.",
)
TASKS = {
    "pick": "you read short descriptions and choose the picture that each fits best.",
    "rate": "you read captions of pictures and rate each of them.",
    "compare": "you read pairs of captions of one picture and compare them.",
}
CHECK_CAPTION = "This is an attention check. Please choose {} ({}) for all three ratings."
