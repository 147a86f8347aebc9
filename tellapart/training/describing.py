"""How ``finetune`` gets descriptions out of a captioner, for the objective ``truthful-self-retrieval``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tellapart.captioners.layouts import DETAIL, LAYOUTS
from tellapart.captioners.load import read_config
from tellapart.captioners.registry import CAPTIONERS
from tellapart.objectives.presets import PRESETS
from tellapart.recipe.reading import read_recipe

LONG = 100  # tokens of a description
SAMPLES = 8  # captions that stand for a description, where a captioner knows no prompt for one
# People choose among many true words, so none is as sure as in the embedded world (docs/flickr8k.md).
PHOTOS = {"confidence": 0.35, "candidates": 60, "speaker": 0.0058, "likelihood": 0.0, "noun": ""}


def describing_keys(model: str, *, photos: bool, max_tokens: int) -> dict[str, Any]:
    """Keys of [objective] of ``self_distillation`` that fit this captioner, and photos or the embedded world.

    A captioner that describes when it is asked is asked; of another one several samples are the description.
    """
    keys: dict[str, Any] = {**PHOTOS, "decoding": {"kind": "greedy", "max_tokens": LONG}} if photos else {}
    prompt = describing_prompt(model)
    if not prompt:
        keys["decoding"] = {"kind": "sample", "samples": SAMPLES, "max_tokens": max_tokens}
    return {**keys, "prompt": prompt}


def describing_prompt(model: str) -> str:
    """The prompt under which a captioner describes a picture in full; "" where it knows none.

    A run's is that of its recipe, or of what it started from; models that follow instructions are asked by their
    family's (`layouts`).
    """
    name = model.partition("?")[0]
    if name == "scenes":
        return str(PRESETS["truthful-self-retrieval"]["prompt"])
    recipe_file = Path(name).expanduser() / "recipe.toml"
    if recipe_file.is_file():
        recipe = read_recipe(recipe_file)
        start = recipe.captioner.name if recipe.captioner is not None else None
        return str(getattr(recipe.objective, "prompt", "")) or (describing_prompt(start) if start else "")
    kind = getattr(read_config(name), "model_type", "")
    if kind in LAYOUTS:
        return LAYOUTS[kind].describe
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as VISION_LANGUAGE

    return DETAIL if kind in VISION_LANGUAGE and kind not in CAPTIONERS else ""
