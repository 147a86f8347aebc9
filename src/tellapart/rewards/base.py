"""The interface of rewards, the parts of a run that their factories may use, and the registry.

A reward is its options, a class below the decorator `reward` whose ``build`` makes the callable, or an entry point of
the group ``tellapart.rewards`` of an installed package. Its options are a table of ``objective.rewards`` in a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, get_args

import numpy as np
import torch
from pydantic import Field, model_validator

from tellapart.models.protocols import CaptionerLike, FrozenScorer
from tellapart.types import Batch, Item, Rollout
from tellapart.utils.options import PluginOptions, Strict
from tellapart.utils.registry import Entry, Registry

Options = TypeVar("Options", bound="RewardOptions")
BaselineName = Literal["running_mean", "leave_one_out", "group_mean", "greedy", "none"]


class Reward(Protocol):
    """``reward(rollout, batch)`` returns reward_BS, one number per caption, or reward_BST, one per token; NaN abstains.

    Any scale is allowed. T is that of ``rollout.tokens_RT``; values on padding are ignored. A reward of tokens may have
    a method ``word_classes(rollout) -> class_RT``, integers from 0; its baseline then compares tokens of one class.
    """

    def __call__(self, rollout: Rollout, batch: Batch, /) -> torch.Tensor: ...


@dataclass(frozen=True)
class RunParts:
    """The parts of a run that factories of objectives and rewards may use.

    captioner: the captioner in training.
    scorer: the frozen scorer of the recipe's [scorer]; None without one.
    train_items: the training pictures, in the order of ``batch.rows_B``.
    vision_learns: True if the captioner's vision encoder is trained; ``batch.visual`` then holds pixels.
    load_scorer(name): loads a further frozen scorer.
    start(prompt=""): returns the captioner that the run starts from, frozen, without dropout; its weights are shared.
    train_features(scorer): returns features_ND of the training pictures.
    trained_on(name): returns seen_N, True for training pictures that the scorer of this name was trained on, as far as
        its run says.
    train_visual(): returns a function from rows_B of training pictures to the captioner's input, as in a batch.
    nearest_train(scorer, count): returns a function from rows_B of training pictures to rows_BK, their ``count`` most
        similar other training pictures.
    """

    captioner: CaptionerLike
    scorer: FrozenScorer | None
    train_items: Sequence[Item]
    vision_learns: bool
    load_scorer: Callable[[str], FrozenScorer]
    start: Callable[..., CaptionerLike]
    train_features: Callable[[FrozenScorer], np.ndarray]
    trained_on: Callable[[str], np.ndarray]
    train_visual: Callable[[], Callable[[np.ndarray], torch.Tensor]]
    nearest_train: Callable[[FrozenScorer, int], Callable[[np.ndarray], np.ndarray]]


class RewardOptions(Strict):
    """The options of every reward: ``kind = "name"`` chooses it, ``weight`` multiplies it. Subclasses add their own.

    ``within`` is the length-conditional masking of BalCapRL (Ye et al. 2026), of rewards that are at least 0: longer
    captions cannot collect it.
    """

    kind: str
    weight: float = 1.0
    baseline: BaselineName | None = Field(None, description="in place of the objective's, for this reward alone")
    within: float | None = Field(
        None,
        gt=0,
        description="0 for captions of more than this many times the mean number of words of the picture's references",
    )

    @model_validator(mode="after")
    def is_of_captions(self) -> RewardOptions:
        """Checks that ``within`` stands beside a reward of whole captions."""
        if self.within is not None and self.per_token:
            raise ValueError("within is of rewards of whole captions, and this one is of single tokens; leave it out")
        return self

    def check(self) -> None:
        """Raises `UsageError` before any model is loaded if the reward cannot be built."""

    def needs(self) -> tuple[str, ...]:
        """Returns what the reward requires of the run: ``references``, ``scorer``, ``start``, ``truth``."""
        needs = REWARDS.find(self.kind).needs
        return needs if self.within is None or "references" in needs else (*needs, "references")

    def scorer_names(self) -> tuple[str, ...]:
        """Returns scorers named here in place of the recipe's [scorer]."""
        return ()

    @property
    def per_token(self) -> bool:
        """True if the reward is one number for each token."""
        return False

    @property
    def compares_pictures(self) -> bool:
        """True if the reward compares a picture with others of the batch and with ``batch.distractors_BK``."""
        return False

    @property
    def per_bag(self) -> bool:
        """True if the reward compares a picture with those of its bag."""
        return False


class PluginRewardOptions(RewardOptions, PluginOptions):
    """Options of a plug-in that declares none: every further key is a keyword argument of its factory."""

    @property
    def compares_pictures(self) -> bool:
        return True  # nobody here knows


@dataclass(frozen=True, kw_only=True)
class RewardEntry(Entry[Callable[..., Reward]]):
    """``factory(options, parts) -> Reward``, with a `RewardOptions` and a `RunParts`.

    Without ``options`` it is ``factory(**keys) -> Reward``, with the further keys of its table.
    """

    def build(self, options: RewardOptions, parts: RunParts) -> Reward:
        """Returns the reward. Raises `UsageError` if the factory of a plug-in does not return a callable."""
        if isinstance(options, PluginRewardOptions):
            reward: Reward = options.call(self, "reward")
            return reward
        return self.factory(options, parts)


REWARDS: Registry[RewardEntry] = Registry("reward", RewardEntry, group="tellapart.rewards", package="tellapart.rewards")


def reward(label: str, *, help: str, needs: tuple[str, ...] = ()) -> Callable[[type[Options]], type[Options]]:
    """Registers a class of options, under its ``kind``, as a reward; ``options.build(parts)`` makes the reward."""

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
    """Returns the reward that a recipe's table describes."""
    return REWARDS.find(options.kind).build(options, parts)


def frozen_scorers(names: Sequence[str], parts: RunParts) -> list[FrozenScorer]:
    """Returns the scorers of these names; without names the recipe's [scorer], which its schema requires then."""
    if names:
        return [parts.load_scorer(name) for name in names]
    assert parts.scorer is not None, "the recipe schema requires [scorer]"
    return [parts.scorer]
