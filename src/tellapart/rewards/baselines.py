"""Baselines: what a reward is compared with, so that the gradient has less noise.

A reward may be B×S×T: a number for each token of each sample, NaN where it abstains. Its baselines compare tokens of
one class of words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from tellapart.rewards.base import Baseline, BaselineName
from tellapart.types import Batch, Rollout
from tellapart.utils.lazy import LazyModule

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")

EPSILON = 1e-4  # added to standard deviations that advantages are divided by


class RunningMean:
    """DiscriTune's baseline: the mean of all batch means so far. Starts at 0; used first, updated after."""

    def __init__(self) -> None:
        self.mean, self.count = 0.0, 0

    def __call__(self, reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
        value = torch.full_like(reward_BS, self.mean)
        caption_BS = caption_means(reward_BS)
        known = caption_BS[~caption_BS.isnan()]
        if len(known):
            self.count += 1
            self.mean += (float(known.mean()) - self.mean) / self.count
        return value

    def state_dict(self) -> dict[str, float]:
        return {"mean": self.mean, "count": self.count}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.mean, self.count = float(state["mean"]), int(state["count"])


def no_baseline(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Zero: plain REINFORCE."""
    return torch.zeros_like(reward_BS)


def group_mean(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """The mean reward of the picture's samples, its own included (GRPO, Shao et al. 2024)."""
    mean_B = caption_means(reward_BS).nanmean(1)
    return mean_B.view(-1, *[1] * (reward_BS.ndim - 1)).expand_as(reward_BS)


def caption_means(reward: torch.Tensor) -> torch.Tensor:
    """B×S: rewards of captions as they are; of tokens, B×S×T, the mean of each caption's."""
    return reward if reward.ndim == 2 else reward.nanmean(2)


def leave_one_out(reward_BS: torch.Tensor, batch: Batch) -> torch.Tensor:
    """For each sample the mean reward of the picture's other samples (Kool et al. 2019; RLOO).

    NaNs abstain, and so does a sample that no other one's reward can be compared with. Raises ValueError for a
    single sample, which has no others.
    """
    if reward_BS.shape[1] < 2:
        raise ValueError("leave-one-out compares a picture's samples; expected at least 2, found 1")
    known_BS = ~reward_BS.isnan()
    value_BS = reward_BS.nan_to_num()
    others_BS = known_BS.sum(1, keepdim=True) - known_BS.long()
    return (value_BS.sum(1, keepdim=True) - value_BS) / torch.where(others_BS > 0, others_BS, torch.nan)


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

    Equal to `leave_one_out` where a reward is the same for all tokens of a caption. NaN abstains.
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


def build_baseline(name: BaselineName) -> Baseline | Literal["greedy"]:
    """Returns a fresh baseline by its name in a recipe."""
    if name == "running_mean":
        return RunningMean()
    if name == "greedy":
        return "greedy"
    return {"leave_one_out": leave_one_out, "group_mean": group_mean, "none": no_baseline}[name]
