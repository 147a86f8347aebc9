"""Loads the authors' published checkpoints: ClipCap's ``.pt`` and BLIP's ``.pth`` (also used by SMILE).

Also loads checkpoints of paper 2's and paper 3's code, whose weights are nested under a game (``sender.clipcap.*``).
These files contain only weights. Options after the file name supply the rest: ``coco_weights.pt?vision=NAME`` and
``language_model=NAME`` for ClipCap; ``tokenizer=NAME``, ``image_size=N`` and ``prompt=TEXT`` for BLIP.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file

from tellapart.captioners.blip import Blip
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.clipcap import FILES, ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.load import CAPTIONERS, CaptionerEntry, parse_options
from tellapart.errors import TellapartError, UsageError
from tellapart.models.clip_resnet import ClipResNet, clip_resnet_from_state
from tellapart.models.names import check_name
from tellapart.models.saved import loading_errors
from tellapart.utils.messages import say

State = dict[str, torch.Tensor]
PARTS = {"vision": str, "language_model": str, "mapper": str, "prefix_length": int, "stop": str}
CLIP, GPT2, BERT = "openai/clip-vit-base-patch32", "gpt2", "bert-base-uncased"
OPEN_CLIP = "open_clip_model.safetensors"  # file name in the hub folders of open_clip and timm models
NO_VISION = "none"  # used instead of the name of a vision encoder
READS = ("clip_project.model.0.weight", "clip_project.linear.weight")  # the input layer of each mapper
HEAD_WIDTH = 64  # width of every attention head in BLIP's vision transformers


def open_official(name: str, written: str) -> Captioner:
    """Loads the captioner ``FILE.pt``, ``.pth``, ``.tar`` or ``clipcap``; ``written``: its options."""
    if name == "clipcap":
        return build_clipcap(**new_clipcap(written))
    return load_official(Path(name).expanduser(), lambda known: parse_options(written, known, name))


def new_clipcap(written: str) -> dict[str, Any]:
    """Returns the arguments of a new ClipCap. Raises `UsageError` for an unknown mapper."""
    parts = {"vision": CLIP, "language_model": GPT2, "mapper": "mlp"} | parse_options(written, PARTS, "clipcap")
    if parts["mapper"] not in ("mlp", "transformer"):
        raise UsageError(f"clipcap: mapper must be 'mlp' or 'transformer'; got '{parts['mapper']}'")
    return {**parts, "name": "clipcap"}


def load_official(path: Path, options: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Captioner:
    """Loads a published checkpoint. ``options(known)`` parses the options after the file name.

    Skips keys that are not weights of the captioner and lists them on stderr. Raises `TellapartError` if the file
    contains something else or its shapes do not match the named models.
    """
    state = bare_clipcap(read_state(path), path)
    if any(key.startswith("clip_project.") for key in state):
        return clipcap_from_state(state, path, **options({"vision": str, "language_model": str, "stop": str}))
    if any(key.startswith("text_decoder.") for key in state):
        return blip_from_state(state, path, **options({"tokenizer": str, "image_size": int, "prompt": str}))
    some = ", ".join(list(state)[:3]) or "none"
    raise TellapartError(
        f"{path} is not a captioner's checkpoint: its weights are named {some}; expected ClipCap's "
        "(clip_project.*, gpt.*) or BLIP's (visual_encoder.*, text_decoder.*)"
    )


class EggCheckpoint(NamedTuple):
    """Stands in for the class that EGG's trainer pickles into a ``.tar``, as in DiscriTune's published weights."""

    epoch: Any
    model_state_dict: Any
    optimizer_state_dict: Any = None
    optimizer_scheduler_state_dict: Any = None


def read_state(path: Path) -> State:
    """Reads the weights in a file, top-level or under ``model``, ``state_dict`` or ``model_state_dict``.

    The only pickled class that is allowed is EGG's tuple, by its name (`EggCheckpoint`).
    """
    if path.suffix == ".safetensors":
        with loading_errors(str(path), "a safetensors checkpoint"):
            return load_file(path)
    if is_program(path):
        raise TellapartError(
            f"{path} is a TorchScript program, as OpenAI distributes CLIP; expected only weights; "
            'if you trust it, run: python -c "import torch; torch.save(torch.jit.load('
            f"'{path}', map_location='cpu').state_dict(), '{path.stem}-weights.pt')\""
        )
    known: list[Any] = [(EggCheckpoint, "egg.core.callbacks.Checkpoint"), (EggCheckpoint, "egg.core.util.Checkpoint")]
    try:
        with torch.serialization.safe_globals(known):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise UsageError(f"checkpoint {path} does not exist; expected a .pt, .pth or .tar file") from None
    except (UnpicklingError, RuntimeError, EOFError, OSError, TypeError) as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        cause = f"it contains {named[1]}" if named else plain_line(error)
        raise TellapartError(f"cannot load {path}: {cause}; expected a checkpoint that contains only tensors") from None
    if isinstance(content, EggCheckpoint):
        content = content.model_state_dict
    for key in ("model", "state_dict", "model_state_dict"):
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not all(isinstance(value, torch.Tensor) for value in content.values()):
        raise TellapartError(f"{path} contains no named weights; expected a checkpoint of ClipCap or BLIP")
    return {str(key).removeprefix("module."): value for key, value in content.items()}


def is_program(path: Path) -> bool:
    """Returns whether a file is TorchScript, which contains code as well as weights."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.endswith("/constants.pkl") for name in archive.namelist())


def plain_line(error: Exception) -> str:
    """Returns the first line of an error message without torch's escape codes, or the error's class if it is empty."""
    first = next(iter(str(error).strip().splitlines()), "")
    return re.sub(r"\x1b\[[0-9;]*m", "", first)[:160].strip() or type(error).__name__


# ClipCap


def clipcap_from_state(
    state: State, path: Path, vision: str = CLIP, language_model: str = GPT2, stop: str | None = None
) -> ClipCap:
    """Builds a ClipCap from its weights (mapper and language model) and the names of its two base models.

    With ``vision`` "none", there is no encoder, and features are read from files, such as CLIP RN50x4's (width 640).

    ClipCap's training adds no end token to captions, and its decoding stops at any token that contains "."; this is the
    default ``stop`` if the tokenizer has such tokens.
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
    """Strips the prefix of nested weights (``clipcap.*``, ``sender.clipcap.*``) to get ClipCap's own names.

    Skips and lists other weights (a game's scorer, its picture encoder). Raises `TellapartError` for LoRA matrices
    because such a file does not contain their scale.
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
        say(f"{path}: ignored {len(left)} entries outside {prefix}*, such as {left[0]}")
    return {key.removeprefix(prefix): weights for key, weights in state.items() if key.startswith(prefix)}


def clipcap_names(state: State) -> State:
    """Renames the weights to the names in `ClipCapModel`."""
    return {
        re.sub(r"^clip_project\.", "mapper.", re.sub(r"^gpt\.", "language_model.", key)): weights
        for key, weights in state.items()
    }


def mapper_settings(state: State, path: Path) -> tuple[str, dict[str, Any]]:
    """Infers the type and the sizes of the mapper (`ClipCapConfig` settings) from the weights' shapes."""
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
    raise TellapartError(f"{path} has an unknown kind of mapper; expected ClipCap's MLP or its transformer")


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

    ``weights``: whether to load the language model's weights; False creates only its architecture. The mapper's
    initialization is deterministic.
    """
    check_name(language_model, "language model")
    tower, visual, processor = None, FILES, None
    if vision != NO_VISION:
        with loading_errors(vision, "a CLIP or SigLIP with an image processor"):
            tower, visual, processor = vision_tower(vision)
    elif not sizes.get("feature_size"):
        raise UsageError("a new ClipCap requires an encoder: vision=NAME; 'none' is only for published weights")
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
    """Loads CLIP's ResNet and its processor from a file of CLIP weights or an open_clip folder; returns None for other
    names. Raises `TellapartError` if the file contains something else.
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
    """Returns a vision encoder with its weights, the output to use (`ClipCapConfig.visual`), and its processor."""
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


# BLIP

BLIP_NAMES = (  # maps the vision transformer's names to transformers' names; the text decoder's are the same
    (r"^visual_encoder\.cls_token$", "vision_model.embeddings.class_embedding"),
    (r"^visual_encoder\.pos_embed$", "vision_model.embeddings.position_embedding"),
    (r"^visual_encoder\.patch_embed\.proj\.", "vision_model.embeddings.patch_embedding."),
    (r"^visual_encoder\.norm\.", "vision_model.post_layernorm."),
    (r"^visual_encoder\.blocks\.(\d+)\.norm([12])\.", r"vision_model.encoder.layers.\1.layer_norm\2."),
    (r"^visual_encoder\.blocks\.(\d+)\.attn\.qkv\.", r"vision_model.encoder.layers.\1.self_attn.qkv."),
    (r"^visual_encoder\.blocks\.(\d+)\.attn\.proj\.", r"vision_model.encoder.layers.\1.self_attn.projection."),
    (r"^visual_encoder\.blocks\.(\d+)\.mlp\.", r"vision_model.encoder.layers.\1.mlp."),
)
# Keys of pre-training checkpoints that retrieval and matching need but captioning does not.
BLIP_STRAY = (
    r"(text_encoder|vision_proj|text_proj|itm_head|visual_encoder_m|text_encoder_m|vision_proj_m|text_proj_m)\."
    r"|(image_queue|text_queue|queue_ptr|ptr_queue|temp)$|text_decoder\.bert\.embeddings\.position_ids$"
)


def blip_from_state(
    state: State, path: Path, tokenizer: str = BERT, image_size: int | None = None, prompt: str = "a picture of "
) -> Blip:
    """Builds a BLIP from its weights. ``image_size``: overrides the side and interpolates the position embeddings."""
    state = dict(state)
    try:
        config = blip_config(state, image_size)
    except KeyError as error:
        raise TellapartError(f"{path} lacks {error.args[0]}; expected a complete BLIP checkpoint") from None
    place = "visual_encoder.pos_embed"
    vision = config.vision_config
    state[place] = resize_position_embeddings(state[place], vision.image_size // vision.patch_size)
    check_name(tokenizer, "tokenizer")
    with loading_errors(tokenizer, "BERT's tokenizer, such as bert-base-uncased"):
        words = transformers.AutoTokenizer.from_pretrained(tokenizer, trust_remote_code=False)
    add_blip_tokens(words)
    if len(words) != config.text_config.vocab_size:
        raise TellapartError(
            f"{path} has {config.text_config.vocab_size} tokens, but {tokenizer} has {len(words)}; pass the "
            f"tokenizer that it was trained with: {path}?tokenizer=NAME"
        )
    ids = {"bos": words.convert_tokens_to_ids("[DEC]"), "sep": words.sep_token_id, "pad": words.pad_token_id}
    for name, value in ids.items():
        setattr(config.text_config, f"{name}_token_id", value)
    config.text_config.eos_token_id = words.sep_token_id
    model = transformers.BlipForConditionalGeneration(config)
    load_weights(model, blip_names(state), path, BLIP_STRAY, f"tokenizer={tokenizer}")
    size = {"height": vision.image_size, "width": vision.image_size}
    captioner = Blip(model.eval(), words, transformers.BlipImageProcessorPil(size=size), str(path), prompt)
    captioner.chosen = {"prompt": prompt}
    return captioner


def blip_names(state: State) -> State:
    """Renames the weights to transformers' names; the text decoder has the same names in both."""
    renamed: State = {}
    for key, tensor in state.items():
        for old, new in BLIP_NAMES:
            key = re.sub(old, new, key)
        renamed[key] = tensor
    return renamed


def blip_config(state: State, image_size: int | None) -> Any:
    """Infers the sizes of a BLIP from its shapes. Its layer norms use 1e-6; transformers defaults to 1e-5."""
    patches, words = state["visual_encoder.patch_embed.proj.weight"], "text_decoder.bert.embeddings"
    width, patch = patches.shape[0], patches.shape[-1]
    side = int((state["visual_encoder.pos_embed"].shape[1] - 1) ** 0.5) * patch
    vocabulary, text_width = state[f"{words}.word_embeddings.weight"].shape
    vision = {
        "hidden_size": width,
        "intermediate_size": state["visual_encoder.blocks.0.mlp.fc1.weight"].shape[0],
        "num_hidden_layers": count_layers(state, r"visual_encoder\.blocks\.(\d+)\."),
        "num_attention_heads": max(1, width // HEAD_WIDTH),
        "image_size": image_size or side,
        "patch_size": patch,
        "layer_norm_eps": 1e-6,
    }
    text = {
        "vocab_size": vocabulary,
        "hidden_size": text_width,
        "encoder_hidden_size": width,
        "intermediate_size": state["text_decoder.bert.encoder.layer.0.intermediate.dense.weight"].shape[0],
        "num_hidden_layers": count_layers(state, r"text_decoder\.bert\.encoder\.layer\.(\d+)\."),
        "num_attention_heads": max(1, text_width // HEAD_WIDTH),
        "max_position_embeddings": state[f"{words}.position_embeddings.weight"].shape[0],
    }
    return transformers.BlipConfig(text_config=text, vision_config=vision)


def count_layers(state: State, pattern: str) -> int:
    return len({match[1] for key in state if (match := re.match(pattern, key))})


def resize_position_embeddings(places_1PD: torch.Tensor, side: int) -> torch.Tensor:
    """Interpolates position embeddings to side×side patches: bicubic, class token unchanged, as in BLIP."""
    old = int((places_1PD.shape[1] - 1) ** 0.5)
    if old == side:
        return places_1PD
    grid = places_1PD[:, 1:].unflatten(1, (old, old)).permute(0, 3, 1, 2)
    grid = F.interpolate(grid, size=(side, side), mode="bicubic", align_corners=False)
    return torch.cat([places_1PD[:, :1], grid.permute(0, 2, 3, 1).flatten(1, 2)], dim=1)


def add_blip_tokens(words: Any) -> None:
    """Adds BLIP's two tokens to BERT's: one that starts captions, and one that only its text encoder uses."""
    if "[DEC]" not in words.get_vocab():
        words.add_special_tokens({"bos_token": "[DEC]"})
        words.add_tokens(["[ENC]"], special_tokens=True)


# Both


def load_weights(model: Any, state: State, path: Path, stray: str, named: str, skip: str = "\0") -> None:
    """Loads all weights into the model, except names that start with ``skip``.

    Skips and lists keys that match ``stray``. Raises `TellapartError` for missing or unknown keys and for mismatched
    shapes; the message mentions ``named``.
    """
    left = sorted(key for key in state if re.match(stray, key))
    expected = {key: tensor for key, tensor in model.state_dict().items() if not key.startswith(skip)}
    given = {key: tensor for key, tensor in state.items() if key not in left}
    tied = {key for key in expected if key not in given and is_tied(expected, given, key)}
    for what, keys in (("lacks", expected.keys() - given.keys() - tied), ("also has", given.keys() - expected.keys())):
        if keys:
            raise TellapartError(f"{path} {what} {len(keys)} weights such as {min(keys)}; it does not fit {named}")
    for key, tensor in given.items():
        if tensor.shape != expected[key].shape:
            raise TellapartError(
                f"{path} does not fit {named}: {key} is {tuple(tensor.shape)}, expected {tuple(expected[key].shape)}"
            )
    model.load_state_dict({key: tensor.float() for key, tensor in given.items()}, strict=False)
    model.tie_weights()
    if left:
        say(f"{path}: ignored {len(left)} entries that are not weights of the captioner, such as {left[0]}")


def is_tied(expected: State, given: State, key: str) -> bool:
    """Returns whether ``key`` is tied to another tensor in the checkpoint; tied weights are needed only once."""
    return any(
        other in given and expected[other].data_ptr() == expected[key].data_ptr() for other in expected if other != key
    )


CAPTIONERS.register(
    CaptionerEntry(
        name="official",
        factory=open_official,
        help="A checkpoint in the format of its authors.",
        takes=r"(?s:.*)\.(pth?|tar)|clipcap",
    )
)
