"""The interface of objectives: a callable over (learner, batch), its options in a recipe, and the registry.

An objective is a module of `tellapart.objectives` with its options (``Config``) and its `ObjectiveEntry`, or an entry
point of the group ``tellapart.objectives`` of an installed package. Its options are the table [objective] of a recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from tellapart.rewards.base import RewardOptions, RunParts
from tellapart.types import Batch
from tellapart.utils.lazy import LazyModule
from tellapart.utils.options import PluginOptions, Strict
from tellapart.utils.registry import Entry, Registry

if TYPE_CHECKING:
    import torch

    from tellapart.models import ranks

    Encode = Callable[[torch.Tensor], torch.Tensor]
else:
    ranks = LazyModule("tellapart.models.ranks")

LearnerT = TypeVar("LearnerT", contravariant=True)  # a captioner, or a scorer where the objective is contrastive


@dataclass(slots=True)
class Loss:
    """A scalar to minimize, and numbers for the log."""

    value: torch.Tensor
    logs: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class StepContext:
    """How a step is carried out.

    backward: takes the loss of one micro-batch and computes its gradients. micro_batches: the most parts in which the
    batch goes forward and backward. encode: the captioner's vision encoder where it is trained; ``batch.visual`` then
    holds pixels. autocast: makes the context of forward passes.
    """

    backward: Callable[[Loss], None]
    micro_batches: int = 1
    encode: Encode | None = None
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext

    def visual(self, part: Batch) -> torch.Tensor:
        """Returns what the captioner's language model reads of a part's pictures: features, made now from pixels."""
        return part.visual if self.encode is None else self.encode(part.visual)


class Objective(Protocol[LearnerT]):
    """``objective(learner, batch) -> Loss``; the state dict is plain JSON (numbers, strings, lists).

    ``step`` does a whole update's forward and backward passes, one micro-batch after the other, so that the graph of
    one is freed before the next is built. Where several ranks train, each is given the whole batch and works on its
    share (`models.ranks.share`); such an objective says ``shares_batch = True``.
    """

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss: ...

    def step(self, learner: LearnerT, batch: Batch, context: StepContext) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Stateless(Generic[LearnerT]):
    """Base class of supervised objectives without state: means over the valid tokens of the batch's labels."""

    shares_batch = True

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss:
        raise NotImplementedError

    def step(self, learner: LearnerT, batch: Batch, context: StepContext) -> None:
        """Run the supervised step: labels, then for each micro-batch of this rank's share forward and backward."""
        batch = self.with_labels(learner, batch)
        for part in batch[ranks.share(len(batch.rows_B))].split(context.micro_batches):
            with context.autocast():
                seen = part if context.encode is None else replace(part, visual=context.visual(part))
                loss = self(learner, seen)
            share = 1.0  # of the batch's tokens
            if len(part.rows_B) < len(batch.rows_B):
                share = float(self.learned(part).sum()) / float(self.learned(batch).sum())
            context.backward(Loss(loss.value * share, {key: value * share for key, value in loss.logs.items()}))
            del loss

    def with_labels(self, learner: LearnerT, batch: Batch) -> Batch:
        """Returns the batch with the captions that are learned; by default its references."""
        return batch

    def learned(self, batch: Batch) -> torch.Tensor:
        """The tokens of the references that the loss is a mean over, R×T."""
        assert batch.valid_RT is not None
        return batch.valid_RT

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"this objective has no state; found {sorted(state)}")


class ObjectiveOptions(Strict):
    """The options of every objective: ``kind = "name"`` chooses it. Subclasses add their own.

    A new kind gives ``kind`` no default: defaults are not part of a recipe's fingerprint.
    """

    kind: str

    @property
    def trains(self) -> Literal["captioner", "scorer"]:
        """Which model is the learner."""
        return OBJECTIVES.find(self.kind).trains

    def needs(self) -> tuple[str, ...]:
        """What these options require: ``references`` as labels; ``start``, a captioner that training starts from."""
        return OBJECTIVES.find(self.kind).needs

    @property
    def learns_references(self) -> bool:
        """Whether the references are the labels (teacher forcing)."""
        return "references" in self.needs()

    def scorer_names(self) -> tuple[str, ...]:
        """Scorers that the options name in place of the recipe's [scorer]; those of rewards are theirs."""
        return ()

    @property
    def reward_options(self) -> tuple[RewardOptions, ...]:
        """The rewards of a policy gradient; empty for all others."""
        return ()


class PluginObjectiveOptions(ObjectiveOptions, PluginOptions):
    """Options of a plug-in that declares none: every further key is a keyword argument of its factory."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveEntry(Entry[Callable[..., Objective[Any]]]):
    """``factory(options, parts) -> Objective``, with an `ObjectiveOptions` and a `RunParts`.

    Without ``options`` it is ``factory(**keys) -> Objective``, with the further keys of its table. ``needs`` holds
    ``references`` where these are the labels. ``check``: called with the options before any model is loaded; raises
    `UsageError`.
    """

    needs: tuple[str, ...] = ("references",)
    trains: Literal["captioner", "scorer"] = "captioner"
    check: Callable[[Any], object] | None = None

    def build(self, options: ObjectiveOptions, parts: RunParts) -> Objective[Any]:
        """The objective. Raises `UsageError` where the factory of a plug-in returns something else."""
        if isinstance(options, PluginObjectiveOptions):
            objective: Objective[Any] = options.call(self, "objective")
            return objective
        return self.factory(options, parts)


OBJECTIVES: Registry[ObjectiveEntry] = Registry(
    "objective", ObjectiveEntry, group="tellapart.objectives", package="tellapart.objectives"
)


def build_objective(options: ObjectiveOptions, parts: RunParts) -> Objective[Any]:
    """The objective that a recipe's table describes."""
    return OBJECTIVES.find(options.kind).build(options, parts)
