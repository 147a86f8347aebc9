"""SPIDEr (Liu et al. 2017), the mean of SPICE and CIDEr-D. Requires SPICE's tool."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tellapart.metrics.cider import CIDER_D_SIGNATURE, cider_d
from tellapart.metrics.corpus_scores import PERCENT, with_mean
from tellapart.metrics.inputs import References
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.registry import metric
from tellapart.metrics.spice_score import SPICE_SIGNATURE, find_tool, spice

SPIDER_SIGNATURE = f"mean(spice,cider-d)|{SPICE_SIGNATURE}|{CIDER_D_SIGNATURE}"


@metric(
    "spider",
    signature=SPIDER_SIGNATURE,
    label="SPIDEr",
    help="mean of SPICE and CIDEr-D",
    scale=100.0,
    bounds=PERCENT,
    direction="higher",
    group=CLOSE,
    check=find_tool,
)
def spider(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """Computes SPIDEr, (SPICE + CIDEr-D) / 2, 0 to 5.5. Returns the mean and each caption's score.

    A caption without a SPICE score is NaN and is excluded from the mean. Raises the same errors as `spice`.
    """
    return with_mean((spice(captions, references)[1] + cider_d(captions, references)[1]) / 2)
