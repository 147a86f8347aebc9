"""From a data set to bags of look-alikes, with the header that describes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tellapart import __version__
from tellapart.bags.file import BagsFile, Header
from tellapart.bags.mine import (
    Bag,
    MaxCosineOf,
    Similarity,
    check_max_cosine,
    curate_bags,
    distinct,
    mine_bags,
    multimodal,
    neighbours_for,
)
from tellapart.bags.search import nearest_neighbours
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import KnownIds, align_lists, match_captions
from tellapart.errors import UsageError
from tellapart.features.nearest import Vectors
from tellapart.types import Item

if TYPE_CHECKING:
    from tellapart.data import Dataset
    from tellapart.scorers.base import Scorer


@dataclass(frozen=True)
class MinedBags:
    """Bags, and the pictures that they were mined from, with the scorer's features of these (N×D)."""

    file: BagsFile
    items: list[Item]
    image_ND: np.ndarray


def mine_dataset(
    dataset: Dataset,
    scorer: Scorer,
    sizes: Sequence[int],
    *,
    captions: str | None = None,
    similarity: Similarity = "query",
    max_cosine: float | None = None,
    max_cosine_of: MaxCosineOf = "target",
    approximate: bool | None = None,
) -> MinedBags:
    """Curated bags of each of ``sizes`` (paper 2, algorithms 1 and 2), sizes apart: a picture may be in one of each.

    Features come from the store: what was encoded before is not encoded again. Pictures that cannot be read are left
    out and listed in ``dataset.unreadable``; of copies (equal features) the first is used. ``captions``: "references",
    or a file of captions; else pictures alone are compared. Raises `UsageError` where there are too few.
    """
    from tellapart.features.store import FeatureStore
    from tellapart.models.loading import warn_outside_scenes

    sizes = check_sizes(sizes)
    check_max_cosine(max_cosine)  # before pictures are encoded, which takes long
    if captions is not None and captions != "references":
        read_caption_file(captions)
    warn_outside_scenes(scorer.name, dataset, "scorer")
    store, whole = FeatureStore(), len(dataset)
    items = store.readable(dataset, scorer.encoder, skipped=dataset.unreadable)
    if not items:
        raise UsageError(f"{dataset.spec}: none of its {whole} pictures can be read")
    image_ND = np.asarray(store.features(items, scorer.encoder))
    row_N = distinct([row.tobytes() for row in image_ND], len(items))
    counts = {"unreadable": whole - len(items), "copies": len(items) - len(row_N)}
    items, image_ND = [items[row] for row in row_N], image_ND[row_N]
    if len(items) < max(sizes):
        copies = f" ({counts['copies']} more are copies)" if counts["copies"] else ""
        raise UsageError(
            f"{dataset.spec}: {len(items)} different pictures{copies}; a bag of {max(sizes)} needs at least as many"
        )
    joined_ND = image_ND
    if captions is not None:
        joined_ND = multimodal(image_ND, caption_features(scorer, item_captions(items, captions)))
    vectors = Vectors.of(joined_ND)
    wanted = neighbours_for(max(sizes), max_cosine, max_cosine_of)
    near = nearest_neighbours(vectors, wanted, max_cosine=max_cosine, approximate=approximate)
    bags: list[Bag] = []
    for size in sizes:
        mined = mine_bags(
            joined_ND,
            size,
            ids=[item.id for item in items],
            similarity=similarity,
            max_cosine=max_cosine,
            max_cosine_of=max_cosine_of,
            neighbours=near,
        )
        bags += curate_bags(mined)
    if not bags:
        raise UsageError(f"{dataset.spec}: no bag has pictures less alike than {max_cosine}; raise --max-cosine")
    header = Header(
        str(scorer.name), scorer.fingerprint, dataset.spec, tuple(sizes), len(items),
        {what: count for what, count in counts.items() if count}, captions or "", similarity, max_cosine,
        near.recall, __version__, max_cosine_of,
    )  # fmt: skip
    return MinedBags(BagsFile(header, bags), items, image_ND)


def check_sizes(sizes: Sequence[int]) -> list[int]:
    """Ascending, each once; a `UsageError` for one below two."""
    if not sizes or min(sizes) < 2:
        raise UsageError(f"bags of {', '.join(map(str, sizes)) or 'no size'}; expected sizes from 2 on, such as 3,5,7")
    return sorted(set(sizes))


def item_captions(items: Sequence[Item], captions: str) -> list[list[str]]:
    """The captions of each picture: its references, or those of a file. Raises `UsageError` where one has none."""
    if captions != "references":
        paths = ((item.id, getattr(item.picture, "path", None)) for item in items)
        known = KnownIds("the data", [item.id for item in items], {id_: str(path) for id_, path in paths if path})
        matched = match_captions(read_caption_file(captions), known, captions)
        kept, _ = align_lists(matched.texts, known.ids, True, name=captions)
        if bare := [item.id for item in items if item.id not in kept]:
            raise UsageError(f"{captions}: {len(bare)} of {len(items)} pictures have no caption, such as {bare[0]}")
        return [kept[item.id] for item in items]
    if bare := [item.id for item in items if not item.references]:
        mend = "name a file of captions in place of 'references'"
        raise UsageError(f"{len(bare)} of {len(items)} pictures have no reference, such as {bare[0]}; {mend}")
    return [list(item.references) for item in items]


def caption_features(scorer: Scorer, captions: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Features M×D of the M captions of each picture."""
    flat_MD = scorer.text_features([text for texts in captions for text in texts]).cpu().numpy()
    return np.split(flat_MD, np.cumsum([len(texts) for texts in captions])[:-1])
