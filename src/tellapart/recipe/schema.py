"""Recipes: what to train, on what, how, and how to measure it. TOML, checked; a wrong key is an error."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from tellapart.models.decoding import Decoding
from tellapart.recipe.bags import Bags
from tellapart.recipe.models import Captioner, Scorer
from tellapart.recipe.objectives import Objective
from tellapart.utils.options import DataSpecs, ModelName, Resolver, Strict


class Data(Strict):
    """Where the pictures come from, as ``kind:path?key=value``; a list of them is read as one."""

    train: DataSpecs
    validation: DataSpecs
    test: DataSpecs | None = None


Moment = Annotated[float, Field(ge=0, lt=1)]


class Training(Strict):
    steps: int = Field(ge=1)
    batch_size: int = Field(100, ge=2)
    gradient_accumulation_steps: int = Field(
        1,
        ge=1,
        serialization_alias="accumulate",
        description="parts of the batch that go forward and backward one by one; rewards are of the whole batch",
    )
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
    optimizer: Literal["adam", "adamw"] = Field("adamw", serialization_alias="optimiser")
    weight_decay: float = Field(0.0, ge=0, le=1000)
    betas: tuple[Moment, Moment] = (0.9, 0.999)
    max_grad_norm: float = Field(1.0, gt=0, serialization_alias="clip_norm")
    precision: Literal["fp32", "bf16", "auto"] = "fp32"
    gradient_checkpointing: bool = Field(
        False,
        serialization_alias="checkpointing",
        description="recompute the language model's activations in the backward pass: less memory, more time",
    )
    sharding: Literal["none", "full"] = Field(
        "none",
        description="full: each of several ranks keeps a share of weights, gradients and optimizer state (FSDP2)",
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


class Validation(Strict):
    every: int = Field(100, ge=1)
    limit: int | None = Field(None, ge=2)
    select: Literal["recall@1.random100", "recall@1.lookalike", "cider", "loss"] = "recall@1.random100"
    until: float | None = Field(
        None, description="stop at the first validation in which select is this good (paper 2, table 14)"
    )
    decoding: Decoding = Decoding(kind="greedy")


class Evaluation(Strict):
    decoding: Decoding = Decoding(kind="beam", beams=5)
    lookalike: int = Field(10, ge=2, description="pictures in a look-alike set, the target counted")
    eval_scorers: tuple[ModelName, ...] = Field(
        (), serialization_alias="judges", description="held-out scorers, used in the final evaluation alone"
    )
    gallery: int = Field(24, ge=0)


class Recipe(Strict):
    """One run. ``trains`` follows from the objective: contrastive trains a scorer, all others a captioner."""

    name: str
    about: str = ""
    seed: int = Field(0, ge=0, lt=2**32)
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
        return self.objective.trains

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
        if self.validation.decoding.asks_scorer:
            yield "validation.decoding.scorer_weight would choose by what validation measures; leave it out"
        learned = getattr(self.objective, "decoding", None)
        if getattr(learned, "kind", "") == "consensus":
            yield "objective.decoding.kind = 'consensus' chooses among samples, and training learns from all of them"
        if getattr(learned, "confidence", 0.0):
            yield "objective.decoding.confidence edits captions, and training learns from them as they were written"
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
        if self.training.sharding != "none":
            yield "training.sharding is of a captioner, and this trains a scorer; leave it out"
        if self.captioner is not None:
            yield "[captioner] is of no use to objective 'contrastive', which trains a scorer; leave it out"
        if (select := self.validation.select) in ("loss", "cider"):
            yield f"validation.select is '{select}', which a scorer does not have; expected a recall"
        if self.training.gradient_checkpointing:
            yield (
                "training.gradient_checkpointing is of a captioner's language model, and this trains a scorer; "
                "leave it out"
            )
        if self.training.max_reference_tokens is not None:
            yield "training.max_reference_tokens is of a captioner; a scorer reads as much as its window; leave it out"
        if self.training.gradient_accumulation_steps > 1:
            yield (
                "training.gradient_accumulation_steps splits the batch, and objective 'contrastive' needs it whole; "
                "leave it out"
            )

    def _of_a_captioner(self) -> Iterator[str]:
        rewards = self.objective.reward_options
        needs_scorer = "scorer" in self.objective.needs() or any("scorer" in reward.needs() for reward in rewards)
        writes = f"objective '{self.objective.kind}', which writes its own captions"
        own = not self.objective.learns_references
        if self.scorer is not None and self.scorer.name is None:
            yield "[scorer] needs name = '…': a captioner's scorer is trained before it, by a recipe of its own"
        recalls = self.validation.select.startswith("recall")
        if self.scorer is None and (needs_scorer or recalls or self.evaluation.eval_scorers):
            yield (
                f"[scorer] is missing; objective '{self.objective.kind}', validation.select or "
                "evaluation.eval_scorers need its name"
            )
        if self.scorer is None and self.evaluation.decoding.asks_scorer:
            yield "[scorer] is missing; evaluation.decoding.scorer_weight needs its name"
        if self.objective.kind == "self_distillation" and self.training.augment == "crop-flip":
            yield f"training.augment flips pictures, and {writes}, learns one caption of each; set it to 'crop'"
        if own and self.training.captions_per_picture > 1:
            yield f"training.captions_per_picture is of no use to {writes}"
        if own and self.training.max_reference_tokens is not None:
            yield f"training.max_reference_tokens cuts references that are learned; it is of no use to {writes}"
        if "start" in self.objective.needs() and self.captioner and self.captioner.new is not None:
            yield (
                f"objective '{self.objective.kind}' asks the model that training starts from (as objective.kl and some "
                "rewards do), and [captioner.new] is none; name one"
            )
        if own and self.captioner and self.captioner.new_words is not None:
            yield f"captioner.new_words come from references, and are of no use to {writes}"
        if rewards and self.training.gradient_checkpointing:
            yield (
                "training.gradient_checkpointing turns off the key-value cache, which objective 'reinforce' generates "
                "with; set training.gradient_accumulation_steps instead"
            )
        if self.bags is not None and self.bags.hard is not None and not any(r.compares_pictures for r in rewards):
            yield (
                "bags.kind 'hard' gives a reward distractors, and no reward here compares pictures; expected "
                "self_retrieval with score 'log_prob' or 'accuracy', or bags.kind = 'lookalike'"
            )
        shuffled = self.training.batches == "shuffled"
        if shuffled and any(reward.per_bag for reward in rewards):
            yield "candidates = 'bag' compares a picture with its bag; shuffled batches have none; set training.batches"
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
        yield from (("evaluation.eval_scorers", name) for name in self.evaluation.eval_scorers)
        yield from (("objective.scorers", name) for name in self.objective.scorer_names())
        for reward in self.objective.reward_options:
            yield from (("objective.rewards.scorers", name) for name in reward.scorer_names())
