"""Reads and writes ``bags.jsonl``, a file of bags that also records the origin of the bags."""

from __future__ import annotations

import contextlib
import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pydantic.dataclasses
from pydantic import ValidationError

from tellapart.data.specification import parse
from tellapart.data.text_files import read_text
from tellapart.errors import UsageError
from tellapart.utils.listed_names import few
from tellapart.utils.outputs import check_output, write_output
from tellapart.utils.strict_json import json_value, parse_json

KIND = "tellapart bags"
BAGS_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Bag:
    """Pictures that look alike and must be distinguished: the query, followed by its neighbours, nearest first.

    similarity: the intra-bag similarity α (−1 to 1); NaN if unknown.
    rows: row numbers of the pictures in the data; empty if the bag was read from a file.
    """

    ids: tuple[Any, ...]
    similarity: float = math.nan
    rows: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.ids)


@pydantic.dataclasses.dataclass(frozen=True)
class Header:
    """The origin of bags, recorded in the first line of ``bags.jsonl``.

    fingerprint: hash that identifies the scorer.
    captions: the captions that were used; empty if only pictures were compared.
    pictures: number of pictures that were searched.
    left_out: numbers of skipped pictures, by reason (copies, unreadable pictures).
    """

    scorer: str = ""
    fingerprint: str = ""
    data: str = ""
    sizes: tuple[int, ...] = ()
    pictures: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    captions: str = ""
    similarity: str = "query"
    max_cosine: float | None = None
    recall: float | None = None
    version: str = ""
    max_cosine_of: str = "pairs"  # files written by version 0.1 lack this key; they limit all pairs
    min_cosine: float | None = None


SETTINGS = ("data", "fingerprint", "sizes", "captions", "similarity", "max_cosine", "max_cosine_of", "min_cosine")


@dataclass(frozen=True)
class BagsFile:
    """Bags in file order, and how they were mined."""

    header: Header
    bags: list[Bag]

    def of_size(self) -> dict[int, list[Bag]]:
        """Groups the bags by size, in ascending order."""
        sizes = sorted({len(bag) for bag in self.bags})
        return {size: [bag for bag in self.bags if len(bag) == size] for size in sizes}


def write_bags(path: Path, bags: BagsFile) -> None:
    """Writes one JSON object per line, atomically: the header, then ``{"ids", "similarity"}``."""
    records = ({"ids": bag.ids, "similarity": json_value(bag.similarity, 9)} for bag in bags.bags)
    write_output(path, "".join(bag_lines(bags.header, records)))


def bag_lines(header: Header, records: Iterable[Mapping[str, Any]], **more: Any) -> Iterator[str]:
    """Yields the lines of a file: the header, with ``more`` keys, and the record of each bag."""
    yield json.dumps({"kind": KIND, "format": BAGS_FORMAT, **asdict(header), **more}, ensure_ascii=False) + "\n"
    for record in records:
        yield json.dumps(record, ensure_ascii=False) + "\n"


def read_bags(path: Path, *, fingerprint: str | None = None, known: Collection[str] | None = None) -> BagsFile:
    """Reads a ``bags.jsonl``.

    fingerprint: required fingerprint of the scorer; None accepts any.
    known: ids of the existing pictures; None skips the check.
    Raises `UsageError` if the file has another format, or if its bags were mined with another scorer or contain
    missing pictures.
    """
    rows = list(_lines(path))
    first = rows[0][1] if rows else {}
    if not isinstance(first, dict) or first.get("kind") != KIND:
        raise UsageError(f"{path} is not a bag file; expected the output of 'tellapart bags mine'")
    if first.get("format") != BAGS_FORMAT:
        raise UsageError(
            f"{path} has bag format {first.get('format')}, but this version reads format {BAGS_FORMAT}; "
            "update tellapart"
        )
    try:
        header = Header(**{name: first[name] for name in Header.__dataclass_fields__ if name in first})
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(map(str, wrong["loc"]))
        raise UsageError(f"{path}: the header's '{key}' is damaged ({wrong['msg']}); mine the bags again") from None
    if fingerprint is not None and header.fingerprint != fingerprint:
        raise UsageError(
            f"{path} was mined with the features of {header.scorer} ({header.fingerprint[:8]}), "
            f"but the scorer's fingerprint is {fingerprint[:8]}; specify the same scorer, or mine "
            "the bags again"
        )
    bags = [bag_of_record(f"{path}, line {number}", row) for number, row in rows[1:]]
    if not bags:
        raise UsageError(f"{path} contains no bags; mine again with a smaller bag size, or from more pictures")
    if known is not None:
        check_known(str(path), bags, known)
    return BagsFile(header, bags)


def refuse_others(path: Path, header: Header) -> None:
    """Raises `UsageError` if `check_output` rejects the file, or if its bags were mined with other settings.

    Bags with the same settings can be replaced, because the pictures may have changed.
    """
    if not check_output(path).exists() or not path.stat().st_size:
        return
    instead = "pass --overwrite to replace it, or choose another file with -o"
    there = read_bags(path).header
    if other := [name for name in SETTINGS if _setting(there, name) != _setting(header, name)]:
        before, now = getattr(there, other[0]) or "none", getattr(header, other[0]) or "none"
        before, now = (", ".join(map(str, one)) if isinstance(one, tuple) else one for one in (before, now))
        what = other[0].replace("_", " ")
        raise UsageError(f"{path} contains bags with different settings ({what}: {before}, not {now}); {instead}")


def _setting(header: Header, name: str) -> Any:
    """Returns a setting in a comparable form, in which different spellings of a path to data or captions are equal."""
    value = getattr(header, name)
    if name == "captions" and value:
        return str(Path(value).expanduser().resolve())
    if name == "data" and value:
        with contextlib.suppress(UsageError):
            kind, path, options = parse(value)
            return kind, path.resolve(), options.values
    return value


def check_known(where: str, bags: Sequence[Bag], known: Collection[str]) -> None:
    """Raises a `UsageError` that lists the ids in bags that are not in ``known``."""
    inside = set(known)
    missing = list(dict.fromkeys(id_ for bag in bags for id_ in bag.ids if id_ not in inside))
    if missing:
        raise UsageError(
            f"{where}: {len(missing):,} of its pictures are not in the data ({few(map(repr, missing))}); specify the "
            "data set that it was mined from"
        )


def _lines(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            try:
                yield number, parse_json(line)
            except ValueError as error:
                message = f"{path}, line {number}: invalid JSON ({error}); expected the output of 'tellapart bags mine'"
                raise UsageError(message) from None


def bag_of_record(where: str, row: Any) -> Bag:
    ids = row.get("ids") if isinstance(row, dict) else None
    if not isinstance(ids, list) or len(ids) < 2 or not all(isinstance(id_, str | int) for id_ in ids):
        raise UsageError(f"{where}: expected a bag of at least two ids")
    names = tuple(str(id_) for id_ in ids)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"{where}: the picture '{twice[0]}' occurs twice in this bag")
    alpha = row.get("similarity")
    return Bag(names, float(alpha) if isinstance(alpha, int | float) else math.nan)
