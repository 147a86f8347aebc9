"""Candidate sets from files, in one common form: bags of look-alikes, ImageCoDe sets, pairs of frames, and hard pools.

| file | sets |
|---|---|
| ``bags.jsonl`` | `bag3`, `bag5`, …, one per size; every picture is a target |
| ``3.json``, a list of lists of ids | TrueMatch as published; from a folder, all sizes except ``1.json`` are read |
| ``framepairs.json`` | `bag2` and `bag4`: frames from one shot |
| ``imagecode_valid.json``, ``{set: {index: text}}`` | `imagecode`: ten pictures per set; those with text are targets |

`tellapart.evaluation.retrieval` ranks them, and metrics are named after them, as in ``recall@1.bag3``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.bags.file import Bag, read_bags
from tellapart.bags.truematch import read_truematch
from tellapart.data.readers.imagecode import image_sets, is_layout
from tellapart.data.text_files import read_text
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import CandidateSets
from tellapart.evaluation.digests import short_digest
from tellapart.utils.listed_names import few
from tellapart.utils.strict_json import parse_json


@dataclass(frozen=True)
class FileSets:
    """Sets of ids under a common name.

    targets: the targets in each set; None if all pictures are targets.
    captions: human captions, if the file contains any.
    origin: the source, for signatures.
    """

    name: str
    sets: list[tuple[str, ...]]
    targets: list[tuple[str, ...]] | None = None
    captions: dict[str, list[str]] = field(default_factory=dict)
    origin: str = ""

    def ids(self) -> list[str]:
        """Returns the ids of all pictures in the sets, without duplicates."""
        return list(dict.fromkeys(id_ for members in self.sets for id_ in members))

    def asked(self) -> list[str]:
        """Returns the ids of all targets, without duplicates."""
        return list(dict.fromkeys(id_ for members in self.targets or self.sets for id_ in members))

    def renamed(self, names: Mapping[str, str]) -> FileSets:
        """Returns the sets with the data's ids. ``names`` maps the file's ids to the data's."""

        def own(sets: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
            return [tuple(names.get(id_, id_) for id_ in members) for members in sets]

        captions = {names.get(id_, id_): texts for id_, texts in self.captions.items()}
        targets = None if self.targets is None else own(self.targets)
        return replace(self, sets=own(self.sets), targets=targets, captions=captions)

    def without(self, ids: Collection[str]) -> FileSets:
        """Drops every set that contains any of these pictures. From a hard pool, removes only the pictures themselves.

        Raises `UsageError` if no set remains.
        """
        if self.name == HARD:
            pool, asked = ([id_ for id_ in own if id_ not in ids] for own in (self.ids(), self.asked()))
            origin = re.sub(r"^distractors:\d+", f"distractors:{len(pool) - len(asked)}", self.origin)
            return replace(self, sets=[tuple(pool)], targets=[tuple(asked)], origin=origin)
        kept = [place for place, members in enumerate(self.sets) if not set(ids).intersection(members)]
        if not kept:
            raise UsageError(f"{self.name}: no set remains, because each contains a picture that cannot be read")
        targets = None if self.targets is None else [self.targets[place] for place in kept]
        return replace(self, sets=[self.sets[place] for place in kept], targets=targets)

    def rows(self, row_of: Mapping[str, int]) -> CandidateSets:
        """Converts ids to rows. If pictures have no row, raises a `UsageError` that lists them."""
        missing = [id_ for id_ in self.ids() if id_ not in row_of]
        if missing:
            raise UsageError(
                f"{self.name}: {len(missing):,} of {len(self.ids()):,} pictures in its sets are not in the data "
                f"or have no caption ({few(map(repr, missing))}); pass captions for all of them, and the data that "
                "the sets were made from"
            )
        asked = self.targets if self.targets is not None else self.sets
        sets = tuple(np.array([row_of[id_] for id_ in members], dtype=np.intp) for members in self.sets)
        set_Q = np.repeat(np.arange(len(sets)), [len(members) for members in asked])
        target_Q = np.array([row_of[id_] for members in asked for id_ in members], dtype=np.intp)
        return CandidateSets(sets, set_Q, target_Q, self.name)


def read_sets(path: Path) -> list[FileSets]:
    """Reads sets from a file, or from a folder of TrueMatch files. Raises `UsageError` if the layout is unknown."""

    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.glob("*.json") if file.stem.isdigit() and file.stem != "1")
        if not files:
            raise UsageError(f"{path}: this folder contains no 3.json, 5.json, …; pass a bags file")
        return [given for file in files for given in _by_size(read_truematch(file), f"file:{digest(file)}")]
    text = read_text(path)
    if path.suffix == ".jsonl" or text.lstrip().startswith('{"kind"'):
        found = read_bags(path)
        origin = f"mined-by:{Path(found.header.scorer).name}@{found.header.fingerprint[:8]}|file:{digest(path)}"
        return _by_size(found.bags, origin)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON ({error})") from None
    if isinstance(value, list):
        return _by_size(read_truematch(path), f"file:{digest(path)}")
    if isinstance(value, dict) and "pairs" in value:
        return _frames(path, value)
    if is_layout(value):
        return [_imagecode(path, value)]
    raise UsageError(
        f"{path}: unknown layout of candidate sets; expected bags.jsonl, TrueMatch's 3.json, framepairs.json or "
        "ImageCoDe's JSON"
    )


HARD = "hard"  # the pool that contains all captioned pictures and distractors


def hard_pool(ids: Sequence[str], distractors: Sequence[str], origin: str) -> FileSets:
    """Returns a pool of all captioned pictures and the given distractors. The distractors are not targets."""
    if not distractors:
        raise UsageError("no distractor remains, because all of them have captions to evaluate")
    return FileSets(HARD, [(*ids, *distractors)], [tuple(ids)], origin=origin)


def digest(path: Path) -> str:
    """Returns an eight-digit hex hash of a file's content, for signatures."""
    return short_digest(path.read_bytes())


def _by_size(bags: Iterable[Bag], origin: str) -> list[FileSets]:
    found: dict[int, list[tuple[str, ...]]] = {}
    for bag in bags:
        found.setdefault(len(bag), []).append(bag.ids)
    return [FileSets(f"bag{size}", found[size], origin=origin) for size in sorted(found)]


def _frames(path: Path, value: dict[str, Any]) -> list[FileSets]:
    """Returns pairs (and bags of four) of frames from one shot."""

    try:
        pairs = [entry["frames"] for entry in value["pairs"]]
        rows = [tuple(map(str, frames)) for frames in (*pairs, *value.get("bags_of_4", []))]
    except (TypeError, KeyError):
        raise UsageError(
            f'{path}: expected a list "pairs" with entries such as {{"frames": ["a.jpg", "b.jpg"]}}'
        ) from None
    return _by_size([Bag(row) for row in rows], f"file:{digest(path)}")


def _imagecode(path: Path, value: Any) -> FileSets:
    """Returns ten pictures per set, ``SET/img0.jpg`` to ``SET/img9.jpg``. Pictures that have a description are
    targets.
    """
    found = list(image_sets(value, str(path)))
    captions = {id_: [" ".join(text.split())] for each in found for id_, text in each.described.items()}
    targets = [tuple(each.described) for each in found]
    return FileSets("imagecode", [each.members for each in found], targets, captions, f"file:{digest(path)}")
