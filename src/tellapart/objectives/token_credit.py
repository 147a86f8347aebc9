"""Rewards of single tokens beside rewards of whole captions: their baselines, their sum, their log-probability.

A reward may return B×S×T: a number for each token of each sample, NaN where it abstains. A reward B×S counts for all
tokens of its caption, so that a token's advantage is the sum of both.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch

from tellapart.rewards.baselines import caption_means
from tellapart.types import Rollout

EPSILON = 1e-4  # added to deviations, as in `whitened`


@runtime_checkable
class ClassifiesWords(Protocol):
    """A reward that says which tokens are of like class: class_RT, numbers from 0."""

    def word_classes(self, rollout: Rollout) -> torch.Tensor: ...


def like_class_means(
    reward_BST: torch.Tensor, class_BST: torch.Tensor, other_BST: torch.Tensor, other_class_BST: torch.Tensor
) -> torch.Tensor:
    """value_BSTO: what each of O other captions of the picture was paid for words of the token's class, in the mean.

    reward_BST, class_BST: B×S×T; other_*: B×O×U, of the captions to compare with. Where a caption has no word of the
    class, its mean over all its tokens stands in; NaN where it abstains altogether.
    """
    same_BSTOU = class_BST[:, :, :, None, None] == other_class_BST[:, None, None]
    known_BOU = ~other_BST.isnan()
    counted_BSTOU = same_BSTOU & known_BOU[:, None, None]
    value_BOU = other_BST.nan_to_num()
    number_BSTO = counted_BSTOU.sum(-1)
    own_class = torch.einsum("bstou,bou->bsto", counted_BSTOU.to(value_BOU), value_BOU) / number_BSTO.clamp(min=1)
    whole_BO = value_BOU.sum(2) / torch.where(known_BOU.any(2), known_BOU.sum(2), torch.nan)
    return torch.where(number_BSTO > 0, own_class, whole_BO[:, None, None])


def leave_one_out_tokens(reward_BST: torch.Tensor, class_BST: torch.Tensor) -> torch.Tensor:
    """For each token the mean over the picture's other samples of what they were paid for words of like class.

    Equal to `rewards.baselines.leave_one_out` where a reward is the same for all tokens of a caption. NaN abstains.
    Raises ValueError for a single sample.
    """
    S = reward_BST.shape[1]
    if S < 2:
        raise ValueError("leave-one-out compares a picture's samples; expected at least 2, found 1")
    value_BSTS = like_class_means(reward_BST, class_BST, reward_BST, class_BST)
    itself = torch.eye(S, dtype=torch.bool, device=reward_BST.device)[None, :, None]
    return value_BSTS.masked_fill(itself, torch.nan).nanmean(-1)


def group_deviation(reward: torch.Tensor) -> torch.Tensor:
    """The standard deviation of a reward over the samples of a picture, B×1 or B×1×1; NaN left out.

    Of a reward of tokens: over the tokens, each sample counting the same. GDPO divides each reward by it before rewards
    are summed, so that none drowns the others (Liu et al. 2026).
    """
    mean_B = caption_means(reward).nanmean(1)
    shape = (-1, *[1] * (reward.ndim - 1))
    variance_B = caption_means((reward - mean_B.view(shape)) ** 2).nanmean(1)
    return variance_B.sqrt().view(shape)
