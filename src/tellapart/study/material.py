"""Reads the material for a study: pictures, the systems' captions, and references. Uses the readers of ``eval``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tellapart.data import open_many
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.data.empty_captions import with_text
from tellapart.errors import UsageError
from tellapart.evaluation.matching import name_systems, read_references
from tellapart.features.store import FeatureStore
from tellapart.models.devices import best_device
from tellapart.scorers import load_scorer
from tellapart.study.seeded_order import shuffled
from tellapart.types import Item
from tellapart.utils.messages import say

HUMAN = "human"


@dataclass(frozen=True)
class Material:
    """Pictures and their captions. No text is empty.

    captions: ``captions[system][id]`` is the system's caption for a picture.
    references: maps picture ids to references.
    features_ND: one row of features per picture, or None if no features were computed.
    """

    items: Sequence[Item]
    captions: Mapping[str, Mapping[str, str]]
    references: Mapping[str, Sequence[str]]
    features_ND: np.ndarray | None = None

    def references_of(self, row: int) -> Sequence[str]:
        """Returns a picture's references."""
        return self.references.get(self.items[row].id, ())


def read_material(
    data: Sequence[str],
    captions: Sequence[Path],
    references: Sequence[Path] = (),
    scorer: str | None = None,
) -> Material:
    """Reads a study's material. Systems are named after their files. Prints notes about captions that do not match.

    scorer: the scorer whose features define which pictures look alike. If there is a scorer, unreadable pictures are
    skipped.
    """
    dataset = open_many(list(data))
    items: Sequence[Item] = list(dataset)
    features_ND = None
    if scorer is not None:
        encoder, store = load_scorer(scorer, best_device()).encoder, FeatureStore()
        items = store.readable(items, encoder, skipped=dataset.unreadable)
        features_ND = np.asarray(store.features(items, encoder))
    for line in dataset.report():
        say(line)
    known = KnownIds.of_files("the data", items)
    systems = {name: _captions(path, known, name) for name, path in name_systems(captions).items()}
    texts: Mapping[str, Sequence[str]] = {item.id: item.references for item in items}
    if (file := read_references(references)) is not None:
        texts, notes = with_text(match_captions(file, known, "references").texts)
        for note in notes:
            say(note)
    return Material(items, systems, texts, features_ND)


def _captions(path: Path, known: KnownIds, name: str) -> dict[str, str]:
    """Reads one caption for each known id. Raises `UsageError` if the file contains no known id, or several captions
    for one id.
    """
    file = read_caption_file(path)
    matched = match_captions(file, known, name)
    if matched.how:
        say(matched.how)
    texts = {id_: matched.texts[id_] for id_ in known.ids if matched.texts.get(id_)}
    if not texts:
        raise UsageError(f"{file.name}: none of the captions belongs to a picture in the data; use the same ids")
    if double := next((id_ for id_, own in texts.items() if len(own) > 1), None):
        raise UsageError(f"{file.name}: several captions for '{double}'; a study requires one per system")
    captions = {id_: text.strip() for id_, (text,) in texts.items() if text.strip()}
    if blank := [id_ for id_ in texts if id_ not in captions]:
        say(f"{name}: skipped {len(blank):,} empty captions, such as that of '{blank[0]}'")
    return captions


def with_human(material: Material, which: str, seed: int) -> Material:
    """Adds one of each picture's references as the caption of the system ``human``.

    which: the reference to add: ``first``, ``random`` or ``none``.
    """
    if which not in ("first", "random", "none"):
        raise UsageError(f"--human: expected first, random or none, got {which}")
    if which == "none":
        return material
    if HUMAN in material.captions:
        raise UsageError(f"a caption file is named {HUMAN}, like the references; rename it, or pass --human none")
    captions = {}
    for row, item in enumerate(material.items):
        if texts := material.references_of(row):
            captions[item.id] = texts[0 if which == "first" else shuffled(range(len(texts)), str(seed), item.id)[0]]
    if not captions:
        raise UsageError("--human requires references; pass --references FILE, or --human none")
    return replace(material, captions={HUMAN: captions, **material.captions})
