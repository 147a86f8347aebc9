"""Joins the results of shards."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tellapart.boost.made_record import read_made
from tellapart.boost.output import open_output
from tellapart.boost.records import read_records, relative, with_captions_of
from tellapart.errors import UsageError
from tellapart.utils.differing_keys import differing

OWN_KEYS = ("data", "shard", "captions_of")  # keys whose values can differ between the parts of one job


def merge(parts: Iterable[Path], out: Path) -> int:
    """Joins the results of ``--shard 1/n`` to ``n/n``, given in any order, into the file that an unsharded job would
    have written.

    Returns the number of items. Raises `UsageError` if a part is missing, duplicated, or from another job.
    """
    paths: dict[int, Path] = {}
    made: dict[str, Any] = {}
    for path in parts:
        own = read_made(path)
        place, of = own["shard"]
        if place in paths:
            raise UsageError(f"{path} and {paths[place]} are both part {place}/{of}")
        shared = {"number of parts": of, **{key: value for key, value in own.items() if key not in OWN_KEYS}}
        if paths and shared != made:
            first = next(iter(paths.values()))
            raise UsageError(f"{path} and {first} are from different jobs: their {differing(made, shared)[0]} differ")
        paths[place], made, spec = path, shared, own["data"]
    total = made.pop("number of parts")
    if lacking := [place for place in range(1, total + 1) if place not in paths]:
        raise UsageError(f"part {lacking[0]}/{total} is missing")
    count, last = 0, made["stages"][-1]["name"]
    with open_output(out, {"data": spec, **made, "shard": [1, 1]}) as output:
        for _, path in sorted(paths.items()):
            for value in read_records(path):
                value["image"] = relative(path.parent / value["image"], out)
                output.write(with_captions_of(last, value))
                count += 1
    return count
