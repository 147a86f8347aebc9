"""Synonyms and instances of objects for an evaluation, and which words of captions its metrics could not verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tellapart.data.caption_files import preview_ids
from tellapart.errors import UsageError
from tellapart.evaluation.facts.synonyms import Synonyms, read_synonyms

if TYPE_CHECKING:
    from tellapart.evaluation.context import EvalContext
    from tellapart.evaluation.facts.verdict import Verdict
    from tellapart.evaluation.slots import Slot
    from tellapart.types import Item

_MARKED_BY = ("facts", "chair", "scorer", "sentences")  # whose marks a page shows, the first that was computed


@dataclass(frozen=True)
class ObjectInputs:
    """What CHAIR and facts know of objects beside the references."""

    synonyms: Synonyms = field(default_factory=Synonyms)
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        """The fields of an `EvalContext`."""
        return {"synonyms": self.synonyms, "instances": self.instances}


def read_object_inputs(synonyms: Path | None, instances: Path | None) -> ObjectInputs:
    """The files of ``--synonyms`` and ``--instances``. Raises `UsageError`."""
    if instances is not None and synonyms is None:
        raise UsageError(
            "--instances names objects as COCO does; add --synonyms FILE, which says what captions call them"
        )
    known = read_synonyms(synonyms) if synonyms is not None else Synonyms()
    if instances is None:
        return ObjectInputs(known)
    from tellapart.evaluation.facts.chair import read_instances

    return ObjectInputs(known, read_instances(instances, known))


def names_in(instances: Mapping[str, frozenset[str]], ids: Sequence[str], items: Sequence[Item] | None) -> list[str]:
    """What COCO's instances call each picture: its id or its file, by path, name or stem; "" where they lack it."""
    files = [""] * len(ids) if items is None else [item.picture.name for item in items]
    names = []
    for id_, file in zip(ids, files, strict=True):
        ways = (way for name in (id_, file) for way in (name, PurePath(name).name, PurePath(name).stem))
        names.append(next((way for way in ways if way and way in instances), ""))
    return names


def notes_on_instances(objects: ObjectInputs, ids: Sequence[str], items: Sequence[Item] | None) -> list[str]:
    """How many pictures the instances do not have. `UsageError` where they have none of them."""
    if not objects.instances:
        return []
    names = names_in(objects.instances, ids, items)
    lacking = [id_ for id_, name in zip(ids, names, strict=True) if not name]
    if len(lacking) == len(ids):
        raise UsageError(
            f"--instances has none of the {len(ids)} pictures ({preview_ids(lacking)}; it has "
            f"{preview_ids(list(objects.instances))}); give the file of the same pictures, or leave it out"
        )
    few = f"{len(lacking)} of {len(ids)} pictures are not in the instances ({preview_ids(lacking)})"
    return [f"{few}: their objects are those of the references alone"] if lacking else []


def marks_of(context: EvalContext, slot: Slot) -> Sequence[Verdict]:
    """The verdicts on a slot's captions that a metric has made; () where none was computed."""
    found = (context.kept(("verdicts", name, id(slot))) for name in _MARKED_BY)
    return next((verdicts for verdicts in found if verdicts is not None), ())
