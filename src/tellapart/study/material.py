"""The pictures, captions and references of a new study, from the same specifications and files that ``eval`` reads."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tellapart.data import open_many
from tellapart.data.caption_files import CaptionFile, read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.errors import UsageError
from tellapart.evaluation.inputs import name_systems, read_references
from tellapart.study.create import Material
from tellapart.utils.messages import say

if TYPE_CHECKING:
    import numpy as np

    from tellapart.types import Item


def read_material(
    data: Sequence[str],
    captions: Sequence[Path],
    references: Sequence[Path] = (),
    scorer: str | None = None,
) -> Material:
    """Everything that a study is made of. Systems are called after their files. Says what does not fit together.

    scorer: whose features define which pictures look alike; pictures that cannot be read are then left out.
    """
    dataset = open_many(list(data))
    items: Sequence[Item] = list(dataset)
    features_ND: np.ndarray | None = None
    made: dict[str, object] = {"data": list(data)}
    if scorer is not None:
        import numpy as np

        from tellapart.features.store import FeatureStore
        from tellapart.models.device import best_device
        from tellapart.scorers import load_scorer

        model, store = load_scorer(scorer, best_device()), FeatureStore()
        items = store.readable(items, model.encoder, skipped=dataset.unreadable)
        features_ND = np.asarray(store.features(items, model.encoder))
        made |= {"scorer": scorer, "scorer_fingerprint": model.fingerprint}
    for line in dataset.report():
        say(line)
    paths = ((item.id, getattr(item.picture, "path", None)) for item in items)
    known = KnownIds("the data", [i.id for i in items], {id_: str(path) for id_, path in paths if path is not None})
    files = name_systems(captions)
    systems = {name: _one_each(read_caption_file(path), known, name) for name, path in files.items()}
    made["captions"] = {name: hashlib.sha256(_content(path)).hexdigest() for name, path in files.items()}
    texts: Mapping[str, Sequence[str]] = {item.id: item.references for item in items}
    if (found := read_references(references)) is not None:
        texts = match_captions(found, known, "references").texts
    return Material(items, systems, texts, features_ND, made)


def _one_each(file: CaptionFile, known: KnownIds, name: str) -> dict[str, str]:
    """One caption for each known id that has one. Raises `UsageError` where none fits, or one has several."""
    matched = match_captions(file, known, name)
    if matched.how:
        say(matched.how)
    ids = set(known.ids)
    found = {id_: texts for id_, texts in matched.texts.items() if id_ in ids}
    if not found:
        raise UsageError(f"{file.name}: none of its captions is about a picture of the data; name its pictures alike")
    if double := next((id_ for id_, texts in found.items() if len(texts) > 1), None):
        raise UsageError(f"{file.name}: several captions of '{double}'; a study asks about one of each system")
    blank = [id_ for id_, texts in found.items() if not texts or not texts[0].strip()]
    if blank:
        say(f"{name}: {len(blank):,} empty captions are left out, such as that of '{blank[0]}'")
    return {id_: texts[0].strip() for id_, texts in found.items() if texts and texts[0].strip()}


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else str(path).encode()
