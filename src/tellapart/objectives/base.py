"""The objective interface: a callable of (learner, batch), its recipe options, and the registry.

An objective is either an options class decorated with `objective`, whose ``build`` returns the callable, or an entry
point that an installed package provides in the group ``tellapart.objectives``. A recipe sets its options in
[objective].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, Protocol, TypeVar

import torch

from tellapart.rewards.base import RewardOptions
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Loss, StepContext
from tellapart.utils.option_tables import PluginOptions, Strict, build_part, register_options
from tellapart.utils.registry import Entry, Registry

Options = TypeVar("Options", bound="ObjectiveOptions")
LearnerT = TypeVar("LearnerT", contravariant=True)  # a captioner, or a scorer for the contrastive objective


class Objective(Protocol[LearnerT]):
    """``objective(learner, batch) -> Loss``. The state dict contains only JSON values (numbers, strings, lists).

    ``step`` runs the forward and backward passes of an update one micro-batch at a time, so that each graph is freed
    before the next one is built. In distributed training, every rank receives the whole batch. Objectives that process
    only the rank's share of the batch (`StepContext.share`) declare ``shares_batch = True``.
    """

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss: ...

    def step(self, learner: LearnerT, batch: Batch, context: StepContext) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Supervised(Generic[LearnerT]):
    """Base class for supervised objectives, whose loss is a mean over the valid label tokens. It has no state."""

    shares_batch = True

    def __call__(self, learner: LearnerT, batch: Batch) -> Loss:
        raise NotImplementedError

    def step(self, learner: LearnerT, batch: Batch, context: StepContext) -> None:
        """Runs a supervised step: creates the labels, then runs forward and backward passes on this rank's
        micro-batches.
        """
        batch = self.with_labels(learner, batch)
        for part in batch[context.share(len(batch.rows_B))].split(context.micro_batches):
            with context.autocast():
                seen = part if context.encode is None else replace(part, visual=context.visual(part))
                loss = self(learner, seen)
            share = 1.0  # fraction of the batch's tokens
            if len(part.rows_B) < len(batch.rows_B):
                share = float(self.learned(part).sum()) / float(self.learned(batch).sum())
            context.backward(Loss(loss.value * share, {key: value * share for key, value in loss.logs.items()}))
            del loss

    def with_labels(self, learner: LearnerT, batch: Batch) -> Batch:
        """Returns the batch with its labels; by default, these are its references."""
        return batch

    def learned(self, batch: Batch) -> torch.Tensor:
        """Returns a mask R×T of the tokens over which the loss is averaged."""
        assert batch.valid_RT is not None
        return batch.valid_RT

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"Expected an empty state because this objective is stateless; got {sorted(state)}")


class ObjectiveOptions(Strict):
    """Base options of every objective: ``kind = "name"`` selects the objective. Subclasses add options.

    New kinds must not give ``kind`` a default, because defaults are not part of a recipe's fingerprint.
    """

    kind: str

    @property
    def trains(self) -> Literal["captioner", "scorer"]:
        """The kind of model that the objective trains."""
        return OBJECTIVES.find(self.kind).trains

    def needs(self) -> tuple[str, ...]:
        """Returns what the objective requires: ``references`` as labels, ``start`` for the initial captioner."""
        return OBJECTIVES.find(self.kind).needs

    @property
    def learns_references(self) -> bool:
        """Returns True if the references are the labels (teacher forcing)."""
        return "references" in self.needs()

    @property
    def measure(self) -> Literal["loss", "cider", "recall"]:
        """Returns the validation metric that selects the checkpoint unless the recipe names another metric.

        If the references are the labels, this is their negative log-likelihood; if all rewards compare captions with
        references, it is CIDEr-D; otherwise, it is R@1. SMILE, GEM and sparsemax also learn from references but
        increase the references' negative log-likelihood, so they use R@1 (``loss_selects=False`` in their entries);
        SMILE's paper selects by self-retrieval, too.
        """
        if self.reward_options:
            return "cider" if all("references" in reward.needs() for reward in self.reward_options) else "recall"
        labels = self.trains == "captioner" and self.learns_references
        return "loss" if labels and OBJECTIVES.find(self.kind).loss_selects else "recall"

    def scorer_names(self) -> tuple[str, ...]:
        """Returns the names of the scorers that the objective uses instead of the recipe's [scorer].

        Rewards name their own scorers.
        """
        return ()

    def check(self) -> None:
        """Raises `UsageError` if the objective cannot be built. Called before any model is loaded."""

    def levels(self) -> tuple[tuple[float, str], ...]:
        """Returns (amount of detail in [0, 1], prompt) for each level to train. Empty if there are no levels."""
        return ()

    @property
    def reward_options(self) -> tuple[RewardOptions, ...]:
        """Returns the options of the rewards that a policy-gradient objective uses. Empty for other objectives."""
        return ()


class PluginObjectiveOptions(ObjectiveOptions, PluginOptions):
    """Options for a plug-in without an options class. All other keys become keyword arguments of its factory."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveEntry(Entry[Callable[..., Objective[Any]]]):
    """Registry entry with ``factory(options, parts) -> Objective``, which takes an `ObjectiveOptions` and a `RunParts`.

    If the entry has no ``options``, the factory is called as ``factory(**keys) -> Objective`` with the table's other
    keys. ``needs`` contains ``references`` if the references are the labels. ``loss_selects`` is False if the objective
    learns from references but increases their negative log-likelihood; the checkpoint is then selected by recall.
    """

    needs: tuple[str, ...] = ("references",)
    trains: Literal["captioner", "scorer"] = "captioner"
    loss_selects: bool = True


OBJECTIVES: Registry[ObjectiveEntry] = Registry(
    "objective", ObjectiveEntry, group="tellapart.objectives", packages=("tellapart.objectives",)
)


def objective(label: str, *, help: str, **about: Any) -> Callable[[type[Options]], type[Options]]:
    """Registers an options class as an objective under its ``kind``. ``options.build(parts)`` must return the
    objective. ``about`` sets fields of its `ObjectiveEntry`.
    """
    return register_options(OBJECTIVES, label, help=help, **about)


def build_objective(options: ObjectiveOptions, parts: RunParts) -> Objective[Any]:
    """Builds the objective that a recipe table describes."""
    built: Objective[Any] = build_part(OBJECTIVES, options, parts)
    return built
