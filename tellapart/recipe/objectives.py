"""The objectives of a recipe: a table for each kind.

``kind`` has a default where it had one from the start. A new kind gives it none: what is a default is not in a
recipe's fingerprint, and two kinds would have the same (`training.fingerprint` adds the kind all the same).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainSerializer, ValidationInfo, model_validator

from tellapart.models.decoding import Decoding
from tellapart.models.plugins import PATTERN
from tellapart.utils.options import ModelName, Strict, fill_in, written_file

Greedy = Literal["greedy"]


def frequencies(idf: str, info: ValidationInfo) -> str:
    """Document frequencies by name, or of a file that stands beside the recipe that names it."""
    if idf in ("training", "batch"):
        return idf
    if not idf.endswith(".json"):
        raise ValueError(f"'{idf}' is not known; expected 'training', 'batch', or a .json file of frozen frequencies")
    folder = info.context["folder"] if info.context else Path()
    return str((folder / fill_in(idf)).resolve())


class Mle(Strict):
    kind: Literal["mle"] = "mle"
    label_smoothing: float = Field(0.0, ge=0, lt=1)


class Smile(Strict):
    """SMILE (paper 1): its defaults are the paper's. ``mle`` is λ of eq. 4, the share of MLE, 0.01 in its best row."""

    kind: Literal["smile"]
    subset: Literal["own", "random", "reverse"] = "own"
    first: Literal["mle", "shift", "none"] = "mle"
    random_size: int = Field(10, ge=1, description="words drawn for each caption, its labels not counted")
    shift: tuple[tuple[str, str], ...] = Field(
        (), description="tokens and their stand-ins, where the tokenizer has none"
    )
    mle: float = Field(0.0, ge=0, le=1)
    label_smoothing: float = Field(0.0, ge=0, lt=1, description="of the share of MLE; BLIP's own is 0.1")

    @model_validator(mode="after")
    def has_an_effect(self) -> Smile:
        if self.label_smoothing and not self.mle:
            raise ValueError("label_smoothing is of the share of MLE, which is 0; set mle = 0.01, say, or leave it out")
        if self.random_size != 10 and self.subset != "random":
            raise ValueError(f"random_size is of subset 'random', and subset is '{self.subset}'; leave it out")
        if self.shift and self.first != "shift":
            raise ValueError(f"shift is of first = 'shift', and first is '{self.first}'; leave it out")
        return self


class Contrastive(Strict):
    kind: Literal["contrastive"] = "contrastive"
    word_dropout: float = Field(0.0, ge=0, lt=1)


class SelfRetrieval(Strict):
    """The scorer finds the picture by the caption: paper 3's three scores, among the batch or the picture's bag.

    ``scorers``: further ones in place of [scorer]; several are averaged, or take turns by step.
    """

    kind: Literal["self_retrieval"]
    weight: float = 1.0
    score: Literal["log_prob", "accuracy", "cosine"] = "log_prob"
    among: Literal["batch", "bag"] = "batch"
    scorers: tuple[ModelName, ...] = ()
    combine: Literal["average", "alternate"] = "average"

    @model_validator(mode="after")
    def has_an_effect(self) -> SelfRetrieval:
        if self.score == "cosine" and self.among == "bag":
            raise ValueError("score 'cosine' looks at no other picture, so among = 'bag' has no effect; leave it out")
        if self.combine == "alternate" and len(self.scorers) < 2:
            raise ValueError("combine = 'alternate' takes turns; give at least two scorers = ['…', '…']")
        return self


class Cider(Strict):
    """CIDEr-D against the references. ``idf``: "training", "batch", or a file of `DocumentFrequencies.save`."""

    kind: Literal["cider"]
    weight: float = 1.0
    idf: Annotated[str, AfterValidator(frequencies), PlainSerializer(written_file)] = "training"
    words: Literal["text", "tokens"] = "text"
    end: bool = Field(False, description="the end token is a word; of token ids, which say whether a caption ended")

    @model_validator(mode="after")
    def knows_the_end(self) -> Cider:
        if self.end and self.words == "text":
            raise ValueError("end = true needs to know whether a caption ended; set words = 'tokens'")
        return self


class Bleu(Strict):
    kind: Literal["bleu"]
    weight: float = 1.0
    n: int = Field(4, ge=1, le=4)


class Own(Strict):
    """A reward of the user's own: ``reward = "my.module:factory"`` makes it from ``options``, or so does the name of an
    installed entry point of the group ``tellapart.rewards``."""

    kind: Literal["own"]
    weight: float = 1.0
    reward: str = Field(pattern=rf"{PATTERN}|^\w[\w.-]*$")
    options: dict[str, Any] = Field(default_factory=dict)


RewardTable = Annotated[SelfRetrieval | Cider | Bleu | Own, Field(discriminator="kind")]


class Exploration(Strict):
    """Paper 4: α · rewards + (1 − α) · how different the samples of a picture are. The defaults are corrected;
    distance = "bleu-similarity" and baseline = "literal" are the paper's words."""

    alpha: float = Field(0.75, ge=0, le=1)
    distance: Literal["bleu", "edit", "bleu-similarity"] = "bleu"
    reference: Literal["both", "other", "own"] = Field("both", description="the reference of BLEU's two sides")
    baseline: Literal["matching", "literal", "leave_one_out", "none"] = "matching"

    @property
    def apart(self) -> bool:
        """Whether a sample's distances are compared with those of the others."""
        return self.alpha < 1 and self.baseline in ("matching", "leave_one_out")

    @model_validator(mode="after")
    def has_an_effect(self) -> Exploration:
        if self.distance == "edit" and self.reference != "both":
            raise ValueError(f"distance 'edit' has no reference side; leave out reference = '{self.reference}'")
        return self


class Reinforce(Strict):
    """Policy gradient of rewards. The defaults are DiscriTune's: self-retrieval, greedy captions, a running mean."""

    kind: Literal["reinforce"] = "reinforce"
    rewards: tuple[RewardTable, ...] = Field((SelfRetrieval(kind="self_retrieval"),), min_length=1)
    decoding: Decoding = Decoding(kind="greedy", max_tokens=30)
    baseline: Literal["running_mean", "leave_one_out", "greedy", "none"] = "running_mean"
    normalise: Literal["length+1", "length", "none"] = "length+1"
    dropout_in_rollout: bool = True
    exploration: Exploration | None = None
    whiten: bool = False
    entropy: float = Field(0.0, ge=0)
    kl: float = Field(0.0, ge=0)
    kl_temperature: float | None = Field(
        None, gt=0, description="at which captioner and start are compared; by default that of decoding"
    )

    @model_validator(mode="after")
    def fits_together(self) -> Reinforce:
        for wrong in self.contradictions():
            raise ValueError(wrong)
        return self

    def contradictions(self) -> Iterator[str]:
        if self.kl_temperature is not None and not self.kl:
            yield "kl_temperature is of the KL term, whose weight kl is 0; set kl = 0.1, say, or leave it out"
        if self.baseline == "leave_one_out" and self.decoding.samples < 2:
            yield "baseline 'leave_one_out' compares samples of a picture; set decoding.samples = 4, say"
        if self.exploration is not None and self.decoding.samples < 2:
            yield "exploration compares samples of a picture; set decoding.kind = 'sample', decoding.samples = 5"
        elif self.exploration is not None and self.exploration.apart and self.decoding.samples < 3:
            yield (
                f"exploration.baseline '{self.exploration.baseline}' needs three samples of a picture: of two, each is "
                "as different as the other; set decoding.samples = 5"
            )
        if self.baseline == "greedy" and self.decoding.kind == "greedy" and not self.dropout_in_rollout:
            yield (
                "baseline 'greedy' is the reward of the very caption that greedy decoding without dropout writes: "
                "nothing would be learned; set decoding.kind = 'sample'"
            )

    @property
    def reads_references(self) -> bool:
        return any(table.kind in ("cider", "bleu") for table in self.rewards)

    @property
    def needs_scorer(self) -> bool:
        """Whether a reward comes from the run's own [scorer]."""
        return any(isinstance(table, SelfRetrieval) and not table.scorers for table in self.rewards)


Objective = Annotated[Mle | Smile | Contrastive | Reinforce, Field(discriminator="kind")]
