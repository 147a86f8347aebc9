"""Reads the settings that name CHAIR's objects: a synonym file, and COCO's instances."""

from __future__ import annotations

from pathlib import Path

from tellapart.errors import UsageError
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.facts.coco_instances import read_instances
from tellapart.language.synonyms import Synonyms


def read_object_inputs(synonyms: Path | None, instances: Path | None) -> tuple[Synonyms, dict[str, frozenset[str]]]:
    """Reads the files given in the settings ``synonyms`` and ``instances``. Raises `UsageError`."""
    if instances is not None and synonyms is None:
        raise UsageError(
            "instances uses COCO's object names; add --set synonyms=FILE to map the words in captions to these names"
        )
    known = read_synonyms(synonyms) if synonyms is not None else Synonyms()
    return known, {} if instances is None else read_instances(instances, known)


def read_synonyms(path: Path) -> Synonyms:
    """Reads a synonym file. Raises `UsageError` if the file cannot be read or a line has no object name."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} ({error}); expected lines such as 'person, girl, boy'") from None
    rows = [[cell.strip().lower() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    if not rows or not all(row[0] for row in rows):
        raise UsageError(f"{path}: expected one object per line: the name, then its synonyms, all separated by commas")
    found = {word: row[0] for row in rows for word in row if word}  # the last line wins, as in the authors' code
    return Synonyms(found, f"{path.name}@{short_digest(text.encode())}")
