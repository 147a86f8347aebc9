"""Checks an evaluation's captions, references and pictures, and puts them in the order of the ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tellapart.data.caption_alignment import with_text
from tellapart.errors import UsageError
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.eval_inputs import EvalInputs
from tellapart.evaluation.facts.coco_instances import names_in
from tellapart.evaluation.notes import plain_words
from tellapart.evaluation.retrieval import check_features
from tellapart.metrics.slots import CHANCE, HUMAN, CaptionSlot, caption_lists, human_slots, system_slots
from tellapart.types import Item
from tellapart.utils.listed_names import preview_ids

if TYPE_CHECKING:
    from tellapart.scorers import Scorer


def make_context(
    systems: Mapping[str, Mapping[str, str | Sequence[str]]], inputs: EvalInputs
) -> tuple[EvalContext, dict[str, list[CaptionSlot]], list[str]]:
    """Returns the evaluation's context, each system's caption slots, and notes. Everything is in the order of
    the ids.
    """
    items, human = inputs.items, inputs.human
    ids = [item.id for item in items] if items and human is not None and not systems else same_ids(systems, items)
    references, notes = references_of(ids, items, inputs.references)
    if inputs.emscore_idf == "references" and references is None:
        raise UsageError(
            "emscore_idf=references requires references; add --references FILE, or use --set emscore_idf=captions"
        )
    notes += notes_on_instances(inputs.instances, ids, items)
    slots = {name: system_slots(lists_of(name, captions, ids), references) for name, captions in systems.items()}
    # With several captions per picture, the captions themselves determine the confidence.
    stated = {name: own for name, own in inputs.confidences.items() if len(slots[name]) == 1}
    inputs = replace(inputs, confidences=stated)
    for name, own in stated.items():
        slots[name][0].confidences = [own.get(id_, {}) for id_ in ids]
    if human is not None:
        slots[HUMAN] = human_slots(human, references, inputs.seed)
        queries, said = without_own_captions(inputs.queries, slots[HUMAN], ids)
        inputs, notes = replace(inputs, queries=queries), notes + said
    # The diversity of the human references is measured only on request.
    several = any(len(own) > 1 for name, own in slots.items() if name != HUMAN or inputs.metrics is not None)
    image_ND = features_of(inputs.scorer, inputs.image_features, items)
    context = EvalContext(ids, items, references, inputs.scorer, image_ND, inputs, several=several, slots=slots)
    return context, slots, notes


def without_own_captions(
    queries: Mapping[str, Sequence[str]], human: list[CaptionSlot], ids: list[str]
) -> tuple[dict[str, list[str]], list[str]]:
    """Removes queries that are identical to the human caption, because they would find it trivially. A note says how
    many were removed. Raises `UsageError` if no query remains.
    """
    own = {id_: {plain_words(text) for text in texts} for id_, texts in zip(ids, caption_lists(human), strict=True)}
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
    for name in (HUMAN, CHANCE):
        if name in systems:
            raise UsageError(f"'{name}' is reserved for a reference system; rename the caption file")
    for name, captions in systems.items():
        if not isinstance(captions, Mapping):
            kind = type(captions).__name__
            raise UsageError(f"the captions of '{name}' are a {kind}; expected a mapping of ids to captions")
    first = next(iter(systems))
    ids = [item.id for item in items] if items is not None else list(systems[first])
    known = set(ids)
    for name, captions in systems.items():
        lacking = [key for key in ids if key not in captions]
        unknown = [key for key in captions if key not in known]
        if lacking or unknown:
            whose = "the data" if items is not None else f"'{first}'"
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
        if items is None or not any(item.references for item in items):
            return None, []
        references = {item.id: item.references for item in items}
    kept, notes = with_text({key: references.get(key, ()) for key in ids})
    all_references = list(kept.values())
    without = [key for key, texts in zip(ids, all_references, strict=True) if not texts]
    if without:
        many = f"references are not used because {len(without)} pictures have no reference ({preview_ids(without)})"
        return None, [*notes, many]
    return all_references, notes


def lists_of(name: str, captions: Mapping[str, str | Sequence[str]], ids: Sequence[str]) -> list[list[str]]:
    """Returns each picture's captions, in the order of the ids. Raises `UsageError` if a picture's list is empty."""
    lists = [[text] if isinstance(text, str) else list(text) for text in (captions[key] for key in ids)]
    mute = [key for key, texts in zip(ids, lists, strict=True) if not texts]
    if mute:
        raise UsageError(
            f"'{name}' has an empty list of captions for {preview_ids(mute)}; add at least one caption, even an "
            "empty string"
        )
    return lists


def notes_on_instances(
    instances: Mapping[str, frozenset[str]], ids: Sequence[str], items: Sequence[Item] | None
) -> list[str]:
    """Returns a note on pictures that are not in the instances. Raises `UsageError` if no picture is."""
    if not instances:
        return []
    names = names_in(instances, ids, items)
    lacking = [id_ for id_, name in zip(ids, names, strict=True) if not name]
    if len(lacking) == len(ids):
        raise UsageError(
            f"instances contains none of the {len(ids)} pictures ({preview_ids(lacking)}; it contains "
            f"{preview_ids(list(instances))}); pass the instances file for these pictures, or remove this setting"
        )
    few = f"{len(lacking)} of {len(ids)} pictures are not in the instances ({preview_ids(lacking)})"
    return [f"{few}; for these, only the objects in the references are used"] if lacking else []


def features_of(
    scorer: Scorer | str | None, given_ND: np.ndarray | None, items: Sequence[Item] | None
) -> np.ndarray | None:
    """Returns the scorer's features for the items, as given or from the feature store. Raises `UsageError`.

    Returns None for a scorer that is not loaded yet.
    """
    if given_ND is None and items is not None and scorer is not None and not isinstance(scorer, str):
        from tellapart.features.store import FeatureStore

        given_ND = np.asarray(FeatureStore().features(items, scorer.encoder))
    if given_ND is not None:
        check_features(given_ND, "pictures")
    return given_ND
