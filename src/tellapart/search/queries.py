"""Reads queries with their target pictures from a CSV file with the columns ``query,picture``, or from JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from tellapart.data.caption_matching import KnownIds, match_ids
from tellapart.data.field_rows import read_rows
from tellapart.data.record_keys import GENERATED_KEYS, ID_KEYS, PICTURE_KEYS, find_value
from tellapart.errors import UsageError
from tellapart.types import Item

QUERY_KEYS = ("query", "queries", "question", "search", *GENERATED_KEYS)


def read_queries(path: Path, items: Sequence[Item]) -> list[tuple[str, str]]:
    """Returns each query with the id of its target picture. The file may contain ids, file names or stems.

    Raises `UsageError` if a row lacks a query or a picture, or if a picture is not among the items.
    """
    rows: list[tuple[str, str, str]] = []
    for where, record in read_rows(path):
        found = find_value(QUERY_KEYS, record)
        queries = found if isinstance(found, list) else [found]
        picture = find_value(PICTURE_KEYS, record) or find_value(ID_KEYS, record)
        if picture is None or not all(isinstance(query, str) and query.strip() for query in queries):
            raise UsageError(f"{where}: expected the columns 'query' and 'picture', got {', '.join(map(str, record))}")
        rows += [(where, query, str(picture)) for query in queries]
    if not rows:
        raise UsageError(f"{path} contains no queries; expected lines such as: query,picture")
    known = KnownIds.of("the pictures", items)
    ids, _ = match_ids(dict.fromkeys(picture for _, _, picture in rows), known, str(path))
    if unknown := next(((where, picture) for where, _, picture in rows if picture not in ids), None):
        hint = get_close_matches(unknown[1], [item.id for item in items], n=1)
        meant = f"; did you mean '{hint[0]}'?" if hint else f"; expected one such as '{items[0].id}'" if items else ""
        raise UsageError(f"{unknown[0]}: no picture '{unknown[1]}' among {len(items):,}{meant}")
    return [(query, ids[picture]) for _, query, picture in rows]
