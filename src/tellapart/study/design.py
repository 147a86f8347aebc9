"""The folder of a study: its trials in ``items.json``, its settings in ``study.toml``, pictures by the hash of content.

The *stamp* is a hash over all that decides results: trials, texts, exclusion rule, analysis. It is stored with the
first participant and printed in the report, so that a reader can check that none of it was decided afterwards.
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
from tellapart.study.questions import FLIPPED, KINDS
from tellapart.study.settings import FILE, Settings, read_settings
from tellapart.utils.text import parse_json

FORMAT = 1
ITEMS, PICTURES = "items.json", "pictures"
ITEM, CONTROL, PRACTICE, EXAMPLE = "item", "control", "practice", "example"


@dataclass(frozen=True)
class Trial:
    """One screen, in canonical order.

    ``unit``: the id of the (target) picture. ``systems`` and ``captions``: one, of ``compare`` two. ``pictures``: names
    of files, of ``pick`` the target first. ``expected``: for each question the options that pass, None for any; only of
    controls, practice items and the example, which ``feedback`` explains.
    """

    role: str
    unit: str
    systems: tuple[str, ...]
    captions: tuple[str, ...]
    pictures: tuple[str, ...]
    expected: tuple[tuple[int, ...] | None, ...] = ()
    feedback: str = ""

    def passes(self, options: Sequence[int]) -> bool:
        """Whether canonical options are what was expected."""
        return all(want is None or option in want for want, option in zip(self.expected, options, strict=True))


@dataclass(frozen=True)
class Place:
    """A trial as one participant sees it: the displayed order of its options.

    ``slots``: of ``pick``, the canonical picture in each displayed place. ``flip``: of ``compare``, whether the
    captions change places.
    """

    trial: int
    slots: tuple[int, ...] = ()
    flip: bool = False


@dataclass(frozen=True)
class Study:
    """A study that was created: trials, the blocks that participants answer, and the settings.

    ``blocks``: for each block its trials, and of ``compare`` whether the captions change places for its first rater.
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
        """The numbers of the trials of each role."""
        roles = (ITEM, CONTROL, PRACTICE, EXAMPLE)
        return {role: tuple(n for n, trial in enumerate(self.trials) if trial.role == role) for role in roles}

    @cached_property
    def stamp(self) -> str:
        """SHA-256 over everything that decides results."""
        return hashlib.sha256(canonical({"items": self.items_json(), "settings": self.settings.stamped()})).hexdigest()

    @property
    def quota(self) -> int:
        """Participants whose answers the design asks for."""
        return len(self.blocks) * self.settings.sampling.raters

    def items_json(self) -> dict[str, Any]:
        """What items.json holds."""
        return {
            "format": FORMAT,
            "id": self.id,
            "kind": self.kind,
            "systems": self.systems,
            "seed": self.seed,
            "made": self.made,
            "blocks": self.blocks,
            "trials": [asdict(trial) for trial in self.trials],
        }

    def order(self, block: int, ordinal: int, seed: str) -> tuple[Place, ...]:
        """What the ``ordinal``-th rater of a block sees, in order: practice, then items with a control in each part.

        A function of the design and ``seed`` alone: the stored seed repeats it. The order is that of hashes, so it is
        the same with every version of every library.
        """
        practice = self.of_role[PRACTICE]
        items = shuffled(range(len(self.blocks[block])), seed, "items")
        controls = shuffled(self.of_role[CONTROL], seed, "controls")
        sequence: list[tuple[int, bool]] = [(number, False) for number in practice]
        parts = max(len(controls), 1)
        for part in range(parts):
            lot = items[len(items) * part // parts : len(items) * (part + 1) // parts]
            own = [self.blocks[block][number] for number in lot]
            if part < len(controls):  # in the second half of each part, so that none comes first
                at = len(own) - draw(max(1, (len(own) + 1) // 2), seed, f"place {part}")
                own.insert(max(at, min(1, len(own))), (controls[part], bool(draw(2, seed, f"control {part}"))))
            sequence += own
        return tuple(self._place(trial, flip, ordinal, seed, n) for n, (trial, flip) in enumerate(sequence))

    def _place(self, number: int, flip: bool, ordinal: int, seed: str, position: int) -> Place:
        if self.kind == "pick":
            return Place(number, tuple(shuffled(range(len(self.trials[number].pictures)), seed, f"slots {position}")))
        return Place(number, flip=self.kind == "compare" and flip != bool(ordinal % 2))

    def canonical_options(self, place: Place, shown: Sequence[int]) -> tuple[int, ...]:
        """Displayed options as canonical ones."""
        if self.kind == "pick":
            return (place.slots[shown[0]],)
        if self.kind == "compare" and place.flip:
            return tuple(table[option] for table, option in zip(FLIPPED, shown, strict=True))
        return tuple(shown)

    def shown_options(self, place: Place, options: Sequence[int]) -> tuple[int, ...]:
        """Canonical options as this participant saw them."""
        if self.kind == "pick":
            return (place.slots.index(options[0]),)
        return self.canonical_options(place, options)  # exchanging two captions is its own inverse


def draw(count: int, seed: str, purpose: str) -> int:
    """A number from 0 to count − 1."""
    return int.from_bytes(hashlib.blake2b(f"{seed}\0{purpose}".encode(), digest_size=8).digest(), "big") % count


def shuffled(numbers: Sequence[int], seed: str, purpose: str) -> list[int]:
    """The numbers in a random order, which seed and purpose decide."""

    def key(number: int) -> bytes:
        return hashlib.blake2b(f"{seed}\0{purpose}\0{number}".encode(), digest_size=16).digest()

    return sorted(numbers, key=key)


def canonical(value: Any) -> bytes:
    """JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()


def open_study(folder: Path) -> Study:
    """Read a study's folder. Raises `UsageError` where it is none, or damaged."""
    path = folder / ITEMS
    try:
        found = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise UsageError(f"{folder}: not the folder of a study (no {ITEMS}); type: tellapart study create") from None
    except ValueError as error:
        raise UsageError(f"{path}: damaged ({error}); create the study again") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or found.get("kind") not in KINDS:
        raise UsageError(f"{path}: not a study of format {FORMAT}; create it again, or update tellapart")
    try:
        trials = TypeAdapter(tuple[Trial, ...]).validate_python(found["trials"])
        blocks = tuple(tuple((int(number), bool(flip)) for number, flip in block) for block in found["blocks"])
        if not blocks or not all(0 <= number < len(trials) for block in blocks for number, _ in block):
            raise ValueError("its blocks name trials that are not there")
        return Study(
            folder=folder,
            id=str(found["id"]),
            kind=found["kind"],
            systems=TypeAdapter(tuple[str, ...]).validate_python(found["systems"]),
            seed=int(found["seed"]),
            trials=trials,
            blocks=blocks,
            made=dict(found["made"]),
            settings=read_settings(folder / FILE),
        )
    except (KeyError, TypeError, ValueError) as error:
        why = error
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            why = ValueError(f"trial {'.'.join(map(str, first['loc']))}: {first['msg']}")
        raise UsageError(f"{path}: damaged ({why}); create the study again") from None


def check_pictures(study: Study) -> None:
    """Raises `UsageError` where a picture of the study is missing or is another than when it was created."""
    for name in sorted({name for trial in study.trials for name in trial.pictures}):
        path = study.folder / PICTURES / name
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror or error}; create the study again") from None
        if not name.startswith(digest[:32]):
            raise UsageError(f"{path}: not the picture that the study was created with; create the study again")
