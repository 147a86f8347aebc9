"""The reward interface, the parts of a run that reward factories may use, and the registry.

A reward is either an options class decorated with `reward`, whose ``build`` returns the callable, or an entry point
that an installed package provides in the group ``tellapart.rewards``. A recipe sets the options of each reward in a
table of ``objective.rewards``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np
import torch
from pydantic import Field, model_validator

from tellapart.models.protocols import CaptionerLike
from tellapart.scorers.base import Scorer
from tellapart.types import Batch, Item, Rollout
from tellapart.utils.option_tables import PluginOptions, Strict
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


@dataclass(frozen=True)
class RunParts:
    """The parts of a run that the factories of objectives and rewards may use.

    captioner: the captioner being trained.
    scorer: the frozen scorer configured by the recipe's [scorer]; None if the recipe has none.
    train_items: the training pictures, indexed by ``batch.rows_B``.
    vision_learns: True if the captioner's vision encoder is trained; ``batch.visual`` then contains pixels.
    load_scorer(name): loads another frozen scorer.
    start(prompt=""): returns the run's initial captioner, frozen and without dropout. All callers share its weights.
    train_features(scorer): returns features_ND for the training pictures.
    trained_on(name): returns seen_N, which is True for the training pictures on which the named scorer was trained,
        according to the scorer's run.
    train_visual(): returns a function that maps rows_B of training pictures to the captioner's input, in the format of
        ``batch.visual``.
    nearest_train(scorer, count): returns a function that maps rows_B of training pictures to rows_BK, their ``count``
        most similar other training pictures.
    """

    captioner: CaptionerLike
    scorer: Scorer | None
    train_items: Sequence[Item]
    vision_learns: bool
    load_scorer: Callable[[str], Scorer]
    start: Callable[..., CaptionerLike]
    train_features: Callable[[Scorer], np.ndarray]
    trained_on: Callable[[str], np.ndarray]
    train_visual: Callable[[], Callable[[np.ndarray], torch.Tensor]]
    nearest_train: Callable[[Scorer, int], Callable[[np.ndarray], np.ndarray]]


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
        """Returns the reward's requirements, a subset of ``references``, ``scorer``, ``start`` and ``truth``."""
        needs = REWARDS.find(self.kind).needs
        return needs if self.within is None or "references" in needs else (*needs, "references")

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

    def build(self, options: RewardOptions, parts: RunParts) -> Reward:
        """Builds the reward. Raises `UsageError` if a plug-in's factory does not return a callable."""
        if isinstance(options, PluginRewardOptions):
            reward: Reward = options.call(self, "reward")
            return reward
        return self.factory(options, parts)


REWARDS: Registry[RewardEntry] = Registry(
    "reward", RewardEntry, group="tellapart.rewards", packages=("tellapart.rewards",)
)


def reward(label: str, *, help: str, needs: tuple[str, ...] = ()) -> Callable[[type[Options]], type[Options]]:
    """Registers an options class as a reward under its ``kind``. ``options.build(parts)`` must return the reward."""

    def register(options: type[Options]) -> type[Options]:
        (name,) = get_args(options.model_fields["kind"].annotation)
        build: Callable[..., Reward] = options.build  # type: ignore[attr-defined]
        REWARDS.register(
            RewardEntry(
                name=name, factory=build, help=help, options=options, needs=needs, label=label, direction="higher"
            )
        )
        return options

    return register


def build_reward(options: RewardOptions, parts: RunParts) -> Reward:
    """Builds the reward that a recipe table describes."""
    return REWARDS.find(options.kind).build(options, parts)


def frozen_scorers(names: Sequence[str], parts: RunParts) -> list[Scorer]:
    """Returns the named scorers or, if ``names`` is empty, the recipe's [scorer], which the schema then requires."""
    if names:
        return [parts.load_scorer(name) for name in names]
    assert parts.scorer is not None, "[scorer] is required; the recipe schema checks this"
    return [parts.scorer]
