"""``kind = "cider"``: CIDEr-D against the references (papers 2 and 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainSerializer, ValidationInfo, model_validator

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts
from tellapart.utils.options import fill_in, written_file


def frequencies(idf: str, info: ValidationInfo) -> str:
    """Document frequencies by name, or a file beside the recipe that names it."""
    if idf in ("training", "batch"):
        return idf
    if not idf.endswith(".json"):
        raise ValueError(f"'{idf}' is not known; expected 'training', 'batch', or a .json file of frozen frequencies")
    folder = info.context["folder"] if info.context else Path()
    return str((folder / fill_in(idf)).resolve())


class Cider(RewardOptions):
    """CIDEr-D against the references. ``idf``: "training", "batch", or a file of `DocumentFrequencies.save`."""

    kind: Literal["cider"]
    idf: Annotated[str, AfterValidator(frequencies), PlainSerializer(written_file)] = "training"
    words: Literal["text", "tokens"] = "text"
    end: bool = Field(False, description="count the end token as a word; needs words = 'tokens'")

    @model_validator(mode="after")
    def knows_the_end(self) -> Cider:
        if self.end and self.words == "text":
            raise ValueError("end = true needs to know whether a caption ended; set words = 'tokens'")
        return self


def build(options: Cider, parts: RunParts) -> Reward:
    from tellapart.metrics.cider import DocumentFrequencies
    from tellapart.rewards.overlap import Cider as CiderReward

    names = {"training": "references", "batch": "batch"}
    idf = names.get(options.idf) or DocumentFrequencies.load(options.idf)
    references = [list(item.references) for item in parts.train_items]
    if options.words == "text":
        return CiderReward(references, idf=idf)
    rows = iter(parts.captioner.tokenize([text for texts in references for text in texts]))
    tokens = [[next(rows) for _ in texts] for texts in references]
    return CiderReward(tokens, idf=idf, end_token=parts.captioner.end, end=options.end)


def check(options: Cider) -> None:
    """The file of frequencies is there and can be read."""
    if options.idf.endswith(".json"):
        from tellapart.metrics.cider import DocumentFrequencies

        DocumentFrequencies.load(options.idf)


REWARDS.register(
    RewardEntry(
        name="cider",
        factory=build,
        help="CIDEr-D against the references.",
        options=Cider,
        needs=("references",),
        label="CIDEr-D",
        direction="higher",
        check=check,
    )
)
