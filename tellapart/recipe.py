"""Recipes: what to train, on what, how, and how to measure it. TOML, checked; a wrong key is an error."""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tellapart.decode import Decoding
from tellapart.errors import UsageError, nearest


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Data(Strict):
    """Where the pictures come from, as ``kind:path?key=value``; a list of them is read as one."""

    train: str | tuple[str, ...]
    validation: str | tuple[str, ...]
    test: str | tuple[str, ...] | None = None


class NewCaptioner(Strict):
    """A ClipCap to be trained from scratch: a small GPT-2 behind a vision encoder."""

    vision: str = Field(description="whose vision tower: a scorer's name, folder or recipe")
    visual: Literal["pooled", "cells"] = "pooled"
    mapper: Literal["mlp", "transformer", "linear"] = "mlp"
    prefix_length: int = Field(4, ge=1)
    width: int = Field(192, ge=8)
    layers: int = Field(3, ge=1)
    heads: int = Field(6, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    min_count: int = Field(1, ge=1, description="words that occur less often in the training references are unknown")
    max_tokens: int = Field(64, ge=4, description="positions of the language model, prefix included")


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


class Captioner(Strict):
    """Which captioner: an existing one by ``name``, or a ``new`` one.

    ``train``: which of its parts learn; by default all but the vision encoder.
    """

    name: str | None = None
    new: NewCaptioner | None = None
    train: tuple[Literal["vision", "mapper", "language_model"], ...] | None = None


class Scorer(Strict):
    """Which scorer: an existing one by ``name``, or a ``new`` one (only where it is what is trained)."""

    name: str | None = None
    new: NewScorer | None = None


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
    baseline: Literal["running_mean", "none"] = "running_mean"
    normalise: Literal["length+1", "length", "none"] = "length+1"
    dropout_in_rollout: bool = True
    kl: float = Field(0.0, ge=0)

    @model_validator(mode="after")
    def sampled(self) -> Reinforce:
        if self.decoding.samples > 1 and self.decoding.kind == "greedy":
            raise ValueError("greedy decoding writes one caption; set decoding.kind = 'sample' for more samples")
        return self


Objective = Annotated[Mle | Contrastive | Reinforce, Field(discriminator="kind")]


class Training(Strict):
    steps: int = Field(ge=1)
    batch_size: int = Field(100, ge=2)
    captions_per_picture: int = Field(1, ge=1, description="references a step reads of each picture")
    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    warmup: int = Field(0, ge=0)
    optimiser: Literal["adam", "adamw"] = "adamw"
    weight_decay: float = Field(0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    clip_norm: float = Field(1.0, gt=0)
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    augment: Literal["none", "crop", "crop-flip"] = "none"
    log_every: int = Field(10, ge=1)
    checkpoint_every: int = Field(100, ge=1)
    trackers: tuple[str, ...] = ()

    @property
    def bf16(self) -> bool:
        """``auto`` is bf16 where the hardware multiplies in it, else full precision."""
        if self.precision != "auto":
            return self.precision == "bf16"
        import torch

        return torch.cuda.is_bf16_supported() if torch.cuda.is_available() else torch.cpu._is_amx_tile_supported()


class Validation(Strict):
    every: int = Field(100, ge=1)
    limit: int | None = Field(None, ge=2)
    select: Literal["recall@1.random100", "recall@1.lookalike", "loss"] = "recall@1.random100"
    decoding: Decoding = Decoding(kind="greedy")


class Evaluation(Strict):
    decoding: Decoding = Decoding(kind="beam", beams=5)
    lookalike: int = Field(10, ge=2, description="pictures in a look-alike set, the target counted")
    judges: tuple[str, ...] = Field((), description="further scorers, never a reward, that measure once more")
    gallery: int = Field(24, ge=0)


class Recipe(Strict):
    """One run. ``trains`` follows from the objective: contrastive trains a scorer, all others a captioner."""

    name: str
    about: str = ""
    seed: int = 0
    data: Data
    captioner: Captioner | None = None
    scorer: Scorer | None = None
    objective: Objective
    training: Training
    validation: Validation = Validation()
    evaluation: Evaluation = Evaluation()

    @property
    def trains(self) -> Literal["captioner", "scorer"]:
        return "scorer" if self.objective.kind == "contrastive" else "captioner"

    @model_validator(mode="after")
    def complete(self) -> Recipe:
        learner = self.scorer if self.trains == "scorer" else self.captioner
        if learner is None or (learner.name is None) == (learner.new is None):
            raise ValueError(f"[{self.trains}] needs either name = '…' or a [{self.trains}.new] table, and not both")
        if self.trains == "captioner" and self.scorer is not None and self.scorer.name is None:
            raise ValueError(
                "[scorer] needs name = '…': a captioner's scorer is trained before it, by a recipe of its own"
            )
        needs_scorer = self.objective.kind == "reinforce" or self.validation.select != "loss"
        if self.trains == "captioner" and needs_scorer and self.scorer is None:
            raise ValueError(f"[scorer] is missing; objective '{self.objective.kind}' and validation need its name")
        if self.trains == "scorer" and self.training.batch_size < 2:
            raise ValueError("training.batch_size is 1; a contrastive batch needs distractors")
        return self

    def fingerprint(self) -> str:
        """Eight hex digits that change with anything that changes the result."""
        told = self.model_dump(exclude_defaults=True)  # a key that is new to recipes leaves older runs valid
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:8]


def read_recipe(path: Path, settings: Sequence[str] = ()) -> Recipe:
    """A recipe from a TOML file with ``--set key.sub=value`` applied; names of other recipes made absolute.

    Raises `UsageError` that names the file, the key, and the nearest key that exists.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"no such recipe: {path}; expected a TOML file such as recipes/scenes_sr.toml") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path} is not a recipe: {error}; expected TOML") from None
    for setting in settings:
        apply_setting(table, setting)
    return check_recipe(resolve_paths(table, path.parent), str(path))


def check_recipe(table: Mapping[str, Any], source: str) -> Recipe:
    """A `Recipe` from a plain table, or a `UsageError` of one line."""
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        raise UsageError(f"{source}: {explain(error)}") from None


def apply_setting(table: dict[str, Any], setting: str) -> None:
    """``training.steps=200`` into the table. The value is read as TOML, and as plain text where it is none."""
    key, equals, value = setting.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"cannot read --set {setting}; expected key=value, as in --set training.steps=200")
    *parents, last = key.strip().split(".")
    for parent in parents:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {setting}: '{parent}' is a value, not a table")
    try:
        table[last] = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        table[last] = value.strip()
    if last in ("name", "new"):  # naming a model replaces the description of a new one, and the reverse
        table.pop({"name": "new", "new": "name"}[last], None)


def resolve_paths(value: Any, folder: Path) -> Any:
    """Names that end in ``.toml`` become absolute (they stand beside the recipe); $VARIABLES are filled in."""
    if isinstance(value, dict):
        return {key: resolve_paths(entry, folder) for key, entry in value.items()}
    if isinstance(value, list):
        return [resolve_paths(entry, folder) for entry in value]
    if not isinstance(value, str):
        return value
    if "$TELLAPART_DATA" in value:
        value = value.replace("$TELLAPART_DATA", os.environ.get("TELLAPART_DATA", "../shared/data"))
    if value.endswith(".toml"):
        return str((folder / value).resolve())
    return value


def explain(error: ValidationError) -> str:
    """The first thing wrong with a recipe, in one line, with the nearest key that exists."""
    first = error.errors()[0]
    place = [str(part) for part in first["loc"] if part not in ("mle", "contrastive", "reinforce")]
    key = ".".join(place)
    if first["type"] == "extra_forbidden":
        known = known_keys(first["loc"][:-1])
        return f"unknown key '{key}'{nearest(place[-1], known)}"
    if first["type"] == "missing":
        return f"'{key}' is missing; add it, or type: --set {key}=…"
    message = first["msg"].removeprefix("Value error, ")
    found = "" if first["type"] == "value_error" else f" (found {first['input']!r})"
    return f"{key + ': ' if key else ''}{message}{found}"


def known_keys(place: tuple[int | str, ...]) -> list[str]:
    """The keys that the table at ``place`` takes."""
    model: Any = Recipe
    for part in place:
        model = (
            next((m for m in models_in(model.model_fields[part].annotation)), Recipe)
            if hasattr(model, "model_fields") and part in model.model_fields
            else {"mle": Mle, "contrastive": Contrastive, "reinforce": Reinforce}.get(str(part), model)
        )
    return list(model.model_fields)


def models_in(annotation: Any) -> list[type[BaseModel]]:
    from typing import get_args

    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models_in(argument)]


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe as TOML that `read_recipe` reads back."""
    lines: list[str] = []

    def write(table: Mapping[str, Any], prefix: str) -> None:
        plain = {k: v for k, v in table.items() if not isinstance(v, dict) and v is not None}
        if prefix and plain:
            lines.append(f"\n[{prefix}]")
        lines.extend(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in plain.items())
        for key, value in table.items():
            if isinstance(value, dict):
                write(value, f"{prefix}.{key}" if prefix else key)

    write(recipe.model_dump(mode="json", exclude_none=True), "")
    return "\n".join(lines) + "\n"
