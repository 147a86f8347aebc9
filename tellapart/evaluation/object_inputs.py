"""Synonyms and instances of objects for an evaluation, and which words of captions its metrics could not verify."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tellapart.errors import UsageError
from tellapart.evaluation.facts.synonyms import Synonyms, read_synonyms

if TYPE_CHECKING:
    from tellapart.evaluation.context import EvalContext
    from tellapart.evaluation.facts.verdict import Verdict
    from tellapart.evaluation.slots import Slot

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


def marks_of(context: EvalContext, slot: Slot) -> Sequence[Verdict]:
    """The verdicts on a slot's captions that a metric has made; () where none was computed."""
    found = (context.kept(("verdicts", name, id(slot))) for name in _MARKED_BY)
    return next((verdicts for verdicts in found if verdicts is not None), ())
