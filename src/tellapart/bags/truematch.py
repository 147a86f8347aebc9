"""Reads and writes bags in TrueMatch's published format, ``{3,5,7}.json``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tellapart.bags.file import Bag, BagsFile, Header, bag_of_record, read_bags
from tellapart.data.text_files import read_text
from tellapart.errors import UsageError
from tellapart.utils.outputs import remove_output, write_output
from tellapart.utils.strict_json import parse_json


def read_truematch(path: Path) -> list[Bag]:
    """Reads bags in TrueMatch's published format, lists of ids (numbers or strings). Converts ids to strings."""
    try:
        rows = parse_json(read_text(path))
    except ValueError as error:
        raise UsageError(f"{path} is not valid JSON ({error})") from None
    if not isinstance(rows, list) or not rows or not all(isinstance(row, list) for row in rows):
        raise UsageError(f"{path}: expected a list of lists of ids, as in TrueMatch's 3.json")
    return [bag_of_record(f"{path}, bag {number}", {"ids": row}) for number, row in enumerate(rows, 1)]


def write_truematch(folder: Path, bags: Sequence[Bag]) -> list[Path]:
    """Writes ``3.json``, ``5.json``, … in the published format. Writes integer ids as numbers."""
    written = []
    for size, of_size in BagsFile(Header(), list(bags)).of_size().items():
        rows = [[int(id_) if str(int(id_) if _is_whole(id_) else "") == str(id_) else id_ for id_ in bag.ids]
                for bag in of_size]  # fmt: skip
        written.append(folder / f"{size}.json")
        write_output(written[-1], json.dumps(rows, ensure_ascii=False) + "\n")
    return written


def _is_whole(id_: object) -> bool:
    return str(id_).isascii() and str(id_).isdigit()


def remove_truematch(folder: Path) -> None:
    """Removes the ``3.json``, ``5.json``, … that belong to a folder's ``bags.jsonl``, before new bags replace them."""
    try:
        sizes = read_bags(folder / "bags.jsonl").header.sizes
    except UsageError:
        return  # not a bags.jsonl written by tellapart
    for size in sizes:
        remove_output(folder / f"{size}.json")
