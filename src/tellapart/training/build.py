"""Builds the parts of a run from its recipe: learner, scorer, data, batches and objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tellapart.captioners import Captioner, load_captioner
from tellapart.captioners.lora import add_lora
from tellapart.captioners.modify import add_words, enable_gradient_checkpointing, set_dropout
from tellapart.captioners.parts import load_vision
from tellapart.data import open_many
from tellapart.data.dataset import Changed, Dataset
from tellapart.data.references import blip_clean, blip_cleaned
from tellapart.errors import UsageError
from tellapart.features.feature_files import FeatureFiles
from tellapart.features.nearest import Exclusions, Vectors, nearest_among
from tellapart.features.store import FeatureStore
from tellapart.features.views import OFF, EncodedView, FeatureFileView, StreamedRows, View, decodable, make_view
from tellapart.models import ranks
from tellapart.models.devices import best_device, resolve_precision
from tellapart.models.saved import Levels
from tellapart.objectives.base import Objective, build_objective
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import CaptionerOptions, NewCaptioner, NewScorer, Recipe
from tellapart.rewards.base import RunParts
from tellapart.scorers import Scorer, load_scorer
from tellapart.scorers.parts import PartsScorer, load_text, make_parts_scorer
from tellapart.training.batches import TrainingSet
from tellapart.training.new_models import build_captioner, build_recurrent, build_scorer
from tellapart.training.pixels import TrainingPixels
from tellapart.training.samplers import sampler_of
from tellapart.types import Item, Rows, StepContext
from tellapart.utils.messages import say


@dataclass(eq=False)
class TrainingSetup:
    """The parts of one run. Models, data and features are created on first access.

    upstream: returns the path or name of the model that a name in the recipe refers to, after training it if necessary.
    frozen_scorers: the scorers loaded so far for rewards and validation.
    """

    recipe: Recipe
    upstream: Callable[[str], str]
    device: torch.device = field(default_factory=best_device)
    store: FeatureStore = field(default_factory=FeatureStore)
    frozen_scorers: list[Scorer] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.upstream = cache(self.upstream)

    # Models
    @cached_property
    def learner(self) -> Captioner | Scorer:
        """The model that is trained, with its initial weights."""
        return build_learner(self)

    @cached_property
    def scorer(self) -> Scorer | None:
        """The frozen scorer for rewards and validation; None if the recipe names none."""
        named = self.recipe.scorer
        if self.recipe.trains == "scorer" or named is None or named.name is None:
            return None
        return self.load_scorer(named.name)

    @cached_property
    def frozen_start(self) -> Captioner:
        """The initial captioner, frozen and without dropout."""
        return load_start(self)

    @property
    def captioner(self) -> Captioner:
        """The captioner that is trained."""
        assert isinstance(self.learner, Captioner), "This run does not train a scorer"
        return self.learner

    @property
    def trained_scorer(self) -> Scorer:
        """The scorer that is trained."""
        assert isinstance(self.learner, Scorer), "This run does not train a captioner"
        return self.learner

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """Names of the learner's parts that are trained; by default all but a captioner's vision encoder."""
        if self.recipe.trains == "captioner":
            return parts_of(self.recipe, self.captioner)
        named = self.recipe.scorer.train if self.recipe.scorer else None
        return named or (("heads",) if self.recipe.frozen_vision else ("scorer",))

    @property
    def vision_learns(self) -> bool:
        """True if the captioner's own vision encoder is trained, so that its features cannot be cached."""
        return self.recipe.trains == "captioner" and "vision" in self.trained_parts

    @property
    def reads_pixels(self) -> bool:
        """True if batches contain pixels, because a vision encoder is trained."""
        return self.vision_learns or (self.recipe.trains == "scorer" and not self.recipe.frozen_vision)

    @cached_property
    def step_context(self) -> StepContext:
        """The settings for this run's steps.

        Uses torch's autocast, because accelerate's state is shared by the whole process.
        """
        bf16 = resolve_precision(self.recipe.training.precision, self.device) == "bf16"
        return StepContext(
            micro_batches=self.recipe.training.gradient_accumulation_steps,
            encode=self.captioner.encode if self.vision_learns else None,
            autocast=partial(torch.autocast, self.device.type, torch.bfloat16, enabled=bf16),
            rank=ranks.index(),
            world_size=ranks.count(),
        )

    def load_scorer(self, name: str) -> Scorer:
        """Loads a frozen scorer for this run."""
        scorer = load_scorer(self.upstream(name), self.device)
        scorer.shared = ranks.count() > 1
        self.frozen_scorers.append(scorer)
        return scorer

    def start(self, prompt: str = "") -> Captioner:
        """Returns the initial captioner, frozen and without dropout, with ``prompt`` if given.

        Rewards, the KL term and the evaluation share its weights. Raises `UsageError` if the captioner does not support
        prompts.
        """
        return self.frozen_start.with_prompt(prompt)

    # Data
    @cached_property
    def train_data(self) -> Dataset:
        """The training data that the recipe names, including unreadable pictures."""
        dataset = open_specs(self.recipe.data.train)
        if self.recipe.data.clean == "none":
            return dataset
        return Dataset(dataset.spec, Changed(dataset, blip_cleaned), dataset.missing)

    @cached_property
    def train_items(self) -> list[Item]:
        return readable(self, self.train_data)

    @cached_property
    def validation_items(self) -> list[Item]:
        return readable(self, open_specs(self.recipe.data.validation))[: self.recipe.validation.limit]

    @cached_property
    def test_items(self) -> list[Item]:
        return readable(self, open_specs(self.recipe.data.test)) if self.recipe.data.test else []

    @cached_property
    def view(self) -> View:
        """The view that provides the learner's visual input if its vision encoder is frozen."""
        if isinstance(self.learner, PartsScorer):
            return EncodedView(lambda: self.learner.tower, self.store)  # type: ignore[union-attr]
        return self.view_of(self.captioner)

    def view_of(self, captioner: Captioner) -> View:
        """Returns the view that provides a captioner's visual input."""
        assert self.recipe.captioner is not None
        return make_view(captioner, self.store, self.recipe.captioner.features)

    @cached_property
    def pixels(self) -> TrainingPixels:
        """Prepares pictures for a vision encoder that is trained."""
        pixels = TrainingPixels(self.learner)
        if self.recipe.training.augment != "none" and not pixels.as_bytes:
            raise UsageError(
                f"training.augment requires pictures of the same shape, but {self.learner.name} does not resize them "
                "to one; remove it"
            )
        return pixels

    def visual(self, items: list[Item]) -> Rows:
        """Returns the learner's visual input, N×…: pixels if a vision encoder is trained, otherwise features."""
        if self.reads_pixels and keeps_nothing(self.recipe):
            return StreamedRows(items, self.pixels.maker())
        if self.reads_pixels:
            return self.store.rows(items, self.pixels.maker())
        return self.view.rows(items)

    def training_set(self) -> TrainingSet:
        """Reads, encodes and tokenizes the training data. Raises `UsageError` if a required reference is missing."""
        recipe, items, rows = self.recipe, self.train_items, None
        if recipe.objective.learns_references:
            check_references(
                self.train_data, recipe.data.train, f"objective '{recipe.objective.kind}' learns from references"
            )
            texts = [text for item in items for text in item.references]
            tokens = iter(tokenize_references(self, texts, "training references"))
            rows = [[next(tokens) for _ in item.references] for item in items]
        # Augmented pictures are read again at every step.
        streamed = self.reads_pixels and recipe.training.augment == "blip"
        return TrainingSet(
            items,
            StreamedRows(items, self.pixels.maker()) if streamed else self.visual(items),
            rows,
            self.learner,
            sampler_of(recipe, items, self.store, lambda name: load_scorer(self.upstream(name), self.device)),
            seed=recipe.seed,
            captions_per_picture=recipe.training.captions_per_picture,
            augment=recipe.training.augment,
            pixels=self.pixels if self.reads_pixels else None,
        )

    def objective(self) -> Objective[Any]:
        """Builds the objective that the recipe specifies."""
        return build_objective(self.recipe.objective, run_parts(self))


def run_parts(setup: TrainingSetup) -> RunParts:
    """Returns the parts of this run that the factories of objectives and rewards may use."""
    return RunParts(
        captioner=setup.learner,  # type: ignore[arg-type]  # an objective for scorers does not use it
        scorer=setup.scorer,
        train_items=setup.train_items,
        vision_learns=setup.vision_learns,
        load_scorer=setup.load_scorer,
        start=setup.start,
        train_features=partial(train_features, setup),
        trained_on=partial(trained_on, setup),
        train_visual=partial(train_visual, setup),
        nearest_train=partial(nearest_train, setup),
    )


# The models


def build_learner(setup: TrainingSetup) -> Captioner | Scorer:
    """Loads or creates the model to train. Raises `UsageError` if a name is not a model."""
    recipe = setup.recipe
    torch.manual_seed(recipe.seed)
    if recipe.trains == "scorer":
        assert recipe.scorer is not None
        if recipe.scorer.name is not None:
            scorer = load_scorer(setup.upstream(recipe.scorer.name), setup.device)
        else:
            assert recipe.scorer.new is not None
            scorer = new_scorer(setup, recipe.scorer.new)
            scorer.model.to(setup.device)
        if isinstance(scorer, PartsScorer):
            scorer.model.requires_grad_(False)  # `TrainableParts` unfreezes the parts to train
            scorer.kept_texts, scorer.text_rows = {}, setup.store.table
        elif recipe.scorer.train is not None:
            raise UsageError(
                f"scorer.train requires a scorer built from two encoders, which {scorer.name} is not; remove "
                "scorer.train"
            )
        return scorer
    assert recipe.captioner is not None
    if recipe.captioner.name is not None:
        captioner = adapted(setup, load_start(setup))
    else:
        captioner = with_frames(recipe.captioner, new_captioner(setup, recipe.captioner))
        captioner.model.to(setup.device)
    captioner.levels = checked_levels(captioner, recipe.objective.levels())
    if recipe.training.gradient_checkpointing:
        enable_gradient_checkpointing(captioner)
    return captioner


def checked_levels(captioner: Captioner, levels: Levels) -> Levels:
    """Validates the levels of detail. Raises `UsageError` if the captioner does not know or cannot distinguish the
    prompts.
    """
    known: dict[tuple[int, ...], str] = {}
    for _, prompt in levels:
        captioner.with_prompt(prompt)
        ids = tuple(captioner.tokenizer(prompt, add_special_tokens=False)["input_ids"]) if prompt else ()
        if captioner.tokenizer.unk_token_id in ids:
            raise UsageError(
                f"objective.detail: {captioner.name} does not know all words of the prompt '{prompt}'; use words "
                "of its vocabulary"
            )
        if (same := known.setdefault(ids, prompt)) != prompt:
            raise UsageError(
                f"objective.detail: {captioner.name} cannot distinguish the prompts '{prompt}' and '{same}'; use "
                "other prompts"
            )
    return levels


def load_start(setup: TrainingSetup) -> Captioner:
    """Loads the captioner that the recipe names in fp32."""
    options = setup.recipe.captioner
    assert options is not None and options.name is not None
    return with_frames(options, load_captioner(setup.upstream(options.name), setup.device, "fp32"))


def with_frames(options: CaptionerOptions, captioner: Captioner) -> Captioner:
    """Sets the captioner's frames per clip from the recipe, and returns the captioner."""
    if options.frames is not None:
        captioner.frames = options.frames
    if captioner.frames > 1 and "vision" in (options.train or ()):
        raise UsageError(
            f"captioner.train contains 'vision', but the captioner reads {captioner.frames} frames of a clip, and "
            "vision encoders can only be trained on single pictures; remove 'vision'"
        )
    return captioner


def adapted(setup: TrainingSetup, captioner: Captioner) -> Captioner:
    """Adds new words, dropout and LoRA to the captioner as specified in the recipe, and returns it."""
    options = setup.recipe.captioner
    assert options is not None
    if options.dropout is not None:
        set_dropout(captioner, options.dropout)
    if options.new_words is not None:
        say(f"{add_words(captioner, training_texts(setup), options.new_words):,} new words")
    if options.lora is not None:
        torch.manual_seed(setup.recipe.seed)
        parts = [part for part in parts_of(setup.recipe, captioner) if part != "mapper"]
        add_lora(captioner, parts, **options.lora.model_dump())
    return captioner


def parts_of(recipe: Recipe, captioner: Captioner) -> tuple[str, ...]:
    """Returns the names of the captioner's parts to train."""
    assert recipe.captioner is not None
    return recipe.captioner.train or tuple(part for part in captioner.parts() if part != "vision")


def training_texts(setup: TrainingSetup) -> Iterator[str]:
    return (text for item in setup.train_data for text in item.references)


def new_captioner(setup: TrainingSetup, options: CaptionerOptions) -> Captioner:
    """Creates a captioner with random weights on top of a vision encoder or on features from files."""
    new, texts, name = options.new, training_texts(setup), setup.recipe.name
    assert new is not None
    if isinstance(new, NewCaptioner):
        captioner = build_captioner(new, texts, *load_vision(setup.upstream(new.vision)), name)
        if options.lora is not None:
            parts = [part for part in parts_of(setup.recipe, captioner) if part != "mapper"]
            add_lora(captioner, parts, **options.lora.model_dump())
        return captioner
    if new.vision is not None:
        return build_recurrent(new, texts, name, *load_vision(setup.upstream(new.vision)))
    assert options.features is not None, "[captioner] is required; the recipe's schema checks this"
    return build_recurrent(new, texts, name, width=FeatureFiles.open(options.features).width(setup.train_data))


def new_scorer(setup: TrainingSetup, new: NewScorer) -> Scorer:
    """Creates a scorer from two pretrained encoders with new heads, or one with random weights throughout."""
    if new.vision is None or new.text is None:
        return build_scorer(new, training_texts(setup), setup.recipe.name)
    vision, text = load_vision(setup.upstream(new.vision)), load_text(setup.upstream(new.text))
    kept = ("visual", "grid", "pooling", "hidden", "dropout")
    settings = {key: getattr(new, key) for key in kept}
    return make_parts_scorer(vision, text, setup.recipe.name, projection_dim=new.projection, **settings)


# The data


def open_specs(specs: str | tuple[str, ...]) -> Dataset:
    """Opens one data set, or the concatenation of several."""
    return open_many([specs] if isinstance(specs, str) else specs)


def keeps_nothing(recipe: Recipe) -> bool:
    """Returns whether the recipe sets ``features = "off"``."""
    return recipe.captioner is not None and recipe.captioner.features == OFF


def readable(setup: TrainingSetup, dataset: Dataset) -> list[Item]:
    """Decodes each picture once; returns the readable ones and reports the others on stderr.

    Raises `UsageError` if none is readable.
    """
    if setup.reads_pixels:
        streamed = keeps_nothing(setup.recipe) or setup.recipe.training.augment == "blip"
        maker = decodable() if streamed else setup.pixels.maker()
        items = setup.store.readable(dataset, maker, skipped=dataset.unreadable)
    else:
        items = setup.view.readable(dataset, dataset.unreadable)
        if setup.recipe.scorer is not None and isinstance(
            setup.view, FeatureFileView
        ):  # the learner reads the pictures themselves
            items = setup.store.readable(items, decodable(), skipped=dataset.unreadable)
    for line in (
        dataset.missing.line(len(dataset) + len(dataset.missing), what="pictures do not exist"),
        dataset.unreadable.line(len(dataset)),
    ):
        if line:
            say(line)
    if not items:
        raise UsageError(f"{dataset.spec}: none of its {len(dataset)} pictures can be read")
    return items


def check_references(items: Sequence[Item], specs: str | tuple[str, ...], why: str) -> None:
    """Raises `UsageError` if a picture has no reference."""
    if bare := [item.id for item in items if not item.references]:
        raise UsageError(f"{specs}: {len(bare)} of {len(items)} pictures have no reference (first: {bare[0]}); {why}")


def tokenize_references(setup: TrainingSetup, texts: Sequence[str], what: str) -> list[list[int]]:
    """Tokenizes the references for training or validation, and reports on stderr how many were truncated."""
    learner, limit = setup.learner, setup.recipe.training.max_reference_tokens
    if setup.recipe.data.clean == "blip":
        texts = [blip_clean(text) for text in texts]
    before = learner.cut_texts
    if isinstance(learner, Scorer):
        rows, limit = learner.tokenize(texts), learner.window
    else:
        room = learner.max_caption_tokens
        if room is not None and limit is not None and limit > room:
            raise UsageError(
                f"training.max_reference_tokens is {limit}, but {learner.name} supports at most {room} tokens; "
                "lower it or remove it"
            )
        limit = room if limit is None else limit
        rows = learner.tokenize(texts, limit)
    if cut := learner.cut_texts - before:
        say(f"{cut:,} of {len(texts):,} {what} exceed {limit} tokens and are truncated{how_to_keep(setup)}")
    return rows


def how_to_keep(setup: TrainingSetup) -> str:
    """Returns the setting that reduces truncation of the references; "" if there is none."""
    captioner = setup.recipe.captioner
    if setup.recipe.training.max_reference_tokens is not None:
        return "; raise training.max_reference_tokens to keep more of them"
    if captioner is not None and captioner.new is not None and captioner.new.kind == "clipcap":
        return "; raise captioner.new.max_tokens to keep more of them"
    return ""


# Functions of the training pictures for rewards and objectives (`RunParts`)


def train_features(setup: TrainingSetup, scorer: Scorer) -> np.ndarray:
    """Returns this scorer's features_ND for the training pictures."""
    return np.asarray(setup.store.features(setup.train_items, scorer.encoder))


def trained_on(setup: TrainingSetup, name: str) -> np.ndarray:
    """Returns seen_N: whether the named scorer was trained on each training picture, by id, according to its run's
    recipe.

    All are False if the name is neither a recipe nor a run, because the training data of other models is unknown.
    """
    folder = Path(setup.upstream(name))
    run = next((place for place in (folder, folder.parent) if (place / "run.json").is_file()), None)
    if run is None:
        return np.zeros(len(setup.train_items), dtype=bool)
    learned = {item.id for item in open_specs(read_recipe(run / "recipe.toml").data.train)}
    return np.array([item.id in learned for item in setup.train_items])


def train_visual(setup: TrainingSetup) -> Callable[[np.ndarray], torch.Tensor]:
    """Returns a function that maps rows_B to the learner's visual input B×… on the device, without augmentation."""
    rows = setup.visual(setup.train_items)

    def seen(rows_B: np.ndarray) -> torch.Tensor:
        if setup.reads_pixels:
            return setup.pixels.tensor(rows[rows_B])
        return torch.from_numpy(np.ascontiguousarray(rows[rows_B])).to(setup.device)

    return seen


def nearest_train(setup: TrainingSetup, scorer: Scorer, count: int) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that maps rows_B to rows_BK, the K nearest training pictures by the scorer's features."""
    if len(setup.train_items) <= count:
        raise UsageError(
            f"nearest is {count}, but there are only {len(setup.train_items)} training pictures; lower nearest"
        )
    gallery = Vectors.of(train_features(setup, scorer))
    row_N = np.arange(len(gallery))

    def nearest(rows_B: np.ndarray) -> np.ndarray:
        return nearest_among(gallery.take(rows_B), gallery, count, Exclusions(rows_B, row_N)).rows_NK

    return nearest
