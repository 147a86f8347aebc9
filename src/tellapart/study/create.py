"""Creates studies: look-alike sets, captions, trials and blocks.

Each look-alike set has a target, as in paper 3's human study (section 4.2.4, appendix A). Targets come in random
order. A target's distractors are its nearest pictures by cosine that are in no set yet and whose cosine *to the target*
does not exceed a limit (0.8 in the paper); there is no limit between distractors. The sets are disjoint.

Pictures, captions and references come from the same specifications and files as in ``eval``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tellapart.data import open_many
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import CaptionFile, KnownIds, match_captions
from tellapart.errors import PictureError, UsageError
from tellapart.evaluation.matching import name_systems, read_references
from tellapart.features.nearest import Vectors
from tellapart.features.store import FeatureStore
from tellapart.models.devices import best_device
from tellapart.scorers import load_scorer
from tellapart.study.design import (
    CONTROL,
    EXAMPLE,
    ITEM,
    ITEMS,
    PICTURES,
    PRACTICE,
    SCALE,
    STUDY_FORMAT,
    STUDY_KINDS,
    Study,
    Trial,
    open_study,
    shuffled,
)
from tellapart.study.settings import CHECK_CAPTION, SETTINGS_FILE, settings_text
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.outputs import write_output
from tellapart.utils.progress import Progress
from tellapart.utils.typed_command import typed_command
from tellapart.utils.web.pictures import encode_picture
from tellapart.utils.write_errors import write_errors

MAX_COSINE = 0.8  # paper 3, footnote 8


def lookalike_sets(
    features_ND: npt.ArrayLike,
    targets: Sequence[int],
    available: Sequence[int],
    *,
    size: int = 10,
    count: int | None = None,
    max_cosine: float = MAX_COSINE,
) -> list[list[int]]:
    """Builds up to ``count`` sets of ``size`` rows of ``features_ND``: the target, then its distractors from near to
    far.

    targets: candidate target rows, in the order in which they are tried.
    available: rows that a set may contain.
    Skips targets with too few remaining pictures. Ties are broken by row (`tellapart.features.nearest`).
    """
    vectors = Vectors.of(features_ND)
    free_N = np.zeros(len(vectors), bool)
    free_N[list(available)] = True
    sets: list[list[int]] = []
    with Progress(count if count is not None else len(targets), "finding look-alikes") as progress:
        for target in targets:
            if count is not None and len(sets) >= count:
                break
            if not free_N[target]:
                continue
            free_N[target] = False
            rows_M = np.flatnonzero(free_N)
            cosine_M = vectors.cosines(np.full(len(rows_M), target), rows_M)
            near = cosine_M <= max_cosine
            rows_M, cosine_M = rows_M[near], cosine_M[near]
            if len(rows_M) < size - 1:
                free_N[target] = True  # the target may still become a distractor
                continue
            order_K = np.lexsort((rows_M, -cosine_M))[: size - 1]
            chosen = [int(row) for row in rows_M[order_K]]
            free_N[chosen] = False
            sets.append([int(target), *chosen])
            progress.advance()
    return sets


def easy_sets(
    features_ND: npt.ArrayLike, reserved: Sequence[int], *, size: int, count: int, seed: str
) -> list[list[int]]:
    """Builds ``count`` disjoint sets of reserved rows for control items: a target and random dissimilar pictures.

    Draws the distractors from the less similar half of the free rows, so that the item is easy.
    """
    vectors = Vectors.of(features_ND)
    free = shuffled(reserved, seed, "easy")
    sets = []
    for number in range(count):
        target, rest = free[0], np.array(free[1:])
        cosine_M = vectors.cosines(np.full(len(rest), target), rest)
        far = [int(row) for row in rest[np.argsort(cosine_M, kind="stable")[: max(size - 1, len(rest) // 2)]]]
        chosen = shuffled(far, seed, f"easy {number}")[: size - 1]
        sets.append([target, *chosen])
        used = set(chosen)
        free = [row for row in free[1:] if row not in used]
    return sets


HUMAN = "human"
PRACTICE_ITEMS = 2
SIDES = {"pick": 640, "rate": 1200, "compare": 1200}  # longer side of a picture, in pixels
_WORD = re.compile(r"[a-z]{4,}")


@dataclass(frozen=True)
class Material:
    """Pictures and their captions: ``captions[system][id]``, references by id and, if computed, a row of features per
    picture.
    """

    items: Sequence[Item]
    captions: Mapping[str, Mapping[str, str]]
    references: Mapping[str, Sequence[str]]
    features_ND: np.ndarray | None = None
    source: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class StudyPlan:
    """The plan of a new study. None stands for the default of this kind of study.

    items: number of look-alike sets or pictures.
    candidates: pictures per set.
    block: items per participant.
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
    researcher: str = ""
    institution: str = ""
    contact: str = ""
    ethics: str = ""
    payment: str = ""

    def __post_init__(self) -> None:
        if self.kind not in STUDY_KINDS:
            raise UsageError(f"unknown kind of study '{self.kind}'; expected {', '.join(STUDY_KINDS)}")
        if self.human not in (None, "first", "random", "none"):
            raise UsageError(f"--human: expected first, random or none, got {self.human}")
        if self.candidates < 2:
            raise UsageError("--candidates: expected at least 2 pictures per set")

    def with_defaults(self) -> StudyPlan:
        """Fills in the defaults of the study's kind.

        ``pick``: paper 3 (500 sets, the first reference). ``rate``: paper 1 (100 pictures, five raters, a random
        reference).
        ``compare``: 100 pictures and three raters."""
        own = {"pick": (500, 1, "first"), "rate": (100, 5, "random"), "compare": (100, 3, "none")}[self.kind]
        return replace(self, items=self.items or own[0], raters=self.raters or own[1], human=self.human or own[2])


def create_study(folder: Path, material: Material, plan: StudyPlan) -> Study:
    """Writes a new study's folder. Raises `UsageError` if there are too few pictures or the study exists."""
    if (folder / ITEMS).exists():
        raise UsageError(f"{folder} already contains a study; choose another folder with -o")
    plan = plan.with_defaults()
    material = with_human(material, plan)
    systems = tuple(material.captions)
    if plan.kind == "compare" and len(systems) < 2:
        raise UsageError("compare requires two systems; pass --captions twice, or add --human first")
    if not systems:
        raise UsageError("there are no captions to evaluate; pass --captions FILE, or --human first")
    maker = _Maker(material, plan, folder)
    with write_errors(folder, "choose another folder with -o"):
        trials, blocks = maker.make()
        made: dict[str, Any] = {"command": typed_command(), "human": plan.human, "seed": plan.seed,
                                "candidates": plan.candidates if plan.kind == "pick" else 1,
                                "max_cosine": plan.max_cosine if plan.kind == "pick" else None,
                                **(material.source or {})}  # fmt: skip
        document = {
            "format": STUDY_FORMAT,
            "id": secrets.token_hex(6),
            "kind": plan.kind,
            "systems": systems,
            "seed": plan.seed,
            "made": made,
            "blocks": blocks,
            "trials": [vars(trial) for trial in trials],
        }
        writing = (plan.researcher, plan.institution, plan.contact, plan.ethics)
        each = len(blocks[0]) + plan.controls + PRACTICE_ITEMS
        minutes = max(5, round(each * (15 if plan.kind == "pick" else 20) / 60 / 5) * 5)
        text = settings_text(plan.kind, title=plan.title, raters=plan.raters or 1, minutes=minutes,
                             payment=plan.payment, writing=writing)  # fmt: skip
        write_output(folder / SETTINGS_FILE, text)
        write_output(folder / ITEMS, json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    return open_study(folder)


def with_human(material: Material, plan: StudyPlan) -> Material:
    """Adds one reference per picture as the system ``human`` if the plan includes it."""
    if plan.human == "none":
        return material
    if HUMAN in material.captions:
        raise UsageError(f"a caption file is named {HUMAN}, like the references; rename it, or pass --human none")
    chosen = {}
    for item in material.items:
        if texts := [text for text in material.references.get(item.id, ()) if text.strip()]:
            chosen[item.id] = texts[
                0 if plan.human == "first" else shuffled(range(len(texts)), str(plan.seed), item.id)[0]
            ]
    if not chosen:
        raise UsageError("--human requires references; pass --references FILE, or --human none")
    return replace(material, captions={HUMAN: chosen, **material.captions})


class _Maker:
    """Builds one study: chooses the rows of items and controls, and builds their trials."""

    def __init__(self, material: Material, plan: StudyPlan, folder: Path) -> None:
        self.material, self.plan, self.folder = material, plan, folder
        self.seed = f"create {plan.seed}"
        ids = [item.id for item in material.items]
        self.complete = [row for row, id_ in enumerate(ids) if all(id_ in own for own in material.captions.values())]
        self.described = [
            row for row, id_ in enumerate(ids) if any(t.strip() for t in material.references.get(id_, ()))
        ]
        self._written: dict[int, str] = {}
        self._new: list[str] = []  # names of files that this study adds to the folder

    def make(self) -> tuple[list[Trial], list[list[tuple[int, bool]]]]:
        """Returns the trials, and the blocks as lists of trial numbers. Writes either all pictures or none."""
        easy, main = self._pick_rows() if self.plan.kind == "pick" else self._single_rows()
        pictures = self.folder / PICTURES
        new = [folder for folder in (pictures, *pictures.parents) if not folder.exists()]
        try:
            pictures.mkdir(parents=True, exist_ok=True)
            return self._made(easy, main)
        except BaseException:
            with contextlib.suppress(OSError):  # the first error is the one to report
                for name in self._new:
                    (pictures / name).unlink()
                for folder in new:
                    folder.rmdir()
            raise

    def _made(self, easy: list[list[int]], main: list[list[int]]) -> tuple[list[Trial], list[list[tuple[int, bool]]]]:
        conditions = self._conditions()
        trials: list[Trial] = []
        self._progress = Progress(sum(map(len, [*easy, *main])), "writing pictures")
        with self._progress:
            trials += self._easy_trials(easy)
            first = len(trials)
            for rows in main:
                trials += [self._trial(rows, condition) for condition in conditions]
        return trials, self._blocks(len(main), len(conditions), first)

    # Choice of pictures.

    def _pick_rows(self) -> tuple[list[list[int]], list[list[int]]]:
        """Returns the easy sets (for controls, practice and the example), and the look-alike sets."""
        plan, features_ND = self.plan, self.material.features_ND
        if features_ND is None:
            raise UsageError("pick requires a scorer to find pictures that look alike; add --scorer NAME")
        count = plan.controls + PRACTICE_ITEMS + 1
        need = count * plan.candidates
        if len(self.described) < need:
            raise UsageError(
                f"{len(self.described):,} pictures have a reference, but the {plan.controls} "
                f"control items, practice and example require {need:,}; add pictures, or reduce "
                "--candidates or --controls"
            )
        reserved = shuffled(self.described, self.seed, "reserved")[:need]
        easy = easy_sets(features_ND, reserved, size=plan.candidates, count=count, seed=self.seed)
        taken = set(reserved)
        free = [row for row in range(len(self.material.items)) if row not in taken]
        targets = shuffled([row for row in self.complete if row not in taken], self.seed, "targets")
        sets = lookalike_sets(
            features_ND, targets, free, size=plan.candidates, count=plan.items, max_cosine=plan.max_cosine
        )
        if not sets:
            raise UsageError(
                f"no look-alike set of {plan.candidates} could be built from {len(free):,} "
                "pictures; add pictures, reduce --candidates, or increase --max-cosine"
            )
        self._say_fewer(len(sets), "sets", len(taken))
        return easy, sets

    def _single_rows(self) -> tuple[list[list[int]], list[list[int]]]:
        """Returns pairs for the controls, a picture and another one whose caption does not fit it, and the items'
        pictures.
        """
        count = self.plan.controls + PRACTICE_ITEMS + 1
        if len(self.described) < count + 1:
            raise UsageError(
                f"{len(self.described):,} pictures have a reference, but control items, practice "
                f"and example require {count + 1}; pass --references FILE, or reduce --controls"
            )
        pool = shuffled(self.described, self.seed, "reserved")
        reserved, others = pool[:count], pool[count : count + 400]
        words = {row: self._words(row) for row in [*reserved, *others]}
        shared = {row: [len(words[row] & words[other]) for other in others] for row in reserved}
        pairs = [[row, others[shared[row].index(min(shared[row]))]] for row in reserved]
        taken = set(reserved)
        rows = shuffled([row for row in self.complete if row not in taken], self.seed, "targets")[: self.plan.items]
        if not rows:
            raise UsageError("no picture has a caption from every system; pass caption files for the same pictures")
        self._say_fewer(len(rows), "pictures", len(taken))
        return pairs, [[row] for row in rows]

    def _say_fewer(self, count: int, what: str, reserved: int) -> None:
        """Prints why a study has fewer pictures or sets than planned."""
        if count < (self.plan.items or 0):
            say(
                f"the study has {count:,} {what}, but {self.plan.items:,} were planned: of "
                f"{len(self.material.items):,} pictures, {reserved:,} are reserved for control "
                "items, practice and the example; add pictures, or reduce --controls"
            )

    def _words(self, row: int) -> set[str]:
        return set(_WORD.findall(" ".join(self.material.references[self.material.items[row].id]).lower()))

    # Trials.

    def _conditions(self) -> list[tuple[str, ...]]:
        systems = list(self.material.captions)
        return list(combinations(systems, 2)) if self.plan.kind == "compare" else [(system,) for system in systems]

    def _trial(self, rows: Sequence[int], condition: tuple[str, ...]) -> Trial:
        unit = self.material.items[rows[0]].id
        captions = tuple(self.material.captions[system][unit] for system in condition)
        return Trial(ITEM, unit, condition, captions, tuple(map(self._picture, rows)))

    def _easy_trials(self, sets: Sequence[Sequence[int]]) -> list[Trial]:
        roles = [CONTROL] * self.plan.controls + [PRACTICE] * PRACTICE_ITEMS + [EXAMPLE]
        makers = {"pick": self._easy_pick, "rate": self._easy_rate, "compare": self._easy_compare}
        return [makers[self.plan.kind](role, rows, n) for n, (role, rows) in enumerate(zip(roles, sets, strict=True))]

    def _reference(self, row: int) -> str:
        return next(text for text in self.material.references[self.material.items[row].id] if text.strip())

    def _easy_pick(self, role: str, rows: Sequence[int], _: int) -> Trial:
        unit = self.material.items[rows[0]].id
        text = "The description was written for the marked picture."
        return Trial(role, unit, (), (self._reference(rows[0]),), tuple(map(self._picture, rows)), ((0,),), text)

    def _easy_rate(self, role: str, rows: Sequence[int], number: int) -> Trial:
        """Builds a trial whose caption belongs to another picture, so its accuracy is low. Every second control tells
        the participant what to answer.
        """
        unit, pictures = self.material.items[rows[0]].id, (self._picture(rows[0]),)
        if role == CONTROL and number % 2:
            option = shuffled(range(len(SCALE)), self.seed, f"check {number}")[0]
            caption = CHECK_CAPTION.format(option + 1, SCALE[option])
            return Trial(role, unit, (), (caption,), pictures, ((option,),) * 3)
        if role == PRACTICE and number == self.plan.controls:
            text = "The caption was written by a person for this picture, so its accuracy should be 4 or 5."
            return Trial(role, unit, (), (self._reference(rows[0]),), pictures, (None, (3, 4), None), text)
        text = "The caption was written for another picture, so its accuracy is 1 or 2, however well it reads."
        return Trial(role, unit, (), (self._reference(rows[1]),), pictures, (None, (0, 1), None), text)

    def _easy_compare(self, role: str, rows: Sequence[int], number: int) -> Trial:
        """Builds a trial with the picture's own caption and another picture's; only the latter is wrong."""
        own, other = (self._reference(row) for row in rows[:2])
        swap = bool(number % 2)
        text = "The caption that is marked as wrong was written for another picture."
        captions = (other, own) if swap else (own, other)
        expected = (None, (1 if swap else 2,))
        return Trial(role, self.material.items[rows[0]].id, (), captions, (self._picture(rows[0]),), expected, text)

    def _picture(self, row: int) -> str:
        """Writes a picture once, named after its content. Raises `UsageError` if it is unreadable."""
        if row not in self._written:
            try:
                image = self.material.items[row].picture.image()
            except PictureError as error:
                raise UsageError(f"{error}; remove this picture from the data") from None
            data, kind = encode_picture(image, SIDES[self.plan.kind])
            name = f"{hashlib.sha256(data).hexdigest()[:32]}.{'png' if kind == 'image/png' else 'jpg'}"
            if not (path := self.folder / PICTURES / name).exists():
                self._new.append(name)
            path.write_bytes(data)
            self._written[row] = name
            self._progress.advance()
        return self._written[row]

    # Blocks.

    def _blocks(self, units: int, conditions: int, first: int) -> list[list[tuple[int, bool]]]:
        """Builds blocks as Latin squares: each block contains every unit of its part once, and all conditions equally
        often.

        Over the blocks of a part, every unit occurs in every condition. For ``compare``, captions are swapped in half
        of the trials of each condition in a block.
        """
        count = -(-units // self.plan.block)
        blocks = []
        for part in range(count):
            own = range(units * part // count, units * (part + 1) // count)
            for turn in range(conditions):
                block = []
                for number, unit in enumerate(own):
                    flip = self.plan.kind == "compare" and bool((number // conditions) % 2)
                    block.append((first + unit * conditions + (number + turn) % conditions, flip))
                blocks.append(block)
        return blocks


def read_material(
    data: Sequence[str],
    captions: Sequence[Path],
    references: Sequence[Path] = (),
    scorer: str | None = None,
) -> Material:
    """Reads a study's material. Systems are named after their files. Prints notes on mismatches.

    scorer: its features define which pictures look alike. With a scorer, unreadable pictures are skipped.
    """
    dataset = open_many(list(data))
    items: Sequence[Item] = list(dataset)
    features_ND: np.ndarray | None = None
    made: dict[str, object] = {"data": list(data)}
    if scorer is not None:
        model, store = load_scorer(scorer, best_device()), FeatureStore()
        items = store.readable(items, model.encoder, skipped=dataset.unreadable)
        features_ND = np.asarray(store.features(items, model.encoder))
        made |= {"scorer": scorer, "scorer_fingerprint": model.fingerprint}
    for line in dataset.report():
        say(line)
    paths = ((item.id, getattr(item.picture, "path", None)) for item in items)
    known = KnownIds("the data", [i.id for i in items], {id_: str(path) for id_, path in paths if path is not None})
    files = name_systems(captions)
    systems = {name: _one_each(read_caption_file(path), known, name) for name, path in files.items()}
    made["captions"] = {name: hashlib.sha256(_content(path)).hexdigest() for name, path in files.items()}
    texts: Mapping[str, Sequence[str]] = {item.id: item.references for item in items}
    if (found := read_references(references)) is not None:
        texts = match_captions(found, known, "references").texts
    return Material(items, systems, texts, features_ND, made)


def _one_each(file: CaptionFile, known: KnownIds, name: str) -> dict[str, str]:
    """Returns one caption per known id with captions. Raises `UsageError` if none matches or an id has several."""
    matched = match_captions(file, known, name)
    if matched.how:
        say(matched.how)
    ids = set(known.ids)
    found = {id_: texts for id_, texts in matched.texts.items() if id_ in ids}
    if not found:
        raise UsageError(f"{file.name}: none of the captions belongs to a picture in the data; use the same ids")
    if double := next((id_ for id_, texts in found.items() if len(texts) > 1), None):
        raise UsageError(f"{file.name}: several captions for '{double}'; a study requires one per system")
    blank = [id_ for id_, texts in found.items() if not texts or not texts[0].strip()]
    if blank:
        say(f"{name}: skipped {len(blank):,} empty captions, such as that of '{blank[0]}'")
    return {id_: texts[0].strip() for id_, texts in found.items() if texts and texts[0].strip()}


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else str(path).encode()
