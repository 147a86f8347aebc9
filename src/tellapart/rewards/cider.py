"""CIDEr-D against the references, as a reward (Rennie et al. 2017; papers 2 and 4)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field, PlainSerializer, ValidationInfo, model_validator

from tellapart.metrics.cider import CiderD, DocumentFrequencies
from tellapart.rewards.base import Reward, RewardOptions, reward
from tellapart.rewards.run_parts import RunParts
from tellapart.types import Batch, Rollout
from tellapart.utils.recipe_names import fill_in, written_file


def frequencies(idf: str, info: ValidationInfo) -> str:
    """Resolves ``idf``: returns built-in names unchanged, and file paths relative to the recipe's folder."""
    if idf in ("training", "batch"):
        return idf
    if not idf.endswith(".json"):
        raise ValueError(
            f"'{idf}' is not a known source of document frequencies; expected 'training', 'batch', or "
            "a .json file of frozen frequencies"
        )
    folder = info.context["folder"] if info.context else Path()
    return str((folder / fill_in(idf)).resolve())


class CiderReward:
    """CIDEr-D of each caption against its picture's references, in [0, 10] (tables print 1.2 as 120).

    references: the references of all training pictures, indexed by `batch.rows_B`: text or, if ``end_token`` is given,
        rows of token ids.
    idf: source of the document frequencies: "references" (of the training pictures), "batch" (as in paper 2's code), or
        frozen `DocumentFrequencies`.
    end: whether the end token counts as a word (token ids only). A truncated caption has no end token, whereas all its
        references do.
    """

    @reward("CIDEr-D", help="CIDEr-D of the caption against the references.", needs=("references",))
    class Config(RewardOptions):
        """CIDEr-D against the references. ``idf``: "training", "batch", or a file written by
        `DocumentFrequencies.save`.
        """

        kind: Literal["cider"]
        idf: Annotated[str, AfterValidator(frequencies), PlainSerializer(written_file)] = "training"
        words: Literal["text", "tokens"] = "text"
        end: bool = Field(False, description="count the end token as a word; requires words = 'tokens'")

        @model_validator(mode="after")
        def knows_the_end(self) -> CiderReward.Config:
            if self.end and self.words == "text":
                raise ValueError(
                    "end = true requires token ids, which show whether a caption ended; set words = 'tokens'"
                )
            return self

        def build(self, parts: RunParts) -> Reward:
            references = [list(item.references) for item in parts.train_items]
            idf: str | DocumentFrequencies = "references" if self.idf == "training" else self.idf
            if self.idf.endswith(".json"):
                idf = DocumentFrequencies.load(self.idf)
            if self.words == "text":
                return CiderReward(references, idf=idf)
            rows = iter(parts.captioner.tokenize([text for texts in references for text in texts]))
            tokens = [[next(rows) for _ in texts] for texts in references]
            return CiderReward(tokens, idf=idf, end_token=parts.captioner.end, end=self.end)

        def check(self) -> None:
            if self.idf.endswith(".json"):
                DocumentFrequencies.load(self.idf)

    def __init__(
        self,
        references: Sequence[Sequence[Any]],
        *,
        idf: str | DocumentFrequencies = "references",
        end_token: int | None = None,
        end: bool = False,
    ) -> None:
        self.ids = end_token is not None
        self.cider = CiderD(references, idf=idf, end=end, end_token=end_token)

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        captions: Any = rollout.texts
        if self.ids:  # padding may have the same id as a word, so cut each row at its valid length
            captions = rollout.rows()
        pictures_R = np.repeat(batch.rows_B.numpy(), rollout.samples)
        return torch.from_numpy(self.cider(captions, pictures_R)).float().view(-1, rollout.samples)
