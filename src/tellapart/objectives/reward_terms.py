"""The terms of REINFORCE's advantage: one reward each, with its weight, baseline and length limit."""

from __future__ import annotations

import math
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from tellapart.errors import TellapartError, error_line
from tellapart.objectives.baselines import Baseline, leave_one_out, leave_one_out_tokens, like_class_means
from tellapart.rewards.base import Reward
from tellapart.types import Batch, Item, Rollout


@dataclass
class RewardTerm:
    """One term of the advantage: weight · (reward − baseline).

    Each reward has its own baseline, so a reward that abstains (NaN) does not affect the others. The baseline
    ``greedy`` is the reward of the greedy caption, generated without dropout (self-critical, Rennie et al. 2017).
    Per-token rewards (B×S×T) are compared with the rewards of words of the same class in the other captions.
    ``prices``: one weight per level of detail, used instead of ``weight``. ``most_words_N``: for each training picture,
    the maximum number of words; the reward of a longer caption is 0.
    """

    reward: Reward
    baseline: Baseline | Literal["greedy"]
    weight: float = 1.0
    name: str = "reward"
    prices: tuple[float, ...] = ()
    most_words_N: torch.Tensor | None = None


def compute_reward(term: RewardTerm, rollout: Rollout, batch: Batch) -> torch.Tensor:
    """Computes a term's rewards as floats: B×S, or B×S×T with NaN for padding.

    Raises a one-line `TellapartError` if a user-defined reward fails or returns something other than such rewards.
    """
    try:
        returned = term.reward(rollout, batch)
    except Exception as error:
        if getattr(term.reward, "__module__", "").partition(".")[0] == "tellapart":
            raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{at.filename}, line {at.lineno}"
        raise TellapartError(f"reward '{term.name}' failed: {error_line(error)} ({where})") from error
    valid_BST = rollout.valid_RT.view(len(batch.rows_B), rollout.samples, -1)
    shape = tuple(valid_BST.shape)
    expected = f"expected shape {shape[:2]} (B×S) or {shape} (B×S×T)"
    try:
        reward = torch.as_tensor(returned)
    except (TypeError, ValueError, RuntimeError):
        raise TellapartError(f"reward '{term.name}' returned a {type(returned).__name__}; {expected}") from None
    reward = reward if reward.dtype == torch.float64 else reward.float()
    if tuple(reward.shape) not in (shape, shape[:2]):
        raise TellapartError(f"reward '{term.name}' returned shape {tuple(reward.shape)}; {expected}")
    if reward.ndim == 3:
        reward = reward.masked_fill(~valid_BST.to(reward.device), math.nan)
    if bool(reward.isinf().any()):
        raise TellapartError(f"reward '{term.name}' is infinite; expected a number, or NaN to abstain")
    if term.most_words_N is None:
        return reward
    return masked_by_length(term.name, reward, rollout, term.most_words_N[batch.rows_B])


def masked_by_length(name: str, reward: torch.Tensor, rollout: Rollout, most_B: torch.Tensor) -> torch.Tensor:
    """Sets reward_BS to 0 for captions with more words than their picture's ``most_B``. Keeps NaN.

    Raises `TellapartError` for per-token rewards, and for negative rewards, because masking would then favour long
    captions.
    """
    if reward.ndim == 3 or bool((reward < 0).any()):
        found = "per token" if reward.ndim == 3 else f"{float(reward.nan_to_num().min()):.3g} for one caption"
        raise TellapartError(
            f"reward '{name}' is {found}; 'within' requires non-negative rewards per caption, so remove 'within'"
        )
    words_BS = torch.tensor([float(len(text.split())) for text in rollout.texts]).view(reward.shape)
    longer_BS = (words_BS > most_B[:, None]).to(reward.device)
    return reward.masked_fill(longer_BS & ~reward.isnan(), 0.0)


def most_words(items: Sequence[Item], within: float) -> torch.Tensor:
    """Computes ``within`` times the mean number of words in each picture's references, N."""
    return torch.tensor(
        [within * sum(len(text.split()) for text in item.references) / len(item.references) for item in items]
    )


def reward_logs(
    terms: Sequence[RewardTerm],
    weights: Sequence[float | torch.Tensor],
    rewards: Sequence[torch.Tensor],
    rollout: Rollout,
) -> dict[str, float]:
    """Returns the values to log: the weighted reward, each reward if there are several, and caption statistics."""
    each = {term.name: float(reward.nanmean()) for term, reward in zip(terms, rewards, strict=True)}
    known = {name: value for name, value in each.items() if not math.isnan(value)}  # skip rewards that abstain
    weighted = [
        float((weight * reward).nanmean()) if isinstance(weight, torch.Tensor) else weight * known[term.name]
        for term, weight, reward in zip(terms, weights, rewards, strict=True)
        if term.name in known
    ]
    return {
        **({"reward": sum(weighted)} if known else {}),
        **({f"reward.{name}": value for name, value in known.items()} if len(terms) > 1 else {}),
        "length": float(rollout.valid_RT.sum(1).float().mean()),
        "distinct": len(set(rollout.texts)) / len(rollout.texts),
    }


def reward_minus_baseline(
    term: RewardTerm, reward: torch.Tensor, rollout: Rollout, greedy: Rollout | None, batch: Batch
) -> torch.Tensor:
    """Subtracts the term's baseline from its reward. Returns the same shape as the reward, B×S or B×S×T."""
    if isinstance(term.baseline, str):
        assert greedy is not None
        written = compute_reward(term, greedy, batch).to(reward.device)
        if reward.ndim == 2:
            return reward - written
        classes = word_classes(term, rollout), word_classes(term, greedy)
        return reward - like_class_means(reward, classes[0], written, classes[1]).squeeze(-1)
    if reward.ndim == 3 and term.baseline is leave_one_out:
        return reward - leave_one_out_tokens(reward, word_classes(term, rollout))
    return reward - term.baseline(reward, batch)


def word_classes(term: RewardTerm, rollout: Rollout) -> torch.Tensor:
    """Returns class_BST from the reward's ``word_classes``.

    If the reward has no such method, all tokens are in the same class.
    """
    classes_RT = torch.zeros_like(rollout.tokens_RT)
    if (classify := getattr(term.reward, "word_classes", None)) is not None:
        classes_RT = classify(rollout).to(classes_RT.device)
    return classes_RT.view(-1, rollout.samples, classes_RT.shape[1])
