"""The design of a study: its trials, the blocks that participants answer, and the folder that stores them.

An answer has one option number per question. *Canonical* options do not depend on the displayed order. For ``pick``,
option 0 is the target. For ``compare``, "first" is the first system's caption.

A study's folder contains its trials in ``items.json``, its settings in ``study.toml``, and pictures whose file names
are hashes of their content.

The *stamp* is a hash of everything that affects the results: the trials, texts, exclusion rule and analysis. It is
stored when the first participant begins, and the report shows it, so that readers can check that nothing was decided
afterwards.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from tellapart.errors import UsageError
from tellapart.study.questions import QUESTIONS
from tellapart.study.seeded_order import shuffled
from tellapart.study.settings import SETTINGS_FILE, Settings, read_settings
from tellapart.utils.strict_json import parse_json
from tellapart.utils.validation_errors import validation_message

STUDY_FORMAT: Final = 2
ITEMS, PICTURES = "items.json", "pictures"
ITEM, CONTROL, PRACTICE, EXAMPLE = "item", "control", "practice", "example"
# For each question of `compare`, the canonical option at each displayed position if the two captions are swapped.
SWAPPED = ((2, 1, 0), (0, 2, 1, 3))


@dataclass(frozen=True)
class Trial:
    """One screen, in canonical order.

    unit: id of the picture or, for ``pick``, of the target.
    systems, captions: one system and its caption, or two of each for ``compare``.
    pictures: file names. For ``pick``, the target comes first.
    expected: the correct options for each question, or None if any option is correct. Empty except for control items,
        practice items and the example.
    feedback: explains the correct options.
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
    """A trial as one participant sees it.

    captions, pictures: the captions and pictures in displayed order.
    orders: for each question, the canonical option at each displayed position.
    """

    trial: int
    captions: tuple[str, ...]
    pictures: tuple[str, ...]
    orders: tuple[tuple[int, ...], ...]

    def canonical(self, displayed: Sequence[int]) -> tuple[int, ...]:
        """Converts displayed options to canonical options. Raises ValueError for options that were not displayed."""
        if any(option not in range(len(order)) for order, option in zip(self.orders, displayed, strict=True)):
            raise ValueError("an option that was not displayed")
        return tuple(order[option] for order, option in zip(self.orders, displayed, strict=True))

    def displayed(self, options: Sequence[int]) -> tuple[int, ...]:
        """Converts canonical options to displayed options."""
        return tuple(order.index(option) for order, option in zip(self.orders, options, strict=True))


class Study(BaseModel):
    """An existing study: the content of items.json, its folder and its settings.

    command: the command that created the study.
    blocks: the trials of each block and, for ``compare``, whether its first rater sees the captions swapped.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[2] = STUDY_FORMAT
    id: str
    kind: Literal["pick", "rate", "compare"]
    systems: tuple[str, ...]
    seed: int
    command: str
    blocks: tuple[tuple[tuple[int, bool], ...], ...] = Field(min_length=1)
    trials: tuple[Trial, ...]
    folder: Path = Field(exclude=True)
    settings: Settings = Field(exclude=True)

    @model_validator(mode="after")
    def _blocks_exist(self) -> Study:
        if not all(0 <= number < len(self.trials) for block in self.blocks for number, _ in block):
            raise ValueError("the blocks refer to trials that do not exist")
        return self

    @cached_property
    def of_role(self) -> dict[str, tuple[int, ...]]:
        """Maps each role to the numbers of its trials."""
        roles = (ITEM, CONTROL, PRACTICE, EXAMPLE)
        return {role: tuple(n for n, trial in enumerate(self.trials) if trial.role == role) for role in roles}

    @cached_property
    def stamp(self) -> str:
        """The SHA-256 hash of everything that affects the results."""
        content = {
            "items": self.model_dump(mode="json"),
            "settings": self.settings.model_dump(mode="json", exclude={"recruitment"}),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    @property
    def units(self) -> int:
        """The number of pictures or look-alike sets in the study's items."""
        return len({self.trials[number].unit for number in self.of_role[ITEM]})

    @property
    def candidates(self) -> int:
        """The number of pictures to choose from, which is 1 for ``rate`` and ``compare``."""
        return max(len(self.trials[number].pictures) for number in self.of_role[ITEM])

    @property
    def quota(self) -> int:
        """The number of participants that the design requires."""
        return len(self.blocks) * self.settings.sampling.raters

    def order(self, block: int, ordinal: int, seed: str) -> tuple[Place, ...]:
        """Returns the trials that a block's ``ordinal``-th rater sees, in order: first the practice items, then the
        items, divided into parts with one control item each.

        The order depends only on the design and ``seed``, so the stored seed reproduces it. It is computed by hashing
        and therefore does not depend on library versions.
        """
        items = shuffled(range(len(self.blocks[block])), seed, "items")
        controls = shuffled(self.of_role[CONTROL], seed, "controls")
        sequence = [(number, False) for number in self.of_role[PRACTICE]]
        parts = max(len(controls), 1)
        for part in range(parts):
            numbers = items[len(items) * part // parts : len(items) * (part + 1) // parts]
            trials = [self.blocks[block][number] for number in numbers]
            if controls:  # inserts the control item in the second half of the part, so that it never comes first
                at = shuffled(range((len(trials) + 1) // 2, len(trials) + 1), seed, f"place {part}")[0]
                swap = shuffled((0, 1), seed, f"control {part}")[0]
                trials.insert(at, (controls[part], bool(swap)))
            sequence += trials
        return tuple(
            self.place(trial, shuffled(range(len(self.trials[trial].pictures)), seed, f"slots {position}"),
                       swap != bool(ordinal % 2))
            for position, (trial, swap) in enumerate(sequence)
        )  # fmt: skip

    def place(self, number: int, slots: Sequence[int], swap: bool) -> Place:
        """Returns a trial with its options in a given order.

        slots: the canonical picture at each displayed position (``pick`` only).
        swap: whether to swap the captions (``compare`` only).
        """
        trial = self.trials[number]
        if self.kind == "pick":
            pictures = tuple(trial.pictures[slot] for slot in slots)
            return Place(number, trial.captions, pictures, (tuple(slots),))
        if self.kind == "compare" and swap:
            return Place(number, trial.captions[::-1], trial.pictures, SWAPPED)
        orders = tuple(tuple(range(len(question.options))) for question in QUESTIONS[self.kind])
        return Place(number, trial.captions, trial.pictures, orders)


def open_study(folder: Path) -> Study:
    """Opens a study's folder. Raises `UsageError` if the folder is not a study, or if the study is damaged."""
    path = folder / ITEMS
    try:
        content = parse_json(path.read_bytes())
        return Study(**content, folder=folder, settings=read_settings(folder / SETTINGS_FILE))
    except FileNotFoundError:
        raise UsageError(
            f"{folder} is not a study folder (it contains no {ITEMS}); see: tellapart study create --help"
        ) from None
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{path} is damaged, or not a study of format {STUDY_FORMAT} ({validation_message(error)}); "
            "create the study again, or use the version of tellapart that created it"
        ) from None


def check_pictures(study: Study) -> None:
    """Raises `UsageError` if one of the study's pictures is missing or has changed since the study was created."""
    for name in sorted({name for trial in study.trials for name in trial.pictures}):
        path = study.folder / PICTURES / name
        if not path.is_file() or not name.startswith(hashlib.sha256(path.read_bytes()).hexdigest()[:32]):
            raise UsageError(
                f"{path} is missing or not the picture that the study was created with; create the study again"
            )
