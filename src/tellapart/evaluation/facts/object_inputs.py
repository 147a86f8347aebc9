"""Reads the settings that name CHAIR's objects: a synonym file, and COCO's instances."""

from __future__ import annotations

from pathlib import Path

from tellapart.errors import UsageError
from tellapart.evaluation.facts.chair import read_synonyms
from tellapart.evaluation.facts.coco_instances import read_instances
from tellapart.language.claim_tuples import Synonyms


def read_object_inputs(synonyms: Path | None, instances: Path | None) -> tuple[Synonyms, dict[str, frozenset[str]]]:
    """Reads the files given in the settings ``synonyms`` and ``instances``. Raises `UsageError`."""
    if instances is not None and synonyms is None:
        raise UsageError(
            "instances uses COCO's object names; add --set synonyms=FILE to map the words in captions to these names"
        )
    known = read_synonyms(synonyms) if synonyms is not None else Synonyms()
    return known, {} if instances is None else read_instances(instances, known)
