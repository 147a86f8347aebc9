"""Recipes: what to train, on what, how, and how to measure it. TOML, checked; a wrong key is an error."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.recipe.bags import Bags
from tellapart.recipe.error_messages import explain, shown
from tellapart.recipe.find import absolute
from tellapart.recipe.objectives import Objective, Reinforce, SelfRetrieval
from tellapart.utils.options import DataSpecs, FileName, ModelName, Resolver, Strict
from tellapart.utils.text import broken


class Data(Strict):
    """Where the pictures come from, as ``kind:path?key=value``; a list of them is read as one."""

    train: DataSpecs
    validation: DataSpecs
    test: DataSpecs | None = None


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
    own vision encoder makes of the pictures.
    ``new_words``: words of the training references that its tokenizer of whole words lacks, and that occur at least so
    often, are learned as well.
    ``frames``: how many frames of a clip it looks at; None: as many as it did before, which is one unless it says so.
    ``train``: which of its parts learn; by default all but the vision encoder. ``lora``: they do so in low rank, but
    for the mapper, which learns in full.
    ``dropout``: of all dropout layers of the language model while it learns; None: as its configuration says. LAVIS'
    BLIP, which papers 1 and 3 train, has 0.1, where the configuration of transformers says 0.
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

    @model_validator(mode="after")
    def looks_at_something(self) -> Captioner:
        if isinstance(self.new, NewRecurrent) and (self.new.vision is None) == (self.features is None):
            raise ValueError("a recurrent one needs either new.vision = 'MODEL' or features = 'FOLDER', and not both")
        if isinstance(self.new, NewCaptioner) and self.features is not None:
            raise ValueError("features are for a captioner by name, or a new one of kind 'recurrent'; leave them out")
        if self.new is not None and self.new_words is not None:
            raise ValueError("new_words are for a captioner by name; a new one knows the training references' words")
        if self.new is not None and self.dropout is not None:
            raise ValueError("dropout is of a captioner by name; a new one has captioner.new.dropout")
        if self.dropout is not None and "language_model" not in (self.train or ("language_model",)):
            raise ValueError("dropout is of a language model that learns; leave it out, or train it")
        if self.features is not None and "vision" in (self.train or ()):
            raise ValueError("features take the place of the vision encoder, which then cannot learn; leave one out")
        return self


class Scorer(Strict):
    """Which scorer: an existing one by ``name``, or a ``new`` one (only where it is what is trained)."""

    name: ModelName | None = None
    new: NewScorer | None = None


Moment = Annotated[float, Field(ge=0, lt=1)]


class Training(Strict):
    steps: int = Field(ge=1)
    batch_size: int = Field(100, ge=2)
    accumulate: int = Field(1, ge=1, description="parts of the batch that the backward pass goes through, one by one")
    batches: Literal["shuffled", "families", "bags"] = Field(
        "shuffled", description="look-alikes come together: families of scenes, or what [bags] says of any pictures"
    )
    captions_per_picture: int = Field(1, ge=1, description="references a step reads of each picture")
    max_reference_tokens: int | None = Field(
        None, ge=2, description="longer references are cut there and counted; by default what the model has room for"
    )
    learning_rate: float = Field(gt=0, le=1000)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    schedule_every: int = Field(
        1, ge=1, description="steps between changes of the rate; the steps of an epoch set it by epoch, as LAVIS does"
    )
    warmup: int = Field(0, ge=0)
    optimiser: Literal["adam", "adamw"] = "adamw"
    weight_decay: float = Field(0.0, ge=0, le=1000)
    betas: tuple[Moment, Moment] = (0.9, 0.999)
    clip_norm: float = Field(1.0, gt=0)
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    checkpointing: bool = Field(
        False, description="the language model's states are computed again in the backward pass: less memory, more time"
    )
    augment: Literal["none", "crop", "crop-flip"] = "none"
    log_every: int = Field(10, ge=1)
    checkpoint_every: int = Field(100, ge=1)
    trackers: tuple[str, ...] = ()

    @model_validator(mode="after")
    def has_a_schedule(self) -> Training:
        if self.schedule_every > 1 and self.schedule == "constant":
            raise ValueError("schedule_every is of a schedule that changes the rate; set schedule, or leave it out")
        return self

    @property
    def bf16(self) -> bool:
        """``auto`` is bf16 where the hardware multiplies in it, else full precision."""
        if self.precision != "auto":
            return self.precision == "bf16"
        import torch

        if torch.cuda.is_available():
            return torch.cuda.is_bf16_supported()
        return torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()


class Validation(Strict):
    every: int = Field(100, ge=1)
    limit: int | None = Field(None, ge=2)
    select: Literal["recall@1.random100", "recall@1.lookalike", "cider", "loss"] = "recall@1.random100"
    decoding: Decoding = Decoding(kind="greedy")


class Evaluation(Strict):
    decoding: Decoding = Decoding(kind="beam", beams=5)
    lookalike: int = Field(10, ge=2, description="pictures in a look-alike set, the target counted")
    judges: tuple[ModelName, ...] = Field((), description="further scorers, never a reward, that measure once more")
    gallery: int = Field(24, ge=0)


class Recipe(Strict):
    """One run. ``trains`` follows from the objective: contrastive trains a scorer, all others a captioner."""

    name: str
    about: str = ""
    seed: int = Field(0, ge=0)
    data: Data
    captioner: Captioner | None = None
    scorer: Scorer | None = None
    objective: Objective
    training: Training
    bags: Bags | None = None
    validation: Validation = Validation()
    evaluation: Evaluation = Evaluation()

    @property
    def trains(self) -> Literal["captioner", "scorer"]:
        return "scorer" if self.objective.kind == "contrastive" else "captioner"

    @field_validator("name")
    @classmethod
    def names_a_folder(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w .+-]*", name):
            raise ValueError(f"'{name}' cannot name a folder; expected letters, digits, '.', '-' and '_'")
        return name

    @model_validator(mode="after")
    def fits_together(self) -> Recipe:
        for wrong in self.contradictions():
            raise ValueError(wrong)
        return self

    def contradictions(self) -> Iterator[str]:
        """Keys that are right each by itself and not together: nothing that is written here is without effect."""
        learner = self.scorer if self.trains == "scorer" else self.captioner
        if learner is None or (learner.name is None) == (learner.new is None):
            yield f"[{self.trains}] needs either name = '…' or a [{self.trains}.new] table, and not both"
        for table in ("validation", "evaluation"):
            if (samples := getattr(self, table).decoding.samples) > 1:
                yield f"{table}.decoding.samples is {samples}; one caption of each picture is measured"
        yield from self._of_bags()
        yield from self._of_a_scorer() if self.trains == "scorer" else self._of_a_captioner()

    def _of_bags(self) -> Iterator[str]:
        batches, size = self.training.batches, self.training.batch_size
        if self.bags is not None and batches != "bags":
            yield f"[bags] is of no use to training.batches = '{batches}'; set it to 'bags', or leave the table out"
        if batches != "bags":
            return
        bags = self.bags or Bags()
        if bags.largest > size:
            yield f"a bag of {bags.largest} does not fit into training.batch_size = {size}; make one of them fit"
        if bags.kind != "random" and bags.scorer is None and (self.scorer is None or self.scorer.name is None):
            yield "bags.scorer is missing: whose features say which pictures look alike? name a scorer"

    def _of_a_scorer(self) -> Iterator[str]:
        if self.captioner is not None:
            yield "[captioner] is of no use to objective 'contrastive', which trains a scorer; leave it out"
        if (select := self.validation.select) in ("loss", "cider"):
            yield f"validation.select is '{select}', which a scorer does not have; expected a recall"
        if self.training.checkpointing:
            yield "training.checkpointing is of a captioner's language model, and this trains a scorer; leave it out"
        if self.training.max_reference_tokens is not None:
            yield "training.max_reference_tokens is of a captioner; a scorer reads as much as its window; leave it out"
        if self.training.accumulate > 1:
            yield "training.accumulate parts the batch, and objective 'contrastive' is over the whole; leave it out"

    def _of_a_captioner(self) -> Iterator[str]:
        rewarded = self.objective if isinstance(self.objective, Reinforce) else None
        judged = rewarded is not None and rewarded.needs_scorer
        if self.scorer is not None and self.scorer.name is None:
            yield "[scorer] needs name = '…': a captioner's scorer is trained before it, by a recipe of its own"
        recalls = self.validation.select.startswith("recall")
        if self.scorer is None and (judged or recalls or self.evaluation.judges):
            yield (
                f"[scorer] is missing; objective '{self.objective.kind}', validation.select or evaluation.judges need "
                "its name"
            )
        if rewarded and self.training.captions_per_picture > 1:
            yield "training.captions_per_picture is of no use to objective 'reinforce', which writes its own captions"
        if rewarded and self.training.max_reference_tokens is not None:
            yield (
                "training.max_reference_tokens cuts references that are learned, and objective 'reinforce' learns "
                "none; leave it out"
            )
        if rewarded and rewarded.kl and self.captioner and self.captioner.new is not None:
            yield "objective.kl holds to the model that training starts from, and [captioner.new] is none; name one"
        if rewarded and self.captioner and self.captioner.new_words is not None:
            yield "captioner.new_words come from references, which objective 'reinforce' does not learn; leave it out"
        if rewarded and self.training.checkpointing:
            yield "training.checkpointing is without the cache that objective 'reinforce' writes with; set accumulate"
        shuffled = self.training.batches == "shuffled"
        if rewarded and shuffled and any(getattr(table, "among", "") == "bag" for table in rewarded.rewards):
            yield "among = 'bag' holds a picture against its bag, and shuffled ones are in none; set training.batches"
        learns = (self.captioner.train if self.captioner else None) or ()
        if self.captioner and self.captioner.lora and (self.captioner.new or learns == ("mapper",)):
            yield "[captioner.lora] adapts a vision encoder or a language model that exists; name one and train it"
        if self.training.augment != "none" and "vision" not in learns:
            yield "training.augment changes pixels, and a frozen vision encoder reads each picture once; leave it out"

    def dump(self, resolver: Resolver | None, **how: Any) -> dict[str, Any]:
        """The recipe as a plain table, with the resolver's answers in place of the names of models, data and files.

        ``how``: as `model_dump` takes it. Raises what the resolver raises.
        """
        try:
            return self.model_dump(context=resolver, **how)
        except PydanticSerializationError as error:
            raise (error.__cause__ or error) from None

    def scorers(self) -> Iterator[tuple[str, str]]:
        """Every scorer that is named, with the key that names it."""
        if self.scorer is not None and self.scorer.name is not None:
            yield "scorer.name", self.scorer.name
        if self.bags is not None and self.bags.scorer is not None:
            yield "bags.scorer", self.bags.scorer
        yield from (("evaluation.judges", name) for name in self.evaluation.judges)
        for table in self.objective.rewards if isinstance(self.objective, Reinforce) else ():
            if isinstance(table, SelfRetrieval):
                yield from (("objective.rewards.scorers", name) for name in table.scorers)


def read_recipe(path: Path, settings: Sequence[str] = ()) -> Recipe:
    """A recipe from a TOML file with ``--set key.sub=value`` applied; names of other recipes made absolute.

    Raises `UsageError` that names the file, the key, and the nearest key that exists.
    """
    expected = "expected a TOML file such as recipes/scenes_sr_l.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"no such recipe: {path}; {expected}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); {expected}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8; {expected}") from None
    except (ValueError, RecursionError) as error:  # also numbers of thousands of digits, and what is nested too deeply
        raise UsageError(f"{path} is not TOML ({error}); {expected}") from None
    for setting in settings:
        apply_setting(table, setting)
    refuse_broken(table, str(path))
    return check_recipe(table, str(path), path.parent)


def check_recipe(table: Mapping[str, Any], source: str, folder: Path | None = None) -> Recipe:
    """A `Recipe` from a plain table, or a `UsageError` of one line. Other recipes are looked for in ``folder``."""
    try:
        context = None if folder is None else {"folder": folder, "absolute": partial(absolute, folder=folder)}
        return Recipe.model_validate(table, context=context)
    except ValidationError as error:
        raise UsageError(f"{source}: {explain(error, Recipe)}") from None


def refuse_broken(value: Any, where: str) -> None:
    """Raises `UsageError` where a key or a text of a recipe holds control characters, such as NUL in a path."""
    for text in (value, *(value if isinstance(value, dict) else ())):
        if isinstance(text, str) and (why := broken(text)) is not None:
            raise UsageError(f"{where}: {shown(text)} is {why}")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        refuse_broken(inner, where)


def apply_setting(table: dict[str, Any], setting: str) -> None:
    """``training.steps=200`` into the table. The value is read as TOML, and as plain text where it is none.

    What is typed is meant from where it is typed: a recipe named here is looked for in the current folder.
    """
    key, equals, text = setting.partition("=")
    *parents, last = (part.strip() for part in key.split("."))
    if not equals or not all((*parents, last)):
        raise UsageError(f"cannot read --set {setting}; expected key=value, as in --set training.steps=200")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {setting}: '{parent}' is a value, not a table")
    table[last] = setting_value(text.strip())
    if last in ("name", "new"):  # naming a model replaces the description of a new one, and the reverse
        table.pop({"name": "new", "new": "name"}[last], None)


def setting_value(text: str) -> Any:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, list):
        return [absolute(entry, Path()) if isinstance(entry, str) else entry for entry in value]
    return absolute(value, Path()) if isinstance(value, str) else value


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe as TOML that `read_recipe` reads back."""
    lines: list[str] = []

    def write(table: Mapping[str, Any], prefix: str) -> None:
        plain = {k: v for k, v in table.items() if not isinstance(v, dict) and v is not None}
        if prefix and plain:
            lines.append(f"\n[{prefix}]")
        lines.extend(f"{key} = {inline(value)}" for key, value in plain.items())
        for key, value in table.items():
            if isinstance(value, dict):
                write(value, f"{prefix}.{key}" if prefix else key)

    write(recipe.model_dump(mode="json", exclude_none=True), "")
    return "\n".join(lines) + "\n"


def inline(value: Any) -> str:
    """A value on one line of TOML, where a table in a list is ``{ key = value }``."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {inline(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(inline(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)
