"""Mines curated bags from a data set with a scorer, together with the settings that the bags file records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tellapart import __version__
from tellapart.bags.file import Bag, BagsFile, Header
from tellapart.bags.mine import (
    MaxCosineOf,
    Similarity,
    check_max_cosine,
    check_sizes,
    curate_bags,
    distinct,
    mine_bags,
    neighbours_for,
)
from tellapart.bags.multimodal import caption_features, item_captions, multimodal
from tellapart.data import Dataset
from tellapart.data.caption_files import read_caption_file
from tellapart.errors import UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import Vectors
from tellapart.features.store import FeatureStore
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.scorers.base import Scorer
from tellapart.types import Item
from tellapart.utils.listed_names import few


@dataclass(frozen=True)
class MinedBags:
    """Bags, the pictures that they were mined from, and the scorer's features of these pictures (N×D).

    unlike: ids of pictures with too few sufficiently similar pictures for even the smallest bag.
    """

    file: BagsFile
    items: list[Item]
    image_ND: np.ndarray
    unlike: tuple[str, ...] = ()

    def unlike_line(self) -> str:
        """Returns a message that counts and lists the pictures in ``unlike``, or "" if there are none."""
        if not self.unlike:
            return ""
        return (
            f"{len(self.unlike):,} of {len(self.items):,} pictures are in no bag, because too few "
            f"other pictures have a cosine of at least {self.file.header.min_cosine} with them: {few(self.unlike, 10)}"
        )


def mine_dataset(
    dataset: Dataset,
    scorer: Scorer,
    sizes: Sequence[int],
    *,
    captions: str | None = None,
    similarity: Similarity = "query",
    max_cosine: float | None = None,
    max_cosine_of: MaxCosineOf = "target",
    min_cosine: float | None = None,
    approximate: bool | None = None,
) -> MinedBags:
    """Mines curated bags for each size in ``sizes`` (paper 2, algorithms 1 and 2).

    Each size is curated separately, so a picture can be in one bag of each size. Features come from the store, so
    pictures are encoded once. Unreadable pictures are left out and listed in ``dataset.unreadable``. If pictures have
    equal features, only the first is used. ``captions``: "references", or a file of captions; None compares pictures
    only. Raises `UsageError` for too few pictures.
    """
    sizes = check_sizes(sizes)
    check_max_cosine(max_cosine)  # before the slow encoding of pictures
    if min_cosine is not None and not -1 <= min_cosine < (1 if max_cosine is None else max_cosine):
        most = "1" if max_cosine is None else f"--max-cosine {max_cosine:g}"
        raise UsageError(f"--min-cosine {min_cosine:g}: expected a cosine below {most}, such as 0.6")
    if captions is not None and captions != "references":
        read_caption_file(captions)
    warn_outside_scenes(scorer.name, dataset, "scorer")
    store, whole = FeatureStore(), len(dataset)
    items = store.readable(dataset, scorer.encoder, skipped=dataset.unreadable)
    if not items:
        raise UsageError(f"{dataset.spec}: none of the {whole} pictures could be read")
    image_ND = np.asarray(store.features(items, scorer.encoder))
    row_N = distinct([row.tobytes() for row in image_ND], len(items))
    counts = {"unreadable": whole - len(items), "copies": len(items) - len(row_N)}
    items, image_ND = [items[row] for row in row_N], image_ND[row_N]
    if len(items) < max(sizes):
        copies = f" (and {counts['copies']} copies)" if counts["copies"] else ""
        raise UsageError(
            f"{dataset.spec}: bags of {max(sizes)} need at least {max(sizes)} distinct pictures, "
            f"got {len(items)}{copies}"
        )
    joined_ND = image_ND
    if captions is not None:
        joined_ND = multimodal(image_ND, caption_features(scorer, item_captions(items, captions)))
    vectors = Vectors.of(joined_ND)
    neighbour_count = neighbours_for(max(sizes), max_cosine, max_cosine_of)
    near = nearest_neighbours(vectors, neighbour_count, max_cosine=max_cosine, approximate=approximate)
    bags: list[Bag] = []
    alike = set[str]()
    for size in sizes:
        mined = mine_bags(
            joined_ND,
            size,
            ids=[item.id for item in items],
            similarity=similarity,
            max_cosine=max_cosine,
            max_cosine_of=max_cosine_of,
            min_cosine=min_cosine,
            neighbours=near,
        )
        alike.update(id_ for bag in mined for id_ in bag.ids)
        bags += curate_bags(mined)
    if not bags and min_cosine is not None:
        raise UsageError(f"{dataset.spec}: no bag reaches --min-cosine {min_cosine:g}; decrease it")
    if not bags:
        raise UsageError(f"{dataset.spec}: all bags exceed a cosine of {max_cosine}; increase --max-cosine")
    header = Header(
        str(scorer.name), scorer.fingerprint, dataset.spec, tuple(sizes), len(items),
        {what: count for what, count in counts.items() if count}, captions or "", similarity, max_cosine,
        near.recall, __version__, max_cosine_of, min_cosine,
    )  # fmt: skip
    unlike = () if min_cosine is None else tuple(item.id for item in items if item.id not in alike)
    return MinedBags(BagsFile(header, bags), items, image_ND, unlike)
