"""Reads captions from lines of text, each of which may start with a file name or an id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from tellapart.data.caption_entries import CaptionEntry, split_key, texts_in
from tellapart.data.file_names import MEDIA, is_file_name
from tellapart.errors import UsageError

_KEYED_LINES = (
    re.compile(r"(?P<key>[^\t]+)#\d+\t(?P<text>.*)"),  # Flickr8k's and Flickr30k's tokens
    re.compile(rf"(?P<key>\d+|\S[^\t,;|]*\.{MEDIA})(?:#\d+)? *(?:[,;|\t]|:\s)(?P<text>.*)", re.IGNORECASE),
    re.compile(rf"(?P<key>\S+\.{MEDIA})(?:#\d+)? +(?P<text>.*)", re.IGNORECASE),
    re.compile(r"""(?P<key>[^\t]+)\t(?P<text> *[\[{] *["'\[{].*)"""),  # GIT's and VinVL's key and JSON
)
_COMMENT_NUMBER = re.compile(r" *\d+ *[,;|\t]")  # Flickr30k's "x.jpg| 0| a dog"
_QUOTED = re.compile(r'\s*"((?:[^"]|"")*)"\s*')
_MARKUP = re.compile(r"\s*<(?:!doctype|\?xml|html|head|body|table)\b", re.IGNORECASE)


def read_lines(path: Path, text: str, tabs: bool) -> Iterator[CaptionEntry]:
    """Yields the entries of a text. ``tabs``: whether tabs may separate several texts of a line without an id."""
    if _MARKUP.match(text):
        raise UsageError(f"{path}: HTML and XML are not supported; export the table as CSV, JSON or Parquet")
    lines = text.removesuffix("\n").split("\n")
    for pattern in _KEYED_LINES:
        keyed = [pattern.match(line) for line in lines]
        if all(match or not line.strip() for match, line in zip(keyed, lines, strict=True)):
            yield from _read_keyed(path, keyed)
            return
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}"
        if (match := _KEYED_LINES[1].match(line)) and is_file_name(match["key"]):
            raise UsageError(
                f"{where}: this line begins with the file name '{match['key']}', but other lines do "
                "not; either every line or no line must begin with a file name"
            )
        if "\t" in line and not tabs:
            raise UsageError(f"{where}: unexpected tab; expected one caption per line (is this the reference file?)")
        yield CaptionEntry("", "", texts_in(where, line.split("\t"), line))


def _read_keyed(path: Path, keyed: Sequence[re.Match[str] | None]) -> Iterator[CaptionEntry]:
    """Yields the entries of lines that begin with a file name or an id. Skips blank lines."""
    counted = all(not match or _COMMENT_NUMBER.match(match["text"]) for match in keyed)
    for number, match in enumerate(keyed, 1):
        if match:
            text = _COMMENT_NUMBER.sub("", match["text"]) if counted else match["text"]
            quoted = _QUOTED.fullmatch(text)
            texts = [quoted[1].replace('""', '"')] if quoted else text.split("\t")
            key, file = split_key(match["key"])
            yield CaptionEntry(key, file, texts_in(f"{path}, line {number}", texts, text))
