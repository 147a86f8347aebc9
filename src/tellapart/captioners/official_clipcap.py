"""Builds a ClipCap from the weights that its authors published."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tellapart.captioners.clipcap import ClipCap
from tellapart.captioners.new_clipcap import CLIP, GPT2, NO_VISION, build_clipcap
from tellapart.captioners.published_weights import State, load_weights
from tellapart.errors import TellapartError
from tellapart.models.renamed_weights import renamed
from tellapart.utils.messages import say

READS = ("clip_project.model.0.weight", "clip_project.linear.weight")  # the input layer of each mapper
NAMES = ((r"^clip_project\.", "mapper."), (r"^gpt\.", "language_model."))  # to the names in `ClipCapModel`
STRAY = r"language_model\..*\.attn\.(bias|masked_bias)$"


def clipcap_from_state(
    state: State, path: Path, vision: str = CLIP, language_model: str = GPT2, stop: str | None = None
) -> ClipCap:
    """Builds a ClipCap from its weights (mapper and language model) and the names of its two base models.

    If ``vision`` is "none", the captioner has no encoder and reads features from files, such as features from CLIP
    RN50x4 (width 640).

    ClipCap is trained without an end token, and its decoding stops at any token that contains ".". The default
    ``stop`` is therefore "." if the tokenizer has such tokens.
    """
    settings = mapper_settings(state, path)
    if vision == NO_VISION:
        settings["feature_size"] = next(state[key].shape[1] for key in READS if key in state)
    captioner = build_clipcap(vision, language_model, str(path), weights=False, **settings)
    pair = f"vision={vision} and language_model={language_model}"
    load_weights(captioner.model, renamed(state, NAMES), path, STRAY, pair, skip="vision.")
    if stop is None:
        stop = "." if any("." in token for token in captioner.tokenizer.get_vocab()) else ""
    captioner.chosen = {"stop": stop}
    captioner.set_stop(stop)
    return captioner


def bare_clipcap(state: State, path: Path) -> State:
    """Strips the prefix of nested weights (``clipcap.*``, ``sender.clipcap.*``), which leaves ClipCap's own names.

    Skips and reports all other weights (such as a game's scorer and picture encoder). Raises `TellapartError` if the
    file contains LoRA matrices, because it does not contain their scale.
    """
    if (lora := next((key for key in state if ".lora_" in key), None)) is not None:
        raise TellapartError(
            f"{path} contains LoRA matrices ({lora}) without the base weights; expected a checkpoint saved after "
            "merging, or the folder of a PEFT adapter"
        )
    prefix = min({key.partition("clip_project.")[0] for key in state if "clip_project." in key} - {""}, default="")
    if left := sorted(key for key in state if not key.startswith(prefix)):
        say(f"{path}: ignored {len(left)} entries outside {prefix}* (first: {left[0]})")
    return {key.removeprefix(prefix): weights for key, weights in state.items() if key.startswith(prefix)}


def mapper_settings(state: State, path: Path) -> dict[str, Any]:
    """Infers the mapper's type and sizes (`ClipCapConfig` settings) from the shapes of the weights."""
    words = next(
        (state[key] for key in state if re.search(r"^gpt\..*(wte|embed_tokens|word_embeddings)\.weight$", key)), None
    )
    if words is None:
        raise TellapartError(f"{path} contains no language model (gpt.*); expected a complete ClipCap checkpoint")
    width = words.shape[1]
    if "clip_project.prefix_const" in state:
        layers = {key.split(".")[3] for key in state if key.startswith("clip_project.transformer.layers.")}
        constants = state["clip_project.linear.weight"].shape[0] // width
        length = state["clip_project.prefix_const"].shape[0]
        sizes = {"prefix_length": length, "mapper_layers": len(layers), "mapper_constants": constants}
        return {"mapper": "transformer", **sizes}
    if "clip_project.model.2.weight" in state:
        return {"mapper": "mlp", "prefix_length": state["clip_project.model.2.weight"].shape[0] // width}
    raise TellapartError(f"{path} has an unknown kind of mapper; expected ClipCap's MLP or transformer mapper")
