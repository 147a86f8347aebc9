"""Mines bags from any number of features on disk, by k-means, exact search within clusters, and refinement.

Two pictures are compared if they share one of their nearest clusters, so that pictures near the border of a cluster are
compared with pictures on the other side. NN-descent (`bags.refinement`) finds most of the neighbours that this misses.

Each task writes a file in the work folder atomically; existing files are not computed again. The files are:

    plan.json         features and settings of the search, which later runs must repeat
    centroids.npy     C×D
    order/S.npy       file S: each row once for each of its clusters, sorted by cluster; begin/S.npy: clusters' starts
    before.npy        for each file and cluster, the number of the cluster's pictures in earlier files
    found/G.npy       group G of clusters: the nearest neighbours of each of its pictures, with cosines
    near/S.npy        file S: the nearest neighbours of each of its pictures over all of the picture's clusters
    moved/G.npy       group G: marks that its pictures have been copied to the cluster-ordered files
    round-R/G.npy     group G: number of neighbours that round R changed, and the total; the neighbours themselves are
                      in by-place/round-R
    refined/S.npy     file S: the nearest neighbours of each of its pictures after the last round

The last three exist only if there are several clusters; with one cluster, the search is exact. After the last task, the
bags of each size are curated. A setting bounds the memory, regardless of the number of pictures. In addition, tasks
that assign or join the rows of a file need, per row, 400 bytes plus 12 bytes per neighbour; curating bags needs 36
bytes per picture, including ids, and 10 bytes for each additional size.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from tellapart.bags.cluster_sizes import KEPT, QUERIES, Sizes
from tellapart.bags.clusters import centroids_of, nearest_clusters, unit
from tellapart.bags.refinement import ENTRY, EXPANDED, ROUNDS, SETTLED, FilesByPlace, Round, changed, no_entries
from tellapart.bags.row_files import NOT_FOUND, PAIR, RowFile, disk_errors, nothing_found, save_array
from tellapart.bags.shards import FeatureShards
from tellapart.errors import UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import DIGITS, Vectors
from tellapart.utils.atomic_writes import replace_file, replace_text
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress
from tellapart.utils.strict_json import parse_json

ROUND = "round-"
PICTURES_PER_BLOCK = 65536  # number of pictures to assign, merge or curate at a time


Spread = Callable[["LargeSearch", str, Sequence[int]], Iterable[object]]  # yields after each task


def one_by_one(search: LargeSearch, name: str, numbers: Sequence[int]) -> Iterator[None]:
    """Performs a stage's tasks sequentially in this process."""
    for number in numbers:
        search.perform(name, number)
        yield


@dataclass(frozen=True)
class LargeSearch:
    """Finds the k nearest neighbours of every picture in ``features``, with intermediate files in ``folder``."""

    folder: Path
    features: FeatureShards
    k: int
    sizes: Sizes
    max_cosine: float | None = None
    seed: int = 0
    rounds: int = ROUNDS  # maximum number of refinement rounds

    @property
    def refines(self) -> bool:
        """Returns whether refinement rounds follow the search within clusters. A single cluster needs no refinement."""
        return self.rounds > 0 and self.sizes.refined and self.sizes.clusters > 1

    @property
    def kept(self) -> int:
        """K, the number of neighbours kept during the search."""
        return max(self.k, KEPT) if self.refines else self.k

    @cached_property
    def centre_CD(self) -> np.ndarray:
        """The cluster centroids, C×D."""
        centre_CD: np.ndarray = np.load(self.path_of("centroids", 0), allow_pickle=False)
        return centre_CD

    @property
    def before_S2C(self) -> np.ndarray:
        """For each file, the number of pictures in the files before it, by cluster; the last entry counts all
        pictures (see `count`).
        """
        before_S2C: np.ndarray = np.load(self.path_of("before", 0), mmap_mode="r", allow_pickle=False)
        return before_S2C

    @cached_property
    def home_C(self) -> np.ndarray:
        """The position, in cluster order, of each cluster's first picture; the last entry is the number of pictures."""
        return np.concatenate([[0], np.cumsum(self.before_S2C[-1, 1])])

    @property
    def groups(self) -> range:
        """The groups of clusters, each of which is one task; `Sizes` determines their size."""
        return range(-(-len(self.centre_CD) // self.sizes.together))

    def order_of(self, shard: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ``order`` and ``begin`` arrays of a file."""
        place_M = np.load(self.path_of("order", shard), mmap_mode="r", allow_pickle=False)
        return place_M, np.load(self.folder / "begin" / f"{shard:06}.npy", mmap_mode="r", allow_pickle=False)

    def members(self, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns a group's rows, sorted by cluster and row, their clusters, and whether each cluster is the
        row's nearest.
        """
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
        """Reads rows, given in ascending order, from a stage's files."""
        parts, begin = [], 0
        for shard, after in enumerate(self.features.first_S[1:]):
            end = int(np.searchsorted(row_M, after))
            if end > begin:
                rows = np.load(self.path_of(name, shard), mmap_mode="r", allow_pickle=False)
                parts.append(rows[row_M[begin:end] - self.features.first_S[shard]])
            begin = end
        return np.concatenate(parts)

    def read(self, row_M: np.ndarray) -> np.ndarray:
        """Reads the features of rows, given in ascending order, from all files."""
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
        """Returns the path of the file that one task of a stage writes."""
        if name in ("centroids", "before"):
            return self.folder / f"{name}.npy"
        return self.folder / name / f"{number:06}.npy"

    def check_plan(self) -> None:
        """Records the features and settings. Raises `UsageError` if the folder was created with different ones."""
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
                        f"{self.folder} belongs to a run with different settings ({', '.join(keys)}); "
                        "remove this folder, or choose another output"
                    )
            elif others := [file.name for file in self.folder.iterdir() if not file.name.startswith(".")]:
                raise UsageError(
                    f"{self.folder} contains {others[0]}, but no resumable work; move the folder, "
                    "or choose another output"
                )
            else:
                replace_text(path, json.dumps(plan))

    def neighbours(self, shard: int) -> np.ndarray:
        """Returns the neighbours of a file's rows, `PAIR` N×K, nearest first, K ≥ k, as a memory map."""
        name = "refined" if self.refines else "near"
        pair_NK: np.ndarray = np.load(self.path_of(name, shard), mmap_mode="r", allow_pickle=False)
        return pair_NK

    # The rounds
    def round_rows(self, number: int) -> RowFile:
        """Returns the neighbours after a round, in cluster order; round 0 is the search within clusters."""
        return RowFile(self._by_place / f"{ROUND}{number}", len(self.features), (self.kept,), ENTRY)

    @property
    def placed(self) -> FilesByPlace:
        """Returns the feature files, in cluster order."""
        half = all(shard.dtype == "<f2" for shard in self.features.shards)
        return FilesByPlace.at(self._by_place, len(self.features), self.features.width, half)

    @property
    def places(self) -> RowFile:
        """Returns the position of each row in cluster order."""
        return RowFile(self._by_place / "place", len(self.features), (), np.dtype("<i8"))

    @property
    def _by_place(self) -> Path:
        return self.folder / "by-place"

    def first_place(self, group: int) -> int:
        return int(self.home_C[min(group * self.sizes.together, len(self.home_C) - 1)])

    # The search
    def run(self, progress: bool = True, spread: Spread | None = None) -> dict[str, float]:
        """Performs the remaining tasks. Returns each stage's duration in seconds, by the name of its files.

        ``spread`` performs a stage's tasks in any order, on any machines with access to the folders. By default, tasks
        run sequentially in this process. Raises `UsageError` if the folder belongs to other features or settings.
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
        """Performs one task of a stage."""
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
        """Returns the label, file name and task numbers of each stage. A stage requires all files from
        earlier stages.
        """
        files = range(len(self.features.shards))
        first: list[tuple[str, str, Callable[[], Sequence[int]]]] = [
            ("placing clusters", "centroids", lambda: range(1)),
            ("assigning pictures to clusters", "order", lambda: files),
            ("counting pictures per cluster", "before", lambda: range(1)),
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
        """Computes the cluster centroids."""
        save_array(self.path_of("centroids", 0), centroids_of(self.features, self.sizes, self.seed))

    def assign(self, shard: int) -> None:
        """Sorts a file's rows by cluster, and records where each cluster begins. A row occurs once for each of its
        clusters.
        """
        rows = self.features.shards[shard].rows
        cluster_NM = np.empty((rows, self.sizes.nearest), np.int32)
        for start in range(0, rows, PICTURES_PER_BLOCK):
            part = slice(start, min(start + PICTURES_PER_BLOCK, rows))
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
        """Counts, for each file, each cluster's pictures in the files before that file.

        Counts both all of a cluster's pictures and those to which the cluster is the nearest.
        """
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
        """Finds the exact nearest neighbours of each picture within its cluster, for a group of clusters."""
        row_M, cluster_M, _ = self.members(group)
        found_MK = nothing_found(len(row_M), self.kept)
        for cluster in np.unique(cluster_M):
            begin, end = np.searchsorted(cluster_M, [cluster, cluster + 1])
            self._search_cluster(int(cluster), row_M[begin:end], found_MK[begin:end])
        save_array(self.path_of("found", group), found_MK)

    def _search_cluster(self, cluster: int, row_M: np.ndarray, found_MK: np.ndarray) -> None:
        parts = -(-len(row_M) // self.sizes.largest)
        if parts > 1:
            say(
                f"cluster {cluster}: split {len(row_M):,} pictures into {parts} parts, because only "
                f"{self.sizes.largest:,} fit into memory"
            )
        for part_P in np.array_split(np.arange(len(row_M)), parts):
            own_P = row_M[part_P]
            vectors = Vectors.of(self.read(own_P))
            near = nearest_neighbours(vectors, self.kept, max_cosine=self.max_cosine, approximate=False, progress=False)
            kept = slice(0, near.rows_NK.shape[1])  # small clusters have fewer neighbours
            found_MK["row"][part_P, kept] = np.where(near.rows_NK >= 0, own_P[near.rows_NK], NOT_FOUND)
            found_MK["cosine"][part_P, kept] = near.cosine_NK

    def join(self, shard: int) -> None:
        """Merges the neighbours that each picture of a file has in its clusters, and writes their positions."""
        rows, k, nearest = self.features.shards[shard].rows, self.kept, self.sizes.nearest
        place_M, begin_C = self.order_of(shard)
        cluster_M = np.repeat(np.arange(len(begin_C) - 1), np.diff(begin_C))
        before_2C, total_2C = self.before_S2C[shard], self.before_S2C[-1]
        # position of the row's neighbours in the file of the cluster's group
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
        block = max(1, min(PICTURES_PER_BLOCK, 2**26 // (nearest * k)))
        for start in range(0, rows, block):
            stop = min(start + block, rows)
            of_BM = inverse[start * nearest : stop * nearest].reshape(-1, nearest)
            pair_BA = nothing_found(stop - start, nearest, k)
            known = of_BM >= 0
            group_BM = group_C[cluster_M[np.maximum(of_BM, 0)]]
            for group in np.unique(group_BM[known]):
                here = known & (group_BM == group)
                pairs = np.load(self.path_of("found", int(group)), mmap_mode="r", allow_pickle=False)
                pair_BA[here] = pairs[at_M[of_BM[here]]]
            near_NK[start:stop] = nearest_pairs(pair_BA.reshape(stop - start, -1), k)
        save_array(self.path_of("near", shard), near_NK)

    def move(self, group: int) -> None:
        """Writes the pictures whose nearest cluster is in the group, and their neighbours, to the files in cluster
        order.
        """
        row_M, cluster_M, home_M = self.members(group)
        row_M, cluster_M, first = row_M[home_M], cluster_M[home_M], self.first_place(group)
        chunk = max(1, min(PICTURES_PER_BLOCK, self.sizes.largest, 2**24 // self.kept))
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
        """Performs one refinement round for the pictures whose nearest cluster is in the group."""
        first, end = self.first_place(group), self.first_place(group + 1)
        before, after = self.round_rows(number - 1), self.round_rows(number)
        step = Round(self.placed, before, self.sizes.candidates, self.max_cosine)
        chunk = max(QUERIES, min(PICTURES_PER_BLOCK, 2**24 // self.kept))
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
        """Writes the neighbours of one feature file's rows after the last round, as row numbers."""
        first, rows = self.features.first_S[shard], self.features.shards[shard].rows
        near_NK = np.empty((rows, self.k), PAIR)
        last = self.round_rows(self._rounds_done())
        chunk = max(1, min(PICTURES_PER_BLOCK, 2**24 // self.kept))
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
        """Returns the tasks of a round, or no tasks if the previous round changed little."""
        if number == 1 or not self._complete(number - 1):
            return self.groups if number == 1 else []
        new, of = sum(np.load(self.path_of(f"{ROUND}{number - 1}", group)) for group in self.groups)
        return self.groups if new > SETTLED * of else []

    def _complete(self, number: int) -> bool:
        return all(self.path_of(f"{ROUND}{number}", group).is_file() for group in self.groups)

    def _rounds_done(self) -> int:
        """Returns the last finished round, the only one whose neighbours `_drop_before` keeps."""
        return max(number for number in range(self.rounds + 1) if self.round_rows(number).path.is_file())

    def _drop_before(self, name: str) -> None:
        """Once a round is finished, removes the previous round's neighbours, which are no longer needed."""
        if name.startswith(ROUND) and self._complete(number := int(name.removeprefix(ROUND))):
            self.round_rows(number - 1).path.unlink(missing_ok=True)


def nearest_pairs(pair_BA: np.ndarray, k: int) -> np.ndarray:
    """Returns the k nearest of each row's candidates, without duplicates, breaking ties as in `features.nearest`."""
    row_BA, cosine_BA = pair_BA["row"], np.where(pair_BA["row"] >= 0, pair_BA["cosine"], -np.inf)
    by_row = np.lexsort((-cosine_BA, row_BA), axis=1)
    row_BA, cosine_BA = (np.take_along_axis(array, by_row, 1) for array in (row_BA, cosine_BA))
    cosine_BA[:, 1:][row_BA[:, 1:] == row_BA[:, :-1]] = -np.inf  # duplicates from several clusters
    order_BK = np.lexsort((row_BA, -np.round(cosine_BA.astype(np.float64), DIGITS)), axis=1)[:, :k]
    nearest_BK = np.empty((len(pair_BA), k), PAIR)
    nearest_BK["cosine"] = np.take_along_axis(cosine_BA, order_BK, 1)
    nearest_BK["row"] = np.where(nearest_BK["cosine"] > -np.inf, np.take_along_axis(row_BA, order_BK, 1), NOT_FOUND)
    return nearest_BK
