"""Builds a ClipCap captioner, either from the weights that its authors published or with a new mapper."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import transformers

from tellapart.captioners.clipcap import FILES, ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.published_weights import State, load_weights, plain_line, read_state
from tellapart.errors import TellapartError, UsageError
from tellapart.models.clip_resnet import ClipResNet, clip_resnet_from_state
from tellapart.models.names import check_name
from tellapart.models.saved import loading_errors
from tellapart.utils.messages import say

CLIP, GPT2 = "openai/clip-vit-base-patch32", "gpt2"
OPEN_CLIP = "open_clip_model.safetensors"  # file name in the hub folders of open_clip and timm models
NO_VISION = "none"  # value of ``vision`` for a ClipCap without a vision encoder
READS = ("clip_project.model.0.weight", "clip_project.linear.weight")  # the input layer of each mapper


def clipcap_from_state(
    state: State, path: Path, vision: str = CLIP, language_model: str = GPT2, stop: str | None = None
) -> ClipCap:
    """Builds a ClipCap from its weights (mapper and language model) and the names of its two base models.

    If ``vision`` is "none", the captioner has no encoder and reads features from files, such as features from CLIP
    RN50x4 (width 640).

    ClipCap is trained without an end token, and its decoding stops at any token that contains ".". The default
    ``stop`` is therefore "." if the tokenizer has such tokens.
    """
    mapper, settings = mapper_settings(state, path)
    if vision == NO_VISION:
        settings["feature_size"] = next(state[key].shape[1] for key in READS if key in state)
    captioner = build_clipcap(vision, language_model, str(path), mapper=mapper, weights=False, **settings)
    stray = r"language_model\..*\.attn\.(bias|masked_bias)$"
    pair = f"vision={vision} and language_model={language_model}"
    load_weights(captioner.model, clipcap_names(state), path, stray, pair, skip="vision.")
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
    if not (prefixes := {key.partition("clip_project.")[0] for key in state if "clip_project." in key} - {""}):
        return state
    prefix = min(prefixes)
    left = sorted(key for key in state if not key.startswith(prefix))
    if left:
        say(f"{path}: ignored {len(left)} entries outside {prefix}* (first: {left[0]})")
    return {key.removeprefix(prefix): weights for key, weights in state.items() if key.startswith(prefix)}


def clipcap_names(state: State) -> State:
    """Renames the weights to the names in `ClipCapModel`."""
    return {
        re.sub(r"^clip_project\.", "mapper.", re.sub(r"^gpt\.", "language_model.", key)): weights
        for key, weights in state.items()
    }


def mapper_settings(state: State, path: Path) -> tuple[str, dict[str, Any]]:
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
        sizes = {"mapper_layers": len(layers), "mapper_constants": constants}
        return "transformer", {"prefix_length": state["clip_project.prefix_const"].shape[0], **sizes}
    if "clip_project.model.2.weight" in state:
        return "mlp", {"prefix_length": state["clip_project.model.2.weight"].shape[0] // width}
    raise TellapartError(f"{path} has an unknown kind of mapper; expected ClipCap's MLP or transformer mapper")


def build_clipcap(
    vision: str,
    language_model: str,
    name: str,
    *,
    mapper: str = "mlp",
    prefix_length: int = 10,
    weights: bool = True,
    stop: str = "",
    **sizes: int,
) -> ClipCap:
    """Builds a ClipCap with a new mapper between any CLIP or SigLIP encoder and any causal language model.

    The mapper's initialization is deterministic. ``weights``: whether to load the language model's weights; False
    creates a language model with random weights.
    """
    check_name(language_model, "language model")
    tower, visual, processor = None, FILES, None
    if vision != NO_VISION:
        with loading_errors(vision, "a CLIP or SigLIP with an image processor"):
            tower, visual, processor = vision_tower(vision)
    elif not sizes.get("feature_size"):
        raise UsageError("a new ClipCap requires a vision encoder, but vision is 'none'; set vision=NAME")
    with loading_errors(language_model, "a causal language model with its tokenizer, such as gpt2"):
        text_config = transformers.AutoConfig.from_pretrained(language_model, trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(language_model, trust_remote_code=False)
        config = ClipCapConfig(
            tower and tower.config, text_config, visual, mapper, prefix_length=prefix_length, **sizes
        )  # fmt: skip
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model: Any = ClipCapModel(config)
        if weights:
            model.language_model = transformers.AutoModelForCausalLM.from_pretrained(
                language_model, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
            )
    if tower is not None:
        model.vision.load_state_dict(tower.state_dict())
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    captioner = ClipCap(model.eval(), tokenizer, processor, name)
    captioner.chosen = {"stop": stop} if stop else {}
    captioner.set_stop(stop)
    return captioner


def published_resnet(name: str) -> tuple[ClipResNet, Any] | None:
    """Loads CLIP's ResNet and its processor from a file of CLIP weights or an open_clip folder.

    Returns None for all other names. Raises `TellapartError` if the file does not contain a CLIP ResNet.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        path /= OPEN_CLIP
    if path.suffix not in (".pt", ".pth", ".safetensors") or not path.is_file():
        return None
    try:
        model = clip_resnet_from_state(read_state(path))
    except (KeyError, RuntimeError) as error:
        raise TellapartError(
            f"{path} does not contain a CLIP ResNet ({plain_line(error)}); expected weights under OpenAI's names "
            "(visual.conv1.weight, …, visual.attnpool.c_proj.weight)"
        ) from None
    side = model.config.image_size
    crop = {"height": side, "width": side}
    return model, transformers.CLIPImageProcessorPil(size={"shortest_edge": side}, crop_size=crop)


def vision_tower(name: str) -> tuple[Any, str, Any]:
    """Returns a vision encoder with its weights, the output to use (`ClipCapConfig.visual`), and the processor."""
    if (resnet := published_resnet(name)) is not None:
        return resnet[0], "pooled", resnet[1]
    check_name(name, "CLIP or SigLIP")
    processor = transformers.AutoImageProcessor.from_pretrained(name, backend="pil", trust_remote_code=False)
    config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False)
    loading: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True}
    vision = getattr(config, "vision_config", config)
    family: Any = transformers.AutoModel
    visual = "pooled"
    if config.model_type in ("clip", "clip_vision_model"):
        vision.projection_dim = config.projection_dim  # from the full CLIP; the vision config may contain a default
        family, visual = transformers.CLIPVisionModelWithProjection, "projected"
    loudness = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()  # hide the warning about the unused text tower
    try:
        tower = family.from_pretrained(name, config=vision, trust_remote_code=False, **loading)
        return tower, visual, processor
    finally:
        transformers.utils.logging.set_verbosity(loudness)
