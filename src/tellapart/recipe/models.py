"""The ``[captioner]`` and ``[scorer]`` tables of a recipe: existing models by name, or new ones by configuration."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from tellapart.utils.options import FileName, ModelName, Strict


class NewCaptioner(Strict):
    """A ClipCap to be trained from scratch: a small GPT-2 behind a vision encoder."""

    kind: Literal["clipcap"] = "clipcap"
    vision: ModelName = Field(description="whose vision tower: a scorer's name, folder or recipe")
    visual: Literal["pooled", "cells"] = "pooled"
    mapper: Literal["mlp", "transformer", "linear"] = "mlp"
    prefix_length: int = Field(4, ge=1)
    width: int = Field(192, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(6, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    min_count: int = Field(1, ge=1, description="words that occur less often in the training references are unknown")
    max_tokens: int = Field(64, ge=4, description="positions of the language model, prefix included")
    sentences: bool = Field(
        False, description="full stops between sentences are words; else all punctuation is dropped"
    )

    @model_validator(mode="after")
    def divides_its_width(self) -> NewCaptioner:
        if self.width % self.heads:
            raise ValueError(f"width = {self.width} is no multiple of heads = {self.heads}; choose one that is")
        if (self.visual == "cells") != (self.mapper == "linear"):
            raise ValueError("visual = 'cells' and mapper = 'linear' go together: a prefix position for each cell")
        return self


class NewRecurrent(Strict):
    """Paper 4's captioner to be trained from scratch: an LSTM behind a vision encoder, or behind ``features``."""

    kind: Literal["recurrent"]
    vision: ModelName | None = Field(None, description="any vision encoder of transformers, or a scorer's")
    attention: bool = Field(False, description="attend to cells or regions at each word; else see their mean once")
    width: int = Field(512, ge=8)
    dropout: float = Field(0.5, ge=0, lt=1)
    min_count: int = Field(5, ge=1, description="words that occur less often in the training references are unknown")


class NewScorer(Strict):
    """A dual encoder to be trained from scratch: a small ResNet and a small CLIP text tower."""

    image_size: int = Field(64, ge=16)
    width: int = Field(32, ge=4)
    depth: int = Field(1, ge=1)
    stem_pooling: bool = Field(True, description="False keeps a small picture twice as large inside")
    text_width: int = Field(192, ge=8)
    text_layers: int = Field(2, ge=1)
    text_heads: int = Field(4, ge=1)
    projection: int = Field(192, ge=8)
    dropout: float = Field(0.0, ge=0, lt=1)
    min_count: int = Field(1, ge=1)
    max_tokens: int = Field(48, ge=4)

    @model_validator(mode="after")
    def divides_its_width(self) -> NewScorer:
        if self.text_width % self.text_heads:
            raise ValueError(
                f"text_width = {self.text_width} is no multiple of text_heads = {self.text_heads}; choose one that is"
            )
        return self


class Lora(Strict):
    """LoRA beside layers of the vision encoder and the language model, where these learn; the defaults are paper 2's.

    ``modules``: how the names of the layers end, in either part, or "all-linear". A part whose attention has none of
    the default names is adapted in all its linear layers.
    """

    rank: int = Field(32, ge=1)
    alpha: int = Field(16, ge=1)
    modules: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all-linear"] = (
        "c_attn", "attn.c_proj", "q_proj", "k_proj", "v_proj", "fc1", "fc2",
    )  # fmt: skip


class Captioner(Strict):
    """Which captioner: an existing one by ``name``, or a ``new`` one.

    ``features``: a folder or an HDF5 file with features by item id (`tellapart.features.files`), in place of what its
    own vision encoder makes of the pictures; "off": what it makes of them (or, where it learns, their pixels) is not
    kept on disk but made in each step.
    ``new_words``: words of the training references that its tokenizer of whole words lacks, and that occur at least so
    often, are learned as well.
    ``frames``: how many frames of a clip it looks at; None: as many as it did before, which is one unless it says so.
    ``train``: which of its parts learn; by default all but the vision encoder. ``lora``: they do so in low rank, but
    for the mapper, which learns in full.
    ``dropout``: of all dropout layers of the language model in training, frozen or not; None: as its configuration
    says. LAVIS' BLIP, which papers 1 and 3 train, has 0.1, where the configuration of transformers says 0.
    """

    name: ModelName | None = None
    new: Annotated[NewCaptioner | NewRecurrent, Field(discriminator="kind")] | None = None
    features: FileName | None = None
    new_words: int | None = Field(None, ge=1)
    frames: int | None = Field(None, ge=1, le=64)
    train: tuple[Literal["vision", "mapper", "language_model"], ...] | None = Field(None, min_length=1)
    lora: Lora | None = None
    dropout: float | None = Field(None, ge=0, lt=1)

    @field_validator("new", mode="before")
    @classmethod
    def usual_kind(cls, new: Any) -> Any:
        """Recipes from before there were two kinds name none."""
        return {"kind": "clipcap", **new} if isinstance(new, dict) else new

    @property
    def feature_files(self) -> str | None:
        """The files that ``features`` names."""
        return None if self.features == "off" else self.features

    @model_validator(mode="after")
    def looks_at_something(self) -> Captioner:
        files = self.feature_files
        if isinstance(self.new, NewRecurrent) and (self.new.vision is None) == (files is None):
            raise ValueError("a recurrent one needs either new.vision = 'MODEL' or features = 'FOLDER', and not both")
        if isinstance(self.new, NewCaptioner) and files is not None:
            raise ValueError("features are for a captioner by name, or a new one of kind 'recurrent'; leave them out")
        if self.new is not None and self.new_words is not None:
            raise ValueError("new_words are for a captioner by name; a new one knows the training references' words")
        if self.new is not None and self.dropout is not None:
            raise ValueError("dropout is of a captioner by name; a new one has captioner.new.dropout")
        if files is not None and "vision" in (self.train or ()):
            raise ValueError("features take the place of the vision encoder, which then cannot learn; leave one out")
        return self


class Scorer(Strict):
    """Which scorer: an existing one by ``name``, or a ``new`` one (only where it is what is trained)."""

    name: ModelName | None = None
    new: NewScorer | None = None
