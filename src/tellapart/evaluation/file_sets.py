"""Candidate sets in one common form, read from files of several layouts.

| file | sets |
|---|---|
| ``bags.jsonl`` | `bag3`, `bag5`, …, one per size; every picture is a target |
| ``3.json``, a list of lists of ids | TrueMatch as published; from a folder, all sizes except ``1.json`` are read |
| ``framepairs.json`` | `bag2` and `bag4`: frames from one shot |
| ``imagecode_valid.json``, ``{set: {index: text}}`` | `imagecode`: ten pictures per set; those with text are targets |

`tellapart.evaluation.retrieval` ranks them, and metrics are named after them, as in ``recall@1.bag3``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
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

HARD = "hard"  # the pool that contains all captioned pictures and distractors
Ids = tuple[str, ...]


@dataclass(frozen=True)
class FileSets:
    """Sets of ids under a common name.

    targets: the targets in each set.
    source: the file or the distractors, for signatures.
    """

    name: str
    sets: list[Ids]
    targets: list[Ids]
    source: str = ""

    @property
    def origin(self) -> str:
        """Returns the source, with the number of distractors."""
        return f"distractors:{len(self.ids()) - len(self.asked())}@{self.source}" if self.name == HARD else self.source

    def ids(self) -> list[str]:
        """Returns the ids of all pictures in the sets, without duplicates."""
        return list(dict.fromkeys(id_ for members in self.sets for id_ in members))

    def asked(self) -> list[str]:
        """Returns the ids of all targets, without duplicates."""
        return list(dict.fromkeys(id_ for members in self.targets for id_ in members))

    def _changed(self, change: Callable[[Ids], Iterable[str]]) -> FileSets:
        sets, targets = ([tuple(change(members)) for members in own] for own in (self.sets, self.targets))
        return replace(self, sets=sets, targets=targets)

    def renamed(self, names: Mapping[str, str]) -> FileSets:
        """Returns the sets with the data's ids. ``names`` maps the file's ids to the data's."""
        return self._changed(lambda members: (names.get(id_, id_) for id_ in members))

    def without(self, ids: Collection[str]) -> FileSets:
        """Drops every set that contains any of these pictures. From a hard pool, removes only the pictures themselves.

        Raises `UsageError` if no set remains.
        """
        if self.name == HARD:
            return self._changed(lambda members: (id_ for id_ in members if id_ not in ids))
        kept = [pair for pair in zip(self.sets, self.targets, strict=True) if not set(ids).intersection(pair[0])]
        if not kept:
            raise UsageError(f"{self.name}: no set remains, because each contains a picture that cannot be read")
        return replace(self, sets=[members for members, _ in kept], targets=[asked for _, asked in kept])

    def without_unreadable(self, ids: set[str], notes: list[str]) -> FileSets:
        """Removes unreadable pictures as `without` does. If the sets contain any, adds a note to ``notes``."""
        if not (lost := ids.intersection(self.ids())):
            return self
        rest = self.without(lost)
        left = f"their sets are omitted ({len(rest.sets):,} sets remain)"
        if self.name == HARD:
            left = f"{len(rest.ids()):,} pictures remain"
        notes.append(f"{self.name}: {len(lost):,} pictures cannot be read, such as '{min(lost)}'; {left}")
        return rest

    def rows(self, row_of: Mapping[str, int]) -> CandidateSets:
        """Converts ids to rows. If pictures have no row, raises a `UsageError` that lists them."""
        ids = self.ids()
        if missing := [id_ for id_ in ids if id_ not in row_of]:
            raise UsageError(
                f"{self.name}: {len(missing):,} of {len(ids):,} pictures in its sets are not in the data "
                f"or have no caption ({few(map(repr, missing))}); pass captions for all of them, and the data that "
                "the sets were made from"
            )
        sets, targets = (
            [np.array([row_of[id_] for id_ in members], dtype=np.intp) for members in own]
            for own in (self.sets, self.targets)
        )
        set_Q = np.repeat(np.arange(len(sets)), [len(members) for members in targets])
        return CandidateSets(tuple(sets), set_Q, np.concatenate([*targets, np.zeros(0, np.intp)]), self.name)


def read_sets(path: Path) -> list[FileSets]:
    """Reads sets from a file, or from a folder of TrueMatch files. Raises `UsageError` if the layout is unknown."""
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.glob("*.json") if file.stem.isdigit() and file.stem != "1")
        if not files:
            raise UsageError(f"{path}: this folder contains no 3.json, 5.json, …; pass a bags file")
        return [given for file in files for given in _by_size(read_truematch(file), _digest(file))]
    text, source = read_text(path), _digest(path)
    if path.suffix == ".jsonl" or text.lstrip().startswith('{"kind"'):
        found = read_bags(path)
        scorer = f"{Path(found.header.scorer).name}@{found.header.fingerprint[:8]}"
        return _by_size(found.bags, f"mined-by:{scorer}|{source}")
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON ({error})") from None
    if isinstance(value, list):
        return _by_size(read_truematch(path), source)
    if isinstance(value, dict) and "pairs" in value:
        return _by_size(_frames(path, value), source)
    if is_layout(value):
        each = list(image_sets(value, str(path)))  # ten pictures per set, SET/img0.jpg to SET/img9.jpg
        return [FileSets("imagecode", [one.members for one in each], [tuple(one.described) for one in each], source)]
    raise UsageError(
        f"{path}: unknown layout of candidate sets; expected bags.jsonl, TrueMatch's 3.json, framepairs.json or "
        "ImageCoDe's JSON"
    )


def _digest(path: Path) -> str:
    """Returns a hash of a file's content, for signatures."""
    return f"file:{short_digest(path.read_bytes())}"


def _by_size(bags: Iterable[Bag], source: str) -> list[FileSets]:
    found: dict[int, list[Ids]] = {}
    for bag in bags:
        found.setdefault(len(bag), []).append(bag.ids)
    return [FileSets(f"bag{size}", found[size], found[size], source) for size in sorted(found)]


def _frames(path: Path, value: dict[str, Any]) -> list[Bag]:
    """Returns pairs (and bags of four) of frames from one shot."""
    try:
        pairs = [entry["frames"] for entry in value["pairs"]]
        return [Bag(tuple(map(str, frames))) for frames in (*pairs, *value.get("bags_of_4", []))]
    except (TypeError, KeyError):
        raise UsageError(
            f'{path}: expected a list "pairs" with entries such as {{"frames": ["a.jpg", "b.jpg"]}}'
        ) from None
