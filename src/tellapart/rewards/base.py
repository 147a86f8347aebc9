"""The reward interface and the registry of rewards.

A reward is either an options class decorated with `reward`, whose ``build`` returns the callable, or an entry point
that an installed package provides in the group ``tellapart.rewards``. A recipe sets the options of each reward in a
table of ``objective.rewards``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar

import torch
from pydantic import Field, model_validator

from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Rollout
from tellapart.utils.option_tables import PluginOptions, Strict, build_part, register_options
from tellapart.utils.registry import Entry, Registry

Options = TypeVar("Options", bound="RewardOptions")
BaselineName = Literal["running_mean", "leave_one_out", "group_mean", "greedy", "none"]


class Reward(Protocol):
    """``reward(rollout, batch)`` returns reward_BS, one number per caption, or reward_BST, one per token.

    NaN means that the reward abstains. Any scale is allowed. T is the length of ``rollout.tokens_RT``; values for
    padding are ignored. A per-token reward may define a method ``word_classes(rollout) -> class_RT`` (integers from 0);
    its baseline then compares only tokens of the same class.
    """

    def __call__(self, rollout: Rollout, batch: Batch, /) -> torch.Tensor: ...


class RewardOptions(Strict):
    """Base options of every reward: ``kind = "name"`` selects the reward, ``weight`` scales it. Subclasses add options.

    ``within`` enables length-conditional masking as in BalCapRL (Ye et al. 2026): captions that are more than
    ``within`` times as long as the picture's mean reference, in words, get a reward of 0. It requires non-negative
    rewards per caption (ValueError for per-token rewards).
    """

    kind: str
    weight: float = 1.0
    baseline: BaselineName | None = Field(None, description="baseline for this reward; overrides the objective's")
    within: float | None = Field(
        None,
        gt=0,
        description="captions longer than this multiple of the references' mean word count get a reward of 0",
    )

    @model_validator(mode="after")
    def is_of_captions(self) -> RewardOptions:
        """Checks that ``within`` is set only for rewards per caption."""
        if self.within is not None and self.per_token:
            raise ValueError("'within' requires a reward per caption, but this reward is per token; remove 'within'")
        return self

    def check(self) -> None:
        """Raises `UsageError` if the reward cannot be built. Called before any model is loaded."""

    def needs(self) -> tuple[str, ...]:
        """Returns what the reward is computed from, a subset of ``references``, ``scorer``, ``start`` and ``truth``.

        ``references`` means that the reward compares captions with references. ``within``, which only counts the
        references' words, does not add it.
        """
        return REWARDS.find(self.kind).needs

    def scorer_names(self) -> tuple[str, ...]:
        """Returns the names of the scorers to use instead of the recipe's [scorer]."""
        return ()

    @property
    def per_token(self) -> bool:
        """Returns True if the reward assigns one number per token."""
        return False

    @property
    def compares_pictures(self) -> bool:
        """Returns True if the reward compares a picture with the other pictures in the batch and with
        ``batch.distractors_BK``.
        """
        return False

    @property
    def per_bag(self) -> bool:
        """Returns True if the reward compares a picture with the other pictures in its bag."""
        return False


class PluginRewardOptions(RewardOptions, PluginOptions):
    """Options for a plug-in without an options class. All other keys become keyword arguments of its factory."""

    @property
    def compares_pictures(self) -> bool:
        return True  # this is unknown for plug-ins, so assume that the reward compares pictures


@dataclass(frozen=True, kw_only=True)
class RewardEntry(Entry[Callable[..., Reward]]):
    """Registry entry with ``factory(options, parts) -> Reward``, which takes a `RewardOptions` and a `RunParts`.

    If the entry has no ``options``, the factory is called as ``factory(**keys) -> Reward`` with the table's other keys.
    """


REWARDS: Registry[RewardEntry] = Registry(
    "reward", RewardEntry, group="tellapart.rewards", packages=("tellapart.rewards",)
)


def reward(label: str, *, help: str, needs: tuple[str, ...] = ()) -> Callable[[type[Options]], type[Options]]:
    """Registers an options class as a reward under its ``kind``. ``options.build(parts)`` must return the reward."""
    return register_options(REWARDS, label, help=help, needs=needs, direction="higher")


def build_reward(options: RewardOptions, parts: RunParts) -> Reward:
    """Builds the reward that a recipe table describes."""
    built: Reward = build_part(REWARDS, options, parts)
    return built
