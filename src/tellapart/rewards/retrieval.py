"""Self-retrieval reward: how well a scorer retrieves a picture from a batch or bag, given the picture's caption."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import torch
from PIL import Image
from pydantic import Field, model_validator

from tellapart.data.pictures import load_rgb
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts, frozen_scorers, unseen_by
from tellapart.rewards.several_scorers import Alternating, Averaged, LowestUnseen
from tellapart.scorers import load_scorer
from tellapart.scorers.base import Scorer
from tellapart.types import Batch, Rollout
from tellapart.utils.recipe_names import ModelName

TIE = 1e-6  # cosines that differ by less count as equal, so that the summation order does not matter
Score = Literal["log_prob", "accuracy", "cosine"]


def self_retrieval(
    texts: Sequence[str],
    images: Sequence[Image.Image] | torch.Tensor,
    scorer: Scorer | str,
    *,
    score: Score = "log_prob",
    bag_B: torch.Tensor | None = None,
    candidate_BB: torch.Tensor | None = None,
    distractors_BKD: torch.Tensor | None = None,
) -> torch.Tensor:
    """Computes the self-retrieval reward_R: how well a scorer retrieves each caption's picture (paper 3, section 3 and
    B.2; paper 2, eq. 1). The reward is not differentiable.

    texts: R = B·S captions, where the S captions of each picture are consecutive.
    images: the B pictures, or their features B×D from ``scorer.image_features``, which can be computed once in advance.
    scorer: a scorer, or a name for `tellapart.scorers.load_scorer`, which is loaded only once.
    score: ``log_prob`` is log p(picture | caption) in nats, at most 0: the log-softmax over the candidates of the
        scorer's cosine times its learned scale (chance is −log K for K pictures). ``accuracy`` is 1 if no other picture
        matches better (ties count as hits), else 0. ``cosine`` is the cosine alone, −1 to 1.
    bag_B: the bag index of each picture. Restricts the candidates to pictures in the same bag.
    candidate_BB: alternative to ``bag_B``: True if the second picture is a candidate for the captions of the first one.
    distractors_BKD: features of extra candidates for each picture, padded with NaN.

    The reward abstains (NaN) if a picture has no other candidates, unless the score is ``cosine``. Raises ValueError
    for an unknown ``score``, for features that are zero, NaN or infinite, and if R is not a multiple of B.
    """
    if score not in get_args(Score):
        raise ValueError(f"score is '{score}'; expected one of {', '.join(get_args(Score))}")
    if not len(images) or len(texts) % len(images):
        raise ValueError(
            f"Expected the same number of captions for each picture, in consecutive rows; got {len(texts)} captions "
            f"for {len(images)} pictures"
        )
    scorer = _scorer(scorer) if isinstance(scorer, str) else scorer
    with torch.no_grad():
        if not isinstance(images, torch.Tensor):
            images = scorer.image_features(scorer.pixels([load_rgb(image) for image in images]))
        images_BD = images.to(scorer.device)
        if (
            not (images_BD.norm(dim=1) > 0).all() or not images_BD.isfinite().all()
        ):  # all candidates would tie, and ties count as hits
            raise ValueError("Some pictures have features that are zero, NaN or infinite; encode them again in fp32")
        text_RD, samples = scorer.text_features(texts), len(texts) // len(images)
        cosine_RN = text_RD @ images_BD.T
        target_R = torch.arange(len(images_BD), device=images_BD.device).repeat_interleave(samples)
        among_BB = candidates(bag_B, len(images_BD)) if candidate_BB is None else candidate_BB
        candidate_RN = among_BB.to(images_BD.device)[target_R]
        if distractors_BKD is not None:
            own_RKD = distractors_BKD.to(scorer.device).repeat_interleave(samples, 0)
            further_RK = (own_RKD @ text_RD[:, :, None]).squeeze(-1)
            candidate_RN = torch.cat([candidate_RN, ~further_RK.isnan()], 1)
            cosine_RN = torch.cat([cosine_RN, further_RK.nan_to_num()], 1)
        reward_R = retrieval_reward(cosine_RN, target_R, candidate_RN, scorer.scale, score)
        everybody = bag_B is None and candidate_BB is None
        abstains_R = candidate_RN.sum(1) < 2
        return reward_R if everybody or score == "cosine" else reward_R.masked_fill(abstains_R, torch.nan)


def retrieval_reward(
    cosine_RN: torch.Tensor, target_R: torch.Tensor, candidate_RN: torch.Tensor, scale: float, score: Score
) -> torch.Tensor:
    """Computes reward_R for R captions from their cosines with N pictures (see `self_retrieval` for the three scores).

    target_R: the column of each caption's own picture.
    candidate_RN: True for candidates, including the caption's own picture.
    scale: factor for the cosine.
    """
    own_R = cosine_RN.gather(1, target_R[:, None]).squeeze(1)
    if score == "cosine":
        return own_R
    if score == "accuracy":
        best_R = cosine_RN.masked_fill(~candidate_RN, -torch.inf).max(dim=1).values
        return (own_R >= best_R - TIE).float()
    match_RN = (scale * cosine_RN).masked_fill(~candidate_RN, -torch.inf)
    return match_RN.log_softmax(dim=1).gather(1, target_R[:, None]).squeeze(1)


@functools.lru_cache(maxsize=2)
def _scorer(name: str) -> Scorer:

    return load_scorer(name)


def candidates(bag_B: torch.Tensor | None, B: int) -> torch.Tensor:
    """Returns a B×B mask: True if the second picture is a candidate for the first one's captions, or is the same."""
    return torch.ones(B, B, dtype=torch.bool) if bag_B is None else bag_B[:, None] == bag_B[None, :]


def beside_distractors(batch: Batch, *, alone: bool) -> torch.Tensor:
    """Returns candidate_BB: the pictures in the batch that are candidates in addition to each picture's distractors.

    Each step draws enough pictures for B candidates in total: for a batch of 100 and k hard distractors, 99 − k random
    pictures (paper 3, appendix D.2). A picture that is already a distractor is not counted twice. ``alone``: use only
    the distractors.
    """
    assert batch.distractors_BK is not None
    B = len(batch.rows_B)
    own_BB = torch.eye(B, dtype=torch.bool)
    if alone:
        return own_BB
    twice_BB = (batch.distractors_BK[:, :, None] == batch.rows_B).any(1)
    uniform_BB = torch.rand(B, B) if batch.seeds is None else batch.seeds.uniform("distractors", B)
    rank_BB = uniform_BB.masked_fill(own_BB | twice_BB, torch.inf).argsort(1).argsort(1)
    room_B = B - 1 - (batch.distractors_BK >= 0).sum(1)
    return own_BB | ((rank_BB < room_B[:, None]) & ~twice_BB)


class SelfRetrieval:
    """`self_retrieval` as a training reward: computes reward_BS from a rollout and its batch.

    ``features_ND`` contains the scorer's features for all training pictures, indexed by ``batch.rows_B``.
    ``candidates`` selects the whole ``batch`` or the picture's own ``bag`` (``batch.bag_B``). If the batch has
    distractors (``batch.distractors_BK``), ``batch`` selects the picture's own distractors, filled up to B with other
    pictures from the batch, and ``bag`` selects only the picture's own distractors.
    """

    @reward(
        "self-retrieval",
        help="Self-retrieval: how well a scorer retrieves the picture from its caption.",
        needs=("scorer",),
    )
    class Config(RewardOptions):
        """Self-retrieval with paper 3's three scores, among the pictures in the batch or in the picture's bag.

        ``scorers``: scorers to use instead of [scorer]. ``combine``: how to combine the rewards of several scorers:
        take their ``average``, ``alternate`` between them by step, or take the ``lowest`` reward among the scorers that
        were not trained on the picture (according to the ids in their runs' recipes).
        """

        kind: Literal["self_retrieval"]
        score: Literal["log_prob", "accuracy", "cosine"] = "log_prob"
        candidates: Literal["batch", "bag"] = Field("batch")
        scorers: tuple[ModelName, ...] = ()
        combine: Literal["average", "alternate", "lowest"] = "average"

        @model_validator(mode="after")
        def has_an_effect(self) -> SelfRetrieval.Config:
            if self.score == "cosine" and self.candidates == "bag":
                raise ValueError(
                    "score = 'cosine' does not compare pictures, so candidates = 'bag' has no effect; remove candidates"
                )
            if self.combine == "alternate" and len(self.scorers) < 2:
                raise ValueError("combine = 'alternate' requires at least two scorers; set scorers = ['…', '…']")
            if self.combine == "lowest" and (len(self.scorers) < 2 or self.score == "cosine"):
                raise ValueError(
                    "combine = 'lowest' requires at least two scorers and a score other than 'cosine', "
                    "because cosines of different scorers are not comparable; set scorers = ['…', '…'] and "
                    "score = 'log_prob'"
                )
            return self

        def needs(self) -> tuple[str, ...]:
            return () if self.scorers else ("scorer",)

        def scorer_names(self) -> tuple[str, ...]:
            return self.scorers

        @property
        def compares_pictures(self) -> bool:
            return self.score != "cosine"

        @property
        def per_bag(self) -> bool:
            return self.candidates == "bag"

        def build(self, parts: RunParts) -> Reward:
            rewards = [
                SelfRetrieval(scorer, parts.train_features(scorer), score=self.score, candidates=self.candidates)
                for scorer in frozen_scorers(self.scorers, parts)
            ]
            if len(rewards) == 1:
                return rewards[0]
            if self.combine == "lowest":
                return LowestUnseen(rewards, unseen_by(self.scorers, parts))
            return Averaged(rewards) if self.combine == "average" else Alternating(rewards)

    def __init__(
        self,
        scorer: Scorer,
        features_ND: np.ndarray,
        *,
        score: Score = "log_prob",
        candidates: Literal["batch", "bag"] = "batch",
    ) -> None:
        self.scorer, self.features_ND, self.score, self.candidates = scorer, features_ND, score, candidates

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        alone, near_BK = self.candidates == "bag", batch.distractors_BK
        if alone and batch.bag_B is None and near_BK is None:
            raise ValueError("Rewards per bag require bags, but batch.bag_B is None")
        images_BD = torch.from_numpy(self.features_ND[batch.rows_B.numpy()])
        among: dict[str, torch.Tensor | None] = {"bag_B": batch.bag_B if alone else None}
        if near_BK is not None:
            near_BKD = torch.from_numpy(self.features_ND[near_BK.clamp(min=0).numpy()])
            near_BKD = near_BKD.masked_fill((near_BK < 0)[:, :, None], torch.nan)
            among = {"candidate_BB": beside_distractors(batch, alone=alone), "distractors_BKD": near_BKD}
        reward_R = self_retrieval(rollout.texts, images_BD, self.scorer, score=self.score, **among)
        return reward_R.view(-1, rollout.samples)
