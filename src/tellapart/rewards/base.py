"""What a reward and a baseline are, what a run offers to their factories, and the registry of rewards.

A reward is a module of `tellapart.rewards` with its options (``Config``) and its `RewardEntry`, or an entry point of
the group ``tellapart.rewards`` of an installed package. Its options are a table of ``objective.rewards`` in a recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from pydantic import Field

from tellapart.models.protocols import CaptionerLike, FrozenScorer
from tellapart.types import Batch, Item, Rollout
from tellapart.utils.options import PluginOptions, Strict
from tellapart.utils.registry import Entry, Registry

if TYPE_CHECKING:
    import numpy as np
    import torch


BaselineName = Literal["running_mean", "leave_one_out", "group_mean", "greedy", "none"]


class Reward(Protocol):
    """``reward(rollout, batch)``: reward_BS, one number per caption, or reward_BST, one per token; NaN abstains.

    T is that of ``rollout.tokens_RT``; what stands on padding is not looked at. On any scale. A reward of tokens may
    have a method ``word_classes(rollout) -> class_RT``: its baseline compares tokens of one class.
    """

    def __call__(self, rollout: Rollout, batch: Batch, /) -> torch.Tensor: ...


class Baseline(Protocol):
    """``baseline(reward_BS, batch) -> value_BS``: what each reward is compared with."""

    def __call__(self, reward_BS: torch.Tensor, batch: Batch, /) -> torch.Tensor: ...


@runtime_checkable
class StatefulBaseline(Baseline, Protocol):
    """A baseline that remembers; the state is plain JSON and belongs to a checkpoint."""

    def state_dict(self) -> dict[str, float]: ...

    def load_state_dict(self, state: dict[str, float]) -> None: ...


@dataclass(frozen=True)
class RunParts:
    """What a run offers to the factories of objectives and rewards.

    captioner: the captioner in training. scorer: the frozen one of the recipe's [scorer]; None where it names none.
    train_items: the training pictures, in the order of ``batch.rows_B``. vision_learns: whether the captioner's vision
    encoder is trained: ``batch.visual`` then holds pixels.
    load_scorer(name): a further frozen scorer, by the name of its model.
    start(prompt=""): the captioner that the run starts from, frozen, dropout off; all that ask share its weights.
    train_features(scorer): features_ND of the training pictures.
    trained_on(name): seen_N, which of the training pictures the scorer of this name learned from, as far as its run
    says.
    train_visual(): a function from rows_B of training pictures to what batches hold of them.
    nearest_train(scorer, count): a function from rows_B of training pictures to rows_BK of the ``count`` others that
    look most like each.
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
    """The options of every reward: ``kind = "name"`` chooses it, ``weight`` multiplies it. Subclasses add their own."""

    kind: str
    weight: float = 1.0
    baseline: BaselineName | None = Field(None, description="in place of the objective's, for this reward alone")

    def needs(self) -> tuple[str, ...]:
        """What the reward requires of the run with these options: ``references``, ``scorer``, ``start``, ``truth``."""
        return REWARDS.find(self.kind).needs

    def scorer_names(self) -> tuple[str, ...]:
        """Scorers that the options name in place of the recipe's [scorer]."""
        return ()

    @property
    def per_token(self) -> bool:
        """Whether the reward is one number for each token."""
        return False

    @property
    def compares_pictures(self) -> bool:
        """Whether the reward compares a picture with others of the batch and with ``batch.distractors_BK``."""
        return False

    @property
    def per_bag(self) -> bool:
        """Whether the reward compares a picture with those of its bag."""
        return False


class PluginRewardOptions(RewardOptions, PluginOptions):
    """Options of a plug-in that declares none: every further key is a keyword argument of its factory."""

    @property
    def compares_pictures(self) -> bool:
        return True  # nobody here knows


@dataclass(frozen=True, kw_only=True)
class RewardEntry(Entry[Callable[..., Reward]]):
    """``factory(options, parts) -> Reward``, with a `RewardOptions` and a `RunParts`.

    Without ``options`` it is ``factory(**keys) -> Reward``, with the further keys of its table. ``check``: called with
    the options before any model is loaded; raises `UsageError`.
    """

    check: Callable[[Any], object] | None = None

    def build(self, options: RewardOptions, parts: RunParts) -> Reward:
        """The reward. Raises `UsageError` where the factory of a plug-in returns something else."""
        if isinstance(options, PluginRewardOptions):
            reward: Reward = options.call(self, "reward")
            return reward
        return self.factory(options, parts)


REWARDS: Registry[RewardEntry] = Registry("reward", RewardEntry, group="tellapart.rewards", package="tellapart.rewards")


def build_reward(options: RewardOptions, parts: RunParts) -> Reward:
    """The reward that a recipe's table describes."""
    return REWARDS.find(options.kind).build(options, parts)


def frozen_scorers(names: Sequence[str], parts: RunParts) -> list[FrozenScorer]:
    """The scorers of these names; where there are none, the recipe's [scorer], which its schema requires then."""
    if names:
        return [parts.load_scorer(name) for name in names]
    assert parts.scorer is not None, "the recipe schema requires [scorer]"
    return [parts.scorer]
