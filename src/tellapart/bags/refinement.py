"""NN-descent in blocks (Dong, Moses, Li 2011), which searches the neighbours of neighbours.

Pictures are numbered by *place*, in cluster order (by nearest cluster, then by row), so that similar pictures are close
on disk. In each round a block of pictures is compared with the union of its neighbours and their neighbours, in one
matrix product. As in the paper, pairs from earlier rounds are not compared again: the two ends of a path become
candidates only if at least one of its two steps is new.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from tellapart.bags.row_files import NOT_FOUND, RowFile
from tellapart.features.nearest import Exclusions, Vectors, nearest_among

EXPANDED = 12  # number of nearest neighbours whose own neighbours become candidates
ROUNDS = 6  # maximum number of rounds
SETTLED = 0.02  # refinement stops if a round changes less than this fraction of the k neighbours
# new: whether the neighbour was not among the first `EXPANDED` before
ENTRY = np.dtype([("place", "<i8"), ("cosine", "<f4"), ("new", "?")])
NO_ENTRY = np.array((NOT_FOUND, -np.inf, False), ENTRY)


@dataclass(frozen=True)
class FilesByPlace:
    """Files on disk by place: raw features, their norms, row numbers, and the order of blocks."""

    features: RowFile  # N×D
    length: RowFile
    row: RowFile
    turn: RowFile  # the order in which places form blocks

    @classmethod
    def at(cls, folder: Path, rows: int, width: int, half: bool) -> FilesByPlace:
        """Returns the files in a folder. ``half``: whether the features are float16."""
        return cls(
            RowFile(folder / "features", rows, (width,), np.dtype("<f2" if half else "<f4")),
            RowFile(folder / "length", rows, (), np.dtype("<f8")),
            RowFile(folder / "row", rows, (), np.dtype("<i8")),
            RowFile(folder / "turn", rows, (), np.dtype("<i8")),
        )

    def vectors(self, place_M: np.ndarray, row_order: np.ndarray) -> Vectors:
        """Reads the features at places, given in ascending order, and reorders them."""
        given_MD = torch.from_numpy(self.features.read(place_M)).float()  # faster than numpy's
        given_MD = given_MD[torch.from_numpy(row_order)]
        length_M = self.length.read(place_M)[row_order]
        unit_MD = given_MD * torch.from_numpy((1 / length_M).astype(np.float32))[:, None]
        return Vectors(given_MD.numpy(), length_M, unit_MD.numpy())


@dataclass(frozen=True)
class Round:
    """One refinement round for the neighbours ``before`` (N×K `ENTRY`), in blocks of rows in cluster order.

    ``candidates``: maximum number of candidates compared at once. Blocks with more are split in half.
    """

    placed: FilesByPlace
    before: RowFile
    candidates: int
    max_cosine: float | None

    def block(self, own_B: np.ndarray, known_BK: np.ndarray) -> np.ndarray:
        """Returns the neighbours of these places after the round, B×K `ENTRY`. ``known_BK``: those before the round."""
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
        """Returns the places of the candidates in ascending order, or no candidates if no step is new."""
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
        """Returns the k nearest in ``found_M`` (which includes the block), breaking ties as in `features.nearest`."""
        row_order = np.argsort(self.placed.row.read(found_M), kind="stable")
        gallery = self.placed.vectors(found_M, row_order)
        at_B = np.argsort(row_order, kind="stable")[np.searchsorted(found_M, own_B)]
        found_M = found_M[row_order]
        near = nearest_among(gallery.take(at_B), gallery, k, Exclusions(own_B, found_M, self.max_cosine))
        width = near.rows_NK.shape[1]
        entry_BK = np.full((len(own_B), k), NO_ENTRY)
        entry_BK["place"][:, :width] = np.where(near.rows_NK >= 0, found_M[near.rows_NK], NOT_FOUND)
        entry_BK["cosine"][:, :width] = near.cosine_NK
        return entry_BK


def changed(before_BK: np.ndarray, after_BK: np.ndarray) -> int:
    """Counts the places in ``after_BK`` that are not in the same row of ``before_BK``."""
    place_BK = after_BK["place"]
    return int(((place_BK[:, :, None] != before_BK["place"][:, None, :]).all(2) & (place_BK >= 0)).sum())
