"""Builds the parts of a run from its recipe: learner, scorer, data, batches and objective."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tellapart.captioners import Captioner, load_captioner
from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.load import quoted
from tellapart.captioners.recurrent import Recurrent, RecurrentConfig, RecurrentModel
from tellapart.data import open_many
from tellapart.data.dataset import Dataset
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.features.views import OFF, StreamedRows, View, decodable, make_view
from tellapart.models import ranks
from tellapart.models.device import best_device, resolve_precision
from tellapart.models.protocols import FrozenScorer
from tellapart.models.tokens import word_tokenizer
from tellapart.models.vision import grid_resnet_config
from tellapart.objectives.base import Objective, build_objective
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import CaptionerOptions, NewCaptioner, NewRecurrent, NewScorer, Recipe
from tellapart.scorers import Scorer, load_scorer
from tellapart.training.batches import TrainingPixels, TrainingSet, sampler_of
from tellapart.types import Item, Rows


class TrainingSetup:
    """The typed parts of one run, each made on first use: a `rewards.base.RunParts`.

    ``upstream`` returns the path or name of the model behind a name in the recipe, and trains it if need be.
    """

    def __init__(self, recipe: Recipe, upstream: Callable[[str], str]) -> None:
        self.recipe = recipe
        self.upstream: Callable[[str], str] = cache(upstream)
        self.frozen_scorers: list[Scorer] = []  # those of rewards and validation; see `loop.truncation_lines`

    @cached_property
    def store(self) -> FeatureStore:
        return FeatureStore()

    @cached_property
    def device(self) -> torch.device:
        return best_device()

    def autocast(self) -> torch.autocast:
        """Mixed precision as the recipe says. Not accelerate's: its state is one for the whole process."""
        precision = resolve_precision(self.recipe.training.precision, self.device)
        return torch.autocast(self.device.type, torch.bfloat16, enabled=precision == "bf16")

    # The models
    def load(self) -> tuple[Captioner | Scorer, Scorer | None]:
        """Load the learner and the scorer now. Raises `UsageError` where a name is no model's."""
        return self.learner, self.scorer

    @cached_property
    def scorer(self) -> Scorer | None:
        """The frozen scorer of rewards and validation; None in a run that needs none."""
        named = self.recipe.scorer
        if self.recipe.trains == "scorer" or named is None or named.name is None:
            return None
        return self.load_scorer(named.name)

    def load_scorer(self, name: str) -> Scorer:
        """A frozen scorer of this run."""
        scorer = load_scorer(self.upstream(name), self.device)
        scorer.shared = ranks.count() > 1
        self.frozen_scorers.append(scorer)
        return scorer

    @cached_property
    def learner(self) -> Captioner | Scorer:
        """The model in training, with the weights it starts from."""
        torch.manual_seed(self.recipe.seed)
        if self.recipe.trains == "scorer":
            return self._scorer_in_training()
        assert self.recipe.captioner is not None
        if self.recipe.captioner.name is not None:
            captioner = self._adapted(self._load_start())
        else:
            captioner = self._with_frames(self._new(self.recipe.captioner))
            captioner.model.to(self.device)
        if self.recipe.training.gradient_checkpointing:
            from tellapart.captioners.adapt import enable_gradient_checkpointing

            enable_gradient_checkpointing(captioner)
        return captioner

    @property
    def captioner(self) -> Captioner:
        """The captioner in training."""
        assert isinstance(self.learner, Captioner), "this run trains a scorer"
        return self.learner

    @property
    def trained_scorer(self) -> Scorer:
        """The scorer in training."""
        assert isinstance(self.learner, Scorer), "this run trains a captioner"
        return self.learner

    def _new(self, described: CaptionerOptions) -> Captioner:
        """A captioner with random weights behind somebody's vision encoder, or behind features from files."""
        from tellapart.captioners.load import load_vision
        from tellapart.features.files import FeatureFiles

        new, name = described.new, self.recipe.name
        assert new is not None
        if isinstance(new, NewCaptioner):
            return build_captioner(new, self._texts(), load_scorer(self.upstream(new.vision), "cpu"), name)
        if new.vision is not None:
            return build_recurrent(new, self._texts(), name, *load_vision(self.upstream(new.vision)))
        assert described.features is not None, "the recipe's schema asks for it"
        width = FeatureFiles.open(described.features).width(self.train_data)
        return build_recurrent(new, self._texts(), name, width=width)

    def _adapted(self, captioner: Captioner) -> Captioner:
        """The same one, with new words, dropout and LoRA where the recipe has them."""
        assert self.recipe.captioner is not None
        if (dropout := self.recipe.captioner.dropout) is not None:
            from tellapart.captioners.adapt import set_dropout

            set_dropout(captioner, dropout)
        if (often := self.recipe.captioner.new_words) is not None:
            from tellapart.captioners.words import add_words
            from tellapart.utils.messages import say

            say(f"{add_words(captioner, self._texts(), often):,} new words")
        if (lora := self.recipe.captioner.lora) is not None:
            from tellapart.captioners.adapt import add_lora

            parts = [part for part in self._parts_of(captioner) if part != "mapper"]
            torch.manual_seed(self.recipe.seed)
            add_lora(captioner, parts, **lora.model_dump())
        return captioner

    def start(self, prompt: str = "") -> Captioner:
        """The captioner that this run starts from, frozen, dropout off; asked with ``prompt`` if there is one.

        All that ask for it share its weights: rewards, KL and the evaluation. Raises `UsageError` where such a
        captioner takes no prompt.
        """
        if not prompt:
            return self._frozen_start
        captioner = self._load_start(prompt)
        captioner.share_weights(self._frozen_start)
        return captioner

    @cached_property
    def _frozen_start(self) -> Captioner:
        return self._load_start()

    def _load_start(self, prompt: str = "") -> Captioner:
        assert self.recipe.captioner is not None and self.recipe.captioner.name is not None
        name = self.upstream(self.recipe.captioner.name)
        asked = f"{name}{'&' if '?' in name else '?'}prompt={quoted(prompt)}" if prompt else name
        return self._with_frames(load_captioner(asked, self.device, "fp32"))

    def _with_frames(self, captioner: Captioner) -> Captioner:
        """The same one, looking at as many frames of a clip as the recipe says."""
        assert self.recipe.captioner is not None
        if self.recipe.captioner.frames is not None:
            captioner.frames = self.recipe.captioner.frames
        if captioner.frames > 1 and "vision" in (self.recipe.captioner.train or ()):
            raise UsageError(
                f"captioner.train has 'vision' and the captioner looks at {captioner.frames} frames of a clip; its "
                "vision encoder learns from single pictures only; leave 'vision' out"
            )
        return captioner

    def _scorer_in_training(self) -> Scorer:
        assert self.recipe.scorer is not None
        if self.recipe.scorer.name is not None:
            return load_scorer(self.upstream(self.recipe.scorer.name), self.device)
        assert self.recipe.scorer.new is not None
        scorer = build_scorer(self.recipe.scorer.new, self._texts(), self.recipe.name)
        scorer.model.to(self.device)
        return scorer

    def _texts(self) -> Iterator[str]:
        return (text for item in self.train_data for text in item.references)

    @property
    def trained_parts(self) -> tuple[str, ...]:
        if self.recipe.trains == "scorer":
            return ("scorer",)
        return self._parts_of(self.captioner)

    def _parts_of(self, captioner: Captioner) -> tuple[str, ...]:
        assert self.recipe.captioner is not None
        if self.recipe.captioner.train is not None:
            return self.recipe.captioner.train
        return tuple(part for part in captioner.parts() if part != "vision")

    @property
    def vision_learns(self) -> bool:
        """Whether a captioner's own vision encoder is trained: then features cannot be kept."""
        return self.recipe.trains == "captioner" and "vision" in self.trained_parts

    # The data
    @cached_property
    def train_data(self) -> Dataset:
        return open_specs(self.recipe.data.train)

    @cached_property
    def train_items(self) -> list[Item]:
        return self._readable(self.train_data)

    def train_features(self, scorer: FrozenScorer) -> np.ndarray:
        """features_ND of the training pictures, as this scorer sees them."""
        return np.asarray(self.store.features(self.train_items, scorer.encoder))

    def trained_on(self, name: str) -> np.ndarray:
        """seen_N: which training pictures the scorer of this name learned from: those of its run's recipe, by id.

        None of them where the name is not a recipe's or a run's: nobody knows what other models have seen.
        """
        folder = Path(self.upstream(name))
        run = next((place for place in (folder, folder.parent) if (place / "run.json").is_file()), None)
        if run is None:
            return np.zeros(len(self.train_items), dtype=bool)
        learned = {item.id for item in open_specs(read_recipe(run / "recipe.toml").data.train)}
        return np.array([item.id in learned for item in self.train_items])

    def train_visual(self) -> Callable[[np.ndarray], torch.Tensor]:
        """Shows training pictures as batches do, without augmentation: rows_B to B×…, on the learner's device."""
        rows = self.visual(self.train_items)

        def seen(rows_B: np.ndarray) -> torch.Tensor:
            if self.reads_pixels:
                return self.pixels.tensor(rows[rows_B])
            return torch.from_numpy(np.ascontiguousarray(rows[rows_B])).to(self.device)

        return seen

    def nearest_train(self, scorer: FrozenScorer, count: int) -> Callable[[np.ndarray], np.ndarray]:
        """Finds the look-alikes of training pictures by the scorer's features: rows_B to rows_BK."""
        from tellapart.features.nearest import Exclusions, Vectors, nearest_among

        if len(self.train_items) <= count:
            raise UsageError(
                f"{count} look-alikes of each picture, and there are {len(self.train_items)} training pictures; "
                "lower nearest"
            )
        gallery = Vectors.of(self.train_features(scorer))
        row_N = np.arange(len(gallery))

        def nearest(rows_B: np.ndarray) -> np.ndarray:
            return nearest_among(gallery.take(rows_B), gallery, count, Exclusions(rows_B, row_N)).rows_NK

        return nearest

    def check_references(self, why: str) -> None:
        """Raises `UsageError` where a training picture has no reference."""
        _check_references(self.train_data, self.recipe.data.train, why)

    def check_validation_references(self, why: str) -> None:
        """Raises `UsageError` where a validation picture has no reference."""
        named = self.recipe.data.validation
        _check_references(list(islice(open_specs(named), self.recipe.validation.limit)), named, why)

    def check_truth(self, why: str) -> None:
        """Raises `UsageError` where a training picture's content is not known exactly."""
        if unknown := [item.id for item in self.train_data if item.truth is None]:
            raise UsageError(
                f"{self.recipe.data.train}: the content of {unknown[0]} is not known, and {why}; expected scenes"
            )

    @cached_property
    def validation_items(self) -> list[Item]:
        items = self._readable(open_specs(self.recipe.data.validation))
        return items[: self.recipe.validation.limit]

    @cached_property
    def test_items(self) -> list[Item]:
        return self._readable(open_specs(self.recipe.data.test)) if self.recipe.data.test else []

    def _readable(self, dataset: Dataset) -> list[Item]:
        """The pictures that can be read, each decoded once; the others are named on stderr."""
        from tellapart.utils.messages import say

        if self.reads_pixels:
            maker = decodable() if self._keeps_nothing else self.pixels.maker()
            items = self.store.readable(dataset, maker, skipped=dataset.unreadable)
        else:
            items = self.view.readable(dataset, dataset.unreadable)
        for line in (
            dataset.missing.line(len(dataset) + len(dataset.missing), what="pictures are not there"),
            dataset.unreadable.line(len(dataset)),
        ):
            if line:
                say(line)
        if not items:
            raise UsageError(f"{dataset.spec}: none of its {len(dataset)} pictures can be read")
        return items

    @cached_property
    def view(self) -> View:
        """What the captioner in training looks at, where its vision encoder does not learn."""
        return self.view_of(self.captioner)

    def view_of(self, captioner: Captioner) -> View:
        assert self.recipe.captioner is not None
        return make_view(captioner, self.store, self.recipe.captioner.features)

    @cached_property
    def pixels(self) -> TrainingPixels:
        """How pictures reach a vision encoder in training."""
        pixels = TrainingPixels(self.learner)
        if self.recipe.training.augment != "none" and not pixels.as_bytes:
            raise UsageError(
                f"training.augment crops pictures of one shape, and {self.learner.name} keeps their shapes; "
                "leave it out"
            )
        return pixels

    @property
    def _keeps_nothing(self) -> bool:
        """Whether the recipe says ``features = "off"``."""
        return self.recipe.captioner is not None and self.recipe.captioner.features == OFF

    @property
    def reads_pixels(self) -> bool:
        return self.recipe.trains == "scorer" or self.vision_learns

    def training_set(self) -> TrainingSet:
        settings, items = self.recipe.training, self.train_items
        rows = None
        if self.recipe.objective.learns_references:
            self.check_references(f"objective '{self.recipe.objective.kind}' learns from references")
            tokens = iter(self.tokenize([text for item in items for text in item.references], "training references"))
            rows = [[next(tokens) for _ in item.references] for item in items]
        return TrainingSet(
            items,
            self.visual(items),
            rows,
            self.learner,
            sampler_of(self),
            seed=self.recipe.seed,
            captions_per_picture=settings.captions_per_picture,
            augment=settings.augment,
            pixels=self.pixels if self.reads_pixels else None,
        )

    def tokenize(self, texts: Sequence[str], what: str) -> list[list[int]]:
        """Token ids of references that the learner is trained or measured on; stderr gets how many were cut."""
        from tellapart.utils.messages import say

        before, limit = self.learner.cut_texts, self.recipe.training.max_reference_tokens
        if self.recipe.trains == "scorer":
            rows, limit = self.trained_scorer.tokenize(texts), self.trained_scorer.window
        else:
            room = self.captioner.max_caption_tokens
            if room is not None and limit is not None and limit > room:
                raise UsageError(
                    f"training.max_reference_tokens is {limit}, and {self.learner.name} has room for {room} tokens; "
                    "lower it, or leave it out"
                )
            limit = room if limit is None else limit
            rows = self.captioner.tokenize(texts, limit)
        if cut := self.learner.cut_texts - before:
            say(f"{cut:,} of {len(texts):,} {what} are longer than {limit} tokens and are cut there{self._more_room()}")
        return rows

    def _more_room(self) -> str:
        """What to type so that less of the references is cut, where something can be typed."""
        captioner = self.recipe.captioner
        if self.recipe.training.max_reference_tokens is not None:
            return "; raise training.max_reference_tokens to learn more of them"
        if captioner is not None and captioner.new is not None and captioner.new.kind == "clipcap":
            return "; raise captioner.new.max_tokens to learn more of them"
        return ""

    def visual(self, items: list[Item]) -> Rows:
        """What the learner looks at: pixels where a vision encoder learns, else its view, an array or like one."""
        if self.reads_pixels and self._keeps_nothing:
            return StreamedRows(items, self.pixels.maker())
        if self.reads_pixels:
            return self.store.rows(items, self.pixels.maker())
        return self.view.rows(items)

    # The objective
    def objective(self) -> Objective[Any]:
        return build_objective(self.recipe.objective, self)


def _check_references(items: Sequence[Item], specs: str | tuple[str, ...], why: str) -> None:
    if bare := [item.id for item in items if not item.references]:
        raise UsageError(f"{specs}: {len(bare)} of {len(items)} pictures have no reference, such as {bare[0]}; {why}")


def open_specs(specs: str | tuple[str, ...]) -> Dataset:
    return open_many([specs] if isinstance(specs, str) else specs)


def build_scorer(new: NewScorer, texts: Iterable[str], name: str) -> Scorer:
    """A dual encoder of transformers with random weights: a ResNet and a CLIP text tower."""
    from transformers import (
        CLIPImageProcessorPil,
        CLIPTextConfig,
        VisionTextDualEncoderConfig,
        VisionTextDualEncoderModel,
    )

    tokenizer = word_tokenizer(texts, min_count=new.min_count, max_length=new.max_tokens)
    text = CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=new.text_width,
        intermediate_size=4 * new.text_width,
        num_hidden_layers=new.text_layers,
        num_attention_heads=new.text_heads,
        max_position_embeddings=new.max_tokens,
        attention_dropout=new.dropout,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    vision = grid_resnet_config(new.width, new.depth, stem_pooling=new.stem_pooling)
    config = VisionTextDualEncoderConfig.from_vision_text_configs(vision, text, projection_dim=new.projection)
    size = {"height": new.image_size, "width": new.image_size}
    processor = CLIPImageProcessorPil(size=size, do_center_crop=False)
    return Scorer(VisionTextDualEncoderModel(config), tokenizer, processor, name)


def build_captioner(new: NewCaptioner, texts: Iterable[str], vision_of: Scorer, name: str) -> ClipCap:
    """A ClipCap with a small new GPT-2, behind the vision tower of ``vision_of`` (its weights are copied)."""
    from transformers import GPT2Config

    tokenizer = word_tokenizer(texts, min_count=new.min_count, max_length=new.max_tokens, sentences=new.sentences)
    text = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=new.max_tokens,
        n_embd=new.width,
        n_layer=new.layers,
        n_head=new.heads,
        resid_pdrop=new.dropout,
        embd_pdrop=new.dropout,
        attn_pdrop=new.dropout,
        activation_function="gelu_pytorch_tanh",  # GPT-2's own, in one fused kernel
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    tower: Any = getattr(vision_of.model, "vision_model", None)
    if tower is None:
        raise UsageError(f"{vision_of.name} has no vision tower to copy; name another with captioner.new.vision")
    config = ClipCapConfig(
        vision_config=tower.config,
        text_config=text,
        visual=new.visual,
        mapper=new.mapper,
        prefix_length=new.prefix_length,
    )
    model = ClipCapModel(config)
    with torch.no_grad():
        model.vision.load_state_dict(tower.state_dict())
    made = ClipCap(model, tokenizer, vision_of.processor, name)
    # The frozen encoder, in eval mode: a probe in train mode would change the running statistics of a batch norm.
    if new.visual == "cells" and made.encoder.encode(made.pixels([Image.new("RGB", (64, 64))])).ndim != 3:
        raise UsageError(f"{vision_of.name} gives no features of cells; leave out captioner.new.visual")
    return made


def build_recurrent(
    new: NewRecurrent, texts: Iterable[str], name: str, vision: Any = None, processor: Any = None, width: int = 0
) -> Recurrent:
    """Paper 4's captioner with a new LSTM, behind a copy of ``vision``, or behind features of ``width`` numbers."""
    tokenizer = word_tokenizer(texts, min_count=new.min_count)
    if vision is not None:
        width = getattr(vision.config, "hidden_size", None) or vision.config.hidden_sizes[-1]
    config = RecurrentConfig(
        vision_config=None if vision is None else vision.config,
        visual_size=width,
        attention=new.attention,
        vocab_size=len(tokenizer),
        hidden_size=new.width,
        dropout=new.dropout,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = RecurrentModel(config)
    if vision is not None:
        with torch.no_grad():
            model.vision.load_state_dict(vision.state_dict())
    return Recurrent(model, tokenizer, processor, name)
