"""The model that a run trains, with its initial weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from tellapart.captioners import Captioner, load_captioner
from tellapart.captioners.lora import add_lora
from tellapart.captioners.modify import enable_gradient_checkpointing, set_dropout
from tellapart.captioners.new_words import add_words
from tellapart.captioners.vision_encoders import load_vision
from tellapart.errors import UsageError
from tellapart.features.feature_files import FeatureFiles
from tellapart.models.saved_options import Levels
from tellapart.recipe.schema import CaptionerOptions, NewCaptioner, NewScorer, Recipe
from tellapart.scorers import Scorer, load_scorer
from tellapart.scorers.parts import PartsScorer, load_text, make_parts_scorer
from tellapart.training.new_models import build_captioner, build_recurrent, build_scorer
from tellapart.training.sources import RunSources
from tellapart.utils.messages import say


def build_learner(sources: RunSources) -> Captioner | Scorer:
    """Loads or creates the model to train. Raises `UsageError` if a name is not a model."""
    recipe = sources.recipe
    torch.manual_seed(recipe.seed)
    if recipe.trains == "scorer":
        assert recipe.scorer is not None
        if recipe.scorer.name is not None:
            scorer = load_scorer(sources.upstream(recipe.scorer.name), sources.device)
        else:
            assert recipe.scorer.new is not None
            scorer = new_scorer(sources, recipe.scorer.new)
            scorer.model.to(sources.device)
        if isinstance(scorer, PartsScorer):
            scorer.model.requires_grad_(False)  # `TrainableParts` unfreezes the parts to train
            scorer.kept_texts, scorer.text_rows = {}, sources.store.table
        elif recipe.scorer.train is not None:
            raise UsageError(
                f"scorer.train requires a scorer built from two encoders, which {scorer.name} is not; remove "
                "scorer.train"
            )
        return scorer
    assert recipe.captioner is not None
    if recipe.captioner.name is not None:
        captioner = adapted(sources, load_start(sources))
    else:
        captioner = with_frames(recipe.captioner, new_captioner(sources, recipe.captioner))
        captioner.model.to(sources.device)
    captioner.levels = checked_levels(captioner, recipe.objective.levels())
    if recipe.training.gradient_checkpointing:
        enable_gradient_checkpointing(captioner)
    return captioner


def checked_levels(captioner: Captioner, levels: Levels) -> Levels:
    """Validates the levels of detail and returns them.

    Raises `UsageError` if the captioner does not know a word in a prompt, or cannot distinguish two prompts.
    """
    known: dict[tuple[int, ...], str] = {}
    for _, prompt in levels:
        captioner.with_prompt(prompt)
        ids = tuple(captioner.tokenizer(prompt, add_special_tokens=False)["input_ids"]) if prompt else ()
        if captioner.tokenizer.unk_token_id in ids:
            raise UsageError(
                f"objective.detail: {captioner.name} does not know all words in the prompt '{prompt}'; use words "
                "from its vocabulary"
            )
        if (same := known.setdefault(ids, prompt)) != prompt:
            raise UsageError(
                f"objective.detail: {captioner.name} cannot distinguish the prompts '{prompt}' and '{same}'; use "
                "other prompts"
            )
    return levels


def load_start(sources: RunSources) -> Captioner:
    """Loads the captioner that the recipe names, in fp32."""
    options = sources.recipe.captioner
    assert options is not None and options.name is not None
    return with_frames(options, load_captioner(sources.upstream(options.name), sources.device, "fp32"))


def with_frames(options: CaptionerOptions, captioner: Captioner) -> Captioner:
    """Sets the captioner's frames per clip from the recipe, and returns the captioner."""
    if options.frames is not None:
        captioner.frames = options.frames
    if captioner.frames > 1 and "vision" in (options.train or ()):
        raise UsageError(
            f"captioner.train contains 'vision', but the captioner reads {captioner.frames} frames per clip, and "
            "vision encoders can only be trained on single pictures; remove 'vision'"
        )
    return captioner


def adapted(sources: RunSources, captioner: Captioner) -> Captioner:
    """Adds new words, dropout and LoRA to the captioner as specified in the recipe, and returns the captioner."""
    options = sources.recipe.captioner
    assert options is not None
    if options.dropout is not None:
        set_dropout(captioner, options.dropout)
    if options.new_words is not None:
        say(f"{add_words(captioner, training_texts(sources), options.new_words):,} new words")
    if options.lora is not None:
        torch.manual_seed(sources.recipe.seed)
    return with_lora(sources.recipe, captioner)


def with_lora(recipe: Recipe, captioner: Captioner) -> Captioner:
    """Adds LoRA to the captioner as specified in the recipe, and returns the captioner."""
    if recipe.captioner is not None and recipe.captioner.lora is not None:
        parts = [part for part in parts_of(recipe, captioner) if part != "mapper"]
        add_lora(captioner, parts, **recipe.captioner.lora.model_dump())
    return captioner


def parts_of(recipe: Recipe, captioner: Captioner) -> tuple[str, ...]:
    """Returns the names of the captioner's parts that the recipe trains."""
    assert recipe.captioner is not None
    return recipe.captioner.train or tuple(part for part in captioner.parts() if part != "vision")


def training_texts(sources: RunSources) -> Iterator[str]:
    return (text for item in sources.train_data for text in item.references)


def new_captioner(sources: RunSources, options: CaptionerOptions) -> Captioner:
    """Creates a captioner with random weights on top of a vision encoder or of features from files."""
    new, texts, name = options.new, training_texts(sources), sources.recipe.name
    assert new is not None
    if isinstance(new, NewCaptioner):
        captioner = build_captioner(new, texts, *load_vision(sources.upstream(new.vision)), name)
        return with_lora(sources.recipe, captioner)
    if new.vision is not None:
        return build_recurrent(new, texts, name, *load_vision(sources.upstream(new.vision)))
    assert options.features is not None, "[captioner] is required; unreachable, because the recipe's schema checks this"
    return build_recurrent(new, texts, name, width=FeatureFiles.open(options.features).width(sources.train_data))


def new_scorer(sources: RunSources, new: NewScorer) -> Scorer:
    """Creates a scorer, either from two pretrained encoders with new heads or entirely with random weights."""
    if new.vision is None or new.text is None:
        return build_scorer(new, training_texts(sources), sources.recipe.name)
    vision, text = load_vision(sources.upstream(new.vision)), load_text(sources.upstream(new.text))
    kept = ("visual", "grid", "pooling", "hidden", "dropout")
    settings = {key: getattr(new, key) for key in kept}
    return make_parts_scorer(vision, text, sources.recipe.name, projection_dim=new.projection, **settings)
