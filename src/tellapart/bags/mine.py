"""Mines bags of look-alikes (paper 2, algorithms 1 and 2), and bags for training (appendix B)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tellapart import __version__
from tellapart.bags.file import Bag, BagsFile, Header, check_sizes
from tellapart.data import Dataset
from tellapart.data.caption_alignment import align_lists
from tellapart.data.caption_files import read_caption_file
from tellapart.data.caption_matching import KnownIds, match_captions
from tellapart.errors import UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import BLOCK, DIGITS, Neighbours, Vectors
from tellapart.features.store import FeatureStore
from tellapart.models.training_domain import warn_outside_scenes
from tellapart.scorers.base import Scorer
from tellapart.types import Item
from tellapart.utils.listed_names import few

Similarity = Literal["query", "pairs"]
SIMILARITIES: tuple[Similarity, ...] = ("query", "pairs")
MaxCosineOf = Literal["target", "pairs"]
MAX_COSINE_OF: tuple[MaxCosineOf, ...] = ("target", "pairs")
TOP = 200  # number of neighbours considered for training bags (paper 2, appendix B.2) and for filtered bags


def mine_bags(
    features_ND: np.ndarray,
    size: int,
    *,
    ids: Sequence[Any] | None = None,
    texts_ND: np.ndarray | Sequence[np.ndarray] | None = None,
    similarity: Similarity = "query",
    keys: Sequence[Hashable] | None = None,
    max_cosine: float | None = None,
    max_cosine_of: MaxCosineOf = "target",
    min_cosine: float | None = None,
    neighbours: Neighbours | None = None,
    approximate: bool | None = None,
    block: int = BLOCK,
) -> list[Bag]:
    """Mines one bag of ``size`` for every picture: the picture and its nearest neighbours (paper 2, algorithm 1).

    Ties go to the picture that comes first.

    Args:
        features_ND: the scorer's features of the pictures.
        texts_ND: the scorer's features of their captions, N×D (mean) or one M×D per picture; picture and text are
            joined as in `multimodal`.
        ids: ids of the pictures in bags. Default: row numbers.
        similarity: α is the mean cosine between the query and the others ("query", algorithm 1), or over all pairs
            ("pairs", section 3.1).
        keys: content keys; if several pictures share a key, only the first is used.
        max_cosine: limit on the cosine between the query and its neighbours (paper 3, footnote 8: 0.8); pictures above
            it are replaced by the next neighbour.
        max_cosine_of: "target" limits the cosine with the query, "pairs" the cosine of all pairs; with "pairs", a query
        whose 200 nearest do not fill its bag has no bag.
        min_cosine: a picture with too few neighbours at or above this cosine has no bag; with similarity "pairs", the
            limit applies to all pairs.
        neighbours: precomputed neighbours of the same (joined, distinct) features.

    Raises:
        UsageError: there are fewer pictures than ``size``, or features are not finite.
    """
    _check(size, similarity, max_cosine)
    if max_cosine_of not in MAX_COSINE_OF:
        raise UsageError(f"max_cosine_of: expected one of {', '.join(MAX_COSINE_OF)}, got '{max_cosine_of}'")
    joined_ND = multimodal(features_ND, texts_ND) if texts_ND is not None else np.asarray(features_ND)
    row_N = distinct(keys, len(joined_ND))
    if len(row_N) < size:
        copies = f" ({len(joined_ND)} including copies)" if len(row_N) < len(joined_ND) else ""
        raise UsageError(f"bags of {size} need at least {size} distinct pictures, got {len(row_N)}{copies}")
    vectors = Vectors.of(joined_ND[row_N] if len(row_N) < len(joined_ND) else joined_ND)
    names = list(ids) if ids is not None else list(range(len(joined_ND)))
    if len(names) != len(joined_ND):
        raise UsageError(f"expected one id per picture, got {len(names)} ids for {len(joined_ND)} rows of features")
    if neighbours is None:
        count = neighbours_for(size, max_cosine, max_cosine_of)
        neighbours = nearest_neighbours(vectors, count, max_cosine=max_cosine, approximate=approximate, block=block)
    apart = max_cosine if max_cosine_of == "pairs" else None  # the search applies the limit to the target
    bag_MS = _fill(vectors.unit_ND, neighbours.rows_NK, size, apart)
    if min_cosine is not None and len(bag_MS):
        bag_MS = bag_MS[bag_cosines(vectors, bag_MS, similarity).min(1) >= min_cosine]
    alpha_M = intra_bag_similarity(vectors, bag_MS, similarity)
    return [
        Bag(tuple(names[row] for row in rows), float(alpha), tuple(int(row) for row in rows))
        for rows, alpha in zip(row_N[bag_MS].tolist(), alpha_M, strict=True)
    ]


def curate_bags(bags: Sequence[Bag]) -> list[Bag]:
    """Selects disjoint bags, most similar first (paper 2, algorithm 2).

    Goes through the bags by descending similarity (rounded to nine digits; ties keep their order), and keeps a bag if
    none of its pictures is in a kept bag.
    """
    unknown = [bag for bag in bags if math.isnan(bag.similarity)]
    if unknown:
        raise UsageError(f"{len(unknown)} of {len(bags)} bags have no similarity to sort by; mine them again")
    seen: set[Any] = set()
    kept: list[Bag] = []
    for bag in sorted(bags, key=lambda bag: -round(bag.similarity, DIGITS)):
        if seen.isdisjoint(bag.ids):
            seen.update(bag.ids)
            kept.append(bag)
    return kept


@dataclass(frozen=True)
class TrainingBags:
    """Disjoint bags for training. ``loose_L``: rows of pictures in no bag."""

    size: int
    bags_MS: np.ndarray
    loose_L: np.ndarray

    def line(self) -> str:
        """Formats the number of bags, and of pictures in them, as one line."""
        total = self.bags_MS.size + len(self.loose_L)
        line = f"bags of {self.size}: {len(self.bags_MS):,}, containing {self.bags_MS.size:,} of {total:,} pictures"
        if not len(self.loose_L):
            return line
        return f"{line}; {len(self.loose_L):,} pictures without free look-alikes were grouped at random"


def training_bags(rows_NK: np.ndarray, size: int) -> TrainingBags:
    """Builds disjoint bags of ``size`` from each picture's nearest neighbours (200 in the paper; appendix B.2).

    Goes through the pictures in order. A picture that is in no bag takes its ``size − 1`` nearest neighbours that are
    in no bag either. If there are too few, it remains without a bag unless a later picture takes it.
    """
    free_N = np.ones(len(rows_NK), bool)
    bags: list[np.ndarray] = []
    for row, nearest_K in enumerate(rows_NK):
        if not free_N[row]:
            continue
        nearest_K = nearest_K[free_N[nearest_K] & (nearest_K >= 0)][: size - 1]
        if len(nearest_K) == size - 1:
            bag_S = np.concatenate([[row], nearest_K])
            free_N[bag_S] = False
            bags.append(bag_S)
    bags_MS = np.stack(bags) if bags else np.zeros((0, size), np.int64)
    return TrainingBags(size, bags_MS.astype(np.int64), np.flatnonzero(free_N))


def multimodal(features_ND: np.ndarray, texts_ND: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
    """Concatenates picture features and mean caption features (paper 2, algorithm 1, lines 4 to 8): N×2D float32.

    features_ND: normalized features of the pictures.
    texts_ND: normalized features of the captions: N×D, or one M×D for each picture's M captions.
    Raises `UsageError` if the numbers of texts and pictures differ or a picture has no caption.
    """
    features_ND = np.asarray(features_ND, dtype=np.float32)
    if len(texts_ND) != len(features_ND):
        raise UsageError(f"expected captions for {len(features_ND)} pictures, got {len(texts_ND)}")
    without = [row for row, text in enumerate(texts_ND) if np.size(text) == 0]
    if without:
        raise UsageError(
            f"{len(without)} pictures have no caption (first: row {without[0]}); add at least one for each"
        )
    mean_ND = np.stack([np.mean(np.atleast_2d(text), axis=0) for text in texts_ND]).astype(np.float32)
    return np.concatenate([features_ND, mean_ND], axis=1)


def distinct(keys: Sequence[Hashable] | None, n: int) -> np.ndarray:
    """Returns the row of the first picture with each content key, or all n rows if there are no keys."""
    if keys is None:
        return np.arange(n)
    if len(keys) != n:
        raise UsageError(f"expected one content key per picture, got {len(keys)} for {n} pictures")
    first: dict[Hashable, int] = {}
    for row, key in enumerate(keys):
        first.setdefault(key, row)
    return np.fromiter(first.values(), np.int64, len(first))


def intra_bag_similarity(vectors: Vectors, bag_MS: np.ndarray, similarity: Similarity = "query") -> np.ndarray:
    """Computes the intra-bag similarity α of each bag, M float64 in [−1, 1] (paper 2).

    bag_MS: rows of ``vectors``, the query first.
    similarity: "query": mean cosine between the query and the others (algorithm 1, line 14); "pairs": mean cosine over
        all pairs (section 3.1).
    """
    if not len(bag_MS):
        return np.zeros(0)
    alpha_M: np.ndarray = bag_cosines(vectors, bag_MS, similarity).mean(1)
    return alpha_M


def bag_cosines(vectors: Vectors, bag_MS: np.ndarray, similarity: Similarity) -> np.ndarray:
    """Computes the cosines M×P within each bag: between the query and the others, or between all pairs."""
    size = bag_MS.shape[1]
    first, second = np.triu_indices(size, 1)
    if similarity == "query":
        first, second = first[: size - 1], second[: size - 1]
    return vectors.cosines(bag_MS[:, first].ravel(), bag_MS[:, second].ravel()).reshape(len(bag_MS), -1)


def neighbours_for(size: int, max_cosine: float | None, max_cosine_of: MaxCosineOf) -> int:
    """Returns the number of neighbours to search for bags of ``size``: more with a limit on pairs, which skips some."""
    return size - 1 if max_cosine is None or max_cosine_of == "target" else max(TOP, size - 1)


def _check(size: int, similarity: str, max_cosine: float | None) -> None:
    if size < 2:
        raise UsageError(f"bag size: expected at least 2, got {size}")
    if similarity not in SIMILARITIES:
        raise UsageError(f"similarity: expected one of {', '.join(SIMILARITIES)}, got '{similarity}'")
    check_max_cosine(max_cosine)


def check_max_cosine(max_cosine: float | None) -> None:
    """Raises `UsageError` if the limit is not a valid cosine."""
    if max_cosine is not None and not -1 < max_cosine <= 1:
        raise UsageError(f"max_cosine: expected a cosine such as 0.8, got {max_cosine:g}")


def _fill(unit_ND: np.ndarray, rows_NK: np.ndarray, size: int, max_cosine: float | None) -> np.ndarray:
    """Returns the rows of each bag, M×size. Queries with too few neighbours have no bag."""
    if max_cosine is None:
        bag_NS = np.concatenate([np.arange(len(rows_NK))[:, None], rows_NK[:, : size - 1]], axis=1)
        return bag_NS[(bag_NS >= 0).all(1)] if bag_NS.shape[1] == size else np.zeros((0, size), np.int64)
    bags = [
        bag for row in range(len(rows_NK)) if (bag := _apart(unit_ND, row, rows_NK[row], size, max_cosine)) is not None
    ]
    return np.array(bags, dtype=np.int64).reshape(-1, size)


def _apart(unit_ND: np.ndarray, row: int, nearest_K: np.ndarray, size: int, max_cosine: float) -> list[int] | None:
    """Returns a query and its nearest neighbours with pairwise cosines ≤ ``max_cosine``; None if there are too few."""
    nearest_K = nearest_K[nearest_K >= 0]
    cosine_KK = unit_ND[nearest_K] @ unit_ND[nearest_K].T
    places: list[int] = []
    for place in range(len(nearest_K)):
        if len(places) == size - 1:
            break
        if not places or cosine_KK[place, places].max() <= max_cosine + 1e-6:
            places.append(place)
    return [row, *nearest_K[places].tolist()] if len(places) == size - 1 else None


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
        """Returns a message that counts and lists the pictures in ``unlike``; "" if there are none."""
        if not self.unlike:
            return ""
        return (
            f"{len(self.unlike):,} of {len(self.items):,} pictures are in no bag, because too few "
            f"others have a cosine of at least {self.file.header.min_cosine} to them: {few(self.unlike, 10)}"
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
    pictures are encoded once. Unreadable pictures are left out and listed in ``dataset.unreadable``. Of pictures with
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


def item_captions(items: Sequence[Item], captions: str) -> list[list[str]]:
    """Returns each picture's captions: its references, or those in a file. Raises `UsageError` if one has none."""
    if captions != "references":
        paths = ((item.id, getattr(item.picture, "path", None)) for item in items)
        known = KnownIds("the data", [item.id for item in items], {id_: str(path) for id_, path in paths if path})
        matched = match_captions(read_caption_file(captions), known, captions)
        kept, _ = align_lists(matched.texts, known.ids, True, name=captions)
        if bare := [item.id for item in items if item.id not in kept]:
            raise UsageError(f"{captions}: {len(bare)} of {len(items)} pictures have no caption (first: {bare[0]})")
        return [kept[item.id] for item in items]
    if bare := [item.id for item in items if not item.references]:
        mend = "specify a caption file instead of 'references'"
        raise UsageError(f"{len(bare)} of {len(items)} pictures have no reference (first: {bare[0]}); {mend}")
    return [list(item.references) for item in items]


def caption_features(scorer: Scorer, captions: Sequence[Sequence[str]]) -> list[np.ndarray]:
    """Computes the features M×D of each picture's M captions."""
    flat_MD = scorer.text_features([text for texts in captions for text in texts]).cpu().numpy()
    return np.split(flat_MD, np.cumsum([len(texts) for texts in captions])[:-1])
