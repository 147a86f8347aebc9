"""Bags among any number of pictures, from features on disk: k-means, then exact search within clusters.

Four kinds of tasks, each of which leaves a file in the work folder, under a temporary name until it is whole; a file
that is there is not made again:

    plan.json         what the work is for: other features or settings are refused
    centroids.npy     C×D
    order/S.npy       of file S: its rows by cluster; where each cluster begins is in begin/S.npy
    found/C.npy       of cluster C: the nearest of each of its pictures, and their cosines
    near/S.npy        of file S: the nearest of each of its pictures, of both of its clusters

Then the bags of each size are curated (paper 2, algorithm 2) and written. Memory is bounded by a setting, not by the
number of pictures. Beside it, 36 bytes for each picture are held while bags are curated (ids included; 10 more for each
further size), and by a task that assigns or joins the rows of a file, 100 bytes + 12 k for each row of that file.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.bags.clusters import NEAREST, NOT_FOUND, Sizes, centroids_of, nearest_clusters, unit
from tellapart.bags.search import nearest_neighbours
from tellapart.bags.shards import FeatureShards
from tellapart.errors import UsageError
from tellapart.features.nearest import DIGITS, Vectors
from tellapart.progress import Progress
from tellapart.utils.files import write_errors
from tellapart.utils.json_text import parse_json
from tellapart.utils.messages import say

BLOCK = 65536  # pictures assigned, merged and curated at a time
PAIR = np.dtype([("row", "<i8"), ("cosine", "<f4")])  # a neighbour: its number among all rows, −1 for none

Spread = Callable[["LargeSearch", str, Sequence[int]], Iterable[object]]  # yields after each task


def one_by_one(search: LargeSearch, name: str, numbers: Sequence[int]) -> Iterator[None]:
    """The tasks of a stage, in this process."""
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

    def run(self, progress: bool = True, spread: Spread | None = None) -> dict[str, float]:
        """Do what is not there yet. Returns the seconds of each stage, by the name of its files.

        ``spread`` does a stage's tasks in any order, on any machines that see the folders; default: one by one, here.
        Raises `UsageError` where the folder is of other features or settings.
        """
        self._check_plan()
        seconds = {}
        for label, name, numbers in self.stages():
            started = time.perf_counter()
            todo = [number for number in numbers() if not self._file(name, number).is_file()]
            with Progress(len(todo), label, enabled=progress) as shown:
                for _ in (spread or one_by_one)(self, name, todo):
                    shown.advance()
            seconds[name] = time.perf_counter() - started
        return seconds

    def perform(self, name: str, number: int) -> None:
        """One task of a stage."""
        tasks: dict[str, Callable[[int], None]] = {
            "centroids": self.place,
            "order": self.assign,
            "found": self.search,
            "near": self.join,
        }
        tasks[name](number)

    def stages(self) -> list[tuple[str, str, Callable[[], Sequence[int]]]]:
        """What is shown, the files' name, and the tasks' numbers; a stage needs all files of those before it."""
        files = range(len(self.features.shards))
        return [
            ("placing clusters", "centroids", lambda: range(1)),
            ("assigning pictures to clusters", "order", lambda: files),
            ("searching clusters", "found", lambda: np.flatnonzero(self.count_SC.sum(0)).tolist()),
            ("joining neighbours", "near", lambda: files),
        ]

    def neighbours(self, shard: int) -> np.ndarray:
        """`PAIR` N×k of a file's pictures, nearest first; read where it is indexed."""
        found: np.ndarray = np.load(self._file("near", shard), mmap_mode="r", allow_pickle=False)
        return found

    # The tasks
    def place(self, _: int = 0) -> None:
        """Where the clusters are."""
        save_array(self._file("centroids", 0), centroids_of(self.features, self.sizes, self.seed))

    def assign(self, shard: int) -> None:
        """The rows of a file in the order of their clusters (each row twice), and where each cluster begins."""
        rows = self.features.shards[shard].rows
        cluster_N2 = np.empty((rows, NEAREST), np.int32)
        for start in range(0, rows, BLOCK):
            part = slice(start, min(start + BLOCK, rows))
            cluster_N2[part] = nearest_clusters(unit(self.features.shards[shard].read(part)), self.centre_CD)
        flat = cluster_N2.ravel()
        place_M = np.argsort(flat, kind="stable")
        place_M = place_M[np.searchsorted(flat[place_M], 0) :]  # without NOT_FOUND
        count_C = np.bincount(flat[place_M], minlength=len(self.centre_CD))
        begin_C = np.concatenate([[0], np.cumsum(count_C)])
        save_array(self.folder / "begin" / f"{shard:06}.npy", begin_C)
        save_array(self._file("order", shard), place_M.astype(np.int64))

    def search(self, cluster: int) -> None:
        """The nearest of each picture of a cluster among its others: exact."""
        row_M = np.concatenate([first + rows for first, rows in self._rows_of(cluster)])
        found_MK = nothing_found(len(row_M), self.k)
        parts = -(-len(row_M) // self.sizes.largest)
        if parts > 1:
            say(f"cluster {cluster}: {len(row_M):,} pictures, memory for {self.sizes.largest:,}: in {parts} parts")
        for part_P in np.array_split(np.arange(len(row_M)), parts):
            own_P = row_M[part_P]
            vectors = Vectors.of(self.read(own_P))
            near = nearest_neighbours(vectors, self.k, max_cosine=self.max_cosine, approximate=False, progress=False)
            kept = slice(0, near.rows_NK.shape[1])  # fewer in a small cluster
            found_MK["row"][part_P, kept] = np.where(near.rows_NK >= 0, own_P[near.rows_NK], NOT_FOUND)
            found_MK["cosine"][part_P, kept] = near.cosine_NK
        save_array(self._file("found", cluster), found_MK)

    def join(self, shard: int) -> None:
        """The nearest of each picture of a file, of both of its clusters."""
        rows, k = self.features.shards[shard].rows, self.k
        place_M, begin_C = self._order(shard)
        cluster_M = np.repeat(np.arange(len(begin_C) - 1), np.diff(begin_C))
        before_C = self.count_SC[:shard].sum(0)
        # Where a row's neighbours lie in its cluster's file.
        at_M = np.arange(len(place_M)) - begin_C[cluster_M] + before_C[cluster_M]
        inverse = np.full(rows * NEAREST, NOT_FOUND, np.int64)
        inverse[place_M] = np.arange(len(place_M))
        near_NK = np.empty((rows, k), PAIR)
        block = max(1, min(BLOCK, 2**26 // k))
        for start in range(0, rows, block):
            stop = min(start + block, rows)
            of_B2 = inverse[start * NEAREST : stop * NEAREST].reshape(-1, NEAREST)
            pair_BA = nothing_found(stop - start, NEAREST, k)
            known = of_B2 >= 0
            for cluster in np.unique(cluster_M[of_B2[known]]):
                here = known & (cluster_M[np.maximum(of_B2, 0)] == cluster)
                found = np.load(self._file("found", int(cluster)), mmap_mode="r", allow_pickle=False)
                pair_BA[here] = found[at_M[of_B2[here]]]
            near_NK[start:stop] = nearest_pairs(pair_BA.reshape(stop - start, -1), k)
        save_array(self._file("near", shard), near_NK)

    # What lies in the folder
    @cached_property
    def centre_CD(self) -> np.ndarray:
        """The centres of the clusters."""
        centre_CD: np.ndarray = np.load(self._file("centroids", 0), allow_pickle=False)
        return centre_CD

    @cached_property
    def count_SC(self) -> np.ndarray:
        """How many pictures of each file are in each cluster."""
        return np.stack([np.diff(self._order(shard)[1]) for shard in range(len(self.features.shards))])

    def _order(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        place_M = np.load(self._file("order", shard), mmap_mode="r", allow_pickle=False)
        return place_M, np.load(self.folder / "begin" / f"{shard:06}.npy", allow_pickle=False)

    def _rows_of(self, cluster: int) -> Iterator[tuple[int, np.ndarray]]:
        """For every file the number of its first row, and its rows in the cluster, ascending."""
        for shard, first in enumerate(self.features.first_S[:-1]):
            place_M, begin_C = self._order(shard)
            yield first, place_M[begin_C[cluster] : begin_C[cluster + 1]] // NEAREST

    def read(self, row_M: np.ndarray) -> np.ndarray:
        """Features of ascending rows of all files."""
        cut = np.searchsorted(row_M, self.features.first_S)
        return np.concatenate(
            [
                shard.read(row_M[begin:end] - first)
                for shard, first, begin, end in zip(
                    self.features.shards, self.features.first_S, cut, cut[1:], strict=False
                )
            ]
        )

    def _file(self, name: str, number: int) -> Path:
        if name == "centroids":
            return self.folder / "centroids.npy"
        return self.folder / name / f"{number:06}.npy"

    def _check_plan(self) -> None:
        plan = {
            "features": self.features.digest(), "k": self.k, "clusters": self.sizes.clusters,
            "largest": self.sizes.largest, "max_cosine": self.max_cosine, "seed": self.seed,
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
                    keys = [key for key in plan if not isinstance(before, dict) or before.get(key) != plan[key]]
                    raise UsageError(
                        f"{self.folder}: work was begun with other {', '.join(keys)}; remove that folder, or name "
                        "another result"
                    )
            else:
                write_file(path, lambda temporary: temporary.write_text(json.dumps(plan), encoding="utf-8"))


def nothing_found(*shape: int) -> np.ndarray:
    """Neighbours that are none."""
    pairs = np.empty(shape, PAIR)
    pairs["row"], pairs["cosine"] = NOT_FOUND, -np.inf
    return pairs


def nearest_pairs(pair_BA: np.ndarray, k: int) -> np.ndarray:
    """The k nearest of each row's candidates, each picture once, by the tie rule of `features.nearest`."""
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


def save_array(path: Path, array: np.ndarray) -> None:
    """A ``.npy`` file, whole or not at all."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.save(file, array, allow_pickle=False)

    with disk_errors(path):
        write_file(path, write)


def write_file(path: Path, write: Callable[[Path], Any]) -> None:
    """Write under a temporary name, flush to disk, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def disk_errors(path: Path) -> contextlib.AbstractContextManager[None]:
    return write_errors(path, "mend that and run the same command again; what is whole is kept")
