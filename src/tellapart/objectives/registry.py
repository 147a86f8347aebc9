"""The registry of objectives: what ``objective.kind`` in a recipe can be.

An objective is a module of `tellapart.objectives.kinds` that registers an `ObjectiveEntry`, or an entry point of the
group ``tellapart.objectives`` of an installed package. Its options are the table [objective] of a recipe.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tellapart.rewards.base import RewardOptions, RunParts
from tellapart.utils.options import PluginOptions, Strict
from tellapart.utils.registry import Entry, Registry

if TYPE_CHECKING:
    from tellapart.objectives.base import Objective


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
class ObjectiveEntry(Entry[Callable[..., "Objective[Any]"]]):
    """``factory(options, parts) -> Objective``, with an `ObjectiveOptions` and a `RunParts`.

    Without ``options`` it is ``factory(**keys) -> Objective``, with the further keys of its table. ``needs`` holds
    ``references`` where these are the labels. ``check``: called with the options before any model is loaded; raises
    `UsageError`.
    """

    needs: tuple[str, ...] = ("references",)
    trains: Literal["captioner", "scorer"] = "captioner"
    check: Callable[[Any], None] | None = None

    def build(self, options: ObjectiveOptions, parts: RunParts) -> Objective[Any]:
        """The objective. Raises `UsageError` where the factory of a plug-in returns something else."""
        if isinstance(options, PluginObjectiveOptions):
            objective: Objective[Any] = options.call(self, "objective")
            return objective
        return self.factory(options, parts)


OBJECTIVES: Registry[ObjectiveEntry] = Registry(
    "objective", ObjectiveEntry, group="tellapart.objectives", package="tellapart.objectives.kinds"
)


def build_objective(options: ObjectiveOptions, parts: RunParts) -> Objective[Any]:
    """The objective that a recipe's table describes."""
    return OBJECTIVES.find(options.kind).build(options, parts)
