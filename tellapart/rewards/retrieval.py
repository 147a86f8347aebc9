"""Self-retrieval: does a scorer find the picture by its caption, among the pictures of the batch?"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tellapart.types import Batch, Rollout


class SelfRetrieval:
    """log p(picture | caption) among the batch: DiscriTune's reward (paper 3, section 3; paper 2, eq. 3).

    ``match`` is the scorer's cosine times its learned scale. ``features_ND`` holds the scorer's
    features of every training picture, encoded once; ``batch.rows_B`` names the batch's rows.
    Rewards are nats, at most 0; chance is −log B.
    """

    def __init__(self, scorer: Any, features_ND: np.ndarray) -> None:
        self.scorer, self.features_ND = scorer, features_ND

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        images_BD = torch.from_numpy(self.features_ND[batch.rows_B.numpy()]).to(self.scorer.device)
        texts_RD = self.scorer.text_features(rollout.texts)
        log_probs_RB = (self.scorer.scale * texts_RD @ images_BD.T).log_softmax(dim=1)
        target_R = torch.arange(len(images_BD), device=images_BD.device).repeat_interleave(rollout.samples)
        reward_R = log_probs_RB.gather(1, target_R[:, None]).squeeze(1)
        return reward_R.view(-1, rollout.samples)
