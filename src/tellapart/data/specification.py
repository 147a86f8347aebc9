"""Parses specifications ``kind:path?key=value`` (see `tellapart.data`)."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote, unquote

from tellapart.data.kinds import bare_kind
from tellapart.data.options import Options
from tellapart.data.reader import COMMON_KEYS, READERS
from tellapart.errors import UsageError, nearest


def parse(spec: str) -> tuple[str, Path, Options]:
    """Parses a specification into (kind, path, options), and checks kind and keys. Raises `UsageError`."""
    if not spec:
        raise UsageError(
            f"the data specification is empty; use kind:path, where kind is one of {', '.join(sorted(READERS))}"
        )
    body, query = split_query(spec)
    kind, colon, rest = body.partition(":")
    if not colon or Path(body).exists() or kind not in READERS:
        kind, rest = bare_kind(spec, body, kind if colon else ""), body
    options = Options(spec, _values(spec, query))
    reader = READERS.find(kind)
    known = (*COMMON_KEYS, *reader.keys)
    for key in options.values:
        if key not in known:
            raise UsageError(f"{spec}: unknown key '{key}' for '{kind}:'{nearest(key, known)}")
    if not rest and reader.needs_path:
        raise UsageError(f"{spec}: missing path after '{kind}:'")
    return kind, Path(rest).expanduser(), options


def listed(spec: str, path: Path) -> str:
    """Returns a specification of the pictures in ``spec``, from all splits, whose ids are in the list at ``path``."""
    body, query = split_query(spec)
    kept = [pair for pair in query.split("&") if pair and pair.partition("=")[0] not in _CHOOSING]
    return f"{body}?{'&'.join([*kept, f'ids={quote(str(path))}'])}"


_CHOOSING = ("split", "ids", "part", "limit", "only", "domain")  # keys that select items


def split_query(spec: str) -> tuple[str, str]:
    """Splits a specification into kind with path, and keys. The path of an existing file may contain ``?``."""
    body, mark, query = spec.rpartition("?")
    return (body, query) if mark and not Path(spec).exists() else (spec, "")


def _values(spec: str, query: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        key, equals, value = pair.partition("=")
        if not equals or not key or not value:
            raise UsageError(f"{spec}: expected key=value, got '{pair}'")
        if key in values:
            raise UsageError(f"{spec}: the key '{key}' occurs twice")
        values[key] = unquote(value)
    return values
