"""Creates a study: chooses pictures, and writes trials, blocks and settings to a new folder."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

from tellapart.errors import PictureError, UsageError
from tellapart.study.design import (
    CONTROL,
    EXAMPLE,
    ITEM,
    ITEMS,
    PICTURES,
    PRACTICE,
    STUDY_FORMAT,
    Study,
    Trial,
    open_study,
)
from tellapart.study.lookalikes import MAX_COSINE, disjoint_lookalikes, unlike_sets
from tellapart.study.material import Material, with_human
from tellapart.study.questions import SCALE, check_kind
from tellapart.study.seeded_order import shuffled
from tellapart.study.settings import SETTINGS_FILE
from tellapart.study.settings_template import settings_text
from tellapart.types import Picture
from tellapart.utils.messages import say
from tellapart.utils.outputs import write_output
from tellapart.utils.progress import Progress
from tellapart.utils.typed_command import typed_command
from tellapart.utils.web.pictures import encode_picture
from tellapart.utils.write_errors import write_errors

PRACTICE_ITEMS = 2
SIDES = {"pick": 640, "rate": 1200, "compare": 1200}  # longer side of a picture, in pixels
ITEM_SECONDS = {"pick": 15, "rate": 20, "compare": 20}  # estimated time per item, for the consent page
MAX_COMPARED = 400  # maximum number of pictures to search for the one with the fewest words in common
CHECK_CAPTION = "This is an attention check. Please choose {} ({}) for all three ratings."
_WORD = re.compile(r"[a-z]{4,}")
# ``pick``: as in paper 3 (500 sets, the first reference).
# ``rate``: as in paper 1 (100 pictures, five raters, a random reference).
DEFAULTS: dict[str, dict[str, Any]] = {
    "pick": {"items": 500, "raters": 1, "human": "first"},
    "rate": {"items": 100, "raters": 5, "human": "random"},
    "compare": {"items": 100, "raters": 3, "human": "none"},
}


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The plan for a new study. None selects the default for this kind of study.

    items: number of look-alike sets or pictures.
    candidates: number of pictures per set.
    block: number of items per participant.
    controls: number of control items.
    raters: number of participants per block.
    human: which reference becomes the system ``human``: first, random or none.
    """

    kind: str
    items: int | None = None
    candidates: int = 10
    block: int = 100
    controls: int = 5
    raters: int | None = None
    human: str | None = None
    max_cosine: float = MAX_COSINE
    seed: int = 0
    title: str = ""

    @property
    def easy(self) -> int:
        """The number of trials that have a correct answer: control items, practice items and the example."""
        return self.controls + PRACTICE_ITEMS + 1

    @property
    def shuffle_seed(self) -> str:
        """The seed for `shuffled`."""
        return f"create {self.seed}"


def create_study(folder: Path, material: Material, plan: StudyPlan) -> Study:
    """Writes the folder of a new study. Raises `UsageError` if there are too few pictures or if the folder already
    contains a study.
    """
    check_kind(plan.kind)
    if (folder / ITEMS).exists():
        raise UsageError(f"{folder} already contains a study; choose another folder with -o")
    plan = replace(plan, **{key: value for key, value in DEFAULTS[plan.kind].items() if getattr(plan, key) is None})
    material = with_human(material, plan.human or "none", plan.seed)
    systems = tuple(material.captions)
    if plan.kind == "compare" and len(systems) < 2:
        raise UsageError("compare requires two systems; pass --captions twice, or add --human first")
    if not systems:
        raise UsageError("there are no captions to evaluate; pass --captions FILE, or --human first")
    conditions = list(combinations(systems, 2 if plan.kind == "compare" else 1))
    easy, main = _sets(material, plan) if plan.kind == "pick" else _pictures(material, plan)
    if len(main) < (plan.items or 0):
        say(
            f"the study has {len(main):,} {'sets' if plan.kind == 'pick' else 'pictures'}, but {plan.items:,} were "
            f"planned: of {len(material.items):,} pictures, {plan.easy * len(main[0]):,} are reserved for control "
            "items, practice and the example; add pictures, or reduce --controls"
        )
    blocks = latin_blocks(len(main), len(conditions), plan.block, first=plan.easy, swap=plan.kind == "compare")
    with (
        write_errors(folder, "choose another folder with -o"),
        tempfile.TemporaryDirectory() as temporary,
        Progress(sum(map(len, [*easy, *main])), "writing pictures") as progress,
    ):

        @cache
        def picture(row: int) -> str:
            progress.advance()
            return _write_picture(Path(temporary), material.items[row].picture, SIDES[plan.kind])

        trials = [_easy_trial(material, plan, number, rows, picture) for number, rows in enumerate(easy)]
        for rows in main:
            unit, pictures = material.items[rows[0]].id, tuple(map(picture, rows))
            for condition in conditions:
                captions = tuple(material.captions[system][unit] for system in condition)
                trials.append(Trial(ITEM, unit, condition, captions, pictures))
        content = {
            "format": STUDY_FORMAT,
            "id": secrets.token_hex(6),
            "kind": plan.kind,
            "systems": systems,
            "seed": plan.seed,
            "command": typed_command(),
            "blocks": blocks,
            "trials": [vars(trial) for trial in trials],
        }
        (folder / PICTURES).mkdir(parents=True, exist_ok=True)
        for path in Path(temporary).iterdir():
            shutil.copy(path, folder / PICTURES)
        minutes = (len(blocks[0]) + plan.controls + PRACTICE_ITEMS) * ITEM_SECONDS[plan.kind] / 60
        text = settings_text(plan.kind, plan.title, plan.raters, max(5, 5 * round(minutes / 5)))
        write_output(folder / SETTINGS_FILE, text)
        write_output(folder / ITEMS, json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return open_study(folder)


def latin_blocks(units: int, conditions: int, size: int, *, first: int, swap: bool) -> list[list[tuple[int, bool]]]:
    """Builds blocks as Latin squares. A block contains every unit of its part once, and all conditions equally often.

    Across the blocks of a part, every unit occurs in every condition.

    first: the number of the first trial. A unit's trials, one for each condition, have consecutive numbers.
    swap: whether to swap the captions in half of a block's trials for each condition.
    """
    parts = -(-units // size)
    blocks = []
    for part in range(parts):
        own = range(units * part // parts, units * (part + 1) // parts)
        for turn in range(conditions):
            blocks.append([
                (first + unit * conditions + (number + turn) % conditions, swap and number // conditions % 2 == 1)
                for number, unit in enumerate(own)
            ])  # fmt: skip
    return blocks


# Choosing pictures. Both functions return two lists with rows of the material: for the easy trials and for the items.


def _sets(material: Material, plan: StudyPlan) -> tuple[list[list[int]], list[list[int]]]:
    """Chooses sets of pictures. The target is the first picture in a set."""
    features_ND, size, need = material.features_ND, plan.candidates, plan.easy * plan.candidates
    if features_ND is None:
        raise UsageError("pick requires a scorer to find pictures that look alike; add --scorer NAME")
    reserved = _described(material, plan, need)[:need]
    easy = unlike_sets(features_ND, reserved, size=size, count=plan.easy, seed=plan.shuffle_seed)
    free = sorted({*range(len(material.items))} - {*reserved})
    targets = _complete(material, plan, reserved)
    sets = disjoint_lookalikes(features_ND, targets, free, size=size, count=plan.items, max_cosine=plan.max_cosine)
    if not sets:
        raise UsageError(
            f"no look-alike set of {size} could be built from {len(free):,} "
            "pictures; add pictures, reduce --candidates, or increase --max-cosine"
        )
    return easy, sets


def _pictures(material: Material, plan: StudyPlan) -> tuple[list[list[int]], list[list[int]]]:
    """Chooses single pictures. For an easy trial, also chooses a second one whose caption does not fit the first."""
    pool = _described(material, plan, plan.easy + 1)[: plan.easy + MAX_COMPARED]
    reserved, others = pool[: plan.easy], pool[plan.easy :]
    words = {row: set(_WORD.findall(" ".join(material.references_of(row)).lower())) for row in pool}
    easy = [[row, min(others, key=lambda other: len(words[row] & words[other]))] for row in reserved]
    rows = _complete(material, plan, reserved)[: plan.items]
    if not rows:
        raise UsageError("no picture has a caption from every system; pass caption files for the same pictures")
    return easy, [[row] for row in rows]


def _described(material: Material, plan: StudyPlan, need: int) -> list[int]:
    """Returns the pictures that have references, in random order.

    Raises `UsageError` if there are fewer than ``need``.
    """
    rows = [row for row in range(len(material.items)) if material.references_of(row)]
    if len(rows) < need:
        raise UsageError(
            f"{len(rows):,} pictures have a reference, but the {plan.controls} control items, practice and example "
            f"require {need:,}; pass --references FILE, add pictures, or reduce --controls or the size of a set"
        )
    return shuffled(rows, plan.shuffle_seed, "reserved")


def _complete(material: Material, plan: StudyPlan, reserved: Sequence[int]) -> list[int]:
    """Returns the pictures that are not reserved and have a caption from every system, in random order."""
    common = set.intersection(*map(set, material.captions.values()))
    rows = [row for row, item in enumerate(material.items) if item.id in common and row not in reserved]
    return shuffled(rows, plan.shuffle_seed, "targets")


# Trials.


def _easy_trial(
    material: Material, plan: StudyPlan, number: int, rows: Sequence[int], picture: Callable[[int], str]
) -> Trial:
    """Builds the ``number``-th trial that has a correct answer: first the control items, then the practice items, then
    the example.

    ``rate``: the caption belongs to another picture, so its accuracy is low. There are two exceptions: the first
    practice item has the correct caption, and in every second control item, the caption tells the participant what to
    answer.
    ``compare``: one of the two captions belongs to another picture.
    """
    role = [*[CONTROL] * plan.controls, *[PRACTICE] * PRACTICE_ITEMS, EXAMPLE][number]
    unit, pictures = material.items[rows[0]].id, tuple(map(picture, rows if plan.kind == "pick" else rows[:1]))
    own, other = (material.references_of(row)[0] for row in rows[:2])

    def trial(captions: tuple[str, ...], expected: tuple[tuple[int, ...] | None, ...], feedback: str = "") -> Trial:
        return Trial(role, unit, (), captions, pictures, expected, feedback)

    if plan.kind == "pick":
        return trial((own,), ((0,),), "The description was written for the marked picture.")
    if plan.kind == "compare":
        captions, wrong = ((other, own), 1) if number % 2 else ((own, other), 2)
        return trial(captions, (None, (wrong,)), "The caption that is marked as wrong was written for another picture.")
    if role == CONTROL and number % 2:
        option = shuffled(range(len(SCALE)), plan.shuffle_seed, f"check {number}")[0]
        return trial((CHECK_CAPTION.format(option + 1, SCALE[option]),), ((option,),) * 3)
    if number == plan.controls:
        text = "The caption was written by a person for this picture, so its accuracy should be 4 or 5."
        return trial((own,), (None, (3, 4), None), text)
    text = "The caption was written for another picture, so its accuracy is 1 or 2, however well it reads."
    return trial((other,), (None, (0, 1), None), text)


def _write_picture(folder: Path, picture: Picture, side: int) -> str:
    """Writes a picture to a file named after its content, and returns the file name. Raises `UsageError` if the picture
    cannot be read.
    """
    try:
        data, kind = encode_picture(picture.image(), side)
    except PictureError as error:
        raise UsageError(f"{error}; remove this picture from the data") from None
    name = f"{hashlib.sha256(data).hexdigest()[:32]}.{'png' if kind == 'image/png' else 'jpg'}"
    (folder / name).write_bytes(data)
    return name
