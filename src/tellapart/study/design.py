"""The design of a study: its questions, trials and blocks, and the folder that stores them.

An answer has one option number per question. *Canonical* options do not depend on the displayed order: for ``pick``,
option 0 is the target; for ``compare``, "first" is the first system's caption.

A study's folder contains its trials in ``items.json``, its settings in ``study.toml``, and pictures named after their
hash.

The *stamp* is a hash of everything that affects results: trials, texts, exclusion rule, analysis. It is stored when the
first participant begins and printed in the report, so that readers can check that nothing was decided afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tellapart.errors import UsageError
from tellapart.study.settings import SETTINGS_FILE, Settings, read_settings
from tellapart.utils.strict_json import parse_json

STUDY_KINDS = ("pick", "rate", "compare")
SCALE = ("terrible", "poor", "fair", "good", "excellent")  # paper 1, Table 2: 1 to 5
ASPECTS = ("descriptiveness", "accuracy", "fluency")
MORE, WRONG = "more", "wrong"


@dataclass(frozen=True)
class StudyQuestion:
    """One question and its options in display order; options that are pictures have no text."""

    name: str
    text: str
    help: str = ""
    options: tuple[str, ...] = ()


PICK = StudyQuestion("picture", "Which picture does this description fit best?")
RATE = (
    StudyQuestion("descriptiveness", "Descriptiveness", "How much correct detail does it give?", SCALE),
    StudyQuestion("accuracy", "Accuracy", "Is everything that it says really in the picture?", SCALE),
    StudyQuestion("fluency", "Fluency", "Does it read like good English?", SCALE),
)
COMPARE = (
    StudyQuestion(MORE, "Which caption tells you more about the picture?", "", ("A", "About the same", "B")),
    StudyQuestion(WRONG, "Which caption says something wrong?", "", ("Neither", "A", "B", "Both")),
)
# Canonical to displayed options (and back) if the two captions are swapped.
FLIPPED = ((2, 1, 0), (0, 2, 1, 3))


def questions(kind: str) -> tuple[StudyQuestion, ...]:
    """Returns the questions of one item."""
    return {"pick": (PICK,), "rate": RATE, "compare": COMPARE}[kind]


def option_counts(kind: str, pictures: int) -> tuple[int, ...]:
    """Returns the number of options of each question."""
    return (pictures,) if kind == "pick" else tuple(len(question.options) for question in questions(kind))


STUDY_FORMAT = 1
ITEMS, PICTURES = "items.json", "pictures"
ITEM, CONTROL, PRACTICE, EXAMPLE = "item", "control", "practice", "example"


@dataclass(frozen=True)
class Trial:
    """One screen, in canonical order.

    unit: id of the (target) picture.
    systems, captions: one of each, or two for ``compare``.
    pictures: file names; for ``pick``, the target first.
    expected: the correct options for each question (None: any option). Only controls, practice items and the example
        have them.
    feedback: explains the expected options.
    """

    role: str
    unit: str
    systems: tuple[str, ...]
    captions: tuple[str, ...]
    pictures: tuple[str, ...]
    expected: tuple[tuple[int, ...] | None, ...] = ()
    feedback: str = ""

    def passes(self, options: Sequence[int]) -> bool:
        """Returns whether these canonical options are correct."""
        return all(want is None or option in want for want, option in zip(self.expected, options, strict=True))


@dataclass(frozen=True)
class Place:
    """A trial as one participant sees it, with the displayed order of its options.

    slots: for ``pick``, the canonical picture at each displayed position.
    flip: for ``compare``, whether the captions are swapped.
    """

    trial: int
    slots: tuple[int, ...] = ()
    flip: bool = False


@dataclass(frozen=True)
class Study:
    """An existing study: its trials, the blocks that participants answer, and its settings.

    blocks: the trials of each block and, for ``compare``, whether its first rater sees the captions swapped.
    """

    folder: Path
    id: str
    kind: str
    systems: tuple[str, ...]
    seed: int
    trials: tuple[Trial, ...]
    blocks: tuple[tuple[tuple[int, bool], ...], ...]
    made: dict[str, Any]
    settings: Settings

    @cached_property
    def of_role(self) -> dict[str, tuple[int, ...]]:
        """The trial numbers of each role."""
        roles = (ITEM, CONTROL, PRACTICE, EXAMPLE)
        return {role: tuple(n for n, trial in enumerate(self.trials) if trial.role == role) for role in roles}

    @cached_property
    def stamp(self) -> str:
        """The SHA-256 of everything that affects results."""
        return hashlib.sha256(canonical({"items": self.items_json(), "settings": self.settings.stamped()})).hexdigest()

    @property
    def quota(self) -> int:
        """The number of participants that the design requires."""
        return len(self.blocks) * self.settings.sampling.raters

    def items_json(self) -> dict[str, Any]:
        """Returns the content of items.json."""
        return {
            "format": STUDY_FORMAT,
            "id": self.id,
            "kind": self.kind,
            "systems": self.systems,
            "seed": self.seed,
            "made": self.made,
            "blocks": self.blocks,
            "trials": [asdict(trial) for trial in self.trials],
        }

    def order(self, block: int, ordinal: int, seed: str) -> tuple[Place, ...]:
        """Returns the trials that a block's ``ordinal``-th rater sees, in order: practice, then items with a control in
        each part. The order depends only on the design and ``seed``, so the stored seed reproduces it. It is computed
        by hashing, so it does not depend on library versions.
        """
        practice = self.of_role[PRACTICE]
        items = shuffled(range(len(self.blocks[block])), seed, "items")
        controls = shuffled(self.of_role[CONTROL], seed, "controls")
        sequence: list[tuple[int, bool]] = [(number, False) for number in practice]
        parts = max(len(controls), 1)
        for part in range(parts):
            lot = items[len(items) * part // parts : len(items) * (part + 1) // parts]
            own = [self.blocks[block][number] for number in lot]
            if part < len(controls):  # in the second half of each part, so that a control never comes first
                at = len(own) - drawn_number(max(1, (len(own) + 1) // 2), seed, f"place {part}")
                own.insert(max(at, min(1, len(own))), (controls[part], bool(drawn_number(2, seed, f"control {part}"))))
            sequence += own
        return tuple(self._place(trial, flip, ordinal, seed, n) for n, (trial, flip) in enumerate(sequence))

    def _place(self, number: int, flip: bool, ordinal: int, seed: str, position: int) -> Place:
        if self.kind == "pick":
            return Place(number, tuple(shuffled(range(len(self.trials[number].pictures)), seed, f"slots {position}")))
        return Place(number, flip=self.kind == "compare" and flip != bool(ordinal % 2))

    def canonical_options(self, place: Place, shown: Sequence[int]) -> tuple[int, ...]:
        """Converts displayed to canonical options."""
        if self.kind == "pick":
            return (place.slots[shown[0]],)
        if self.kind == "compare" and place.flip:
            return tuple(table[option] for table, option in zip(FLIPPED, shown, strict=True))
        return tuple(shown)

    def shown_options(self, place: Place, options: Sequence[int]) -> tuple[int, ...]:
        """Converts canonical to displayed options."""
        if self.kind == "pick":
            return (place.slots.index(options[0]),)
        return self.canonical_options(place, options)  # swapping two captions is its own inverse


def drawn_number(count: int, seed: str, purpose: str) -> int:
    """Returns a pseudorandom number from 0 to count − 1 that depends only on seed and purpose."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{purpose}".encode(), digest_size=8).digest(), "big") % count


def shuffled(numbers: Sequence[int], seed: str, purpose: str) -> list[int]:
    """Returns the numbers in a random order that depends only on seed and purpose."""

    def key(number: int) -> bytes:
        return hashlib.blake2b(f"{seed}\0{purpose}\0{number}".encode(), digest_size=16).digest()

    return sorted(numbers, key=key)


def canonical(value: Any) -> bytes:
    """Encodes a value as canonical JSON, which is identical for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def open_study(folder: Path) -> Study:
    """Opens a study's folder. Raises `UsageError` if it is not a study or is damaged."""
    path = folder / ITEMS
    try:
        found = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is not a study folder (it contains no {ITEMS}); see: tellapart study create --help"
        ) from None
    except ValueError as error:
        raise UsageError(f"{path}: damaged ({error}); create the study again") from None
    if not isinstance(found, dict) or found.get("format") != STUDY_FORMAT or found.get("kind") not in STUDY_KINDS:
        raise UsageError(f"{path} is not a study of format {STUDY_FORMAT}; create it again, or update tellapart")
    try:
        trials = TypeAdapter(tuple[Trial, ...]).validate_python(found["trials"])
        blocks = tuple(tuple((int(number), bool(flip)) for number, flip in block) for block in found["blocks"])
        if not blocks or not all(0 <= number < len(trials) for block in blocks for number, _ in block):
            raise ValueError("its blocks refer to trials that do not exist")
        return Study(
            folder=folder,
            id=str(found["id"]),
            kind=found["kind"],
            systems=TypeAdapter(tuple[str, ...]).validate_python(found["systems"]),
            seed=int(found["seed"]),
            trials=trials,
            blocks=blocks,
            made=dict(found["made"]),
            settings=read_settings(folder / SETTINGS_FILE),
        )
    except (KeyError, TypeError, ValueError) as error:
        why = error
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            why = ValueError(f"trial {'.'.join(map(str, first['loc']))}: {first['msg']}")
        raise UsageError(f"{path}: damaged ({why}); create the study again") from None


def check_pictures(study: Study) -> None:
    """Raises `UsageError` if one of the study's pictures is missing or has changed since the study was created."""
    for name in sorted({name for trial in study.trials for name in trial.pictures}):
        path = study.folder / PICTURES / name
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}; create the study again") from None
        if not name.startswith(digest[:32]):
            raise UsageError(f"{path} is not the picture that the study was created with; create the study again")
