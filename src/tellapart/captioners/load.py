"""Loads captioners by name: families of transformers, published checkpoints, adapters, a user's own.

Changes a loaded one in place: adds words, and LoRA (Hu et al. 2021) on its parts (paper 2's SR-L, SR-V, SR-LV).
"""

from __future__ import annotations

import functools
import inspect
import json
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from PIL import Image
from torch import nn

from tellapart.captioners.base import CAPTIONERS, Captioner, decode_rows, saved_decoding
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.models.loading import (
    OPTIONS_FILE,
    Decoding,
    Levels,
    checked_model_folder,
    decoding_in,
    dtype_of,
    is_server,
    levels_in,
    load_whole,
    loading_errors,
    prompt_of_detail,
    resolve_device,
    resolve_precision,
    saved_options,
    set_precision,
)
from tellapart.models.tokens import with_new_words
from tellapart.types import Rollout, pad_rows
from tellapart.utils.files import check_sums, parse_json, write_sums
from tellapart.utils.registry import LazyModule, call_factory, code_path
from tellapart.utils.rng import ItemSeeds

if TYPE_CHECKING:
    import transformers
    from transformers import pytorch_utils
    from transformers.models.auto import modeling_auto

    from tellapart.captioners import text_only
else:
    transformers = LazyModule("transformers")
    modeling_auto = LazyModule("transformers.models.auto.modeling_auto")
    pytorch_utils = LazyModule("transformers.pytorch_utils")
    text_only = LazyModule("tellapart.captioners.text_only")

STOP: Mapping[str, Callable[[str], Any]] = {"stop": str}  # the option that every family has
DETAIL: Mapping[str, Callable[[str], Any]] = {"detail": float}  # of those that were trained for several amounts


def load_captioner(name: str, device: str | torch.device = "auto", precision: str = "auto") -> Captioner:
    """Loads a captioner from a folder, a run, a hub name, or ``scenes`` (ships with the package).

    Options may follow the name: ``Salesforce/blip-image-captioning-base?prompt=a picture of``; a saved captioner
    remembers its own. With ``stop=.`` captions also end with any token whose text contains ".". The folder of a PEFT
    adapter is merged into its base, which ``base_model`` names where it lies elsewhere. ``FILE.pt`` and ``FILE.pth``
    are published checkpoints (`official`), ``clipcap?vision=NAME&language_model=NAME`` is one with a new mapper,
    ``package.module:make?key=value`` one of the user's own (`load_custom`), which runs where the command line,
    `tellapart.utils.registry.allow_code` or an installed entry point names it. Else safetensors only.

    ``device``: ``auto`` is the accelerator where there is one. ``precision``: ``auto`` is ``bf16`` where that device
    multiplies in it, else ``fp32``; weights below ``fp32`` are for inference and take no gradient, so name ``fp32`` for
    a captioner that is to be trained. A captioner of the user's own keeps the precision that it was made in unless one
    is named.

    Raises `TellapartError` with the line to type where there is no such model, `UsageError` for options that it does
    not have, and for a device or precision that this machine does not have.
    """
    import tellapart.captioners.clipcap
    import tellapart.captioners.recurrent
    import tellapart.models.vision  # noqa: F401  (all register their classes with transformers)

    if is_server(name):
        raise UsageError(
            f"{name.partition('@')[0]} is behind a server, which writes captions ('tellapart caption', 'tellapart eval "
            "--captioner') and has no weights here; name a captioner of this machine"
        )
    device = resolve_device(device)
    chosen, bare, written = resolve_precision(precision, device), *name.partition("?")[::2]
    if (made := load_without_folder(bare, written)) is not None:
        if precision != "auto" or code_path(bare, "captioner") is None:
            set_precision(made.model, chosen)
        made.model.eval().to(device)
        return made
    folder = Path(bare).expanduser()
    if (settings := adapter_settings(folder)) is not None:
        return load_adapted(name, folder, settings, written, device, precision)
    where = checked_model_folder(bare, "captioner")
    if (maker := saved_options(where).get("made_by")) is not None:
        if written:
            raise UsageError(f"{bare} was saved by a captioner of its own, with its options; leave '?{written}' out")
        made = load_custom(str(maker), {}, where)
        if precision != "auto":
            set_precision(made.model, chosen)
        made.model.eval().to(device)
        made.decoding = decoding_in(saved_options(where))
        return made
    with loading_errors(bare, "a captioner: a folder or hub name with config.json and safetensors"):
        kind = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False).model_type
        if (found := load_family(kind, where)) is not None:
            model, family = found
            set_precision(model, chosen)
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
            pictures = family.reads_pictures(model)
            processor = (
                transformers.AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)
                if pictures
                else None
            )
        else:
            model, family, tokenizer, processor = load_generic(where, kind, bare, dtype_of(chosen))
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    saved = saved_options(where, from_hub=True)
    decoding, levels = decoding_in(saved), levels_in(saved, bare)
    typed = with_detail(parse_options(written, {**family.options, **STOP, **DETAIL}, bare), levels, bare)
    options = {key: value for key, value in saved.items() if key not in ("decoding", "detail")} | typed
    model.requires_grad_(chosen == "fp32").eval().to(device)
    with loading_errors(bare, "a processor that fits the model"):
        own = {key: value for key, value in options.items() if key not in STOP}
        captioner = family(model, tokenizer, processor, str(name), **own)
        check_fit(captioner)
    captioner.chosen, captioner.decoding, captioner.levels = options, decoding, levels
    captioner.set_stop(options.get("stop", ""))
    return captioner


def load_adapted(
    name: str, folder: Path, settings: dict[str, Any], written: str, device: torch.device, precision: str
) -> Captioner:
    """The base of a PEFT adapter with the adapter merged in. ``written``: its options, and those of its base."""
    check_sums(folder)
    pairs = [pair for pair in written.split("&") if pair]
    named = [pair.partition("=")[2] for pair in pairs if pair.startswith("base_model=")]
    base = base_of_adapter(folder, settings, parse_value(named[-1]) if named else None)
    rest = "&".join(pair for pair in pairs if not pair.startswith("base_model="))
    try:
        captioner = load_captioner(f"{base}?{rest}" if rest else base, device, precision)
    except TellapartError as error:
        elsewhere = f"if it lies elsewhere, type '{folder}?base_model=PLACE'"
        raise type(error)(f"{folder} is an adapter of {base}: {error}; {elsewhere}") from None
    merge_adapter(captioner.model, folder)
    captioner.name = name
    return captioner


def load_without_folder(name: str, written: str) -> Captioner | None:
    """A captioner that no folder of transformers holds: a published checkpoint, a new ClipCap, a user's own."""
    from tellapart.captioners import official

    if name.endswith(official.ENDINGS):
        return official.load_official(Path(name).expanduser(), lambda known: parse_options(written, known, name))
    if name == "clipcap":
        return official.build_clipcap(**new_clipcap(written))
    if (path := code_path(name, "captioner")) is not None:
        return load_custom(path, dict(pair.split("=", 1) for pair in written.split("&") if "=" in pair))
    return None


def new_clipcap(written: str) -> dict[str, Any]:
    """Returns what a ClipCap is to be made of. Raises `UsageError` for a mapper that there is not."""
    from tellapart.captioners import official

    parts = {"vision": official.CLIP, "language_model": official.GPT2, "mapper": "mlp"}
    parts |= parse_options(written, official.PARTS, "clipcap")
    if parts["mapper"] not in ("mlp", "transformer"):
        raise UsageError(f"clipcap: mapper is 'mlp' or 'transformer'; found '{parts['mapper']}'")
    return {**parts, "name": "clipcap"}


def load_generic(where: str, kind: str, name: str, dtype: torch.dtype) -> tuple[Any, type[Captioner], Any, Any]:
    """A model of any other family that `AutoModelForImageTextToText` loads, with its tokenizer and whole processor."""
    from tellapart.captioners.transformers import Hf, whole_processor

    if kind not in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return (*language_model(where, kind, name, dtype), None)
    model = load_whole(transformers.AutoModelForImageTextToText, where, dtype=dtype)
    whole = whole_processor(where, model.config)
    return model, Hf, whole.tokenizer, whole


def language_model(where: str, kind: str, name: str, dtype: torch.dtype) -> tuple[Any, type[Captioner], Any]:
    """A causal language model without pictures, with its tokenizer. Raises `TellapartError` where it is none."""
    if kind not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise TellapartError(f"{name} is a {kind} model, which is not a supported captioner{nearest(kind, CAPTIONERS)}")
    model = load_whole(transformers.AutoModelForCausalLM, where, dtype=dtype)
    return model, text_only.TextOnly, transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)


def parse_options(written: str, known: Mapping[str, Callable[[str], Any]], name: str) -> dict[str, Any]:
    """``key=value&key=value`` as options that are ``known``; see `quoted`. Raises `UsageError` for others."""
    options: dict[str, Any] = {}
    for pair in filter(None, written.split("&")):
        key, equals, value = pair.partition("=")
        if key == "detail" and key not in known:
            prompt_of_detail((), 0.0, name)
        if key not in known or not equals:
            raise UsageError(
                f"{name}: no option '{pair}'{nearest(key, known) if known else '; this captioner has none'}"
            )
        try:
            options[key] = known[key](parse_value(value))
        except ValueError:
            raise UsageError(f"{name}: {key} is a number; found '{value}'") from None
    return options


def with_detail(typed: dict[str, Any], levels: Levels, name: str) -> dict[str, Any]:
    """The options with the prompt of the level in place of ``detail``. Raises `UsageError` where both are named."""
    if "detail" not in typed:
        return typed
    if "prompt" in typed:
        raise UsageError(f"{name}: a prompt and detail are named, and detail chooses the prompt; leave one of them out")
    rest = {key: value for key, value in typed.items() if key != "detail"}
    prompt = prompt_of_detail(levels, typed["detail"], name)
    return rest | ({"prompt": prompt} if prompt else {})


def parse_value(written: str) -> str:
    """The value that `quoted` wrote."""
    return written.replace("%26", "&").replace("%25", "%")


def quoted(value: str) -> str:
    """The value of an option as it stands in a captioner's name."""
    return value.replace("%", "%25").replace("&", "%26")


def load_vision(name: str) -> tuple[Any, Any]:
    """Any vision encoder of transformers, or that of a scorer, and its processor. Raises as `load_captioner`.

    ``NAME?pixels=192``: its processor makes pictures of 192 × 192; a CNN takes any number.
    """
    import tellapart.models.vision  # noqa: F401  (registers the vision tower of our own scorers)

    bare, _, written = name.partition("?")
    options = parse_options(written, {"pixels": int}, bare)
    where = checked_model_folder(bare, "scorer")
    with loading_errors(name, "a vision encoder such as microsoft/resnet-101, or a scorer"):
        model = transformers.AutoModel.from_pretrained(
            where, dtype=torch.float32, use_safetensors=True, trust_remote_code=False
        )
        processor = transformers.AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)
    vision = getattr(model, "vision_model", model)
    if (side := options.get("pixels")) is not None:
        processor.size, processor.do_center_crop = {"height": side, "width": side}, False
        if hasattr(vision.config, "image_size"):
            vision.config.image_size = side
    return vision, processor


def load_language_model(name: str) -> tuple[Any, Any]:
    """Loads any causal language model of transformers, in fp32, and its tokenizer. Raises as `load_captioner`."""
    where = checked_model_folder(name, "language model")
    with loading_errors(name, "a causal language model such as gpt2"):
        model = load_whole(transformers.AutoModelForCausalLM, where, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, tokenizer


def load_family(model_type: str, folder: str) -> tuple[Any, type[Captioner]] | None:
    """The model in a folder and the class of its captioner; None where no family is registered for its type."""
    if model_type not in CAPTIONERS or not (entry := CAPTIONERS.find(model_type)).model_type:
        return None
    loaded: tuple[Any, type[Captioner]] = entry.factory(folder)
    return loaded


CONFIG = {"model_type": "own"}  # a model's folder is known by its config.json


def load_custom(path: str, options: dict[str, Any], folder: str | None = None) -> Captioner:
    """Returns what ``path`` makes of ``options``. Its ``save`` also writes down who made it, so that the ``folder``
    loads again: then it is called with ``folder=FOLDER`` alone, if its code is allowed to run (`utils.registry`).
    Raises `UsageError` where it is not, or makes something else.
    """
    asks = f"captioner {path}" if folder is None else f"the model's folder {folder}"
    captioner = call_factory(path, "captioner", asks, options if folder is None else {"folder": folder})
    if not isinstance(captioner, Captioner):
        raise UsageError(
            f"captioner {path} made a {type(captioner).__name__}; expected a tellapart.captioners.Captioner"
        )
    captioner.save = saving_factory(captioner, path)  # type: ignore[method-assign, assignment]
    if "seeds" not in inspect.signature(captioner.generate).parameters:
        captioner.generate = generate_per_picture(captioner)  # type: ignore[method-assign]
    return captioner


def saving_factory(captioner: Captioner, path: str) -> Callable[[Path], None]:
    save: Callable[[Path], None] = captioner.save

    @functools.wraps(save)
    def save_and_remember(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save(folder)
        if not (folder / "config.json").is_file():
            (folder / "config.json").write_text(json.dumps(CONFIG) + "\n", encoding="utf-8")
        kept = {"made_by": path, **saved_decoding(captioner.decoding)}
        (folder / OPTIONS_FILE).write_text(json.dumps(kept) + "\n", encoding="utf-8")
        write_sums(folder)

    return save_and_remember


def generate_per_picture(captioner: Captioner) -> Callable[..., Rollout]:
    """A ``generate`` without ``seeds``, called picture by picture, with torch's own generator seeded for each."""
    generate: Callable[[torch.Tensor, Decoding], Rollout] = captioner.generate

    @functools.wraps(generate)
    def seeded(visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        if seeds is None or decoding.kind != "sample":
            return generate(visual, decoding)
        rows: list[list[int]] = []
        for place, uniform_1 in enumerate(seeds.uniform("tokens", 1)):
            with torch.random.fork_rng():
                torch.manual_seed(int(uniform_1 * 2**53))
                one = generate(visual[place : place + 1], decoding)
            rows += [row[valid].tolist() for row, valid in zip(one.tokens_RT, one.valid_RT, strict=True)]
        tokens_RT, valid_RT = (x.to(visual.device) for x in pad_rows(rows, captioner.tokenizer.pad_token_id))
        return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, captioner.tokenizer), decoding.samples)

    return seeded


def add_words(captioner: Captioner, texts: Iterable[str], min_count: int) -> int:
    """Give the captioner the words of ``texts`` that it lacks and that occur so often, in place; how many there are.

    A new word begins as the word for what is unknown, which it was read as before. Raises `UsageError` where the
    tokenizer or the language model is of a kind that cannot grow.
    """
    before = len(captioner.tokenizer)
    try:
        tokenizer = with_new_words(captioner.tokenizer, texts, min_count)
    except UsageError as error:
        raise UsageError(f"captioner.new_words: {captioner.name}: {error}") from None
    language_model: Any = captioner.parts()["language_model"]
    config = captioner.model.config
    if hasattr(language_model, "resize_token_embeddings"):
        language_model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
        tables = [language_model.get_input_embeddings(), language_model.get_output_embeddings()]
        config.text_config.vocab_size = len(tokenizer)
    else:
        tables = [resized(language_model.embed, len(tokenizer)), resized(language_model.head, len(tokenizer))]
        language_model.embed, language_model.head = tables
        config.vocab_size = len(tokenizer)
    unknown = tokenizer.unk_token_id
    with torch.no_grad():
        for table in tables:
            for rows in table.parameters():
                rows[before:] = rows[unknown]
    captioner.tokenizer = tokenizer
    return len(tokenizer) - before


def resized(table: nn.Embedding | nn.Linear, size: int) -> nn.Embedding | nn.Linear:
    """An embedding or an output layer with more rows; the old ones are as they were."""
    new: nn.Embedding | nn.Linear
    if isinstance(table, nn.Embedding):
        new = nn.Embedding(size, table.embedding_dim)
    else:
        new = nn.Linear(table.in_features, size)
    new.to(table.weight.device)
    with torch.no_grad():
        for rows, old in zip(new.parameters(), table.parameters(), strict=True):
            rows[: len(old)] = old
    return new


def check_fit(captioner: Captioner) -> None:
    """Raises `TellapartError` for a processor or a tokenizer that is not the model's own."""
    if captioner.processor is not None:
        check_pictures(captioner)
    check_tokens(captioner)
    prompt = getattr(captioner, "before", None)
    getattr(prompt, "of_blank", None)  # made once: a prompt that the processor refuses is an error now


def check_pictures(captioner: Captioner) -> None:
    """Raises `TellapartError` where the processor makes pictures of another size than the vision encoder reads."""
    config: Any = captioner.model.config
    side = getattr(getattr(config, "vision_config", None), "image_size", None)
    pixels = captioner.pixels([Image.new("RGB", (64, 48))])
    if isinstance(side, int) and pixels.ndim == 4 and tuple(pixels.shape[-2:]) != (side, side):
        found = f"{pixels.shape[-1]}×{pixels.shape[-2]}"
        raise TellapartError(
            f"{captioner.name}: its processor makes pictures of {found} pixels, and its vision encoder reads "
            f"{side}×{side}; expected the processor that the model was saved with (preprocessor_config.json)"
        )


def check_tokens(captioner: Captioner) -> None:
    """The language model has a word embedding for every token of the tokenizer, but for those of pictures."""
    places = set(getattr(captioner, "places", ()))
    highest = max(set(captioner.tokenizer.get_vocab().values()) - places, default=0)
    text = getattr(captioner.model.config, "text_config", captioner.model.config)
    rows = getattr(text, "vocab_size", None)
    if isinstance(rows, int) and highest >= rows:
        raise TellapartError(
            f"{captioner.name}: its tokenizer has {highest + 1:,} tokens and its language model {rows:,}; expected the "
            "tokenizer that the model was saved with"
        )


# Paper 2's program: attention of GPT-2; CLIP's vision without the output projection.
ATTENTION = ("c_attn", "attn.c_proj", "q_proj", "k_proj", "v_proj")
MODULES = (*ATTENTION, "fc1", "fc2")
ALL_LINEAR: Literal["all-linear"] = "all-linear"  # peft's own word


def add_lora(
    captioner: Captioner,
    parts: Sequence[str],
    *,
    rank: int = 32,
    alpha: int = 16,
    modules: Sequence[str] | Literal["all-linear"] = MODULES,
) -> None:
    """Puts ΔW = alpha/rank · B·A beside the ``modules`` of these ``parts``, in place: A ~ N(0, 1), B = 0, no dropout.

    ``modules``: how the names of layers end, or ``all-linear``, which is every linear layer but the output layer. The
    default names are those of paper 2's program; a part whose attention has other names (BLIP, GIT, T5, the vision
    encoders of Qwen-VL) is adapted in all its linear layers. B = 0, so nothing changes until it learns. The captioner's
    ``save`` writes merged weights from now on. Raises `UsageError` for a part that has no such layer.
    """
    from peft import LoraConfig, inject_adapter_in_model

    chosen = {part: target_layers(captioner, part, modules) for part in parts}  # before anything is changed
    for part, layers in chosen.items():
        module = captioner.parts()[part]
        transposed = any(type(layer).__name__ == "Conv1D" for layer in layers.values())  # GPT-2's linear layers
        settings = LoraConfig(r=rank, lora_alpha=alpha, target_modules=sorted(layers), fan_in_fan_out=transposed)
        inject_adapter_in_model(settings, module)
        for name, parameter in module.named_parameters():
            if ".lora_A." in name:
                torch.nn.init.normal_(parameter)  # peft's own "gaussian" is 1/rank of it
    check_output_layer(captioner)
    captioner.adapted = True


def set_dropout(captioner: Captioner, rate: float) -> None:
    """Sets the rate of every dropout layer of the language model. What is saved keeps its configuration.

    Raises `UsageError` for a language model that has no such layer.
    """
    modules = captioner.parts()["language_model"].modules()
    layers = [module for module in modules if isinstance(module, torch.nn.Dropout)]
    if not layers:
        raise UsageError(f"the language model of {captioner.name} has no dropout layers; leave captioner.dropout out")
    for layer in layers:
        layer.p = rate


def target_layers(
    captioner: Captioner, part: str, modules: Sequence[str] | Literal["all-linear"]
) -> dict[str, torch.nn.Module]:
    """The layers of a part that LoRA adapts, by their names within it. Raises `UsageError` where there is none."""
    module = captioner.parts()[part]
    if modules == ALL_LINEAR:
        return linear_layers(captioner, part)
    layers = {name: layer for name, layer in module.named_modules() if not list(layer.children())}
    if tuple(modules) == MODULES and not ending_in(layers, ATTENTION):
        return linear_layers(captioner, part)
    if found := ending_in(layers, modules):
        return found
    ends = sorted({name.rpartition(".")[2] for name in layers})
    raise UsageError(
        f"captioner.lora.modules: no layer of {part} of {captioner.name} is called {', '.join(modules)}; "
        f"its layers' names end in {', '.join(ends)}; name some of these, or set captioner.lora.modules = 'all-linear'"
    )


def check_output_layer(captioner: Captioner) -> None:
    """Raises `UsageError` where LoRA stands beside the output layer and `Captioner.head` reads its weights past it."""
    from peft.tuners.lora import LoraLayer

    head = captioner.head()
    for name, layer in captioner.model.named_modules():
        if isinstance(layer, LoraLayer) and head is not None and layer.get_base_layer().weight is head[0]:
            raise UsageError(
                f"captioner.lora.modules: {name} is the output layer of {captioner.name}, whose weights are read past "
                "LoRA, so that it would not learn; leave it out of the modules, or train the part in full"
            )


def ending_in(layers: dict[str, torch.nn.Module], endings: Sequence[str]) -> dict[str, torch.nn.Module]:
    dotted = tuple(f".{ending}" for ending in endings)
    return {name: layer for name, layer in layers.items() if f".{name}".endswith(dotted)}


def linear_layers(captioner: Captioner, part: str) -> dict[str, torch.nn.Module]:
    """Every linear layer of a part but the output layer, whose weights are read past LoRA, and but those that
    `torch.nn.MultiheadAttention` reads in the same way."""
    module, output = captioner.parts()[part], output_weight(captioner)
    attentions = [name for name, each in module.named_modules() if isinstance(each, torch.nn.MultiheadAttention)]
    layers: dict[str, torch.nn.Module] = {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, torch.nn.Linear | pytorch_utils.Conv1D)
        and layer.weight is not output
        and name.rpartition(".")[0] not in attentions
    }
    if not layers:
        raise UsageError(
            f"{part} of {captioner.name} has no linear layer that LoRA could adapt (only its output layer, if any); "
            "train it in full: leave [captioner.lora] or --lora out"
        )
    return layers


def output_weight(captioner: Captioner) -> torch.Tensor | None:
    """The weights V×H of the layer that scores words."""
    if (head := captioner.head()) is not None:
        return head[0]
    layer_of = getattr(captioner.model, "get_output_embeddings", None)
    return getattr(layer_of() if layer_of else None, "weight", None)


def enable_gradient_checkpointing(captioner: Captioner) -> None:
    """The language model keeps the states between its blocks alone, and computes the others again for the gradient.

    Raises `UsageError` for a language model that cannot.
    """
    language_model: Any = captioner.parts()["language_model"]
    if not getattr(language_model, "supports_gradient_checkpointing", False):
        raise UsageError(
            f"training.gradient_checkpointing: the language model of {captioner.name} "
            f"({type(language_model).__name__}) cannot; leave it out, or set training.gradient_accumulation_steps"
        )
    # Renamed within transformers 5; the older name goes with 6.
    enable = getattr(language_model, "activation_checkpointing_enable", language_model.gradient_checkpointing_enable)
    enable({"use_reentrant": False})


ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def adapter_settings(folder: Path) -> dict[str, Any] | None:
    """The configuration of a PEFT adapter that lies in ``folder``, without its base; None where there is none."""
    if not (folder / ADAPTER).is_file() or (folder / "config.json").is_file():
        return None
    settings = parse_json((folder / ADAPTER).read_text(encoding="utf-8"))
    if not isinstance(settings, dict) or not isinstance(settings.get("base_model_name_or_path"), str | None):
        raise TellapartError(f"{folder / ADAPTER}: not the configuration of an adapter as PEFT saves it")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise TellapartError(f"{folder} holds no {ADAPTER_WEIGHTS}; expected an adapter that PEFT or TRL saved")
    if settings.get("megatron_config"):
        raise TellapartError(f"{folder / ADAPTER} is of Megatron's layers, which are not loaded here")
    return settings


def base_of_adapter(folder: Path, settings: dict[str, Any], named: str | None) -> str:
    """The captioner that the adapter changes: the one ``named``, else the one that its configuration names."""
    base = named or settings.get("base_model_name_or_path")
    if not base:
        raise UsageError(f"{folder} is an adapter that names no base; type '{folder}?base_model=NAME'")
    if (Path(base).expanduser() / ADAPTER).is_file() and not (Path(base).expanduser() / "config.json").is_file():
        raise UsageError(f"{folder} is an adapter of {base}, which is an adapter itself; expected a whole captioner")
    return str(base)


def merge_adapter(model: torch.nn.Module, folder: Path) -> None:
    """Merge a PEFT adapter into ``model``, in place. Raises `TellapartError` where the two do not fit together."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    wants_gradient = [parameter.requires_grad for parameter in model.parameters()]
    with loading_errors(str(folder), "an adapter whose weights fit its base"):
        with safe_open(folder / ADAPTER_WEIGHTS, "pt") as file:
            given = set(file.keys())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Found missing adapter keys")  # an error below
            adapted: Any = PeftModel.from_pretrained(model, str(folder))
        wanted = set(get_peft_model_state_dict(adapted, save_embedding_layers=False))
        stray = given - wanted - set(adapted.state_dict())
        for what, keys in (("lacks", wanted - given), ("also has", stray)):
            if keys:
                kind = type(model).__name__
                raise TellapartError(
                    f"{folder} {what} {len(keys)} weights of an adapter of this {kind} ({min(keys)}, …)"
                )
        if not hasattr(adapted.base_model, "merge_and_unload"):
            raise TellapartError(f"{folder}: a {adapted.peft_config['default'].peft_type} adapter cannot be merged")
        adapted.merge_and_unload()
    for parameter, wants in zip(model.parameters(), wants_gradient, strict=True):
        parameter.requires_grad_(wants)
