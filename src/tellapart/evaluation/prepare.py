"""Checks an evaluation's captions, references and pictures, and puts them in the order of the ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tellapart.data.empty_captions import with_text
from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.facts.coco_instances import names_in
from tellapart.evaluation.retrieval import check_features
from tellapart.evaluation.search_queries import plain_words
from tellapart.metrics.slots import CHANCE, HUMAN, caption_lists, human_slots, system_slots
from tellapart.types import Item
from tellapart.utils.listed_names import preview_ids


def make_context(
    systems: Mapping[str, Mapping[str, str | Sequence[str]]], inputs: EvalInputs
) -> tuple[EvalContext, list[str]]:
    """Returns the evaluation's context, with everything in the order of the ids, and notes."""
    items, human = inputs.items, inputs.human
    ids = [item.id for item in items] if items and human is not None and not systems else same_ids(systems, items)
    references, notes = references_of(ids, items, inputs.references)
    if inputs.emscore_idf == "references" and references is None:
        raise UsageError(
            "emscore_idf=references requires references; add --references FILE, or use --set emscore_idf=captions"
        )
    notes += _notes_on_instances(inputs.instances, ids, items)
    slots = {name: system_slots(lists_of(name, captions, ids), references) for name, captions in systems.items()}
    # With several captions per picture, the captions themselves determine the confidence.
    stated = {name: own for name, own in inputs.confidences.items() if len(slots[name]) == 1}
    inputs = replace(inputs, confidences=stated)
    for name, own in stated.items():
        slots[name][0].confidences = [own.get(id_, {}) for id_ in ids]
    if human is not None:
        slots[HUMAN] = human_slots(human, references, inputs.seed)
        captions = dict(zip(ids, caption_lists(slots[HUMAN]), strict=True))
        queries, said = _without_own_captions(inputs.queries, captions)
        inputs, notes = replace(inputs, queries=queries), notes + said
    # The diversity of the human references is measured only on request.
    several = any(len(own) > 1 for name, own in slots.items() if name != HUMAN or inputs.metrics is not None)
    scorer, image_ND = inputs.scorer, inputs.image_features
    if image_ND is None and items is not None and scorer is not None and not isinstance(scorer, str):
        from tellapart.features.store import FeatureStore

        image_ND = np.asarray(FeatureStore().features(items, scorer.encoder))
    if image_ND is not None:
        check_features(image_ND, "pictures")
    return EvalContext(ids, items, references, scorer, image_ND, inputs, several=several, slots=slots), notes


def _without_own_captions(
    queries: Mapping[str, Sequence[str]], captions: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[str]], list[str]]:
    """Removes queries that are identical to the human caption, because they would find it trivially. A note says how
    many were removed. Raises `UsageError` if no query remains.
    """
    own = {id_: {plain_words(text) for text in texts} for id_, texts in captions.items()}
    kept = {id_: [text for text in texts if plain_words(text) not in own[id_]] for id_, texts in queries.items()}
    left_out = sum(map(len, queries.values())) - sum(map(len, kept.values()))
    if left_out and not any(kept.values()):
        raise UsageError("every query is identical to a human caption to score; pass --human first, or other queries")
    note = f"{left_out:,} queries are removed for every system because they are identical to captions of {HUMAN}"
    return kept, [note] if left_out else []


def same_ids(systems: Mapping[str, Mapping[str, str | Sequence[str]]], items: Sequence[Item] | None) -> list[str]:
    """Returns the ids in the order of the items if given, otherwise in the first system's order. Raises
    `UsageError` if the systems' ids differ.
    """
    if not systems:
        raise UsageError("no captions to evaluate; add --captions FILE")
    for name, captions in systems.items():
        if name in (HUMAN, CHANCE):
            raise UsageError(f"'{name}' is reserved for a reference system; rename the caption file")
        if not isinstance(captions, Mapping):
            kind = type(captions).__name__
            raise UsageError(f"the captions of '{name}' are a {kind}; expected a mapping of ids to captions")
    first = next(iter(systems))
    whose = "the data" if items is not None else f"'{first}'"
    ids = [item.id for item in items] if items is not None else list(systems[first])
    known = set(ids)
    for name, captions in systems.items():
        lacking = [key for key in ids if key not in captions]
        unknown = [key for key in captions if key not in known]
        if lacking or unknown:
            raise UsageError(
                f"'{name}' and {whose} cover different pictures: {len(lacking)} pictures have no caption "
                f"({preview_ids(lacking)}), {len(unknown)} captions have no picture ({preview_ids(unknown)})"
            )
    if not ids:
        raise UsageError("no pictures to evaluate; the captions or the data are empty")
    return ids


def references_of(
    ids: list[str], items: Sequence[Item] | None, references: Mapping[str, Sequence[str]] | None
) -> tuple[list[list[str]] | None, list[str]]:
    """Returns references in the order of the ids, and notes. Uses the items' references if none are given. Drops empty
    references. If some pictures have no reference, returns None and a note.
    """
    if references is None:
        references = {item.id: item.references for item in items or ()}
        if not any(references.values()):
            return None, []
    kept, notes = with_text({key: references.get(key, ()) for key in ids})
    if without := [key for key in ids if not kept[key]]:
        many = f"references are not used because {len(without)} pictures have no reference ({preview_ids(without)})"
        return None, [*notes, many]
    return [kept[key] for key in ids], notes


def lists_of(name: str, captions: Mapping[str, str | Sequence[str]], ids: Sequence[str]) -> list[list[str]]:
    """Returns each picture's captions, in the order of the ids. Raises `UsageError` if a picture's list is empty."""
    lists = [[text] if isinstance(text, str) else list(text) for text in (captions[key] for key in ids)]
    if mute := [key for key, texts in zip(ids, lists, strict=True) if not texts]:
        raise UsageError(
            f"'{name}' has an empty list of captions for {preview_ids(mute)}; add at least one caption, even an "
            "empty string"
        )
    return lists


def _notes_on_instances(
    instances: Mapping[str, frozenset[str]], ids: Sequence[str], items: Sequence[Item] | None
) -> list[str]:
    """Returns a note on pictures that are not in the instances. Raises `UsageError` if no picture is."""
    if not instances:
        return []
    lacking = [id_ for id_, name in zip(ids, names_in(instances, ids, items), strict=True) if not name]
    if len(lacking) == len(ids):
        raise UsageError(
            f"instances contains none of the {len(ids)} pictures ({preview_ids(lacking)}; it contains "
            f"{preview_ids(list(instances))}); pass the instances file for these pictures, or remove this setting"
        )
    few = f"{len(lacking)} of {len(ids)} pictures are not in the instances ({preview_ids(lacking)})"
    return [f"{few}; for these, only the objects in the references are used"] if lacking else []
