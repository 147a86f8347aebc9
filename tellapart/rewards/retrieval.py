"""Self-retrieval: does a scorer find the picture by its caption, among the pictures of the batch or of its bag?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tellapart.types import Batch, Rollout

TIE = 1e-6  # cosines that are closer count as equal: the order of a sum decides nothing


class SelfRetrieval:
    """How well a scorer finds the picture by the caption (paper 3, section 3 and B.2; paper 2, eq. 1).

    ``score``: ``log_prob`` is log p(picture | caption) under the softmax of the matches, in nats, at most 0 (chance
    is −log K for K pictures), where a match is the scorer's cosine times its learned scale; ``accuracy`` is 1 where
    no other picture matches better, ties counted as hits, else 0; ``cosine`` is the cosine alone.
    ``among``: the ``batch``, or the picture's own ``bag`` (``batch.bag_B``), where a picture alone abstains.
    ``features_ND`` holds the scorer's features of every training picture; ``batch.rows_B`` names the batch's rows.
    """

    def __init__(self, scorer: Any, features_ND: np.ndarray, *, score: str = "log_prob", among: str = "batch") -> None:
        self.scorer, self.features_ND, self.score, self.among = scorer, features_ND, score, among

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        images_BD = torch.from_numpy(self.features_ND[batch.rows_B.numpy()]).to(self.scorer.device)
        cosine_RB = self.scorer.text_features(rollout.texts) @ images_BD.T
        target_R = torch.arange(len(images_BD), device=images_BD.device).repeat_interleave(rollout.samples)
        rival_RB = self._candidates(batch).to(images_BD.device)[target_R]
        return self._reward(cosine_RB, target_R, rival_RB).view(-1, rollout.samples)

    def _candidates(self, batch: Batch) -> torch.Tensor:
        """B×B, True where the second picture is held against the first, itself included."""
        if self.among == "batch":
            return torch.ones(len(batch.rows_B), len(batch.rows_B), dtype=torch.bool)
        if batch.bag_B is None:
            raise ValueError("pictures that came in no bags; expected batch.bag_B where rewards are per bag")
        return batch.bag_B[:, None] == batch.bag_B[None, :]

    def _reward(self, cosine_RB: torch.Tensor, target_R: torch.Tensor, rival_RB: torch.Tensor) -> torch.Tensor:
        own_R = cosine_RB.gather(1, target_R[:, None]).squeeze(1)
        if self.score == "cosine":
            return own_R
        if self.score == "accuracy":
            best_R = cosine_RB.masked_fill(~rival_RB, -torch.inf).max(dim=1).values
            reward_R = (own_R >= best_R - TIE).float()
        else:
            match_RB = (self.scorer.scale * cosine_RB).masked_fill(~rival_RB, -torch.inf)
            reward_R = match_RB.log_softmax(dim=1).gather(1, target_R[:, None]).squeeze(1)
        alone_R = rival_RB.sum(1) < 2
        return reward_R.masked_fill(alone_R, torch.nan) if self.among == "bag" else reward_R
