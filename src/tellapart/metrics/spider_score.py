"""SPIDEr (Liu et al. 2017): the mean of SPICE and CIDEr-D, where SPICE's tool is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.metrics.cider import CIDER_D_SIGNATURE, cider_d
from tellapart.metrics.spice_tool import SPICE_SIGNATURE, spice

References = Sequence[Sequence[str]]

SPIDER_SIGNATURE = f"mean(spice,cider-d)|{SPICE_SIGNATURE}|{CIDER_D_SIGNATURE}"


def spider(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """SPIDEr: (SPICE + CIDEr-D) / 2 of each caption, 0 to 5.5, and their mean.

    A caption without a SPICE number is NaN and not in the mean. Raises what `spice` raises where its tool is missing.
    """
    score_N = (spice(captions, references)[1] + cider_d(captions, references)[1]) / 2
    kept_N = score_N[~np.isnan(score_N)]
    return (float(kept_N.mean()) if len(kept_N) else float("nan")), score_N
