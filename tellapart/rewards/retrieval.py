"""Self-retrieval: does a scorer find the picture by its caption, among the pictures of the batch or of its bag?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch

from tellapart.models.protocols import ScorerLike
from tellapart.types import Batch, Rollout

if TYPE_CHECKING:
    from PIL import Image

TIE = 1e-6  # cosines that are closer count as equal: the order of a sum decides nothing
Score = Literal["log_prob", "accuracy", "cosine"]


def self_retrieval(
    texts: Sequence[str],
    images: Sequence[Image.Image] | torch.Tensor,
    scorer: ScorerLike,
    *,
    score: Score = "log_prob",
    bag_B: torch.Tensor | None = None,
) -> torch.Tensor:
    """How well a scorer finds each caption's picture by it (paper 3, section 3 and B.2; paper 2, eq. 1): reward_R.

    texts: R = B·S captions, the S captions of a picture side by side. images: the B pictures, or their features B×D as
    ``scorer.image_features`` gives them, which need not be made anew at each step.
    score: ``log_prob`` is log p(picture | caption) under the softmax of the matches, in nats, at most 0 (chance
    is −log K for K pictures), where a match is the scorer's cosine times its learned scale; ``accuracy`` is 1 where
    no other picture matches better, ties counted as hits, else 0; ``cosine`` is the cosine alone.
    bag_B: the number of each picture's bag; the candidates are then its bag's pictures instead of all B, and a picture
    alone in its bag abstains (NaN). Without gradient. Raises ValueError for another ``score``, or where R is no
    multiple of B.
    """
    if score not in get_args(Score):
        raise ValueError(f"score is '{score}'; expected one of {', '.join(get_args(Score))}")
    if not len(images) or len(texts) % len(images):
        raise ValueError(
            f"{len(texts)} captions of {len(images)} pictures; expected equally many of each, those of a picture side "
            "by side"
        )
    with torch.no_grad():
        features = images if isinstance(images, torch.Tensor) else scorer.image_features(scorer.pixels(images))
        images_BD = features.to(scorer.device)
        cosine_RB = scorer.text_features(texts) @ images_BD.T
        target_R = torch.arange(len(images_BD), device=images_BD.device).repeat_interleave(len(texts) // len(images_BD))
        rival_RB = candidates(bag_B, len(images_BD)).to(images_BD.device)[target_R]
        reward_R = retrieval_reward(cosine_RB, target_R, rival_RB, scorer.scale, score)
        abstains_R = rival_RB.sum(1) < 2
        return reward_R if bag_B is None or score == "cosine" else reward_R.masked_fill(abstains_R, torch.nan)


def retrieval_reward(
    cosine_RN: torch.Tensor, target_R: torch.Tensor, candidate_RN: torch.Tensor, scale: float, score: Score
) -> torch.Tensor:
    """reward_R of R captions from their cosines with N pictures; the three scores are `self_retrieval`'s.

    target_R: the column of each caption's own picture. candidate_RN: True where a picture is a candidate, the own one
    included. scale: the factor on the cosine.
    """
    own_R = cosine_RN.gather(1, target_R[:, None]).squeeze(1)
    if score == "cosine":
        return own_R
    if score == "accuracy":
        best_R = cosine_RN.masked_fill(~candidate_RN, -torch.inf).max(dim=1).values
        return (own_R >= best_R - TIE).float()
    match_RN = (scale * cosine_RN).masked_fill(~candidate_RN, -torch.inf)
    return match_RN.log_softmax(dim=1).gather(1, target_R[:, None]).squeeze(1)


def candidates(bag_B: torch.Tensor | None, B: int) -> torch.Tensor:
    """B×B, True where the second picture is a candidate for the captions of the first, itself included."""
    return torch.ones(B, B, dtype=torch.bool) if bag_B is None else bag_B[:, None] == bag_B[None, :]


class SelfRetrieval:
    """`self_retrieval` as a reward of the loop: reward_BS of a rollout and its batch.

    ``features_ND`` holds the scorer's features of every training picture; ``batch.rows_B`` names the batch's rows.
    ``candidates`` are the ``batch``, or the picture's own ``bag`` (``batch.bag_B``).
    """

    def __init__(
        self,
        scorer: ScorerLike,
        features_ND: np.ndarray,
        *,
        score: Score = "log_prob",
        candidates: Literal["batch", "bag"] = "batch",
    ) -> None:
        self.scorer, self.features_ND, self.score, self.candidates = scorer, features_ND, score, candidates

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        if self.candidates == "bag" and batch.bag_B is None:
            raise ValueError("pictures that came in no bags; expected batch.bag_B where rewards are per bag")
        images_BD = torch.from_numpy(self.features_ND[batch.rows_B.numpy()])
        bag_B = batch.bag_B if self.candidates == "bag" else None
        reward_R = self_retrieval(rollout.texts, images_BD, self.scorer, score=self.score, bag_B=bag_B)
        return reward_R.view(-1, rollout.samples)
