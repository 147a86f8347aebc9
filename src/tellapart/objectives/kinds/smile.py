"""``kind = "smile"``: semipermeable maximum likelihood (paper 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from tellapart.errors import UsageError
from tellapart.objectives.registry import OBJECTIVES, ObjectiveEntry, ObjectiveOptions
from tellapart.rewards.base import RunParts

if TYPE_CHECKING:
    from tellapart.objectives.smile import Smile as SmileObjective


class Smile(ObjectiveOptions):
    """SMILE (paper 1): its defaults are the paper's. ``mle_weight`` is λ of eq. 4, 0.01 in its best row."""

    kind: Literal["smile"]
    subset: Literal["own", "random", "reverse"] = "own"
    first_token: Literal["mle", "shift", "none"] = Field("mle", serialization_alias="first")
    random_size: int = Field(10, ge=1, description="words drawn for each caption, its labels not counted")
    shift: tuple[tuple[str, str], ...] = Field(
        (), description="tokens and their stand-ins, where the tokenizer has none"
    )
    mle_weight: float = Field(0.0, ge=0, le=1, serialization_alias="mle")
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="of the MLE term; BLIP's own is 0.1")

    @model_validator(mode="after")
    def has_an_effect(self) -> Smile:
        if self.label_smoothing and not self.mle_weight:
            raise ValueError(
                "label_smoothing is of the MLE term, and mle_weight is 0; set mle_weight = 0.01, say, or leave it out"
            )
        if self.random_size != 10 and self.subset != "random":
            raise ValueError(f"random_size is of subset 'random', and subset is '{self.subset}'; leave it out")
        if self.shift and self.first_token != "shift":
            raise ValueError(f"shift is of first_token 'shift', and first_token is '{self.first_token}'; leave it out")
        return self


def build(options: Smile, parts: RunParts) -> SmileObjective:
    """SMILE for this captioner. Raises `UsageError` for what its vocabulary does not have."""
    from tellapart.objectives.shift import alternative_forms
    from tellapart.objectives.smile import Smile as SmileObjective

    captioner = parts.captioner
    V = len(captioner.tokenizer) if (head := captioner.head()) is None else len(head[0])
    if options.subset == "random" and options.random_size > V:
        raise UsageError(
            f"objective.random_size is {options.random_size}, and the vocabulary of {captioner.name} has {V} words; "
            "lower it (the paper's is 10)"
        )
    shift_V = alternative_forms(captioner.tokenizer, V, options.shift) if options.first_token == "shift" else None
    return SmileObjective(
        subset=options.subset,
        first=options.first_token,
        random_size=options.random_size,
        shift_V=shift_V,
        mle=options.mle_weight,
        label_smoothing=options.label_smoothing,
    )


OBJECTIVES.register(
    ObjectiveEntry(
        name="smile",
        factory=build,
        help="Maximum likelihood within the words of each reference (paper 1).",
        options=Smile,
        label="SMILE",
        direction="lower",
    )
)
