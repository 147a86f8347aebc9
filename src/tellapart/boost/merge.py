"""Joins the results of shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tellapart.boost.output import Output, made_file, read_records, relative, texts_of
from tellapart.errors import UsageError
from tellapart.utils.listed_names import differing
from tellapart.utils.strict_json import parse_json


def merge(parts: Iterable[Path], out: Path) -> int:
    """Joins the results of ``--shard 1/n`` to ``n/n``, given in any order, into what a single job would have written.

    Returns the number of items. Raises `UsageError` if a part is missing, duplicate, or from another job.
    """
    found: dict[tuple[int, int], tuple[Path, dict[str, Any]]] = {}
    for path in parts:
        made = _read_made(path)
        place, of = made.pop("shard")
        made.pop("data")
        made.pop("captions_of", None)  # valid only for this part; set for the whole result below
        if (place, of) in found:
            raise UsageError(f"{path} and {found[place, of][0]} are both part {place}/{of}")
        found[place, of] = (path, made)
    (_, of), (first, same) = min(found.items())
    for path, made in found.values():
        if made != same:
            raise UsageError(f"{path} and {first} are from different jobs: their {differing(same, made)[0]} differ")
    lacking = [place for place in range(1, of + 1) if (place, of) not in found]
    if lacking or len(found) != of:
        raise UsageError(f"part {lacking[0]}/{of} is missing" if lacking else "the parts have different values of N")
    count, good = 0, Counter[str]()
    spec, last = _read_made(first)["data"], same["stages"][-1]["name"]
    with Output.open(out, {"data": spec, **same, "shard": [1, 1]}) as output:
        for place in range(1, of + 1):
            path = found[place, of][0]
            for value in read_records(path):
                value["image"] = relative(path.parent / value["image"], out)
                value["captions"] = texts_of(value, last) or value["references"]
                output.write(value)
                good.update(value["stages"].keys())
                count += 1
        output.fall_back(good, last)
    return count


def _read_made(path: Path) -> dict[str, Any]:
    try:
        made: dict[str, Any] = parse_json(made_file(path).read_text(encoding="utf-8"))
        place, of = made["shard"]
        if not (path.is_file() and 1 <= place <= of and {"data", "items", "ids", "stages"} <= made.keys()):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError):
        raise UsageError(
            f"{path}: incomplete; expected a result of 'tellapart boost' with its {made_file(path).name}"
        ) from None
    return made
