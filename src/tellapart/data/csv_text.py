"""Reads the records of CSV text, and reports quotes that are never closed."""

from __future__ import annotations

import csv
import re
from _csv import Reader
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tellapart.data.line_source import MAX_LINE_BYTES, Lines
from tellapart.data.text_files import plain_suffix
from tellapart.errors import UsageError

SEPARATORS = ",;\t|"
OPEN_QUOTE = '(an unclosed quote? Inside quotes, write " as "")'
csv.field_size_limit(MAX_LINE_BYTES)  # VLMEvalKit's tables contain pictures, which exceed Python's limit of 128 KiB


def separator_of(line: str, path: Path) -> str:
    """Returns the separator of a table, given its first line: in a ``.tsv`` file a tab if it has one or is empty, and
    otherwise the most frequent separator.
    """
    if plain_suffix(path) == ".tsv" and ("\t" in line or not line.strip()):
        return "\t"
    return max(SEPARATORS, key=line.count)


def csv_records(lines: Lines, separator: str, *, lenient: bool = False) -> Iterator[list[str]]:
    """Yields the fields of each record in CSV text. Raises `UsageError` with a byte offset near the error.

    lenient: whether an unclosed quote extends its field to the end of the file, as in Python's csv module.
    """
    records = csv.reader(lines, delimiter=separator) if lenient else csv_reader(lines, separator)
    while True:
        try:
            record = next(records, None)
        except csv.Error as error:
            raise UsageError(f"{lines.path}, byte {lines.place:,}: {error} {OPEN_QUOTE}") from None
        if record is None:
            return
        yield record


def csv_reader(lines: Iterable[str], separator: str) -> Reader:
    """Returns a CSV reader that raises csv.Error for an unclosed quote, which would swallow all rows after it.

    Ignores spaces around quoted fields, except in files separated by bars (Flickr30k): there, every field begins with a
    space, and quotes after it can belong to the caption.
    """
    mark = re.escape(separator)
    after = re.compile(rf'"[^\S{mark}\r\n]+(?={mark}|\r?\n|\Z)')
    closed = (after.sub('"', line) for line in lines)
    return csv.reader(closed, delimiter=separator, skipinitialspace=separator != "|", strict=True)


def mended(record: list[str], header: Sequence[str]) -> list[str]:
    """Repairs the one row in Flickr30k's published table that lacks its second bar. Returns its three fields.

    The second field of that row is "4   A dog runs across the grass .". Any other row is returned unchanged.
    """
    if [name.strip() for name in header] != ["image_name", "comment_number", "comment"] or len(record) != 2:
        return record
    found = re.fullmatch(r"\s*(\d+)\s+(\S.*)", record[1])
    return [record[0], found[1], found[2]] if found else record
