"""``kind = "mle"``: cross-entropy of the references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tellapart.objectives.registry import OBJECTIVES, ObjectiveEntry, ObjectiveOptions
from tellapart.rewards.base import RunParts

if TYPE_CHECKING:
    from tellapart.objectives.mle import Mle as MleObjective


class Mle(ObjectiveOptions):
    """Maximum likelihood of the references."""

    kind: Literal["mle"] = "mle"
    label_smoothing: float = Field(0.0, ge=0, lt=1)


def build(options: Mle, parts: RunParts) -> MleObjective:
    from tellapart.objectives.mle import Mle as MleObjective

    return MleObjective(options.label_smoothing)


OBJECTIVES.register(
    ObjectiveEntry(
        name="mle",
        factory=build,
        help="Cross-entropy of the references (teacher forcing).",
        options=Mle,
        label="MLE",
        direction="lower",
    )
)
