"""What every search for neighbours returns, and when two cosines count as equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

APPROXIMATE_FROM = 1_000_000  # pictures: from here on FAISS, unless the caller chooses
ROUNDING = 2e-6  # cosines in float32 this near may stand in another order than in float64


@dataclass(frozen=True)
class Neighbours:
    """The K nearest of each of N pictures, nearest first.

    ``rows_NK`` int32, −1 where there are fewer than K; ``cosine_NK`` float32, −inf there. ``recall`` is the share of
    the exact neighbours that an approximate search found, on a sample; None for an exact search.
    """

    rows_NK: np.ndarray
    cosine_NK: np.ndarray
    recall: float | None = None
