"""``kind = "mle"``: cross-entropy of the references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from tellapart.errors import UsageError
from tellapart.objectives.registry import OBJECTIVES, ObjectiveEntry, ObjectiveOptions
from tellapart.rewards.base import RunParts

if TYPE_CHECKING:
    from tellapart.objectives.mle import Mle as MleObjective


class Mle(ObjectiveOptions):
    """Maximum likelihood of the references.

    ``prompt``: of references that begin with it, only what follows is learned. So a captioner learns to answer the
    prompt, and its captions without one do not begin with it (data sets have ``describe=PROMPT``).
    """

    kind: Literal["mle"] = "mle"
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    prompt: str = ""


def build(options: Mle, parts: RunParts) -> MleObjective:
    from tellapart.objectives.mle import Mle as MleObjective

    if not options.prompt:
        return MleObjective(options.label_smoothing)
    if not any(text.startswith(options.prompt) for item in parts.train_items for text in item.references):
        raise UsageError(
            f"objective.prompt is '{options.prompt}', and no training reference begins with it; add a data set with "
            f"describe={options.prompt}, or leave the prompt out"
        )
    (prompt,) = parts.captioner.tokenize([options.prompt])
    return MleObjective(options.label_smoothing, prompt[:-1])  # without the end token


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
