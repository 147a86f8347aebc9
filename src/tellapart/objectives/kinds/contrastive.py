"""``kind = "contrastive"``: CLIP's symmetric loss, which trains a scorer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tellapart.objectives.registry import OBJECTIVES, ObjectiveEntry, ObjectiveOptions
from tellapart.rewards.base import RunParts

if TYPE_CHECKING:
    from tellapart.objectives.contrastive import Contrastive as ContrastiveObjective


class Contrastive(ObjectiveOptions):
    """Contrastive learning of a scorer."""

    kind: Literal["contrastive"] = "contrastive"
    word_dropout: float = Field(0.0, ge=0, lt=1)


def build(options: Contrastive, parts: RunParts) -> ContrastiveObjective:
    from tellapart.objectives.contrastive import Contrastive as ContrastiveObjective

    return ContrastiveObjective(options.word_dropout)


OBJECTIVES.register(
    ObjectiveEntry(
        name="contrastive",
        factory=build,
        help="CLIP's symmetric cross-entropy; trains a scorer.",
        options=Contrastive,
        label="contrastive",
        direction="lower",
        trains="scorer",
    )
)
