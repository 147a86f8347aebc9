"""Builds the parts of a run on first access."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial

import torch

from tellapart.captioners import Captioner
from tellapart.data.dataset import Dataset
from tellapart.errors import UsageError
from tellapart.features.row_makers import decodable
from tellapart.features.views import OFF, EncodedView, FeatureFileView, StreamedRows, View, make_view
from tellapart.models import ranks
from tellapart.models.precision import resolve_precision
from tellapart.recipe.schema import Recipe
from tellapart.scorers import Scorer, load_scorer
from tellapart.scorers.parts import PartsScorer
from tellapart.training.batches import TrainingSet
from tellapart.training.learner import build_learner, load_start, parts_of
from tellapart.training.pixels import TrainingPixels
from tellapart.training.references import check_references, tokenize_references
from tellapart.training.samplers import sampler_of
from tellapart.training.sources import RunSources, open_specs
from tellapart.types import Item, Rows, StepContext
from tellapart.utils.messages import say


@dataclass(eq=False)
class TrainingSetup(RunSources):
    """The parts of one run. Models, data and features are created on first access.

    frozen_scorers: the scorers that have been loaded for rewards and validation.
    """

    frozen_scorers: list[Scorer] = field(default_factory=list)

    # Models
    @cached_property
    def learner(self) -> Captioner | Scorer:
        """The model to train, with its initial weights."""
        return build_learner(self)

    @cached_property
    def scorer(self) -> Scorer | None:
        """The frozen scorer for rewards and validation; None if the recipe does not name a scorer."""
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
        """The captioner being trained."""
        assert isinstance(self.learner, Captioner), "This run trains a scorer"
        return self.learner

    @property
    def trained_scorer(self) -> Scorer:
        """The scorer being trained."""
        assert isinstance(self.learner, Scorer), "This run trains a captioner"
        return self.learner

    @property
    def trained_parts(self) -> tuple[str, ...]:
        """Names of the learner's trained parts [default: all parts except a captioner's vision encoder]."""
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
        """True if batches contain pixels, as they do when a vision encoder is trained."""
        return self.vision_learns or (self.recipe.trains == "scorer" and not self.recipe.frozen_vision)

    @cached_property
    def step_context(self) -> StepContext:
        """The settings for this run's training steps.

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
        """Returns the initial captioner, frozen and without dropout, and with ``prompt`` if it is given.

        Rewards, the KL term and the evaluation share the captioner's weights. Raises `UsageError` if ``prompt`` is
        given but the captioner does not support prompts.
        """
        return self.frozen_start.with_prompt(prompt)

    # Data
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
        """The view that provides the learner's visual input. Used if the learner's vision encoder is frozen."""
        if isinstance(scorer := self.learner, PartsScorer):
            return EncodedView(lambda: scorer.tower, self.store)
        return self.view_of(self.captioner)

    def view_of(self, captioner: Captioner) -> View:
        """Returns the view that provides a captioner's visual input."""
        assert self.recipe.captioner is not None
        return make_view(captioner, self.store, self.recipe.captioner.features)

    @cached_property
    def pixels(self) -> TrainingPixels:
        """The pixels of training pictures, prepared for a vision encoder that is trained."""
        pixels = TrainingPixels(self.learner)
        if self.recipe.training.augment != "none" and not pixels.as_bytes:
            raise UsageError(
                f"training.augment requires that all pictures have the same shape, but {self.learner.name} does not "
                "resize them to one shape; remove training.augment"
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
        """Reads, encodes and tokenizes the training data.

        Raises `UsageError` if the objective requires references and a picture has none.
        """
        recipe, items, rows = self.recipe, self.train_items, None
        if recipe.objective.learns_references:
            check_references(
                self.train_data, recipe.data.train, f"objective '{recipe.objective.kind}' learns from references"
            )
            texts = [text for item in items for text in item.references]
            tokens = iter(tokenize_references(self.learner, recipe, texts, "training references"))
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


def keeps_nothing(recipe: Recipe) -> bool:
    """Returns True if the recipe sets ``features = "off"``."""
    return recipe.captioner is not None and recipe.captioner.features == OFF


def readable(setup: TrainingSetup, dataset: Dataset) -> list[Item]:
    """Decodes each picture once. Returns the readable pictures, and reports unreadable ones on stderr.

    Raises `UsageError` if no picture can be read.
    """
    if setup.reads_pixels:
        streamed = keeps_nothing(setup.recipe) or setup.recipe.training.augment == "blip"
        maker = decodable() if streamed else setup.pixels.maker()
        items = setup.store.readable(dataset, maker, skipped=dataset.unreadable)
    else:
        items = setup.view.readable(dataset, dataset.unreadable)
        if setup.recipe.scorer is not None and isinstance(
            setup.view, FeatureFileView
        ):  # the learner uses features from files, but the scorer needs the pictures
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
