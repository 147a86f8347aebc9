"""Candidate sets that a file gives: bags of look-alikes, ImageCoDe, pairs of frames, hard pools. One shape for all.

| file | sets |
|---|---|
| ``bags.jsonl`` | `bag3`, `bag5`, …: by size; every picture is asked for |
| ``3.json``, a list of lists of ids | TrueMatch as published; a folder of them is all its sizes |
| ``framepairs.json`` | `bag2` and `bag4`: frames of one shot |
| ``imagecode_valid.json``, ``{set: {index: text}}`` | `imagecode`: ten a set, asked for where there is a text |

`tellapart.evaluation.retrieval` ranks them; a metric is named after them, as in ``recall@1.bag3``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.bags.file import Bag, read_bags, read_truematch
from tellapart.data.base import read_text
from tellapart.data.readers.imagecode import image_sets, is_layout
from tellapart.errors import UsageError
from tellapart.evaluation.retrieval import CandidateSets
from tellapart.utils.text import parse_json


@dataclass(frozen=True)
class FileSets:
    """Sets of ids under one name. ``targets``: who of each set is asked for, None for all of it.

    ``captions`` are people's, where the file has some; ``origin`` is what a signature says.
    """

    name: str
    sets: list[tuple[str, ...]]
    targets: list[tuple[str, ...]] | None = None
    captions: dict[str, list[str]] = field(default_factory=dict)
    origin: str = ""

    def ids(self) -> list[str]:
        """Every picture of the sets, once."""
        return list(dict.fromkeys(id_ for members in self.sets for id_ in members))

    def asked(self) -> list[str]:
        """Every picture that is asked for, once."""
        return list(dict.fromkeys(id_ for members in self.targets or self.sets for id_ in members))

    def rows(self, row_of: Mapping[str, int]) -> CandidateSets:
        """The same sets by row. Raises `UsageError` that names pictures which have none."""
        missing = [id_ for id_ in self.ids() if id_ not in row_of]
        if missing:
            some = ", ".join(map(repr, missing[:3])) + (f" and {len(missing) - 3:,} more" if missing[3:] else "")
            raise UsageError(
                f"{self.name}: {len(missing):,} of {len(self.ids()):,} pictures of its sets are not in the data or "
                f"have no caption ({some}); give captions of them all, or the data that the sets were made of"
            )
        asked = self.targets if self.targets is not None else self.sets
        sets = tuple(np.array([row_of[id_] for id_ in members], dtype=np.intp) for members in self.sets)
        set_Q = np.repeat(np.arange(len(sets)), [len(members) for members in asked])
        target_Q = np.array([row_of[id_] for members in asked for id_ in members], dtype=np.intp)
        return CandidateSets(sets, set_Q, target_Q, self.name)


def read_sets(path: Path) -> list[FileSets]:
    """The sets of a file, or of a folder of TrueMatch's files. Raises `UsageError` for a layout that is not known."""
    path = Path(path)
    if path.is_dir():
        files = sorted(file for file in path.glob("*.json") if file.stem.isdigit())
        if not files:
            raise UsageError(f"{path}: no 3.json, 5.json, … in this folder; name a file of bags")
        return [given for file in files for given in _by_size(read_truematch(file), f"file:{digest(file)}")]
    text = read_text(path)
    if path.suffix == ".jsonl" or text.lstrip().startswith('{"kind"'):
        found = read_bags(path)
        origin = f"mined-by:{Path(found.header.scorer).name}@{found.header.fingerprint[:8]}|file:{digest(path)}"
        return _by_size(found.bags, origin)
    try:
        value = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{path}: is not JSON ({error})") from None
    if isinstance(value, list):
        return _by_size(read_truematch(path), f"file:{digest(path)}")
    if isinstance(value, dict) and "pairs" in value:
        return _frames(path, value)
    if is_layout(value):
        return [_imagecode(path, value)]
    raise UsageError(
        f"{path}: not sets that are known here; expected bags.jsonl, TrueMatch's 3.json, framepairs.json or ImageCoDe's"
    )


def hard_pool(ids: Sequence[str], distractors: Sequence[str], origin: str) -> FileSets:
    """All captioned pictures and given distractors in one pool; the distractors are not asked for."""
    if not distractors:
        raise UsageError("no distractor is left: all of them have a caption to be measured")
    return FileSets("hard", [(*ids, *distractors)], [tuple(ids)], origin=origin)


def digest(path: Path) -> str:
    """Eight hex digits of a file's content, for signatures."""
    return hashlib.blake2b(path.read_bytes(), digest_size=4).hexdigest()


def _by_size(bags: Iterable[Bag], origin: str) -> list[FileSets]:
    found: dict[int, list[tuple[str, ...]]] = {}
    for bag in bags:
        found.setdefault(len(bag), []).append(bag.ids)
    return [FileSets(f"bag{size}", found[size], origin=origin) for size in sorted(found)]


def _frames(path: Path, value: dict[str, Any]) -> list[FileSets]:
    """Pairs (and bags of four) of frames of one shot."""
    try:
        pairs = [entry["frames"] for entry in value["pairs"]]
        rows = [tuple(map(str, frames)) for frames in (*pairs, *value.get("bags_of_4", []))]
    except (TypeError, KeyError):
        raise UsageError(f'{path}: expected "pairs" of {{"frames": ["a.jpg", "b.jpg"]}}') from None
    return _by_size([Bag(row) for row in rows], f"file:{digest(path)}")


def _imagecode(path: Path, value: Any) -> FileSets:
    """Ten pictures a set, called ``SET/img0.jpg`` to ``SET/img9.jpg``; those with a description are asked for."""
    found = list(image_sets(value, str(path)))
    captions = {id_: [" ".join(text.split())] for each in found for id_, text in each.described.items()}
    targets = [tuple(each.described) for each in found]
    return FileSets("imagecode", [each.members for each in found], targets, captions, f"file:{digest(path)}")
