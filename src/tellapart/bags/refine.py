"""Neighbours of neighbours are likely neighbours: NN-descent (Dong, Moses, Li 2011), in blocks, from files.

Pictures are numbered by *place*: by nearest cluster, then by row, so that pictures that look alike lie together on
disk. In each round a block of pictures is compared with the union of their neighbours and of these pictures' own
neighbours, as one product of matrices. As in the paper, a pair that was compared in an earlier round is no reason to
compare again: only where one of the two steps is new do its ends become candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tellapart.bags.clusters import NOT_FOUND
from tellapart.bags.disk import RowFile
from tellapart.features.nearest import SPARE, Exclusions, Vectors, order_candidates

EXPANDED = 12  # nearest of them whose own neighbours become candidates
ROUNDS = 6  # at most
SETTLED = 0.02  # share of the wanted neighbours that a round changed: below it, no further round
ENTRY = np.dtype([("place", "<i8"), ("cosine", "<f4"), ("new", "?")])  # −1: none; new: not among the first before


@dataclass(frozen=True)
class Placed:
    """What lies on disk by place: features as given, their lengths, the number of the row, and the order of blocks."""

    features: RowFile  # N×D
    length: RowFile
    row: RowFile
    turn: RowFile  # a place, in the order in which places are put into blocks

    @classmethod
    def at(cls, folder: Path, rows: int, width: int, half: bool) -> Placed:
        """``half``: features are float16."""
        return cls(
            RowFile(folder / "features", rows, (width,), np.dtype("<f2" if half else "<f4")),
            RowFile(folder / "length", rows, (), np.dtype("<f8")),
            RowFile(folder / "row", rows, (), np.dtype("<i8")),
            RowFile(folder / "turn", rows, (), np.dtype("<i8")),
        )

    def vectors(self, place_M: np.ndarray, row_order: np.ndarray | None = None) -> Vectors:
        """Features of ascending places, then in another order. They are not scaled: only lengths are known."""
        import torch

        given_MD = torch.from_numpy(self.features.read(place_M)).float().numpy()  # faster than numpy's
        length_M = self.length.read(place_M)
        if row_order is not None:
            given_MD, length_M = given_MD[row_order], length_M[row_order]
        return Vectors(given_MD, length_M, given_MD)


@dataclass(frozen=True)
class Round:
    """One round: from the neighbours ``before`` (N×K `ENTRY`), for blocks of places.

    ``candidates``: at most so many at once; a block with more is done in halves.
    """

    placed: Placed
    before: RowFile
    candidates: int
    max_cosine: float | None

    def block(self, own_B: np.ndarray, known_BK: np.ndarray) -> np.ndarray:
        """The neighbours of some places after the round, B×K `ENTRY`; known_BK: those before it."""
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
        """Ascending places; none where no step is new."""
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
        """The k nearest of ``found_M``, which hold the block itself: by the rule of `features.nearest`, ties by row."""
        import torch

        row_order = np.argsort(self.placed.row.read(found_M), kind="stable")
        gallery = self.placed.vectors(found_M, row_order)
        found_M = found_M[row_order]
        where = np.empty_like(row_order)
        where[row_order] = np.arange(len(row_order))
        at_B = where[np.searchsorted(np.sort(found_M), own_B)]
        queries = gallery.take(at_B)
        scale_M = torch.from_numpy((1 / gallery.length_N).astype(np.float32))
        cosine_BM = torch.from_numpy(queries.given_ND) @ torch.from_numpy(gallery.given_ND).T
        cosine_BM.mul_(scale_M).mul_(scale_M[at_B][:, None])
        exclusions = Exclusions(own_B, found_M, self.max_cosine)
        cosine_BM[torch.arange(len(own_B)), torch.from_numpy(at_B)] = -torch.inf
        if self.max_cosine is not None:
            cosine_BM.masked_fill_(cosine_BM > exclusions.limit, -torch.inf)
        kept = min(k + SPARE, len(found_M))
        best, place = cosine_BM.topk(kept, 1)
        at_BC = torch.where(best > -torch.inf, place, NOT_FOUND).numpy().astype(np.int32)
        wanted = min(k, len(found_M))
        near = order_candidates(
            queries, gallery, at_BC, best.numpy(), wanted, exclusions, complete=kept == len(found_M)
        )
        entry_BK = no_entries(len(own_B), k)
        entry_BK["place"][:, :wanted] = np.where(near.rows_NK >= 0, found_M[near.rows_NK], NOT_FOUND)
        entry_BK["cosine"][:, :wanted] = near.cosine_NK
        return entry_BK


def no_entries(*shape: int) -> np.ndarray:
    """Neighbours that are none."""
    entries = np.empty(shape, ENTRY)
    entries["place"], entries["cosine"], entries["new"] = NOT_FOUND, -np.inf, False
    return entries


def changed(before_BK: np.ndarray, after_BK: np.ndarray) -> int:
    """How many places of the latter are not in the former."""
    place_BK = after_BK["place"]
    return int(((place_BK[:, :, None] != before_BK["place"][:, None, :]).all(2) & (place_BK >= 0)).sum())
