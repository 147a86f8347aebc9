"""Overlap with the references as a reward: CIDEr-D (Rennie et al. 2017; papers 2 and 4) and BLEU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tellapart.metrics.cider import CiderD, DocumentFrequencies
from tellapart.metrics.overlap import bleu
from tellapart.types import Batch, Rollout


class Cider:
    """CIDEr-D of each caption against its picture's references, 0 to 10 (1.2 is what tables print as 120).

    ``references``: of every training picture, as `batch.rows_B` numbers them: texts, or with ``end_token`` rows of
    token ids. ``idf``: document frequencies of the "references" (the training set's), of the "batch" (paper 2's
    program), or frozen `DocumentFrequencies`. ``end``: whether the end token is a word, for token ids: a caption that
    was cut off has none, and its references all do.
    """

    def __init__(
        self,
        references: Sequence[Sequence[Any]],
        *,
        idf: str | DocumentFrequencies = "references",
        end_token: int | None = None,
        end: bool = False,
    ) -> None:
        self.ids = end_token is not None
        self.cider = CiderD(references, idf=idf, end=end, end_token=end_token)

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        captions: Any = rollout.texts
        if self.ids:  # padding may look like a word: a row ends where it is no longer valid
            captions = [row[valid].tolist() for row, valid in zip(rollout.tokens_RT, rollout.valid_RT, strict=True)]
        pictures_R = np.repeat(batch.rows_B.numpy(), rollout.samples)
        return torch.from_numpy(self.cider(captions, pictures_R)).float().view(-1, rollout.samples)


class Bleu:
    """BLEU-n of each caption alone against its picture's references (``batch.items``), 0 to 1, as the COCO tools."""

    def __init__(self, n: int = 4) -> None:
        self.n = n

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        references = [list(item.references) for item in batch.items for _ in range(rollout.samples)]
        _, score_R = bleu(rollout.texts, references, self.n)
        return torch.from_numpy(score_R).float().view(-1, rollout.samples)
