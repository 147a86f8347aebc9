"""Bags among any number of pictures, from features on disk: k-means, exact search within clusters, refinement.

Two pictures are compared where they share one of their nearest clusters, so that a picture at the edge of a cluster
meets those beyond it. What that misses is found by NN-descent (Dong, Moses, Li 2011), in blocks: neighbours of
neighbours are likely neighbours. Pictures are numbered by *place* (by nearest cluster, then by row), so that pictures
that look alike lie together on disk. In each round a block of pictures is compared with the union of their neighbours
and of these pictures' own neighbours, as one product of matrices. As in the paper, a pair that was compared in an
earlier round is no reason to compare again: only where one of the two steps is new do its ends become candidates.

Each task leaves a file in the work folder, under a temporary name until it is whole; a file that is there is not made
again. What is made once, by one task each:

    plan.json         what the work is for: other features or settings are refused
    centroids.npy     C×D
    order/S.npy       of file S: each row once for each of its clusters, by cluster; where one begins is in begin/S.npy
    before.npy        for each file and cluster, how many pictures of the files before it are in the cluster
    found/G.npy       of a group of clusters: the nearest of each of its pictures, and their cosines
    near/S.npy        of file S: the nearest of each of its pictures, of all of its clusters
    moved/G.npy       of a group of clusters: its pictures are in the files by place
    round-R/G.npy     of a group: how many neighbours round R changed, and of how many; they are in by-place/round-R
    refined/S.npy     of file S: the nearest of each of its pictures after the last round

The last three are only there where there are several clusters: one cluster is an exact search. After the last task the
bags of each size are curated. Memory is bounded by a setting, not by the number of pictures. Beside it, a task that
assigns or joins the rows of a file holds 400 bytes and 12 for each neighbour kept, for each of its rows; while bags are
curated, 36 bytes are held for each picture, ids included, and 10 more for each further size.

`mine_folder` goes from a folder of features to a file of bags: ``tellapart bags mine --features``.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tellapart import __version__
from tellapart.bags.file import FORMAT, KIND, Header
from tellapart.bags.mine import check_max_cosine, check_sizes
from tellapart.bags.shards import FeatureShards, Ids
from tellapart.errors import TellapartError, UsageError
from tellapart.features.nearest import (
    DIGITS,
    Exclusions,
    Vectors,
    load_faiss,
    nearest_among,
    nearest_neighbours,
    share_found,
)
from tellapart.utils.files import locked, replace_file, replace_text, write_errors, write_output
from tellapart.utils.messages import Progress, parse_json, say

PAIR = np.dtype([("row", "<i8"), ("cosine", "<f4")])  # a neighbour: its number among all rows, −1 for none


@dataclass(frozen=True)
class RowFile:
    """Rows of one shape and type. Tasks write ranges of their own; it is read once all of them are written."""

    path: Path
    rows: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def write(self, first: int, array: np.ndarray) -> None:
        """Rows from ``first`` on, on disk before this returns."""
        with disk_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.touch()
            with self.path.open("r+b") as file:
                file.seek(first * math.prod(self.shape) * self.dtype.itemsize)
                file.write(np.ascontiguousarray(array, self.dtype).tobytes())
                file.flush()
                os.fsync(file.fileno())

    def read(self, index: np.ndarray | slice) -> np.ndarray:
        """Returns some rows, copied. The file is mapped for the moment only, so that its pages do not count as
        memory.
        """
        return np.array(np.memmap(self.path, self.dtype, "r", 0, (self.rows, *self.shape))[index])


def save_array(path: Path, array: np.ndarray) -> None:
    """Writes a ``.npy`` file, whole or not at all."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)

    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, write)


def disk_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    """Turns an error of the disk into a line that says what to do."""
    return write_errors(path, "mend that and run the same command again; what is whole is kept")


KEPT = 20  # neighbours of each picture that are kept on the way, where fewer are wanted
NEAREST, PICTURES = 8, 5_000  # clusters of each picture, pictures of a cluster on the mean: refinement finds the others
# Where more than `KEPT` are wanted: their lists are too long to keep for eight clusters, and to refine.
NEAREST_OF_MANY, PICTURES_OF_MANY = 2, 50_000
WHOLE = 25_000  # pictures: up to so many are compared with each other, all of them
TOGETHER = 50_000  # pictures of the clusters that one task searches
SAMPLED = 64  # pictures for each cluster that k-means sees
STEPS = 10  # of k-means
ASSIGNED_AT_ONCE = 8192
BLOCK = 65536  # pictures assigned, merged and curated at a time
QUERIES = 256  # pictures of a block that is refined
NOT_FOUND = -1


@dataclass(frozen=True)
class Sizes:
    """The number of clusters, and of pictures that one may have: more are searched in parts.

    nearest: clusters of each picture. together: clusters of one task. candidates: pictures with which a block of others
    is compared at once. refined: whether neighbours of neighbours are sought.
    """

    clusters: int
    largest: int
    nearest: int = NEAREST
    together: int = 1
    candidates: int = 100_000
    refined: bool = True


def sizes_for(pictures: int, width: int, k: int, memory_gb: float, mean: int | None = None) -> Sizes:
    """Clusters of about ``mean`` pictures, fewer where ``memory_gb`` asks for it (of 10⁹ bytes).

    Default: one cluster up to `WHOLE` pictures, then `PICTURES` in each; √pictures where that is more: to find the
    clusters of all pictures then costs as much as to search them.

    A picture needs its features twice (as they are and of length 1) and its candidates; half is left for what Python
    and torch need beside it, and for clusters that are larger than others. Raises `UsageError` for too little memory.
    """
    each = 8 * width + 32 * (k + 8)
    fixed = 0.5e9  # the libraries, and blocks of cosines
    largest = int((memory_gb * 1e9 - fixed) / each)
    if largest < 4 * (k + 1):
        least = (4 * (k + 1) * each + fixed) / 1e9
        raise UsageError(
            f"--memory-gb {memory_gb:g} is too little for {k} neighbours of {width} numbers; "
            f"expected {least:.1f} or more"
        )
    refined = k <= KEPT
    nearest, usual = (NEAREST, PICTURES) if refined else (NEAREST_OF_MANY, PICTURES_OF_MANY)
    if mean is None:
        mean = nearest * pictures if pictures <= WHOLE else max(usual, math.isqrt(pictures))
    size = min(mean, largest / 2)
    # A candidate: its features as they are on disk, as float32, in another order; its cosines with a block.
    candidates = int((memory_gb * 1e9 - fixed) / (12 * width + 8 * QUERIES + 64))
    clusters = max(1, math.ceil(nearest * pictures / size))
    return Sizes(clusters, largest, nearest, max(1, int(TOGETHER / size)), max(QUERIES, candidates), refined)


def centroids_of(features: FeatureShards, sizes: Sizes, seed: int = 0) -> np.ndarray:
    """Centres C×D of length 1, by spherical k-means of a sample, the same share of every file.

    Clusters that the sample says would be too large are divided once more.
    """
    sample_FD = sample(features, SAMPLED * sizes.clusters, seed)
    centre_CD = kmeans(sample_FD, min(sizes.clusters, len(sample_FD)), seed)
    limit = max(2, sizes.largest * len(sample_FD) / len(features))
    for attempt in range(1, 4):
        cluster_FM = nearest_clusters(sample_FD, centre_CD, sizes.nearest)
        count_C = np.bincount(cluster_FM[cluster_FM >= 0], minlength=len(centre_CD))
        large = np.flatnonzero(count_C > limit)
        if not len(large):
            break
        parts = [np.delete(centre_CD, large, 0)]
        for cluster in large:
            inside_MD = sample_FD[(cluster_FM == cluster).any(1)]
            parts.append(kmeans(inside_MD, math.ceil(2 * count_C[cluster] / limit), seed + attempt))
        centre_CD = np.concatenate(parts)
    return centre_CD


def sample(features: FeatureShards, wanted: int, seed: int) -> np.ndarray:
    """Returns about ``wanted`` rows of length 1, or all, F×D."""
    share = min(1.0, wanted / len(features))
    parts = []
    for number, shard in enumerate(features.shards):
        rng = np.random.default_rng([seed, number])
        count = min(shard.rows, max(1, round(share * shard.rows)))
        parts.append(unit(shard.read(np.sort(rng.choice(shard.rows, count, replace=False))), str(shard.path)))
    return np.concatenate(parts)


def kmeans(unit_FD: np.ndarray, clusters: int, seed: int) -> np.ndarray:
    """Centres of length 1, by FAISS."""
    faiss = load_faiss("k-means of features")
    if clusters >= len(unit_FD):
        return unit_FD.copy()
    made = faiss.Kmeans(
        unit_FD.shape[1], clusters, niter=STEPS, seed=seed + 1, spherical=True, min_points_per_centroid=1,
        max_points_per_centroid=10**9,
    )  # fmt: skip
    made.train(np.ascontiguousarray(unit_FD))
    centre_CD: np.ndarray = made.centroids
    return unit(centre_CD)


def nearest_clusters(unit_ND: np.ndarray, centre_CD: np.ndarray, nearest: int) -> np.ndarray:
    """Returns the M = ``nearest`` centres of each row, N×M int32, nearest first; −1 where there are fewer."""
    found_NM = np.full((len(unit_ND), nearest), NOT_FOUND, np.int32)
    centre = torch.from_numpy(centre_CD)
    kept = min(nearest, len(centre_CD))
    for start in range(0, len(unit_ND), ASSIGNED_AT_ONCE):
        cosine_BC = torch.from_numpy(unit_ND[start : start + ASSIGNED_AT_ONCE]) @ centre.T
        found_NM[start : start + ASSIGNED_AT_ONCE, :kept] = cosine_BC.topk(kept, 1).indices.numpy()
    return found_NM


def unit(rows_ND: np.ndarray, name: str = "features") -> np.ndarray:
    """Returns rows of length 1. Raises `UsageError` with ``name``, of the file, for one that is not finite."""
    length_N = np.linalg.norm(rows_ND, axis=1, keepdims=True)
    if not np.isfinite(length_N).all():
        bad = int((~np.isfinite(length_N)).sum())
        raise UsageError(f"{name}: {bad:,} rows hold NaN or infinity; encode these pictures again, or leave them out")
    made: np.ndarray = (rows_ND / np.maximum(length_N, 1e-12)).astype(np.float32)
    return made


EXPANDED = 12  # nearest of them whose own neighbours become candidates
ROUNDS = 6  # at most
SETTLED = 0.02  # share of the wanted neighbours that a round changed: below it, no further round
ENTRY = np.dtype([("place", "<i8"), ("cosine", "<f4"), ("new", "?")])  # −1: none; new: not among the first before


@dataclass(frozen=True)
class FilesByPlace:
    """Files on disk by place: features as given, their lengths, the number of the row, and the order of blocks."""

    features: RowFile  # N×D
    length: RowFile
    row: RowFile
    turn: RowFile  # a place, in the order in which places are put into blocks

    @classmethod
    def at(cls, folder: Path, rows: int, width: int, half: bool) -> FilesByPlace:
        """``half``: features are float16."""
        return cls(
            RowFile(folder / "features", rows, (width,), np.dtype("<f2" if half else "<f4")),
            RowFile(folder / "length", rows, (), np.dtype("<f8")),
            RowFile(folder / "row", rows, (), np.dtype("<i8")),
            RowFile(folder / "turn", rows, (), np.dtype("<i8")),
        )

    def vectors(self, place_M: np.ndarray, row_order: np.ndarray) -> Vectors:
        """Returns features of ascending places, then in another order."""
        given_MD = torch.from_numpy(self.features.read(place_M)).float()  # faster than numpy's
        given_MD = given_MD[torch.from_numpy(row_order)]
        length_M = self.length.read(place_M)[row_order]
        unit_MD = given_MD * torch.from_numpy((1 / length_M).astype(np.float32))[:, None]
        return Vectors(given_MD.numpy(), length_M, unit_MD.numpy())


@dataclass(frozen=True)
class Round:
    """One round: from the neighbours ``before`` (N×K `ENTRY`), for blocks of places.

    ``candidates``: at most so many at once; a block with more is done in halves.
    """

    placed: FilesByPlace
    before: RowFile
    candidates: int
    max_cosine: float | None

    def block(self, own_B: np.ndarray, known_BK: np.ndarray) -> np.ndarray:
        """Returns the neighbours of some places after the round, B×K `ENTRY`; known_BK: those before it."""
        found_M = self._candidates(own_B, known_BK)
        if not len(found_M):
            settled_BK = known_BK.copy()
            settled_BK["new"] = False
            return settled_BK
        if len(found_M) > self.candidates and len(own_B) > 1:
            middle = len(own_B) // 2
            return np.concatenate(
                [self.block(own_B[part], known_BK[part]) for part in (slice(middle), slice(middle, None))]
            )
        near_BK = self._nearest(own_B, found_M, known_BK.shape[1])
        earlier_BE = known_BK["place"][:, :EXPANDED]
        near_BK["new"] = (near_BK["place"][:, :, None] != earlier_BE[:, None, :]).all(2)
        return near_BK

    def _candidates(self, own_B: np.ndarray, known_BK: np.ndarray) -> np.ndarray:
        """Returns ascending places; none where no step is new."""
        first_BE = known_BK[:, :EXPANDED]
        there_BE = first_BE["place"] >= 0
        step_U = np.unique(first_BE["place"][there_BE])
        next_UE = self.before.read(step_U)[:, :EXPANDED]
        new_U = np.isin(step_U, first_BE["place"][there_BE & first_BE["new"]])
        far_M = next_UE["place"][next_UE["new"] | new_U[:, None]]
        if not (far_M >= 0).any():
            return far_M[:0]
        found_M = np.unique(np.concatenate([far_M, known_BK["place"].ravel(), own_B]))
        return found_M[found_M >= 0]

    def _nearest(self, own_B: np.ndarray, found_M: np.ndarray, k: int) -> np.ndarray:
        """Returns the k nearest of ``found_M``, which hold the block itself: by the rule of `features.nearest`, ties
        by row.
        """
        row_order = np.argsort(self.placed.row.read(found_M), kind="stable")
        gallery = self.placed.vectors(found_M, row_order)
        at_B = np.argsort(row_order, kind="stable")[np.searchsorted(found_M, own_B)]
        found_M = found_M[row_order]
        near = nearest_among(gallery.take(at_B), gallery, k, Exclusions(own_B, found_M, self.max_cosine))
        wanted = near.rows_NK.shape[1]
        entry_BK = no_entries(len(own_B), k)
        entry_BK["place"][:, :wanted] = np.where(near.rows_NK >= 0, found_M[near.rows_NK], NOT_FOUND)
        entry_BK["cosine"][:, :wanted] = near.cosine_NK
        return entry_BK


def no_entries(*shape: int) -> np.ndarray:
    """Returns neighbours that are none."""
    entries = np.empty(shape, ENTRY)
    entries["place"], entries["cosine"], entries["new"] = NOT_FOUND, -np.inf, False
    return entries


def changed(before_BK: np.ndarray, after_BK: np.ndarray) -> int:
    """Returns how many places of the latter are not in the former."""
    place_BK = after_BK["place"]
    return int(((place_BK[:, :, None] != before_BK["place"][:, None, :]).all(2) & (place_BK >= 0)).sum())


ROUND = "round-"


Spread = Callable[["LargeSearch", str, Sequence[int]], Iterable[object]]  # yields after each task


def one_by_one(search: LargeSearch, name: str, numbers: Sequence[int]) -> Iterator[None]:
    """Does the tasks of a stage, one after the other, in this process."""
    for number in numbers:
        search.perform(name, number)
        yield


@dataclass(frozen=True)
class LargeSearch:
    """The k nearest of every picture of ``features``, with what is made on the way in ``folder``."""

    folder: Path
    features: FeatureShards
    k: int
    sizes: Sizes
    max_cosine: float | None = None
    seed: int = 0
    rounds: int = ROUNDS  # of refinement, at most

    @property
    def refines(self) -> bool:
        """Returns whether there are rounds after the search within clusters: one cluster is exact."""
        return self.rounds > 0 and self.sizes.refined and self.sizes.clusters > 1

    @property
    def kept(self) -> int:
        """K: neighbours that are kept on the way."""
        return max(self.k, KEPT) if self.refines else self.k

    @cached_property
    def centre_CD(self) -> np.ndarray:
        """The centres of the clusters."""
        centre_CD: np.ndarray = np.load(self.path_of("centroids", 0), allow_pickle=False)
        return centre_CD

    @property
    def before_S2C(self) -> np.ndarray:
        """Counts of the pictures of the files before each, by cluster; those of all stand last (`count`)."""
        before_S2C: np.ndarray = np.load(self.path_of("before", 0), mmap_mode="r", allow_pickle=False)
        return before_S2C

    @cached_property
    def home_C(self) -> np.ndarray:
        """The place of the first picture that is nearest to each cluster; the number of all stands last."""
        return np.concatenate([[0], np.cumsum(self.before_S2C[-1, 1])])

    @property
    def groups(self) -> range:
        """Clusters of which a task is made: so many together as `Sizes` says."""
        return range(-(-len(self.centre_CD) // self.sizes.together))

    def order_of(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns what ``order`` and ``begin`` have of a file."""
        place_M = np.load(self.path_of("order", shard), mmap_mode="r", allow_pickle=False)
        return place_M, np.load(self.folder / "begin" / f"{shard:06}.npy", mmap_mode="r", allow_pickle=False)

    def members(self, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns rows by cluster, ascending in each; their clusters, and whether these are their nearest."""
        first = group * self.sizes.together
        last = min(first + self.sizes.together, len(self.centre_CD))
        row_F, cluster_F, home_F = [], [], []
        for shard, before in enumerate(self.features.first_S[:-1]):
            place_M, begin_C = self.order_of(shard)
            own_M = np.array(place_M[begin_C[first] : begin_C[last]])
            row_F.append(before + own_M // self.sizes.nearest)
            home_F.append(own_M % self.sizes.nearest == 0)
            cluster_F.append(np.repeat(np.arange(first, last), np.diff(begin_C[first : last + 1])))
        cluster_M = np.concatenate(cluster_F)
        order = np.argsort(cluster_M, kind="stable")
        return np.concatenate(row_F)[order], cluster_M[order], np.concatenate(home_F)[order]

    def rows_of(self, name: str, row_M: np.ndarray) -> np.ndarray:
        """Returns what the files of a stage have for ascending rows."""
        parts, begin = [], 0
        for shard, after in enumerate(self.features.first_S[1:]):
            end = int(np.searchsorted(row_M, after))
            if end > begin:
                found = np.load(self.path_of(name, shard), mmap_mode="r", allow_pickle=False)
                parts.append(found[row_M[begin:end] - self.features.first_S[shard]])
            begin = end
        return np.concatenate(parts)

    def read(self, row_M: np.ndarray) -> np.ndarray:
        """Returns features of ascending rows of all files."""
        cut = np.searchsorted(row_M, self.features.first_S)
        return np.concatenate(
            [
                shard.read(row_M[begin:end] - first)
                for shard, first, begin, end in zip(
                    self.features.shards, self.features.first_S, cut, cut[1:], strict=False
                )
            ]
        )

    def path_of(self, name: str, number: int) -> Path:
        """Returns the file of one task of a stage."""
        if name in ("centroids", "before"):
            return self.folder / f"{name}.npy"
        return self.folder / name / f"{number:06}.npy"

    def check_plan(self) -> None:
        """Keeps what the work is for. Raises `UsageError` where the folder is of other features or settings."""
        plan = {
            "features": self.features.digest(), "k": self.k, "clusters": self.sizes.clusters,
            "largest": self.sizes.largest, "nearest": self.sizes.nearest, "together": self.sizes.together,
            "candidates": self.sizes.candidates,
            "max_cosine": self.max_cosine, "seed": self.seed, "rounds": self.rounds,
            "expanded": EXPANDED, "settled": SETTLED,
        }  # fmt: skip
        path = self.folder / "plan.json"
        with disk_errors(path):
            self.folder.mkdir(parents=True, exist_ok=True)
            if path.is_file():
                try:
                    before = parse_json(path.read_text(encoding="utf-8"))
                except ValueError:
                    before = {}
                if before != plan:
                    then = before if isinstance(before, dict) else {}
                    keys = sorted(key for key in {*plan, *then} if key not in then or then[key] != plan.get(key))
                    raise UsageError(
                        f"{self.folder}: work was begun with other {', '.join(keys)}; remove that folder, or name "
                        "another result"
                    )
            elif others := [file.name for file in self.folder.iterdir() if not file.name.startswith(".")]:
                raise UsageError(
                    f"{self.folder}: holds {others[0]} and no work; move that folder, or name another result"
                )
            else:
                replace_text(path, json.dumps(plan))

    def neighbours(self, shard: int) -> np.ndarray:
        """`PAIR` N×K of a file's pictures, nearest first, K ≥ k; read where it is indexed."""
        name = "refined" if self.refines else "near"
        found: np.ndarray = np.load(self.path_of(name, shard), mmap_mode="r", allow_pickle=False)
        return found

    # The rounds
    def round_rows(self, number: int) -> RowFile:
        """Returns neighbours by place after a round; before the first one, number 0, those of the search."""
        return RowFile(self._by_place / f"{ROUND}{number}", len(self.features), (self.kept,), ENTRY)

    @property
    def placed(self) -> FilesByPlace:
        """Features by place."""
        half = all(shard.dtype == "<f2" for shard in self.features.shards)
        return FilesByPlace.at(self._by_place, len(self.features), self.features.width, half)

    @property
    def places(self) -> RowFile:
        """The place of each row."""
        return RowFile(self._by_place / "place", len(self.features), (), np.dtype("<i8"))

    @property
    def _by_place(self) -> Path:
        return self.folder / "by-place"

    def first_place(self, group: int) -> int:
        return int(self.home_C[min(group * self.sizes.together, len(self.home_C) - 1)])

    # The search
    def run(self, progress: bool = True, spread: Spread | None = None) -> dict[str, float]:
        """Does what is not there yet. Returns the seconds of each stage, by the name of its files.

        ``spread`` does a stage's tasks in any order, on any machines that see the folders; default: one by one, here.
        Raises `UsageError` where the folder is of other features or settings.
        """
        self.check_plan()
        seconds = {}
        for label, name, numbers in self.stages():
            started = time.perf_counter()
            todo = [number for number in numbers() if not self.path_of(name, number).is_file()]
            with Progress(len(todo), label, enabled=progress) as shown:
                for _ in (spread or one_by_one)(self, name, todo):
                    shown.advance()
            self._drop_before(name)
            seconds[name] = time.perf_counter() - started
        return seconds

    def perform(self, name: str, number: int) -> None:
        """Does one task of a stage."""
        tasks: dict[str, Callable[[int], None]] = {
            "centroids": self.place,
            "order": self.assign,
            "before": self.count,
            "found": self.search,
            "near": self.join,
            "moved": self.move,
            "refined": self.finish,
        }
        if name.startswith(ROUND):
            self.improve(int(name.removeprefix(ROUND)), number)
        else:
            tasks[name](number)

    def stages(self) -> list[tuple[str, str, Callable[[], Sequence[int]]]]:
        """Returns what is shown, the files' name, and the tasks' numbers; a stage needs all files of those before
        it.
        """
        files = range(len(self.features.shards))
        first: list[tuple[str, str, Callable[[], Sequence[int]]]] = [
            ("placing clusters", "centroids", lambda: range(1)),
            ("assigning pictures to clusters", "order", lambda: files),
            ("counting pictures of clusters", "before", lambda: range(1)),
            ("searching clusters", "found", lambda: self.groups),
            ("joining neighbours", "near", lambda: files),
        ]
        if not self.refines:
            return first
        return [
            *first,
            ("ordering features by cluster", "moved", lambda: self.groups),
            *(
                (f"neighbours of neighbours, round {number}", f"{ROUND}{number}", partial(self._groups_of, number))
                for number in range(1, self.rounds + 1)
            ),
            ("writing neighbours", "refined", lambda: files),
        ]

    # The tasks
    def place(self, _: int = 0) -> None:
        """Places the clusters."""
        save_array(self.path_of("centroids", 0), centroids_of(self.features, self.sizes, self.seed))

    def assign(self, shard: int) -> None:
        """Orders the rows of a file by cluster, each row once for each of its clusters, with where each begins."""
        rows = self.features.shards[shard].rows
        cluster_NM = np.empty((rows, self.sizes.nearest), np.int32)
        for start in range(0, rows, BLOCK):
            part = slice(start, min(start + BLOCK, rows))
            own_BD = unit(self.features.shards[shard].read(part), str(self.features.shards[shard].path))
            cluster_NM[part] = nearest_clusters(own_BD, self.centre_CD, self.sizes.nearest)
        flat = cluster_NM.ravel()
        place_M = np.argsort(flat, kind="stable")
        place_M = place_M[np.searchsorted(flat[place_M], 0) :]  # without NOT_FOUND
        count_C = np.bincount(flat[place_M], minlength=len(self.centre_CD))
        begin_C = np.concatenate([[0], np.cumsum(count_C)])
        save_array(self.folder / "clusters" / f"{shard:06}.npy", cluster_NM)
        save_array(self.folder / "begin" / f"{shard:06}.npy", begin_C)
        save_array(self.path_of("order", shard), place_M.astype(np.int64))

    def count(self, _: int = 0) -> None:
        """Counts the pictures of the files before each in each cluster: of both kinds, and as the nearest."""
        shape = (len(self.features.shards) + 1, 2, len(self.centre_CD))

        def write(temporary: Path) -> None:
            before_S2C = np.lib.format.open_memmap(temporary, "w+", np.int64, shape)
            before_S2C[0] = 0
            for shard in range(len(self.features.shards)):
                place_M, begin_C = self.order_of(shard)
                cluster_M = np.repeat(np.arange(shape[2]), np.diff(begin_C))
                before_S2C[shard + 1, 0] = before_S2C[shard, 0] + np.diff(begin_C)
                home_C = np.bincount(cluster_M[place_M % self.sizes.nearest == 0], minlength=shape[2])
                before_S2C[shard + 1, 1] = before_S2C[shard, 1] + home_C
            before_S2C.flush()

        with disk_errors(self.path_of("before", 0)):
            replace_file(self.path_of("before", 0), write)

    def search(self, group: int) -> None:
        """Finds the nearest of each picture of some clusters among the others of its cluster: exact."""
        row_M, cluster_M, _ = self.members(group)
        found_MK = nothing_found(len(row_M), self.kept)
        for cluster in np.unique(cluster_M):
            begin, end = np.searchsorted(cluster_M, [cluster, cluster + 1])
            self._search_cluster(int(cluster), row_M[begin:end], found_MK[begin:end])
        save_array(self.path_of("found", group), found_MK)

    def _search_cluster(self, cluster: int, row_M: np.ndarray, found_MK: np.ndarray) -> None:
        parts = -(-len(row_M) // self.sizes.largest)
        if parts > 1:
            say(f"cluster {cluster}: {len(row_M):,} pictures, memory for {self.sizes.largest:,}: in {parts} parts")
        for part_P in np.array_split(np.arange(len(row_M)), parts):
            own_P = row_M[part_P]
            vectors = Vectors.of(self.read(own_P))
            near = nearest_neighbours(vectors, self.kept, max_cosine=self.max_cosine, approximate=False, progress=False)
            kept = slice(0, near.rows_NK.shape[1])  # fewer in a small cluster
            found_MK["row"][part_P, kept] = np.where(near.rows_NK >= 0, own_P[near.rows_NK], NOT_FOUND)
            found_MK["cosine"][part_P, kept] = near.cosine_NK

    def join(self, shard: int) -> None:
        """Joins the nearest of each picture of a file, of all of its clusters, and its place."""
        rows, k, nearest = self.features.shards[shard].rows, self.kept, self.sizes.nearest
        place_M, begin_C = self.order_of(shard)
        cluster_M = np.repeat(np.arange(len(begin_C) - 1), np.diff(begin_C))
        before_2C, total_2C = self.before_S2C[shard], self.before_S2C[-1]
        # Where a row's neighbours lie in the file of its cluster's group.
        start_C = np.cumsum(total_2C[0]) - total_2C[0]
        group_C = np.arange(len(start_C)) // self.sizes.together
        start_C -= start_C[group_C * self.sizes.together]
        at_M = np.arange(len(place_M)) - begin_C[cluster_M] + (before_2C[0] + start_C)[cluster_M]
        inverse = np.full(rows * nearest, NOT_FOUND, np.int64)
        inverse[place_M] = np.arange(len(place_M))
        if self.refines:
            home_M = place_M % nearest == 0
            row_H, cluster_H = place_M[home_M] // nearest, cluster_M[home_M]
            begin_H = np.searchsorted(cluster_H, np.arange(len(start_C)))
            place_N = np.empty(rows, np.int64)
            place_N[row_H] = np.arange(rows) + (self.home_C[:-1] + before_2C[1] - begin_H)[cluster_H]
            self.places.write(self.features.first_S[shard], place_N)
        near_NK = np.empty((rows, k), PAIR)
        block = max(1, min(BLOCK, 2**26 // (nearest * k)))
        for start in range(0, rows, block):
            stop = min(start + block, rows)
            of_BM = inverse[start * nearest : stop * nearest].reshape(-1, nearest)
            pair_BA = nothing_found(stop - start, nearest, k)
            known = of_BM >= 0
            group_BM = group_C[cluster_M[np.maximum(of_BM, 0)]]
            for group in np.unique(group_BM[known]):
                here = known & (group_BM == group)
                found = np.load(self.path_of("found", int(group)), mmap_mode="r", allow_pickle=False)
                pair_BA[here] = found[at_M[of_BM[here]]]
            near_NK[start:stop] = nearest_pairs(pair_BA.reshape(stop - start, -1), k)
        save_array(self.path_of("near", shard), near_NK)

    def move(self, group: int) -> None:
        """Writes the pictures that are nearest to some clusters, and their neighbours, into the files by place."""
        row_M, cluster_M, home_M = self.members(group)
        row_M, cluster_M, first = row_M[home_M], cluster_M[home_M], self.first_place(group)
        chunk = max(1, min(BLOCK, self.sizes.largest, 2**24 // self.kept))
        for start in range(0, len(row_M), chunk):
            row_P = row_M[start : start + chunk]
            order = np.argsort(row_P, kind="stable")
            back = np.argsort(order, kind="stable")
            ascending_P = row_P[order]
            vectors = Vectors.of(self.read(ascending_P))
            self.placed.features.write(first + start, vectors.given_ND[back])
            self.placed.length.write(first + start, vectors.length_N[back])
            self.placed.row.write(first + start, row_P)
            second_P = self.rows_of("clusters", ascending_P)[back, 1]
            turn_P = np.lexsort((row_P, second_P, cluster_M[start : start + chunk]))
            self.placed.turn.write(first + start, first + start + turn_P)
            pair_PK = self.rows_of("near", ascending_P)[back]
            entry_PK = no_entries(*pair_PK.shape)
            there_PK = pair_PK["row"] >= 0
            entry_PK["place"][there_PK] = self.places.read(pair_PK["row"][there_PK])
            entry_PK["cosine"], entry_PK["new"] = pair_PK["cosine"], there_PK
            self.round_rows(0).write(first + start, entry_PK)
        save_array(self.path_of("moved", group), np.array([len(row_M)]))

    def improve(self, number: int, group: int) -> None:
        """Does a round for the pictures that are nearest to some clusters."""
        first, end = self.first_place(group), self.first_place(group + 1)
        before, after = self.round_rows(number - 1), self.round_rows(number)
        step = Round(self.placed, before, self.sizes.candidates, self.max_cosine)
        chunk = max(QUERIES, min(BLOCK, 2**24 // self.kept))
        new = of = 0
        for start in range(first, end, chunk):
            part = slice(start, min(start + chunk, end))
            turn_P = self.placed.turn.read(part)
            entry_PK = np.empty((part.stop - start, self.kept), ENTRY)
            for at in range(0, len(turn_P), QUERIES):
                own_B = turn_P[at : at + QUERIES]
                known_BK = before.read(own_B)
                entry_BK = entry_PK[own_B - start] = step.block(own_B, known_BK)
                new += changed(known_BK[:, : self.k], entry_BK[:, : self.k])
                of += int((entry_BK["place"][:, : self.k] >= 0).sum())
            after.write(start, entry_PK)
        save_array(self.path_of(f"{ROUND}{number}", group), np.array([new, of]))

    def finish(self, shard: int) -> None:
        """Writes the nearest of each picture of a file after the last round, as rows."""
        first, rows = self.features.first_S[shard], self.features.shards[shard].rows
        near_NK = np.empty((rows, self.k), PAIR)
        last = self.round_rows(self._rounds_done())
        chunk = max(1, min(BLOCK, 2**24 // self.kept))
        for start in range(0, rows, chunk):
            stop = min(start + chunk, rows)
            entry_BK = last.read(self.places.read(slice(first + start, first + stop)))[:, : self.k]
            there_BK = entry_BK["place"] >= 0
            pair_BK = nothing_found(*entry_BK.shape)
            pair_BK["row"][there_BK] = self.placed.row.read(entry_BK["place"][there_BK])
            pair_BK["cosine"] = entry_BK["cosine"]
            near_NK[start:stop] = pair_BK
        save_array(self.path_of("refined", shard), near_NK)

    # The rounds
    def _groups_of(self, number: int) -> Sequence[int]:
        """Returns the tasks of a round: none where the one before changed little."""
        if number == 1 or not self._complete(number - 1):
            return self.groups if number == 1 else []
        new, of = sum(np.load(self.path_of(f"{ROUND}{number - 1}", group)) for group in self.groups)
        return self.groups if new > SETTLED * of else []

    def _complete(self, number: int) -> bool:
        return all(self.path_of(f"{ROUND}{number}", group).is_file() for group in self.groups)

    def _rounds_done(self) -> int:
        """Returns the last round: the only one whose neighbours `_drop_before` left."""
        return max(number for number in range(self.rounds + 1) if self.round_rows(number).path.is_file())

    def _drop_before(self, name: str) -> None:
        """Drops the neighbours before a round that is done: they are of no use."""
        if name.startswith(ROUND) and self._complete(number := int(name.removeprefix(ROUND))):
            self.round_rows(number - 1).path.unlink(missing_ok=True)


def nothing_found(*shape: int) -> np.ndarray:
    """Returns neighbours that are none."""
    pairs = np.empty(shape, PAIR)
    pairs["row"], pairs["cosine"] = NOT_FOUND, -np.inf
    return pairs


def nearest_pairs(pair_BA: np.ndarray, k: int) -> np.ndarray:
    """Returns the k nearest of each row's candidates, each picture once, by the tie rule of `features.nearest`."""
    row_BA, cosine_BA = pair_BA["row"], np.where(pair_BA["row"] >= 0, pair_BA["cosine"], -np.inf)
    by_row = np.lexsort((-cosine_BA, row_BA), axis=1)
    row_BA, cosine_BA = (np.take_along_axis(array, by_row, 1) for array in (row_BA, cosine_BA))
    cosine_BA[:, 1:][row_BA[:, 1:] == row_BA[:, :-1]] = -np.inf  # a picture that both clusters have
    order_BK = np.lexsort((row_BA, -np.round(cosine_BA.astype(np.float64), DIGITS)), axis=1)[:, :k]
    found = np.empty((len(pair_BA), k), PAIR)
    found["cosine"] = np.take_along_axis(cosine_BA, order_BK, 1)
    found["row"] = np.where(found["cosine"] > -np.inf, np.take_along_axis(row_BA, order_BK, 1), NOT_FOUND)
    return found


@dataclass(frozen=True)
class CuratedBags:
    """Bags of one size that share no picture, the most alike first: rows M×size, and α of each."""

    rows_MS: np.ndarray
    similarity_M: np.ndarray


def curate(search: LargeSearch, size: int) -> CuratedBags:
    """Algorithms 1 and 2 of paper 2: of each picture and its nearest, the most alike that share no picture."""
    features = search.features
    similarity_N = np.empty(len(features), np.float32)
    for number, first in enumerate(features.first_S[:-1]):
        near = search.neighbours(number)
        for start in range(0, len(near), BLOCK):
            cosine_BK = near[start : start + BLOCK]["cosine"][:, : size - 1].astype(np.float64)
            whole = slice(first + start, first + start + len(cosine_BK))
            similarity_N[whole] = cosine_BK.mean(1)  # −inf where there are too few
    order_N = np.argsort(-np.round(similarity_N, 7), kind="stable")
    order_N = order_N[: np.count_nonzero(similarity_N > -np.inf)]
    free_N = np.ones(len(features), bool)
    first_S = np.array(features.first_S)
    rows_MS, count = np.empty((len(order_N) // size, size), np.int64), 0
    for start in range(0, len(order_N), BLOCK):
        row_B = order_N[start : start + BLOCK]
        row_B = row_B[free_N[row_B]]
        bag_BS = np.empty((len(row_B), size), np.int64)
        bag_BS[:, 0] = row_B
        shard_B = np.searchsorted(first_S, row_B, side="right") - 1
        for shard in np.unique(shard_B):
            here = shard_B == shard
            near = search.neighbours(int(shard))  # open for the moment: there may be more files than a process may open
            bag_BS[here, 1:] = near[row_B[here] - first_S[shard]]["row"][:, : size - 1]
        for bag_S in bag_BS[free_N[bag_BS].all(1)]:
            if free_N[bag_S].all():
                free_N[bag_S] = False
                rows_MS[count] = bag_S
                count += 1
    rows_MS = rows_MS[:count]
    return CuratedBags(rows_MS, similarity_N[rows_MS[:, 0]])


def recall(search: LargeSearch, tops: Sequence[int], queries: int, seed: int = 0, progress: bool = True) -> list[float]:
    """Returns the share of the exact first k that were found, for each k of ``tops``, at ``queries`` random pictures.

    Exact search in blocks of all features, by the rule of `features.nearest`.
    """
    features, most = search.features, max(tops)
    n = len(features)
    row_Q = np.sort(np.random.default_rng([seed, 1]).choice(n, min(queries, n), replace=False))
    query = Vectors.of(search.read(row_Q))
    exact_QK = np.full((len(row_Q), most), -1, np.int64)
    cosine_QK = np.full((len(row_Q), most), -np.inf, np.float32)
    with Progress(n, "exact neighbours of a sample", enabled=progress) as shown:
        for first, shard in zip(features.first_S, features.shards, strict=False):
            for start in range(0, shard.rows, BLOCK):
                part = slice(start, min(start + BLOCK, shard.rows))
                row_B = np.arange(first + part.start, first + part.stop)
                gallery = Vectors.of(shard.read(part))
                near = nearest_among(
                    query, gallery, min(most, len(gallery)), Exclusions(row_Q, row_B, search.max_cosine), label=None
                )
                row_QK = np.where(near.rows_NK >= 0, row_B[near.rows_NK], -1)
                cosine_QA = np.concatenate([cosine_QK, near.cosine_NK], 1)
                order_QK = np.argsort(-cosine_QA, axis=1, kind="stable")[:, :most]
                cosine_QK = np.take_along_axis(cosine_QA, order_QK, 1)
                exact_QK = np.take_along_axis(np.concatenate([exact_QK, row_QK], 1), order_QK, 1)
                shown.advance(part.stop - part.start)
    found_QK = np.full_like(exact_QK, -1)
    shard_Q = np.searchsorted(features.first_S, row_Q, side="right") - 1
    for number in np.unique(shard_Q):
        here = shard_Q == number
        near = search.neighbours(int(number))[row_Q[here] - features.first_S[number]]
        found_QK[here, : search.k] = near["row"][:, :most]
    return [share_found(exact_QK[:, :top], found_QK[:, :top]) for top in tops]


MEMORY_GB = 4.0
RECALL_QUERIES = 200  # pictures whose exact neighbours are sought, to see what share is found


@dataclass(frozen=True)
class MinedFolder:
    """The result: bags by size, of how many pictures, and the share of exact neighbours that was found."""

    header: Header
    bags: dict[int, CuratedBags]
    clusters: int

    def to_json(self) -> dict[str, Any]:
        """Returns numbers of bags by size, and how they were found."""
        sizes = [
            {"size": size, "bags": len(own.rows_MS), "similarity": _summary(own.similarity_M)}
            for size, own in self.bags.items()
        ]
        return {
            "pictures": self.header.pictures,
            "left_out": self.header.left_out,
            "clusters": self.clusters,
            "recall": self.header.recall,
            "sizes": sizes,
        }

    def lines(self) -> list[str]:
        """Returns the same for a person."""
        share = f"{100 * (self.header.recall or 0):.1f} % of the exact neighbours found"
        copies = "".join(f", {count:,} {what} left out" for what, count in self.header.left_out.items())
        found = [f"{self.header.pictures:,} pictures{copies}, in {self.clusters:,} clusters; {share}"]
        for size, own in self.bags.items():
            middle = f", median similarity {np.median(own.similarity_M):.3f}" if len(own.rows_MS) else ""
            found.append(f"bags of {size}: {len(own.rows_MS):,}{middle}")
        return found


def mine_folder(
    folder: Path,
    out: Path,
    sizes: Sequence[int],
    *,
    memory_gb: float = MEMORY_GB,
    max_cosine: float | None = None,
    scorer: tuple[str, str] = ("", ""),
    pictures: int | None = None,
    spread: Spread | None = None,
    progress: bool = True,
) -> MinedFolder:
    """Mines curated bags of each of ``sizes`` among the features of a folder (`FeatureShards`), into ``out``.

    Of copies (equal features) the first is used.

    ``memory_gb``: of 10⁹ bytes, for one cluster at a time. ``pictures``: of a cluster, on the mean; more find more and
    take longer. ``scorer``: whose features these are, and its fingerprint. ``spread``: who does the tasks
    (`LargeSearch.run`). What is made on the way lies in ``OUT.work`` until the bags are written: the same call goes on
    there. Raises `UsageError` where there are too few pictures, or another process works there.
    """
    sizes = check_sizes(sizes)
    check_max_cosine(max_cosine)
    whole = FeatureShards.open(folder.absolute())
    ids = Ids.open(whole)
    features, row_N = whole.without_copies()
    if len(features) < max(sizes):
        raise UsageError(
            f"{folder}: {len(features)} different rows of features; a bag of {max(sizes)} needs at least as many"
        )
    k = max(sizes) - 1
    plan = sizes_for(len(features), features.width, k, memory_gb, pictures)
    work = out.absolute().with_name(f"{out.name}.work")  # workers may stand elsewhere
    search = LargeSearch(work, features, k, plan, max_cosine)
    left_out = {"copies": len(whole) - len(features)} if len(features) < len(whole) else {}
    with disk_errors(work), locked(work, wait=False), _clear_errors(work):
        search.run(progress, spread)
        (found,) = recall(search, (k,), RECALL_QUERIES, progress=progress)
        bags = {size: curate(search, size) for size in sizes}
        clusters = len(search.centre_CD)
        header = Header(
            *scorer, f"features:{folder}", tuple(sizes), len(features), left_out, "", "query", max_cosine, found,
            __version__, "target",
        )  # fmt: skip
        if any(len(own.rows_MS) for own in bags.values()):
            write_output(out, lambda temporary: _write(temporary, header, bags, ids, row_N))
        shutil.rmtree(work, ignore_errors=True)
    if not any(len(own.rows_MS) for own in bags.values()):
        raise UsageError(f"{folder}: no bag has pictures less alike than {max_cosine}; raise --max-cosine")
    return MinedFolder(header, bags, clusters)


@contextlib.contextmanager
def _clear_errors(work: Path) -> Iterator[None]:
    """Turns what goes wrong with the files of an earlier search into a `TellapartError`; of features that cannot be
    searched nothing is left."""
    earlier = (work / "plan.json").exists()
    try:
        yield
    except (TellapartError, MemoryError) as error:
        if isinstance(error, UsageError) and not earlier and (work / "plan.json").exists():
            shutil.rmtree(work, ignore_errors=True)
        raise
    except Exception as error:
        if not earlier:
            raise
        told = str(error).partition("\n")[0] or type(error).__name__
        raise TellapartError(f"{work}: is damaged ({told}); remove that folder, and type the same again") from error


def _write(path: Path, header: Header, bags: dict[int, CuratedBags], ids: Ids, row_N: np.ndarray) -> None:
    """In the layout of `bags.file`, a line at a time. ``row_N``: of which row an id is."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.write(json.dumps({"kind": KIND, "format": FORMAT, **asdict(header)}, ensure_ascii=False) + "\n")
        for own in bags.values():
            for row_S, similarity in zip(own.rows_MS, own.similarity_M, strict=True):
                bag = {"ids": [ids[int(row_N[row])] for row in row_S], "similarity": round(float(similarity), 9)}
                file.write(json.dumps(bag, ensure_ascii=False) + "\n")


def _summary(similarity_M: np.ndarray) -> dict[str, float] | None:
    if not len(similarity_M):
        return None
    return {name: float(of(similarity_M)) for name, of in (("least", np.min), ("median", np.median), ("most", np.max))}
