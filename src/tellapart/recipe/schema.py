"""The schema of recipes: the model, data, training and evaluation of a run. Unknown keys are errors."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from pydantic import Field, field_validator, model_validator
from pydantic_core import PydanticSerializationError

from tellapart.models.decoding import Decoding
from tellapart.objectives.base import OBJECTIVES, ObjectiveOptions, PluginObjectiveOptions
from tellapart.utils.messages import say
from tellapart.utils.option_tables import Strict, option_tables
from tellapart.utils.recipe_names import DataName, DataSpecs, FileName, FilePath, ModelName, PoolName, Resolver, fill_in

# (from epoch, bag size), as in paper 2, appendix B.3.
BAGCURRI = ((0, 2), (3, 3), (8, 5), (10, 7), (12, 10), (14, 15), (17, 20))

Epoch = Annotated[int, Field(ge=0)]
BagSize = Annotated[int, Field(ge=2)]
LARGEST_SIZE = 1 << 16  # maximum number of layers, units, heads or positions in a new model; larger values are typos


class Bags(Strict):
    """Settings for ``batches = "bags"``. Without ``size`` or ``schedule``, bags grow as in paper 2 (BagCurri)."""

    kind: Literal["lookalike", "hard", "random"] = Field(
        "lookalike",
        description="lookalike: mined bags; random: random bags, as a control; hard: shuffled pictures, where the "
        "nearest neighbours of each picture are distractors without captions (paper 3, appendix D.2)",
    )
    size: BagSize | None = Field(None, description="pictures per bag; default: from schedule, or as in BagCurri")
    schedule: tuple[tuple[Epoch, BagSize], ...] | None = Field(
        None,
        min_length=1,
        description="list of [first epoch, bag size]; for example, [[0, 2], [3, 5]] uses bags of 2 pictures for three "
        "epochs, and bags of 5 from the fourth epoch on",
    )
    hard: int | None = Field(None, ge=1, description="number of distractors per picture, for kind = 'hard'")
    neighbours: int = Field(200, ge=1, description="number of nearest neighbours with which a bag may be filled")
    max_cosine: float | None = Field(
        None,
        gt=-1,
        le=1,
        description="maximum cosine between pictures in a bag; more similar pictures count as near-duplicates; by "
        "default, there is no maximum",
    )
    scorer: ModelName | None = Field(None, description="scorer whose features define look-alikes; default: [scorer]")
    captions: FileName | None = Field(
        None,
        description="references, or a file of captions, to mine bags by text similarity too (paper 2, algorithm 1)",
    )

    @model_validator(mode="after")
    def fits_together(self) -> Bags:
        if (self.kind == "hard") != (self.hard is not None):
            raise ValueError("kind = 'hard' and hard require each other; set both, for example hard = 5, or neither")
        if sum(given is not None for given in (self.size, self.schedule, self.hard)) > 1:
            raise ValueError("size, schedule and hard all set the size of bags; keep only one of them")
        mined = {"scorer", "captions", "max_cosine"} & {key for key, value in self if value is not None}
        if self.kind == "random" and mined:
            raise ValueError(f"{sorted(mined)[0]} has no effect on random bags, which are not mined; remove this key")
        starts = [start for start, _ in self.stages]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError(
                "schedule must be a list of [first epoch, bag size] that starts at epoch 0, with ascending epochs"
            )
        return self

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """Returns the schedule as pairs of (first epoch, bag size)."""
        if self.hard is not None:
            return ((0, self.hard + 1),)
        return ((0, self.size),) if self.size is not None else self.schedule or BAGCURRI

    @property
    def largest(self) -> int:
        return max(size for _, size in self.stages)


def changed(table: Strict, keys: Collection[str]) -> list[str]:
    """Returns the sorted ``keys`` whose values differ from their defaults."""
    return sorted(key for key in keys if getattr(table, key) != type(table).model_fields[key].default)


class NewCaptioner(Strict):
    """A new ClipCap: a vision encoder, a mapper, and either a small new GPT-2 or an existing ``language_model``."""

    kind: Literal["clipcap"] = "clipcap"
    vision: ModelName = Field(
        description="vision encoder: a transformers or timm model, a scorer's encoder, or a recipe that trains a scorer"
    )
    language_model: ModelName | None = Field(
        None, description="any causal language model from transformers; default: a new word-level GPT-2"
    )
    visual: Literal["pooled", "cells"] = "pooled"
    grid: int = Field(
        0, ge=0, le=32, description="number of cells per side to which grid features are pooled; 0: no pooling"
    )
    mapper: Literal["mlp", "transformer", "linear"] = "mlp"
    prefix_length: int = Field(4, ge=1, le=LARGEST_SIZE)
    width: int = Field(192, ge=8, le=LARGEST_SIZE)
    layers: int = Field(3, ge=1, le=LARGEST_SIZE)
    heads: int = Field(6, ge=1, le=LARGEST_SIZE)
    dropout: float = Field(0.1, ge=0, lt=1)
    min_count: int = Field(1, ge=1, description="minimum count of words in the references; rarer words become unknown")
    max_tokens: int = Field(
        64, ge=4, le=LARGEST_SIZE, description="number of positions in the language model, including the prefix"
    )
    sentences: bool = Field(
        False, description="keep full stops between sentences as words; otherwise, all punctuation is dropped"
    )

    @model_validator(mode="after")
    def divides_its_width(self) -> NewCaptioner:
        if self.width % self.heads:
            raise ValueError(f"width = {self.width} is not a multiple of heads = {self.heads}; change one of them")
        if (self.visual == "cells") != (self.mapper == "linear"):
            raise ValueError("visual = 'cells' and mapper = 'linear' require each other; set both or neither")
        if self.grid and self.visual != "cells":
            raise ValueError("grid requires visual = 'cells'; set visual = 'cells' or remove grid")
        of_new = {"width", "layers", "heads", "dropout", "min_count", "max_tokens", "sentences"}
        if self.language_model is not None and (idle := changed(self, of_new)):
            raise ValueError(
                f"{idle[0]} configures a new language model, but language_model is set; remove one of them"
            )
        return self


class NewRecurrent(Strict):
    """Paper 4's captioner, trained from scratch: an LSTM on a vision encoder or on ``features``."""

    kind: Literal["recurrent"]
    vision: ModelName | None = Field(None, description="vision encoder: a transformers model, or a scorer's encoder")
    attention: bool = Field(
        False, description="attend to cells or regions at each word; otherwise, use only their mean"
    )
    width: int = Field(512, ge=8, le=LARGEST_SIZE)
    dropout: float = Field(0.5, ge=0, lt=1)
    min_count: int = Field(5, ge=1, description="minimum count of words in the references; rarer words become unknown")


class NewScorer(Strict):
    """A new dual encoder: either a small ResNet and a small CLIP text tower, or two existing encoders.

    The existing encoders are ``vision`` and ``text``, each with a new head. ``scorer.train`` selects the parts to
    train; by default, only the heads are trained.
    """

    vision: ModelName | None = Field(
        None, description="vision encoder: a transformers or timm model, or a scorer's encoder"
    )
    text: ModelName | None = Field(None, description="text encoder: any text encoder from transformers")
    visual: Literal["pooled", "cells"] = Field("pooled", description="cells: average the cells with learned weights")
    grid: int = Field(
        0, ge=0, le=32, description="number of cells per side to which grid features are pooled; 0: no pooling"
    )
    pooling: Literal["mean", "first", "pooler"] = Field("mean", description="vector that represents a text")
    hidden: int = Field(
        0, ge=0, le=LARGEST_SIZE, description="width of an additional hidden layer in each head; 0: no hidden layer"
    )
    image_size: int = Field(64, ge=16, le=LARGEST_SIZE)
    width: int = Field(32, ge=4, le=LARGEST_SIZE)
    depth: int = Field(1, ge=1, le=LARGEST_SIZE)
    stem_pooling: bool = Field(
        True, description="halve the resolution before the first stage; set false for small pictures"
    )
    text_width: int = Field(192, ge=8, le=LARGEST_SIZE)
    text_layers: int = Field(2, ge=1, le=LARGEST_SIZE)
    text_heads: int = Field(4, ge=1, le=LARGEST_SIZE)
    projection: int = Field(192, ge=8, le=LARGEST_SIZE)
    dropout: float = Field(0.0, ge=0, lt=1)
    min_count: int = Field(1, ge=1)
    max_tokens: int = Field(48, ge=4, le=LARGEST_SIZE)

    @model_validator(mode="after")
    def divides_its_width(self) -> NewScorer:
        if self.text_width % self.text_heads:
            raise ValueError(
                f"text_width = {self.text_width} is not a multiple of text_heads = {self.text_heads}; change one "
                "of them"
            )
        if (self.vision is None) != (self.text is None):
            raise ValueError("vision and text must be set together; name two existing encoders, or remove both keys")
        scratch = {"image_size", "width", "depth", "stem_pooling", "text_width", "text_layers", "text_heads"}
        scratch |= {"min_count", "max_tokens"}
        parts = {"visual", "grid", "pooling", "hidden"}
        if idle := changed(self, parts if self.vision is None else scratch):
            whose = "a scorer built from existing encoders" if self.vision is None else "a scorer trained from scratch"
            raise ValueError(f"{idle[0]} applies only to {whose}; remove {idle[0]}, or change vision and text")
        if self.grid and self.visual != "cells":
            raise ValueError("grid requires visual = 'cells'; set visual = 'cells' or remove grid")
        return self


class Lora(Strict):
    """LoRA for the vision encoder and the language model, if they are trained. The defaults follow paper 2.

    If a part's attention layers are not among the default ``modules``, LoRA adapts all linear layers in that part.
    """

    rank: int = Field(32, ge=1, description="rank of the update")
    alpha: int = Field(16, ge=1, description="scaling: the update is multiplied by alpha / rank")
    modules: Annotated[tuple[str, ...], Field(min_length=1)] | Literal["all-linear"] = Field(
        ("c_attn", "attn.c_proj", "q_proj", "k_proj", "v_proj", "fc1", "fc2"),
        description="suffixes of the names of layers to adapt, or all-linear",
    )


class CaptionerOptions(Strict):
    """The captioner: either the ``name`` of an existing captioner, or a ``new`` captioner."""

    name: ModelName | None = Field(None, description="existing captioner: a hub name, a folder, a run or a recipe")
    new: Annotated[NewCaptioner | NewRecurrent, Field(discriminator="kind")] | None = Field(
        None, description="captioner trained from scratch"
    )
    features: FileName | None = Field(
        None,
        description="folder or HDF5 file with features by item id, used instead of the vision encoder; off: encode the "
        "pictures again in each step instead of storing features on disk",
    )
    new_words: int | None = Field(
        None,
        ge=1,
        description="minimum number of occurrences in the references of words to add to a word-level tokenizer; by "
        "default, no words are added",
    )
    frames: int | None = Field(None, ge=1, le=64, description="frames per clip; default: the saved number, or 1")
    train: tuple[Literal["vision", "mapper", "language_model"], ...] | None = Field(
        None, min_length=1, description="parts to train; default: all parts except the vision encoder"
    )
    lora: Lora | None = Field(None, description="LoRA for the trained parts, except the mapper")
    dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="dropout probability in the language model; default: the value in its configuration. For "
        "BLIP, LAVIS uses 0.1 (papers 1 and 3), but transformers' configuration has 0",
    )

    @field_validator("new", mode="before")
    @classmethod
    def usual_kind(cls, new: Any) -> Any:
        """Adds the default kind."""
        return {"kind": "clipcap", **new} if isinstance(new, dict) else new

    @property
    def feature_files(self) -> str | None:
        """Returns the path in ``features``, or None if there is none."""
        return None if self.features == "off" else self.features

    @model_validator(mode="after")
    def looks_at_something(self) -> CaptionerOptions:
        files = self.feature_files
        if isinstance(self.new, NewRecurrent) and (self.new.vision is None) == (files is None):
            raise ValueError(
                "kind = 'recurrent' requires either new.vision = 'MODEL' or features = 'FOLDER', but not both"
            )
        if isinstance(self.new, NewCaptioner) and files is not None:
            raise ValueError("features requires captioner.name or a new captioner of kind 'recurrent'; remove features")
        if self.new is not None and self.new_words is not None:
            raise ValueError(
                "new_words requires captioner.name; new captioners know the references' words; remove new_words"
            )
        if self.new is not None and self.dropout is not None:
            raise ValueError("dropout requires captioner.name; for a new captioner, set captioner.new.dropout")
        if files is not None and "vision" in (self.train or ()):
            raise ValueError(
                "features replace the vision encoder, so it cannot be trained; remove features, or 'vision' from train"
            )
        return self


class ScorerOptions(Strict):
    """The scorer: either the ``name`` of an existing scorer, or a ``new`` scorer (only if the recipe trains it)."""

    name: ModelName | None = Field(None, description="existing scorer: a hub name, a folder, a run or a recipe")
    new: NewScorer | None = Field(None, description="scorer trained from scratch, or built from two encoders")
    train: tuple[Literal["vision", "text", "heads"], ...] | None = Field(
        None,
        min_length=1,
        description="parts to train, for scorers built from two encoders; default: heads (all other scorers are "
        "trained as a whole)",
    )


if TYPE_CHECKING:
    Objective = ObjectiveOptions
else:
    TABLES = option_tables(OBJECTIVES.entries(broken=say), ObjectiveOptions, PluginObjectiveOptions)
    Objective = Annotated[Union[TABLES], Field(discriminator="kind")]  # noqa: UP007


class Data(Strict):
    """The data, given as ``kind:path?key=value``. A list of several is read as one data set."""

    train: DataSpecs = Field(description="training data")
    validation: DataSpecs = Field(description="validation data, by which the checkpoint is selected")
    test: DataSpecs | None = Field(None, description="test data for the final evaluation; default: no evaluation")
    clean: Literal["none", "blip"] = Field(
        "none",
        description="blip: normalize references as in BLIP's training (lower case, at most 30 words, without "
        '.!"()*#:;~)',
    )


Moment = Annotated[float, Field(ge=0, lt=1)]


class Training(Strict):
    """The training settings. ``training.steps`` and ``training.learning_rate`` have no default."""

    steps: int = Field(ge=1, description="number of optimizer steps")
    batch_size: int = Field(100, ge=2, description="pictures per step, summed over all ranks and micro-batches")
    gradient_accumulation_steps: int = Field(
        1,
        ge=1,
        description="number of micro-batches per step, processed one at a time; rewards still compare the whole batch",
    )
    batches: Literal["shuffled", "families", "bags"] = Field(
        "shuffled",
        description="families: batches of families of look-alike scenes; bags: batches of bags, as set in [bags]",
    )
    captions_per_picture: int = Field(1, ge=1, description="number of references per picture in each step")
    max_reference_tokens: int | None = Field(
        None,
        ge=2,
        description="maximum reference length in tokens; longer references are truncated; default: the model's limit",
    )
    learning_rate: float = Field(gt=0, le=1000, description="peak learning rate")
    learning_rates: dict[str, Annotated[float, Field(gt=0, le=1000)]] = Field(
        {}, description="learning rates for individual parts, which override learning_rate, such as { vision = 1e-5 }"
    )
    schedule: Literal["constant", "linear", "cosine"] = Field(
        "constant", description="decay of the learning rate to 0 after warmup; constant: no decay"
    )
    schedule_every: int = Field(
        1,
        ge=1,
        description="number of steps between updates of the learning rate; to update it once per epoch, as LAVIS does, "
        "use the number of steps per epoch",
    )
    warmup: int = Field(0, ge=0, description="number of warmup steps, during which the learning rate rises from 0")
    optimizer: Literal["adam", "adamw"] = Field("adamw", description="adamw: decoupled weight decay")
    weight_decay: float = Field(0.0, ge=0, le=1000, description="weight decay for the parameters that decayed selects")
    decayed: Literal["matrices", "all"] = Field(
        "matrices", description="parameters with weight decay; all: norms, biases and scalars too, as in BLIP's code"
    )
    betas: tuple[Moment, Moment] = Field((0.9, 0.999), description="Adam's β₁ and β₂")
    max_grad_norm: float = Field(1.0, gt=0, description="L2 norm to which gradients are clipped")
    precision: Literal["fp32", "bf16", "auto"] = Field(
        "fp32", description="bf16: autocast; auto: bf16 if the device supports it, otherwise fp32"
    )
    gradient_checkpointing: bool = Field(
        False,
        description="recompute the language model's activations in the backward pass, which takes less memory but more "
        "time",
    )
    sharding: Literal["none", "full"] = Field(
        "none",
        description="full: each rank keeps a shard of weights, gradients and optimizer state (FSDP2)",
    )
    augment: Literal["none", "crop", "crop-flip", "blip"] = Field(
        "none",
        description="crop: random crops; crop-flip: random crops and flips; blip: random resized crops, "
        "flips and RandAugment(2, 5) of the original pictures, as in BLIP's training",
    )
    log_every: int = Field(10, ge=1, description="number of steps between log records")
    checkpoint_every: int = Field(100, ge=1, description="number of steps between checkpoints")
    trackers: tuple[str, ...] = Field((), description="names of accelerate's trackers, such as tensorboard or wandb")

    @model_validator(mode="after")
    def has_a_schedule(self) -> Training:
        if self.schedule_every > 1 and self.schedule == "constant":
            raise ValueError(
                "schedule_every requires a schedule that changes the learning rate; set schedule = 'linear' or "
                "'cosine', or remove schedule_every"
            )
        if self.decayed == "all" and not self.weight_decay:
            raise ValueError(
                "decayed has no effect, because weight_decay is 0; set, for example, weight_decay = 0.05, or remove "
                "decayed"
            )
        return self


class Validation(Strict):
    """Validation during training, which selects the checkpoint."""

    every: int = Field(100, ge=1, description="number of steps between validations")
    limit: int | None = Field(
        None, ge=2, description="maximum number of validation pictures, taken from the start; default: all pictures"
    )
    select: Literal["recall@1.random100", "recall@1.lookalike", "cider", "loss", "step"] | None = Field(
        None,
        description="metric that selects the checkpoint; step: select the last checkpoint; the default depends on the "
        "objective (loss for mle, cider for rewards that compare captions with references, otherwise "
        "recall@1.random100)",
    )
    until: float | ModelName | None = Field(
        None,
        description="stop training when the metric in select reaches this value, or the best value of the named run "
        "(paper 2, Table 14)",
    )
    decoding: Decoding = Field(Decoding(kind="greedy"), description="decoding settings for the validation captions")


class TestSet(Strict):
    """A test set in a recipe or a paper's table: pictures with references, and how to evaluate their captions.

    Paths may contain the variable ``$TELLAPART_DATA``, which `filled_in` replaces.
    """

    __test__ = False  # not a pytest test

    data: DataName = Field(description="pictures, as in eval --data")
    captioned: DataName | None = Field(None, description="pictures to caption; all others are only candidates")
    bags: tuple[FilePath, ...] = Field((), description="files of candidate sets; only pictures in them need captions")
    distractors: PoolName | None = Field(None, description="more pictures for a hard pool, or a list of their ids")
    references: tuple[FilePath, ...] = Field(
        (), description="reference files, used instead of the data's own references"
    )
    language_model: ModelName | None = Field(None, description="language model for perplexity")
    max_tokens: int | None = Field(
        None, ge=1, description="maximum caption length in tokens for these pictures; default: decoding.max_tokens"
    )
    needs: dict[str, str] = Field(default_factory=dict, description="maps each required file to its source")

    @property
    def has_pictures(self) -> bool:
        """Returns True if the data consists of pictures that a scorer can encode rather than instructions."""
        return not self.data.startswith("instructions:")

    def filled_in(self) -> TestSet:
        """Returns a copy with ``$TELLAPART_DATA`` replaced by the folder of the real data sets."""
        return TestSet.model_validate_json(fill_in(self.model_dump_json()))

    def absent(self) -> dict[Path, str]:
        """Returns the required files that are missing, with the source of each file."""
        return {path: why for name, why in self.needs.items() if not (path := Path(fill_in(name))).exists()}


class Evaluation(Strict):
    """The final evaluation on ``data.test`` and on additional ``test_sets``, whose names you choose.

    PAPER:NAME selects a test set of the papers' tables: ``test_sets = { truematch = "2:truematch" }``.
    """

    decoding: Decoding = Field(
        Decoding(kind="beam", beams=5),
        description="decoding settings for the final evaluation, which are also saved with the model",
    )
    lookalike: int = Field(10, ge=2, description="number of pictures per look-alike set, including the target")
    eval_scorers: tuple[ModelName, ...] = Field((), description="held-out scorers, used only in the final evaluation")
    gallery: int = Field(24, ge=0, description="number of pictures in the report's gallery")
    test_sets: dict[str, TestSet] = Field({}, description="additional test sets, each with its own bags and hard pool")

    @field_validator("test_sets")
    @classmethod
    def are_of_this_machine(cls, tests: dict[str, TestSet]) -> dict[str, TestSet]:
        for name in tests:
            if not re.fullmatch(r"\w[\w+-]*", name):
                raise ValueError(
                    f"'{name}' is not a valid name because it becomes a folder name; use letters, digits, '-' and '_'"
                )
        return {name: on.filled_in() for name, on in tests.items()}


class Recipe(Strict):
    """One run. The objective ``contrastive`` trains a scorer; all other objectives train a captioner."""

    name: str
    about: str = ""
    seed: int = Field(0, ge=0, lt=2**32)
    data: Data
    captioner: CaptionerOptions | None = None
    scorer: ScorerOptions | None = None
    objective: Objective
    training: Training
    bags: Bags | None = None
    validation: Validation = Validation()
    evaluation: Evaluation = Evaluation()

    @property
    def trains(self) -> Literal["captioner", "scorer"]:
        return self.objective.trains

    @property
    def select(self) -> str:
        """The metric that selects the checkpoint: ``validation.select`` or, if unset, the objective's default."""
        measure = self.objective.measure
        return self.validation.select or ("recall@1.random100" if measure == "recall" else measure)

    @property
    def frozen_vision(self) -> bool:
        """Returns True if the recipe trains a scorer built from two encoders and keeps its vision encoder frozen."""
        scorer = self.scorer if self.trains == "scorer" else None
        from_parts = scorer is not None and scorer.new is not None and scorer.new.vision is not None
        return scorer is not None and "vision" not in (scorer.train or ()) and (from_parts or scorer.train is not None)

    @field_validator("name")
    @classmethod
    def names_a_folder(cls, name: str) -> str:
        if not re.fullmatch(r"\w[\w .+-]*", name):
            raise ValueError(
                f"'{name}' is not a valid name because it becomes a folder name; use letters, digits, '.', '-' and '_'"
            )
        return name

    @model_validator(mode="after")
    def fits_together(self) -> Recipe:
        for wrong in self.contradictions():
            raise ValueError(wrong)
        return self

    def contradictions(self) -> Iterator[str]:
        """Yields errors about keys that are valid individually but not together, so that no key is silently ignored."""
        learner = self.scorer if self.trains == "scorer" else self.captioner
        if learner is None or (learner.name is None) == (learner.new is None):
            yield f"[{self.trains}] requires either name = '…' or a [{self.trains}.new] table, but not both"
        for table in ("validation", "evaluation"):
            if (samples := getattr(self, table).decoding.samples) > 1:
                yield (
                    f"{table}.decoding.samples is {samples}, but one caption per picture is evaluated; set samples = 1"
                )
        if self.validation.decoding.asks_scorer:
            yield (
                "validation.decoding.scorer_weight would select captions by the metric that validation computes; "
                "remove scorer_weight"
            )
        learned = getattr(self.objective, "decoding", None)
        if getattr(learned, "kind", "") == "consensus":
            yield (
                "objective.decoding.kind = 'consensus' selects one of several samples, but training uses all samples; "
                "set kind = 'sample'"
            )
        if getattr(learned, "confidence", 0.0):
            yield "objective.decoding.confidence edits captions, but training needs unedited ones; remove confidence"
        for table, decoding in ("objective", learned), ("validation", self.validation.decoding):
            if getattr(decoding, "paragraphs", False):
                yield f"{table}.decoding.paragraphs is for caption files, which training does not write; remove it"
        yield from self._of_bags()
        yield from self._of_tests()
        yield from self._of_a_scorer() if self.trains == "scorer" else self._of_a_captioner()

    def _of_bags(self) -> Iterator[str]:
        batches, size = self.training.batches, self.training.batch_size
        if self.bags is not None and batches != "bags":
            yield f"[bags] requires training.batches = 'bags', but got '{batches}'; change it, or remove [bags]"
        if batches != "bags":
            return
        bags = self.bags or Bags()
        if bags.largest > size:
            yield (
                f"bags of {bags.largest} pictures do not fit into training.batch_size = {size}; use smaller bags or a "
                "larger batch"
            )
        if bags.kind != "random" and bags.scorer is None and (self.scorer is None or self.scorer.name is None):
            yield "bags.scorer is missing; name the scorer whose features define which pictures look alike"

    def _of_tests(self) -> Iterator[str]:
        tests = self.evaluation.test_sets
        if tests and self.data.test is None:
            yield "evaluation.test_sets requires data.test; set data.test"
        for name, on in tests.items():
            if self.trains == "captioner" and self.scorer is None and (on.bags or on.distractors):
                yield f"[scorer] is missing; evaluation.test_sets.{name} requires a scorer to choose among candidates"

    def _of_a_scorer(self) -> Iterator[str]:
        if self.training.sharding != "none":
            yield "training.sharding applies to captioners, but this recipe trains a scorer; remove training.sharding"
        if self.captioner is not None:
            yield "[captioner] has no effect with objective 'contrastive', which trains a scorer; remove [captioner]"
        if self.scorer is not None and self.scorer.train and (new := self.scorer.new) and new.vision is None:
            yield "scorer.train requires a scorer built from two encoders; remove scorer.train"
        if self.training.augment != "none" and self.frozen_vision:
            yield (
                "training.augment changes pixels, but a frozen vision encoder encodes each picture only once; remove it"
            )
        if (select := self.select) in ("loss", "cider"):
            yield f"validation.select is '{select}', which scorers do not support; expected a recall, or 'step'"
        if self.training.gradient_checkpointing:
            yield (
                "training.gradient_checkpointing applies to a captioner's language model, but this recipe trains "
                "a scorer; remove training.gradient_checkpointing"
            )
        if self.training.max_reference_tokens is not None:
            yield (
                "training.max_reference_tokens applies to captioners; a scorer reads as many tokens as fit into its "
                "context window; remove training.max_reference_tokens"
            )
        if self.training.gradient_accumulation_steps > 1:
            yield (
                "training.gradient_accumulation_steps splits the batch, but objective 'contrastive' needs the "
                "whole batch; remove training.gradient_accumulation_steps"
            )

    def _of_a_captioner(self) -> Iterator[str]:
        rewards = self.objective.reward_options
        needs_scorer = "scorer" in self.objective.needs() or any("scorer" in reward.needs() for reward in rewards)
        writes = f"objective '{self.objective.kind}', which generates its own captions"
        writes_captions = not self.objective.learns_references
        if self.scorer is not None and self.scorer.name is None:
            yield "[scorer] requires name = '…' because the scorer must be trained first, by its own recipe"
        recalls = self.select.startswith("recall")
        if self.scorer is None and (needs_scorer or recalls or self.evaluation.eval_scorers):
            yield (
                f"[scorer] is missing; objective '{self.objective.kind}', validation.select or "
                "evaluation.eval_scorers requires a scorer, so set scorer.name"
            )
        if self.scorer is None and self.evaluation.decoding.asks_scorer:
            yield "[scorer] is missing; evaluation.decoding.scorer_weight requires a scorer, so set scorer.name"
        if self.objective.kind == "self_distillation" and self.training.augment in ("crop-flip", "blip"):
            yield (
                f"training.augment flips pictures, but {writes}, learns one fixed caption for each picture; set "
                "training.augment = 'crop'"
            )
        if writes_captions and self.training.captions_per_picture > 1:
            yield f"training.captions_per_picture has no effect with {writes}; remove training.captions_per_picture"
        if writes_captions and self.training.max_reference_tokens is not None:
            yield (
                "training.max_reference_tokens truncates the references to learn from, so it has no effect with "
                f"{writes}; remove training.max_reference_tokens"
            )
        if "start" in self.objective.needs() and self.captioner and self.captioner.new is not None:
            yield (
                f"objective '{self.objective.kind}' requires an initial model (as do objective.kl and some rewards), "
                "but [captioner.new] has random weights; set captioner.name"
            )
        if writes_captions and self.captioner and self.captioner.new_words is not None:
            yield f"captioner.new_words adds words from references, so it has no effect with {writes}; remove it"
        if rewards and self.training.gradient_checkpointing:
            yield (
                "training.gradient_checkpointing disables the key-value cache, which objective 'reinforce' needs "
                "for generation; set training.gradient_accumulation_steps instead"
            )
        if self.bags is not None and self.bags.hard is not None and not any(r.compares_pictures for r in rewards):
            yield (
                "bags.kind = 'hard' adds distractors, but no reward here compares pictures; add self_retrieval "
                "with score 'log_prob' or 'accuracy', or set bags.kind = 'lookalike'"
            )
        shuffled = self.training.batches == "shuffled"
        if shuffled and any(reward.per_bag for reward in rewards):
            yield (
                "candidates = 'bag' compares a picture with its bag, but shuffled batches have no bags; set "
                "training.batches = 'bags'"
            )
        learns = (self.captioner.train if self.captioner else None) or ()
        new = self.captioner.new if self.captioner else None
        scratch = new is not None and getattr(new, "language_model", None) is None
        if self.captioner and self.captioner.lora and (scratch or learns == ("mapper",)):
            yield "[captioner.lora] adapts an existing vision encoder or language model; name one, and train it"
        if self.training.augment != "none" and "vision" not in learns:
            yield (
                "training.augment changes pixels, but a frozen vision encoder encodes each picture only once; remove it"
            )

    def dump(self, resolver: Resolver | None, **how: Any) -> dict[str, Any]:
        """Dumps the recipe as a plain dict. Replaces the names of models, data and files with the resolver's results.

        ``how``: arguments for `model_dump`. Raises the errors that the resolver raises.
        """
        try:
            return self.model_dump(context=resolver, **how)
        except PydanticSerializationError as error:
            raise (error.__cause__ or error) from None

    def scorers(self) -> Iterator[tuple[str, str]]:
        """Yields the key and the name of every scorer that the recipe names."""
        if self.scorer is not None and self.scorer.name is not None:
            yield "scorer.name", self.scorer.name
        if self.bags is not None and self.bags.scorer is not None:
            yield "bags.scorer", self.bags.scorer
        yield from (("evaluation.eval_scorers", name) for name in self.evaluation.eval_scorers)
        yield from (("objective.scorers", name) for name in self.objective.scorer_names())
        for reward in self.objective.reward_options:
            yield from (("objective.rewards.scorers", name) for name in reward.scorer_names())
