"""Finds the nearest neighbours of any number of pictures, from features on disk, by k-means, exact search within
clusters, and refinement.

Two pictures are compared if they share one of their nearest clusters, so that pictures near the border of a cluster are
compared with pictures on the other side. NN-descent (`bags.refinement`) finds most of the neighbours that this misses.

Each task writes a file in the work folder atomically; existing files are not computed again. The files are:

    plan.json         features and settings of the search, which later runs must repeat
    centroids.npy     C×D
    order/S.npy       file S: its members (below), sorted by cluster; begin/S.npy: where each cluster begins;
                      clusters/S.npy: the nearest clusters of each row
    before.npy        for each file and cluster, the number of pictures in earlier files to which the cluster is nearest
    found/G.npy       group G of clusters: the nearest neighbours of each of its members, with cosines;
                      member/G.npy: the members, ascending
    near/S.npy        file S: the nearest neighbours of each of its pictures over all of the picture's clusters
    moved/G.npy       group G: marks that its pictures have been copied to the cluster-ordered files
    round-R/G.npy     group G: number of neighbours that round R changed, and the total; the neighbours themselves are
                      in by-place/round-R
    refined/S.npy     file S: the nearest neighbours of each of its pictures after the last round

A member is a row in one of its clusters, with the number row × clusters per row + rank of the cluster. The last three
exist only if the search is refined (`LargeSearch.refines`); with one cluster, the search is exact. A setting bounds the
memory, regardless of the number of pictures. In addition, tasks that assign or join the rows of a file need, per row,
400 bytes plus 12 bytes per neighbour; curating bags (`bags.curation`) needs 36 bytes per picture, including ids, and 10
bytes for each additional size.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from tellapart.bags.cluster_sizes import KEPT, QUERIES, Sizes
from tellapart.bags.clusters import centroids_of, nearest_clusters, unit
from tellapart.bags.feature_shards import FeatureShards
from tellapart.bags.refinement import ENTRY, EXPANDED, NO_ENTRY, ROUNDS, SETTLED, FilesByPlace, Round, changed
from tellapart.bags.row_files import NO_PAIR, NOT_FOUND, PAIR, RowFile, disk_errors, save_array
from tellapart.errors import UsageError
from tellapart.features.all_neighbours import nearest_neighbours
from tellapart.features.nearest import DIGITS, Vectors
from tellapart.utils.atomic_writes import replace_file, replace_text
from tellapart.utils.blocks import blocks_of
from tellapart.utils.differing_keys import differing
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress
from tellapart.utils.strict_json import parse_json

ROUND = "round-"
PICTURES_PER_BLOCK = 65536  # number of pictures to assign, merge or curate at a time


Spread = Callable[["LargeSearch", str, Sequence[int]], Iterable[object]]  # yields after each task
Stage = tuple[str, Callable[[int], None], Callable[[], Sequence[int]]]  # label, task, and numbers of the tasks


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
        return np.array(self.load("centroids"))

    @cached_property
    def home_C(self) -> np.ndarray:
        """The position, in cluster order, of each cluster's first picture; the last entry is the number of pictures."""
        return np.concatenate([[0], np.cumsum(self.load("before")[-1])])

    @property
    def groups(self) -> range:
        """The groups of clusters, each of which is one task; `Sizes` determines their size."""
        return range(-(-len(self.centre_CD) // self.sizes.together))

    def members(self, group: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns a group's members, sorted by cluster and number, and their clusters."""
        first = group * self.sizes.together
        last = min(first + self.sizes.together, len(self.centre_CD))
        member_F, cluster_F = [], []
        for shard, before in enumerate(self.features.first_S[:-1]):
            begin_C = np.array(self.load("begin", shard)[first : last + 1])
            member_F.append(before * self.sizes.nearest + self.load("order", shard)[begin_C[0] : begin_C[-1]])
            cluster_F.append(np.repeat(np.arange(first, last), np.diff(begin_C)))
        cluster_M = np.concatenate(cluster_F)
        order = np.argsort(cluster_M, kind="stable")
        return np.concatenate(member_F)[order], cluster_M[order]

    def load(self, name: str, number: int = 0) -> np.ndarray:
        """Maps the file that one task of a stage wrote."""
        array: np.ndarray = np.load(self.path_of(name, number), mmap_mode="r", allow_pickle=False)
        return array

    def rows_of(self, name: str, row_M: np.ndarray) -> np.ndarray:
        """Reads rows, given in ascending order, from a stage's files, or from the files with features."""
        first_S, parts = self.features.first_S, []
        cut = np.searchsorted(row_M, first_S)
        for shard in np.flatnonzero(np.diff(cut)).tolist():
            own_P = row_M[cut[shard] : cut[shard + 1]] - first_S[shard]
            parts.append(
                self.features.shards[shard].read(own_P) if name == "features" else self.load(name, shard)[own_P]
            )
        return np.concatenate(parts)

    def path_of(self, name: str, number: int) -> Path:
        """Returns the path of the file that one task of a stage writes."""
        if name in ("centroids", "before"):
            return self.folder / f"{name}.npy"
        return self.folder / name / f"{number:06}.npy"

    def check_plan(self) -> None:
        """Records the features and settings. Raises `UsageError` if the folder was created with different ones."""
        plan = {
            "features": self.features.digest(), "k": self.k, **asdict(self.sizes), "max_cosine": self.max_cosine,
            "seed": self.seed, "rounds": self.rounds, "expanded": EXPANDED, "settled": SETTLED,
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
                    keys = differing(before if isinstance(before, dict) else {}, plan)
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

    @property
    def result(self) -> str:
        """The name of the files with the neighbours of each picture: `PAIR` N×K, nearest first, K ≥ k."""
        return "refined" if self.refines else "near"

    # Files in cluster order
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
        for name, (label, _, numbers) in self.stages().items():
            started = time.perf_counter()
            todo = [number for number in numbers() if not self.path_of(name, number).is_file()]
            with Progress(len(todo), label, enabled=progress) as shown:
                for _ in (spread or one_by_one)(self, name, todo):
                    shown.advance()
            if name.startswith(ROUND) and self._complete(number := int(name.removeprefix(ROUND))):
                self.round_rows(number - 1).path.unlink(missing_ok=True)  # no longer needed
            seconds[name] = time.perf_counter() - started
        return seconds

    def perform(self, name: str, number: int) -> None:
        """Performs one task of a stage."""
        self.stages()[name][1](number)

    def stages(self) -> dict[str, Stage]:
        """Returns the stages by the name of their files. A stage requires all files from earlier stages."""
        files = range(len(self.features.shards))
        stages: dict[str, Stage] = {
            "centroids": ("placing clusters", self.place, lambda: range(1)),
            "order": ("assigning pictures to clusters", self.assign, lambda: files),
            "before": ("counting pictures per cluster", self.count, lambda: range(1)),
            "found": ("searching clusters", self.search, lambda: self.groups),
            "near": ("joining neighbours", self.join, lambda: files),
        }
        if self.refines:
            stages["moved"] = ("ordering features by cluster", self.move, lambda: self.groups)
            for number in range(1, self.rounds + 1):
                label, task = f"neighbours of neighbours, round {number}", partial(self.improve, number)
                stages[f"{ROUND}{number}"] = (label, task, partial(self._groups_of, number))
            stages["refined"] = ("writing neighbours", self.finish, lambda: files)
        return stages

    def _groups_of(self, number: int) -> Sequence[int]:
        """Returns the tasks of a round, or no tasks if the previous round changed little."""
        if number == 1:
            return self.groups
        if not self._complete(number - 1):
            return []
        new, of = np.sum([self.load(f"{ROUND}{number - 1}", group) for group in self.groups], 0)
        return self.groups if new > SETTLED * of else []

    def _complete(self, number: int) -> bool:
        return all(self.path_of(f"{ROUND}{number}", group).is_file() for group in self.groups)

    # The tasks
    def place(self, _: int = 0) -> None:
        """Computes the cluster centroids."""
        save_array(self.path_of("centroids", 0), centroids_of(self.features, self.sizes, self.seed))

    def assign(self, shard: int) -> None:
        """Sorts a file's members by cluster, and records where each cluster begins."""
        file = self.features.shards[shard]
        cluster_NM = np.concatenate(
            [
                nearest_clusters(unit(file.read(row_B), str(file.path)), self.centre_CD, self.sizes.nearest)
                for row_B in blocks_of(np.arange(file.rows), PICTURES_PER_BLOCK)
            ]
        )
        flat = cluster_NM.ravel()
        member_M = np.argsort(flat, kind="stable")
        begin_C = np.searchsorted(flat[member_M], np.arange(len(self.centre_CD) + 1))
        save_array(self.path_of("clusters", shard), cluster_NM)
        save_array(self.path_of("begin", shard), begin_C)
        save_array(self.path_of("order", shard), member_M)

    def count(self, _: int = 0) -> None:
        """Counts, for each file and cluster, the pictures in the files before it to which the cluster is nearest."""
        files, clusters = len(self.features.shards), len(self.centre_CD)

        def write(temporary: Path) -> None:
            before_SC = np.lib.format.open_memmap(temporary, "w+", np.int64, (files + 1, clusters))
            for shard in range(files):
                home_C = np.bincount(self.load("clusters", shard)[:, 0], minlength=clusters)
                before_SC[shard + 1] = before_SC[shard] + home_C
            before_SC.flush()

        with disk_errors(self.path_of("before", 0)):
            replace_file(self.path_of("before", 0), write)

    def search(self, group: int) -> None:
        """Finds the exact nearest neighbours of each picture within its cluster, for a group of clusters."""
        member_M, cluster_M = self.members(group)
        found_MK = np.full((len(member_M), self.kept), NO_PAIR)
        for cluster in np.unique(cluster_M):
            begin, end = np.searchsorted(cluster_M, [cluster, cluster + 1])
            parts = -(-(end - begin) // self.sizes.largest)
            if parts > 1:
                say(
                    f"cluster {cluster}: split {end - begin:,} pictures into {parts} parts, because only "
                    f"{self.sizes.largest:,} fit into memory"
                )
            for part_P in np.array_split(np.arange(begin, end), parts):
                own_P = member_M[part_P] // self.sizes.nearest
                vectors = Vectors.of(self.rows_of("features", own_P))
                near = nearest_neighbours(
                    vectors, self.kept, max_cosine=self.max_cosine, approximate=False, progress=False
                )
                kept = slice(0, near.rows_NK.shape[1])  # small clusters have fewer neighbours
                found_MK["row"][part_P, kept] = np.where(near.rows_NK >= 0, own_P[near.rows_NK], NOT_FOUND)
                found_MK["cosine"][part_P, kept] = near.cosine_NK
        order_M = np.argsort(member_M)
        save_array(self.path_of("member", group), member_M[order_M])
        save_array(self.path_of("found", group), found_MK[order_M])

    def join(self, shard: int) -> None:
        """Merges the neighbours that each picture of a file has in its clusters, and writes their positions."""
        first, rows, nearest = self.features.first_S[shard], self.features.shards[shard].rows, self.sizes.nearest
        if self.refines:
            home_N = self.load("clusters", shard)[:, 0]
            order_N = np.argsort(home_N, kind="stable")
            home_N, place_N = home_N[order_N], np.empty(rows, np.int64)
            rank_N = np.arange(rows) - np.searchsorted(home_N, home_N)
            place_N[order_N] = (self.home_C[:-1] + self.load("before")[shard])[home_N] + rank_N
            self.places.write(first, place_N)
        of_groups = []  # the file's members in each group, and where they begin in the group
        for group in self.groups:
            member_M = self.load("member", group)
            begin, end = np.searchsorted(member_M, [first * nearest, (first + rows) * nearest])
            of_groups.append((group, begin, member_M[begin:end] - first * nearest))
        near_NK = np.empty((rows, self.kept), PAIR)
        block = max(1, min(PICTURES_PER_BLOCK, 2**26 // (nearest * self.kept)))
        for start in range(0, rows, block):
            stop = min(start + block, rows)
            pair_MK = np.full(((stop - start) * nearest, self.kept), NO_PAIR)
            for group, begin, member_M in of_groups:
                at, end = np.searchsorted(member_M, [start * nearest, stop * nearest])
                if end > at:
                    pairs = self.load("found", group)[begin + at : begin + end]
                    pair_MK[member_M[at:end] - start * nearest] = pairs
            near_NK[start:stop] = nearest_pairs(pair_MK.reshape(stop - start, -1), self.kept)
        save_array(self.path_of("near", shard), near_NK)

    def move(self, group: int) -> None:
        """Writes the pictures whose nearest cluster is in the group, and their neighbours, to the files in cluster
        order.
        """
        member_M, cluster_M = self.members(group)
        home_M = member_M % self.sizes.nearest == 0
        row_M, cluster_M, first = member_M[home_M] // self.sizes.nearest, cluster_M[home_M], self.first_place(group)
        chunk = max(1, min(PICTURES_PER_BLOCK, self.sizes.largest, 2**24 // self.kept))
        for start in range(0, len(row_M), chunk):
            row_P, place = row_M[start : start + chunk], first + start
            order = np.argsort(row_P, kind="stable")
            back = np.argsort(order, kind="stable")
            ascending_P = row_P[order]
            vectors = Vectors.of(self.rows_of("features", ascending_P))
            self.placed.features.write(place, vectors.given_ND[back])
            self.placed.length.write(place, vectors.length_N[back])
            self.placed.row.write(place, row_P)
            second_P = self.rows_of("clusters", ascending_P)[back, 1]
            turn_P = np.lexsort((row_P, second_P, cluster_M[start : start + chunk]))
            self.placed.turn.write(place, place + turn_P)
            pair_PK = self.rows_of("near", ascending_P)[back]
            entry_PK = np.full(pair_PK.shape, NO_ENTRY)
            there_PK = pair_PK["row"] >= 0
            entry_PK["place"][there_PK] = self.places.read(pair_PK["row"][there_PK])
            entry_PK["cosine"], entry_PK["new"] = pair_PK["cosine"], there_PK
            self.round_rows(0).write(place, entry_PK)
        save_array(self.path_of("moved", group), np.array([len(row_M)]))

    def improve(self, number: int, group: int) -> None:
        """Performs one refinement round for the pictures whose nearest cluster is in the group."""
        first, end = self.first_place(group), self.first_place(group + 1)
        before, after = self.round_rows(number - 1), self.round_rows(number)
        step = Round(self.placed, before, self.sizes.candidates, self.max_cosine)
        chunk = max(QUERIES, min(PICTURES_PER_BLOCK, 2**24 // self.kept))
        new = of = 0
        for start in range(first, end, chunk):
            turn_P = self.placed.turn.read(slice(start, min(start + chunk, end)))
            entry_PK = np.empty((len(turn_P), self.kept), ENTRY)
            for own_B in blocks_of(turn_P, QUERIES):
                known_BK = before.read(own_B)
                entry_BK = entry_PK[own_B - start] = step.block(own_B, known_BK)
                new += changed(known_BK[:, : self.k], entry_BK[:, : self.k])
                of += int((entry_BK["place"][:, : self.k] >= 0).sum())
            after.write(start, entry_PK)
        save_array(self.path_of(f"{ROUND}{number}", group), np.array([new, of]))

    def finish(self, shard: int) -> None:
        """Writes the neighbours of one feature file's rows after the last round, as row numbers."""
        first, rows = self.features.first_S[shard], self.features.shards[shard].rows
        near_NK = np.full((rows, self.k), NO_PAIR)
        # Only the last finished round's neighbours exist.
        last = next(done for done in map(self.round_rows, range(self.rounds, -1, -1)) if done.path.is_file())
        for start in range(0, rows, PICTURES_PER_BLOCK):
            near_BK, at = near_NK[start : start + PICTURES_PER_BLOCK], first + start
            entry_BK = last.read(self.places.read(slice(at, at + len(near_BK))))[:, : self.k]
            there_BK = entry_BK["place"] >= 0
            near_BK["row"][there_BK] = self.placed.row.read(entry_BK["place"][there_BK])
            near_BK["cosine"] = entry_BK["cosine"]
        save_array(self.path_of("refined", shard), near_NK)


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
