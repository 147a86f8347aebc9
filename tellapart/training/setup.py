"""From a recipe to the parts of its run: learner, data, objective, validation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from tellapart.captioners import Captioner, generate_captions, load_captioner
from tellapart.data import open_many
from tellapart.data.dataset import Dataset
from tellapart.errors import MissingExtra, UsageError, nearest
from tellapart.evaluation.retrieval import CandidateSets, lookalike_sets, random_pools, retrieve
from tellapart.features.store import FeatureStore
from tellapart.features.views import View, make_view
from tellapart.metrics.cider import cider_d
from tellapart.metrics.lexical import length, repetition_rate
from tellapart.models.device import best_device
from tellapart.models.plugins import check_allowed, code_path
from tellapart.models.protocols import FrozenScorer
from tellapart.objectives.base import Objective
from tellapart.objectives.mle import mle_of_references
from tellapart.objectives.registry import OBJECTIVES, build_objective
from tellapart.recipe.schema import Recipe
from tellapart.scorers import Scorer, load_scorer
from tellapart.training.batches import TrainingSet
from tellapart.training.pixels import TrainingPixels
from tellapart.training.run_folder import Run
from tellapart.training.samplers import sampler_of
from tellapart.types import Item
from tellapart.utils.rng import ItemSeeds


class TrainingSetup:
    """The parts of one run, each made when it is first asked for. ``upstream`` finds (or trains) named models."""

    def __init__(self, recipe: Recipe, upstream: Callable[[str], str]) -> None:
        self.recipe, self.upstream, self.store = recipe, upstream, FeatureStore()
        self.judges: list[Scorer] = []
        self.device = best_device()
        check_trackers(recipe.training.trackers)
        check_code(recipe)
        if (check := OBJECTIVES.find(recipe.objective.kind).check) is not None:
            check(recipe.objective)
        for reward in recipe.objective.reward_options:
            if "references" in reward.needs():
                self.check_references(f"reward '{reward.kind}' compares captions with references")

    def autocast(self) -> torch.autocast:
        """Mixed precision as the recipe says. Not accelerate's: its state is one for the whole process."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.training.bf16)

    # The models
    def load(self) -> tuple[Any, Scorer | None]:
        """The learner and the scorer, made now. Raises where a name is no model's."""
        return self.learner, self.scorer

    @cached_property
    def scorer(self) -> Scorer | None:
        """The frozen scorer of rewards and validation; None in a run that needs none."""
        named = self.recipe.scorer
        if self.recipe.trains == "scorer" or named is None or named.name is None:
            return None
        return self.load_scorer(named.name)

    def load_scorer(self, name: str) -> Scorer:
        """A frozen scorer of this run. `cut_lines` reports the captions that it truncated."""
        self.judges.append(load_scorer(self.upstream(name), self.device))
        return self.judges[-1]

    def cut_lines(self) -> list[str]:
        """What was longer than a scorer's window in training: captions are judged by what fits."""
        return [
            f"{scorer.cut_texts:,} captions were longer than the window of {scorer.window} tokens of {scorer.name}; it "
            "judged what fits"
            for scorer in self.judges
            if scorer.cut_texts
        ]

    @cached_property
    def learner(self) -> Any:
        """The model in training, with the weights it starts from."""
        torch.manual_seed(self.recipe.seed)
        if self.recipe.trains == "scorer":
            return self._scorer_in_training()
        assert self.recipe.captioner is not None
        if self.recipe.captioner.name is not None:
            captioner = self._adapted(self.start())
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

    def _new(self, described: Any) -> Captioner:
        """A captioner with random weights behind somebody's vision encoder, or behind features from files."""
        from tellapart.captioners.load import load_vision
        from tellapart.features.files import FeatureFiles
        from tellapart.training.new_models import build_captioner, build_recurrent

        new, name = described.new, self.recipe.name
        if new.kind == "clipcap":
            return build_captioner(new, self._texts(), load_scorer(self.upstream(new.vision)), name)
        if new.vision is not None:
            return build_recurrent(new, self._texts(), name, *load_vision(self.upstream(new.vision)))
        width = FeatureFiles(described.features).width(self.train_data)
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

    def start(self) -> Captioner:
        """A fresh copy of the captioner that this run starts from, dropout off."""
        assert self.recipe.captioner is not None and self.recipe.captioner.name is not None
        return self._with_frames(load_captioner(self.upstream(self.recipe.captioner.name), self.device))

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
        from tellapart.training.new_models import build_scorer

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
        return self._parts_of(self.learner)

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

    def check_references(self, why: str) -> None:
        """Raises `UsageError` where a training picture has no reference."""
        if bare := [item.id for item in self.train_data if not item.references]:
            raise UsageError(
                f"{self.recipe.data.train}: {len(bare)} of {len(self.train_data)} pictures have no reference, "
                f"such as {bare[0]}; {why}"
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
            items = self.store.readable(dataset, self.pixels.maker(), skipped=dataset.unreadable)
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
        return self.view_of(self.learner)

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
        """Token ids of references that the learner is taught, or measured by; how many were cut is told on stderr."""
        from tellapart.utils.messages import say

        before = self.learner.cut_texts
        if self.recipe.trains == "scorer":
            rows, limit = self.learner.tokenize(texts), self.learner.window
        else:
            room, limit = self.learner.max_caption_tokens, self.recipe.training.max_reference_tokens
            if room is not None and limit is not None and limit > room:
                raise UsageError(
                    f"training.max_reference_tokens is {limit}, and {self.learner.name} has room for {room} tokens; "
                    "lower it, or leave it out"
                )
            limit = room if limit is None else limit
            rows = self.learner.tokenize(texts, limit)
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

    def visual(self, items: list[Item]) -> Any:
        """What the learner looks at: pixels where a vision encoder learns, else its view, an array or like one."""
        if self.reads_pixels:
            return self.store.rows(items, self.pixels.maker())
        return self.view.rows(items)

    # The objective
    def objective(self) -> Objective[Any]:
        return build_objective(self.recipe.objective, self)

    # Validation
    def validate(self) -> dict[str, float]:
        """How good the learner is on the validation pictures, with dropout off."""
        self.learner.model.eval()
        with torch.no_grad():
            values = self._validate_scorer() if self.recipe.trains == "scorer" else self._validate_captioner()
        self.learner.model.train()
        return values

    def _validate_captioner(self) -> dict[str, float]:
        values: dict[str, float] = {}
        visual: Any = self._validation_pictures
        if self.reads_pixels:
            visual = self._encode_pixels(visual, self.learner.encode)
        if self.recipe.objective.learns_references or self.recipe.validation.select == "loss":
            values["loss"] = self._validation_loss(visual)
        seeds = ItemSeeds(tuple(item.id for item in self.validation_items), self.recipe.seed)
        texts = generate_captions(self.learner, visual, self.recipe.validation.decoding, seeds=seeds)
        references = [list(item.references) for item in self.validation_items]
        if self.recipe.validation.select == "cider" or all(references):  # what telling apart costs: see the report
            values["cider"] = 100 * cider_d(texts, references)[0]
        values["length"], values["repetition_rate"] = length(texts, [])[0], repetition_rate(texts, [])[0]
        if self.scorer is not None:
            texts_ND = self.scorer.text_features(texts).cpu().numpy()
            values |= self._recalls(texts_ND, self._validation_features, self._validation_lookalikes)
        return values

    @cached_property
    def _validation_pictures(self) -> Any:
        return self.visual(self.validation_items)

    @cached_property
    def _validation_rows(self) -> list[list[int]]:
        """Tokens of the first reference of each validation picture."""
        return self.tokenize([item.references[0] for item in self.validation_items], "validation references")

    @cached_property
    def _validation_features(self) -> np.ndarray:
        """The frozen scorer's view of the validation pictures."""
        assert self.scorer is not None
        return np.asarray(self.store.features(self.validation_items, self.scorer.encoder))

    @cached_property
    def _validation_lookalikes(self) -> CandidateSets:
        return lookalike_sets(self._validation_features, self.recipe.evaluation.lookalike)

    def _encode_pixels(self, pixels: np.ndarray, encode: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        blocks = (pixels[start : start + 100] for start in range(0, len(pixels), 100))
        return torch.cat([encode(self.pixels.tensor(rows)).float() for rows in blocks])

    def _validation_loss(self, visual: np.ndarray | torch.Tensor) -> float:
        """Mean negative log-likelihood of a token of the first references, in nats."""
        rows = self._validation_rows
        total, tokens = 0.0, 0
        for start in range(0, len(rows), 100):
            tokens_RT, valid_RT = (x.to(self.device) for x in self.learner.pad(rows[start : start + 100]))
            block = torch.as_tensor(visual[start : start + 100]).to(self.device)
            loss, count = mle_of_references(self.learner, block, tokens_RT, valid_RT), int(valid_RT.sum())
            total, tokens = total + float(loss) * count, tokens + count
        return total / tokens

    def _validate_scorer(self) -> dict[str, float]:
        """R@1 of the references themselves, mean over the first five."""
        items = self.validation_items
        images_ND = self._encode_pixels(self._validation_pictures, self.learner.image_features).cpu().numpy()
        lookalikes = lookalike_sets(images_ND, self.recipe.evaluation.lookalike)
        count = min(5, min(len(item.references) for item in items))
        recalls = []
        for k in range(count):
            texts_ND = self.learner.text_features([item.references[k] for item in items]).cpu().numpy()
            recalls.append(self._recalls(texts_ND, images_ND, lookalikes))
        return {key: float(np.mean([recall[key] for recall in recalls])) for key in recalls[0]}

    def _recalls(self, texts_ND: np.ndarray, images_ND: np.ndarray, lookalikes: CandidateSets) -> dict[str, float]:
        pools = random_pools(len(images_ND), self._pool_size)
        return {
            key: 100 * retrieve(sets, texts_ND, images_ND).recall(1)
            for key, sets in ((f"recall@1.random{self._pool_size}", pools), ("recall@1.lookalike", lookalikes))
        }

    @property
    def _pool_size(self) -> int:
        """Pictures in a random pool of validation: a hundred, or all where there are fewer."""
        return min(100, len(self.validation_items))

    @property
    def select(self) -> str:
        """The key of the validation value that chooses the checkpoint; it names the size of the pool as it is."""
        select = self.recipe.validation.select
        return f"recall@1.random{self._pool_size}" if select == "recall@1.random100" else select

    # What a person sees
    @contextlib.contextmanager
    def bar(self, label: str, total: int, done: int) -> Iterator[Callable[[str], None]]:
        """The progress of training. What it yields is called after each step, with what to show beside the count."""
        from tellapart.progress import Progress

        with Progress(total, f"{label} {self.recipe.name}", done=done) as progress:

            def advance(note: str) -> None:
                progress.note = note
                progress.advance()

            yield advance

    @contextlib.contextmanager
    def trackers(self, run: Run) -> Iterator[Callable[[dict[str, float], int], None]]:
        """accelerate's trackers, where the recipe names some; they write into the run's folder."""
        from accelerate import Accelerator

        if not self.recipe.training.trackers:
            yield lambda logs, step: None
            return
        accelerator = Accelerator(log_with=list(self.recipe.training.trackers), project_dir=str(run.folder))
        accelerator.init_trackers(self.recipe.name)
        yield lambda logs, step: accelerator.log(logs, step=step)
        accelerator.end_training()


def check_code(recipe: Recipe) -> None:
    """Before anything is loaded or trained: the models that are a user's own code are allowed to run."""
    captioner = recipe.captioner.name if recipe.captioner else None
    if captioner and (path := code_path(captioner.partition("?")[0], "captioner")) is not None:
        check_allowed(path, "captioner", f"recipe {recipe.name}: captioner.name")
    for key, name in recipe.scorers():
        if (path := code_path(name, "scorer")) is not None:
            check_allowed(path, "scorer", f"recipe {recipe.name}: {key}")


def check_trackers(names: Sequence[str]) -> None:
    """Before any training: a tracker that is unknown or not installed would be left out without a word."""
    from accelerate.tracking import get_available_trackers
    from accelerate.utils import LoggerType

    known = [str(kind.value) for kind in LoggerType if kind != LoggerType.ALL]
    installed = {str(kind.value) for kind in get_available_trackers()}
    for name in names:
        if name not in known:
            raise UsageError(f"training.trackers: unknown tracker '{name}'{nearest(name, known)}")
        if name not in installed:
            if name == "tensorboard":
                raise MissingExtra("tensorboard", "the tracker 'tensorboard'")
            raise UsageError(f"training.trackers: '{name}' is not installed; type: pip install {name}")


def open_specs(specs: str | tuple[str, ...]) -> Dataset:
    return open_many([specs] if isinstance(specs, str) else specs)
