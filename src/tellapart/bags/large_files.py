"""The work folder of a search among any number of pictures: what lies where, and how it is read.

What is made once, by one task each:

    plan.json         what the work is for: other features or settings are refused
    centroids.npy     C×D
    order/S.npy       of file S: each row once for each of its clusters, by cluster; where one begins is in begin/S.npy
    before.npy        for each file and cluster, how many pictures of the files before it are in the cluster
    found/G.npy       of a group of clusters: the nearest of each of its pictures, and their cosines
    near/S.npy        of file S: the nearest of each of its pictures, of all of its clusters
    moved/G.npy       of a group of clusters: its pictures are in the files by place (`tellapart.bags.refine`)
    round-R/G.npy     of a group: how many neighbours round R changed, and of how many; they are in by-place/round-R
    refined/S.npy     of file S: the nearest of each of its pictures after the last round

The last three are only there where there are several clusters: one cluster is an exact search.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from tellapart.bags.clusters import KEPT, Sizes
from tellapart.bags.disk import RowFile, disk_errors
from tellapart.bags.refine import ENTRY, EXPANDED, ROUNDS, SETTLED, Placed
from tellapart.bags.shards import FeatureShards
from tellapart.errors import UsageError
from tellapart.utils.files import replace_text
from tellapart.utils.json_text import parse_json

ROUND = "round-"


@dataclass(frozen=True)
class SearchFiles:
    """The files of a search for the k nearest of every picture of ``features``, under ``folder``."""

    folder: Path
    features: FeatureShards
    k: int
    sizes: Sizes
    max_cosine: float | None = None
    seed: int = 0
    rounds: int = ROUNDS  # of refinement, at most

    @property
    def refines(self) -> bool:
        """Whether there are rounds after the search within clusters: one cluster is exact."""
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
        """How many pictures of the files before each are in each cluster; all of them stand last (`count`)."""
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
        """What ``order`` and ``begin`` have of a file."""
        place_M = np.load(self.path_of("order", shard), mmap_mode="r", allow_pickle=False)
        return place_M, np.load(self.folder / "begin" / f"{shard:06}.npy", mmap_mode="r", allow_pickle=False)

    def members(self, group: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows by cluster, ascending in each; their clusters, and whether these are their nearest."""
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
        """What the files of a stage have for ascending rows."""
        parts, begin = [], 0
        for shard, after in enumerate(self.features.first_S[1:]):
            end = int(np.searchsorted(row_M, after))
            if end > begin:
                found = np.load(self.path_of(name, shard), mmap_mode="r", allow_pickle=False)
                parts.append(found[row_M[begin:end] - self.features.first_S[shard]])
            begin = end
        return np.concatenate(parts)

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

    def path_of(self, name: str, number: int) -> Path:
        """The file of one task of a stage."""
        if name in ("centroids", "before"):
            return self.folder / f"{name}.npy"
        return self.folder / name / f"{number:06}.npy"

    def check_plan(self) -> None:
        """Keep what the work is for. Raises `UsageError` where the folder is of other features or settings."""
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
        """Neighbours by place after a round; before the first one, number 0, those of the search."""
        return RowFile(self._by_place / f"{ROUND}{number}", len(self.features), (self.kept,), ENTRY)

    @property
    def placed(self) -> Placed:
        """Features by place."""
        half = all(shard.dtype == "<f2" for shard in self.features.shards)
        return Placed.at(self._by_place, len(self.features), self.features.width, half)

    @property
    def places(self) -> RowFile:
        """The place of each row."""
        return RowFile(self._by_place / "place", len(self.features), (), np.dtype("<i8"))

    @property
    def _by_place(self) -> Path:
        return self.folder / "by-place"

    def first_place(self, group: int) -> int:
        return int(self.home_C[min(group * self.sizes.together, len(self.home_C) - 1)])
