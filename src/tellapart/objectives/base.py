"""The interface of objectives: a callable over (learner, batch), its options in a recipe, and the registry.

An objective is a module of `tellapart.objectives` with its options (``Config``) and its `ObjectiveEntry`, or an entry
point of the group ``tellapart.objectives`` of an installed package. Its options are the table [objective] of a recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch

from tellapart.rewards.base import RewardOptions, RunParts
from tellapart.types import Batch, Loss, StepContext
from tellapart.utils.options import PluginOptions, Strict
from tellapart.utils.registry import Entry, Registry

LearnerT = TypeVar("LearnerT", contravariant=True)  # a captioner, or a scorer where the objective is contrastive


class Objective(Protocol[LearnerT]):
    """``objective(learner, batch) -> Loss``; the state dict is plain JSON (numbers, strings, lists).

    ``step`` runs the forward and backward passes of an update, one micro-batch after the other, so that the graph of
    one is freed before the next is built. With several ranks, each is given the whole batch and works on its share
    (`StepContext.share`); an objective that does so declares ``shares_batch = True``.
    """

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss: ...

    def step(self, learner: LearnerT, batch: Batch, context: StepContext) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Stateless(Generic[LearnerT]):
    """Base class of supervised objectives without state, whose loss is a mean over the valid tokens of the labels."""

    shares_batch = True

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss:
        raise NotImplementedError

    def step(self, learner: LearnerT, batch: Batch, context: StepContext) -> None:
        """Runs the supervised step: labels, then forward and backward for each micro-batch of this rank's share."""
        batch = self.with_labels(learner, batch)
        for part in batch[context.share(len(batch.rows_B))].split(context.micro_batches):
            with context.autocast():
                seen = part if context.encode is None else replace(part, visual=context.visual(part))
                loss = self(learner, seen)
            share = 1.0  # of the batch's tokens
            if len(part.rows_B) < len(batch.rows_B):
                share = float(self.learned(part).sum()) / float(self.learned(batch).sum())
            context.backward(Loss(loss.value * share, {key: value * share for key, value in loss.logs.items()}))
            del loss

    def with_labels(self, learner: LearnerT, batch: Batch) -> Batch:
        """Returns the batch with its labels; by default these are its references."""
        return batch

    def learned(self, batch: Batch) -> torch.Tensor:
        """Returns the tokens that the loss is a mean over, R×T."""
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
        """The kind of model that is trained."""
        return OBJECTIVES.find(self.kind).trains

    def needs(self) -> tuple[str, ...]:
        """Returns the requirements: ``references`` as labels; ``start``, a captioner that training starts from."""
        return OBJECTIVES.find(self.kind).needs

    @property
    def learns_references(self) -> bool:
        """True if the references are the labels (teacher forcing)."""
        return "references" in self.needs()

    @property
    def measure(self) -> Literal["loss", "cider", "recall"]:
        """The validation metric that the objective improves: it selects the checkpoint unless a recipe names another.

        The negative log-likelihood of references if these are the labels, CIDEr-D if every reward compares captions
        with references, otherwise R@1. SMILE, GEM and sparsemax learn references, too, but raise their negative
        log-likelihood; SMILE's paper selects by self-retrieval.
        """
        if self.reward_options:
            return "cider" if all("references" in reward.needs() for reward in self.reward_options) else "recall"
        labels = self.trains == "captioner" and self.learns_references
        return "loss" if labels and self.kind not in ("smile", "gem", "sparsemax") else "recall"

    def scorer_names(self) -> tuple[str, ...]:
        """Returns scorers named here in place of the recipe's [scorer]; rewards name their own."""
        return ()

    def levels(self) -> tuple[tuple[float, str], ...]:
        """Returns the amounts of detail, 0 to 1, that a captioner is trained for, each with its prompt; empty: one."""
        return ()

    @property
    def reward_options(self) -> tuple[RewardOptions, ...]:
        """The rewards of a policy gradient; empty for other objectives."""
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
        """Returns the objective. Raises `UsageError` if the factory of a plug-in does not return a callable."""
        if isinstance(options, PluginObjectiveOptions):
            objective: Objective[Any] = options.call(self, "objective")
            return objective
        return self.factory(options, parts)


OBJECTIVES: Registry[ObjectiveEntry] = Registry(
    "objective", ObjectiveEntry, group="tellapart.objectives", package="tellapart.objectives"
)


def build_objective(options: ObjectiveOptions, parts: RunParts) -> Objective[Any]:
    """Returns the objective that a recipe's table describes."""
    return OBJECTIVES.find(options.kind).build(options, parts)
