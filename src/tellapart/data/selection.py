"""Selects items by split, part, or list of ids."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tellapart.data.caption_matching import KnownIds, match_ids
from tellapart.data.dataset import select_items
from tellapart.data.id_lists import read_id_list
from tellapart.data.options import Options
from tellapart.data.skipped import Skipped
from tellapart.data.text_files import utf8_bytes
from tellapart.errors import UsageError, nearest
from tellapart.types import Item


def choose_split(items: list[Item], options: Options) -> list[Item]:
    """Returns the items of the requested splits. Raises `UsageError` for a split without items."""
    if not options.splits:
        return items
    check_splits({item.split for item in items}, options)
    return [item for item in items if item.split in options.splits]


def check_splits(found: set[str], options: Options) -> None:
    """Raises `UsageError` if a requested split is not in ``found``."""
    found = found - {""}
    if options.splits and not found:
        raise UsageError(f"{options.spec}: these files have no splits; remove split={options.text('split')}")
    for split in sorted(options.splits - found):
        raise UsageError(f"{options.spec}: the split '{split}' contains no items{nearest(split, found)}")


def choose_part(items: Sequence[Item], options: Options) -> Sequence[Item]:
    """Applies ``part=i/n`` (or ``1,2/3``): returns the i-th of n disjoint parts of the list, in the list's order.

    Items are assigned round-robin in the order of a hash of their ids. The parts therefore differ by at most one in
    size, have the same distribution, and are the same on every machine for the same list.
    """
    written = options.text("part")
    if not written:
        return items
    match = re.fullmatch(r"(\d+(?:,\d+)*)/(\d+)", written)
    chosen = {int(part) for part in match[1].split(",")} if match else set()
    parts = int(match[2]) if match else 0
    if not chosen or not all(1 <= part <= parts for part in chosen):
        raise UsageError(
            f"{options.spec}: expected a part such as part=1/2 or part=1,2/3 (counted from 1), got part={written}"
        )

    hashes = (int.from_bytes(hashlib.blake2b(utf8_bytes(item.id)).digest()[:8]) for item in items)
    order = np.argsort(np.fromiter(hashes, np.uint64, len(items)), kind="stable")
    kept = np.sort(order[np.isin(np.arange(len(items)) % parts + 1, list(chosen))])
    return select_items(items, map(int, kept))


def choose_ids(items: Sequence[Item], options: Options, missing: Skipped) -> Sequence[Item]:
    """Applies ``ids=FILE``: returns the items named in a list (`read_id_list`), in the order of the data.

    Matches names in the same way as captions (`match_ids`), and adds names without an item to ``missing``.
    """
    if not (written := options.text("ids")):
        return items
    wanted = read_id_list(Path(written).expanduser())
    found, _ = match_ids(wanted, KnownIds.of_files(options.spec, items), written)
    for id_ in wanted:
        if id_ not in found:
            missing.add(id_, f"listed in {written}, but not in the data")
    kept = set(found.values())
    return select_items(items, [place for place, item in enumerate(items) if item.id in kept])
