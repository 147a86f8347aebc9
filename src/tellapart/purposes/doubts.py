"""Finds the alt texts that a person should check, and stores the reasons for ``tellapart review``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from tellapart.captioners.captioner import Captioner
from tellapart.captions.authors import Author
from tellapart.captions.journal import JournalChange
from tellapart.captions.layouts import open_layout
from tellapart.captions.store import CaptionStore, Edit
from tellapart.check.kinds import CAPTION, DEFECTS
from tellapart.check.run import check_captions
from tellapart.data import Dataset
from tellapart.data.caption_file import CaptionFile
from tellapart.purposes.edited import Edited
from tellapart.purposes.variation import Variation

OF_SETS = {"near", "neighbour", "repeated", "template"}  # kinds of defects that do not apply to a single alt text
Doubts = dict[str, list[tuple[str, str]]]  # (kind, detail) by id


def find_doubts(
    dataset: Dataset,
    edited: Mapping[str, Edited],
    people: Set[str],
    language: str,
    captioner: Captioner | None = None,
) -> Doubts:
    """Returns the reasons to check each alt text: what was shortened, and what ``tellapart check`` finds.

    people: ids of texts that a person wrote or accepted, which are never doubtful.
    captioner: if given, words that fit other pictures equally well are also doubtful.
    """
    missing = Edited("", (("no text", "no caption"),))
    doubts: Doubts = {item.id: list(edited.get(item.id, missing).doubts) for item in dataset}
    texts = {key: [one.text] for key, one in edited.items() if one.text}
    if texts:
        checked = check_captions(
            CaptionFile("alt texts", texts),
            dataset if captioner is not None else None,
            language_name=language or "en",
            captioner=captioner,
        )
        for kind, findings in checked.found.items():
            for one in findings if DEFECTS[kind].of == CAPTION and kind not in OF_SETS else ():
                doubts.setdefault(one.id, []).append((kind, one.detail))
    return {key: some for key, some in doubts.items() if some and key not in people}


def store_doubts(
    out: Path,
    dataset: Dataset,
    doubts: Doubts,
    captions: Mapping[str, Sequence[str]],
    variation: Mapping[str, Variation],
    author: Author,
    change: JournalChange,
) -> None:
    """Stores why texts in ``out`` are doubtful, the captions that they were made from (as candidates), and their
    variation.

    ``variation``: the result of `variations`. ``change``: the change that wrote the texts.
    """
    items = list(dataset)
    store = CaptionStore(items, open_layout(items, None, out))
    texts = {id_: one.text for id_, one in store.captions().items()}
    candidates = {id_: [one for one in dict.fromkeys(some) if one != texts.get(id_)] for id_, some in captions.items()}
    found: dict[str, Mapping[str, Any]] = {"doubts": doubts, "candidates": candidates, "variation": variation}
    edits = {id_: Edit(state={name: by_id.get(id_) for name, by_id in found.items()}) for id_ in texts}
    store.write(edits, "alt-text", author, change=change)
