"""The objectives of a recipe: a table for each kind.

``kind`` has a default where it had one from the start. A new kind gives it none: what is a default is not in a
recipe's fingerprint, and two kinds would have the same.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tellapart.decode import Decoding
from tellapart.recipe_fields import Strict


class Mle(Strict):
    kind: Literal["mle"] = "mle"
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class Contrastive(Strict):
    kind: Literal["contrastive"] = "contrastive"
    word_dropout: float = Field(0.0, ge=0, lt=1)


class Reinforce(Strict):
    """DiscriTune's self-retrieval. The defaults are the paper's."""

    kind: Literal["reinforce"] = "reinforce"
    decoding: Decoding = Decoding(kind="greedy", max_tokens=30)
    baseline: Literal["running_mean", "leave_one_out", "none"] = "running_mean"
    normalise: Literal["length+1", "length", "none"] = "length+1"
    dropout_in_rollout: bool = True
    kl: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def has_samples_to_compare(self) -> Reinforce:
        if self.baseline == "leave_one_out" and self.decoding.samples < 2:
            raise ValueError("baseline 'leave_one_out' compares samples of a picture; set decoding.samples = 4, say")
        return self


Objective = Annotated[Mle | Contrastive | Reinforce, Field(discriminator="kind")]
