"""Reads the confidences of claims that ``tellapart caption --claims`` writes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from tellapart.data.caption_matching import match_ids
from tellapart.data.field_rows import read_rows
from tellapart.data.record_keys import ID_KEYS, PICTURE_KEYS, find_value
from tellapart.data.text_files import plain_suffix
from tellapart.errors import UsageError
from tellapart.evaluation.matching import captioned_ids
from tellapart.types import Item


def read_confidences(
    paths: Mapping[str, Path], ids: Sequence[str], items: Sequence[Item] | None
) -> dict[str, dict[str, dict[Hashable, float]]]:
    """Reads the claims that ``tellapart caption --claims`` wrote. Returns each claim's share by system, id and (kind,
    claim).

    Ignores files without claims and files that are not JSON Lines. Raises `UsageError` for a claim without a kind,
    words or share.
    """
    found = {}
    for name, path in paths.items():
        if plain_suffix(path) not in (".jsonl", ".ndjson"):
            continue
        stated: dict[str, dict[Hashable, float]] = {}
        for where, row in read_rows(path):
            id_ = find_value(ID_KEYS, row) or find_value(PICTURE_KEYS, row)
            if id_ is not None and (claims := row.get("claims")):
                stated[str(id_)] = dict(_confidence(where, claim) for claim in claims)
        if stated:
            names, _ = match_ids(stated, captioned_ids(ids, items), str(path))
            found[name] = {names[own]: claims for own, claims in stated.items() if own in names}
    return found


def _confidence(where: str, claim: object) -> tuple[Hashable, float]:
    """Returns a claim's share, and its key in the form of `tellapart.language.distinct_claims`."""
    match claim:
        case {"kind": str(kind), "claim": [*words], "share": int(share) | float(share)} if 0 <= share <= 1:
            return (kind, tuple(words)), float(share)
    raise UsageError(
        f"{where}: expected claims such as {{'kind': 'object', 'claim': ['dog'], 'share': 0.7}}, got {claim!r}"
    )
