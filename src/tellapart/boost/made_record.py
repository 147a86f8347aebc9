"""The record of how a result was made, ``RESULT.made.json``: what it contains, where it is, and how it is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tellapart.boost.types import Stage
from tellapart.errors import UsageError
from tellapart.utils.strict_json import parse_json


def made_by(
    spec: str, ids: Iterable[str], stages: Sequence[Mapping[str, str]], shard: tuple[int, int], per_reference: bool
) -> dict[str, Any]:
    """Returns a record of how a result is made. The records for the parts of one job differ only in ``data`` and
    ``shard``, even if the parts ran on different machines.

    ``stages``: see `stage_identities`.
    """
    digest, count = hashlib.blake2b(digest_size=16), 0
    for id_ in ids:
        digest.update(id_.encode("utf-8", "backslashreplace") + b"\0")
        count += 1
    made = {"data": spec, "items": count, "ids": digest.hexdigest(), "stages": list(stages), "shard": list(shard)}
    return made | ({"per_reference": True} if per_reference else {})


def stage_identities(stages: Sequence[Stage]) -> list[dict[str, str]]:
    """Returns what determines each stage's answers: the stage's name, its model, and the hash of its prompt."""
    prompts = (hashlib.blake2b(stage.prompt.encode("utf-8", "backslashreplace"), digest_size=16) for stage in stages)
    return [
        {"name": stage.name, "model": stage.backend.name, "prompt": prompt.hexdigest()}
        for stage, prompt in zip(stages, prompts, strict=True)
    ]


def made_file(path: Path) -> Path:
    """Returns the path of the file that records how a result was made."""
    return path.with_name(path.name + ".made.json")


def read_made(path: Path) -> dict[str, Any]:
    """Reads the record of the result in ``path``. Raises `UsageError` if the result or its record is incomplete."""
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
