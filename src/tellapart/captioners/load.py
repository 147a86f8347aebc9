"""Loads a captioner by name.

A name refers to a transformers model, a published checkpoint, an adapter, or a user-defined captioner; options follow
as ``NAME?key=value``.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from PIL import Image

from tellapart.captioners.adapters import (
    ADAPTER,
    adapter_settings,
    base_of_adapter,
    merge_adapter,
    tokenizer_of_adapter,
)
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.decoding import decode_rows
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.models.captioner_options import (
    OPTIONS_FILE,
    Levels,
    decoding_in,
    levels_in,
    prompt_of_detail,
    saved_decoding,
    saved_options,
)
from tellapart.models.decoding import Decoding
from tellapart.models.devices import resolve_device
from tellapart.models.names import is_server
from tellapart.models.padding import pad_rows
from tellapart.models.precision import Precision, dtype_of, resolve_precision, set_precision
from tellapart.models.saved import checked_model_folder, loading_errors
from tellapart.types import Rollout
from tellapart.utils.allowed_code import call_factory, code_path
from tellapart.utils.checksums import check_sums, write_sums
from tellapart.utils.registry import Entry, Registry
from tellapart.utils.rng import ItemSeeds


@dataclass(frozen=True, kw_only=True)
class CaptionerEntry(Entry[Callable[..., Any]]):
    """Registry entry for a captioner family.

    With ``model_type``, ``factory(folder) -> (model, captioner class)`` loads any model folder of that type. With
    ``takes``, a pattern that matches whole names, ``factory(name, options as typed) -> Captioner`` loads these names.
    Otherwise ``factory(**options) -> Captioner`` gets the options from ``NAME?key=value``. The entry ``transformers``
    loads model folders whose type has no entry: ``factory(folder, type, name, dtype)``.
    """

    model_type: bool = False
    takes: str = ""


# Modules of this package register a family under the ``model_type`` of its ``config.json``. Installed packages add
# families or other captioners through an entry point in the group.
CAPTIONERS: Registry[CaptionerEntry] = Registry(
    "captioner", CaptionerEntry, group="tellapart.captioners", packages=("tellapart.captioners",)
)


STOP: Mapping[str, Callable[[str], Any]] = {"stop": str}  # option of every family
DETAIL: Mapping[str, Callable[[str], Any]] = {"detail": float}  # option of captioners with levels of detail


def load_captioner(
    name: str, device: str | torch.device = "auto", precision: str = "auto", adapter: Path | None = None
) -> Captioner:
    """Loads a captioner from a folder, a run, a hub name, or ``scenes`` (included in the package).

    Options may follow the name: ``Salesforce/blip-image-captioning-base?prompt=a picture of``. Saved captioners
    remember their options. With ``stop=.``, captions also end with any token whose text contains ".". The folder of a
    PEFT adapter loads its base and merges the adapter; ``base_model`` overrides the location of the base. ``FILE.pt``
    and ``FILE.pth`` are published checkpoints (`official`). ``clipcap?vision=NAME&language_model=NAME`` builds a
    ClipCap with a new mapper. ``package.module:make?key=value`` is user code (`load_custom`), which runs only if the
    command line, `tellapart.utils.allowed_code.allow_code` or an installed entry point names it. Everything else loads
    safetensors only.

    adapter: folder of a PEFT adapter to merge; it may contain a tokenizer with additional tokens.
    device: ``auto`` selects an accelerator if there is one.
    precision: ``auto`` selects ``bf16`` if the device supports it, otherwise ``fp32``. Weights below ``fp32`` are for
        inference only and take no gradient, so pass ``fp32`` for training. User-defined captioners keep their own
        precision unless one is given.

    Raises `TellapartError`, with the command to run, if the model does not exist, and `UsageError` for unknown options
    and for a device or precision that this machine does not support.
    """
    if is_server(name):
        raise UsageError(
            f"{name.partition('@')[0]} runs on a server and has no local weights; it works with 'tellapart "
            "caption' and 'tellapart eval --captioner' only, so use a local captioner here"
        )
    device = resolve_device(device)
    chosen, bare, written = resolve_precision(precision, device), *name.partition("?")[::2]
    if (custom := load_without_folder(bare, written)) is not None:
        if precision != "auto" or code_path(bare, "captioner") is None:
            set_precision(custom.model, chosen)
        if adapter is not None:
            merge_adapter(custom.model, adapter)
        custom.model.eval().to(device)
        return custom
    folder = Path(bare).expanduser()
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        return load_adapted(name, folder, written, device, precision)
    where = checked_model_folder(bare, "captioner")
    if (maker := saved_options(where).get("made_by")) is not None:
        if written:
            raise UsageError(f"{bare} was saved with its options by a custom captioner; remove '?{written}'")
        custom = load_custom(str(maker), {}, where)
        if precision != "auto":
            set_precision(custom.model, chosen)
        if adapter is not None:
            merge_adapter(custom.model, adapter)
        custom.model.eval().to(device)
        custom.decoding = decoding_in(saved_options(where))
        return custom
    model, family, tokenizer, processor = load_parts(where, bare, chosen, adapter)
    saved = saved_options(where, from_hub=True)
    decoding, levels = decoding_in(saved), levels_in(saved, bare)
    typed = with_detail(parse_options(written, {**family.options, **STOP, **DETAIL}, bare), levels, bare)
    options = {key: value for key, value in saved.items() if key not in ("decoding", "detail")} | typed
    model.requires_grad_(chosen == "fp32").eval().to(device)
    with loading_errors(bare, "a processor that fits the model"):
        arguments = {key: value for key, value in options.items() if key not in STOP}
        captioner: Captioner = family(model, tokenizer, processor, str(name), **arguments)
        check_fit(captioner)
    captioner.chosen, captioner.decoding, captioner.levels = options, decoding, levels
    captioner.set_stop(options.get("stop", ""))
    return captioner


def load_parts(where: str, bare: str, precision: Precision, adapter: Path | None) -> tuple[Any, Any, Any, Any]:
    """Returns the model in a folder, its family, its tokenizer and its processor, with the adapter merged."""
    with loading_errors(bare, "a captioner: a folder or hub name with config.json and safetensors"):
        kind = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False).model_type
        if (loaded := load_family(kind, where)) is not None:
            model, family = loaded
            set_precision(model, precision)
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
            pictures = family.reads_pictures(model)
            processor = (
                transformers.AutoImageProcessor.from_pretrained(where, backend="pil", trust_remote_code=False)
                if pictures
                else None
            )
        else:
            model, family, tokenizer, processor = CAPTIONERS.find("transformers").factory(
                where, kind, bare, dtype_of(precision)
            )
    if adapter is not None:
        tokenizer = tokenizer_of_adapter(adapter, model, tokenizer)
        if processor is not None and hasattr(processor, "tokenizer"):
            processor.tokenizer = tokenizer
        merge_adapter(model, adapter)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model, family, tokenizer, processor


def load_adapted(name: str, folder: Path, written: str, device: torch.device, precision: str) -> Captioner:
    """Loads the base of a PEFT adapter and merges the adapter. ``written``: options of the adapter and its base."""
    settings = adapter_settings(folder)
    check_sums(folder)
    pairs = [pair for pair in written.split("&") if pair]
    named = [pair.partition("=")[2] for pair in pairs if pair.startswith("base_model=")]
    base = base_of_adapter(folder, settings, parse_value(named[-1]) if named else None)
    rest = "&".join(pair for pair in pairs if not pair.startswith("base_model="))
    try:
        captioner = load_captioner(f"{base}?{rest}" if rest else base, device, precision, folder)
    except TellapartError as error:
        if str(folder) in str(error).partition(":")[0]:  # the error is about the adapter, not its base
            raise
        elsewhere = f"if the base is elsewhere, use '{folder}?base_model=PLACE'"
        raise type(error)(f"{folder} is an adapter for {base}: {error}; {elsewhere}") from None
    captioner.name = name
    return captioner


def load_without_folder(name: str, written: str) -> Captioner | None:
    """Loads a captioner that is not a transformers folder: a published checkpoint, a new ClipCap, or user code."""
    for entry in CAPTIONERS.builtin().values():
        if entry.takes and re.fullmatch(entry.takes, name):
            captioner: Captioner = entry.factory(name, written)
            return captioner
    if (path := code_path(name, "captioner")) is not None:
        return load_custom(path, dict(pair.split("=", 1) for pair in written.split("&") if "=" in pair))
    return None


def parse_options(written: str, known: Mapping[str, Callable[[str], Any]], name: str) -> dict[str, Any]:
    """Parses ``key=value&key=value`` (see `quoted`). Raises `UsageError` for options that are not ``known``."""
    options: dict[str, Any] = {}
    for pair in filter(None, written.split("&")):
        key, equals, value = pair.partition("=")
        if key == "detail" and key not in known:
            prompt_of_detail((), 0.0, name)
        if key not in known or not equals:
            raise UsageError(
                f"{name}: unknown option '{pair}'{nearest(key, known) if known else '; this captioner has none'}"
            )
        try:
            options[key] = known[key](parse_value(value))
        except ValueError:
            raise UsageError(f"{name}: {key} must be a number; got '{value}'") from None
    return options


def with_detail(typed: dict[str, Any], levels: Levels, name: str) -> dict[str, Any]:
    """Replaces the option ``detail`` with the prompt for that level. Raises `UsageError` if both are given."""
    if "detail" not in typed:
        return typed
    if "prompt" in typed:
        raise UsageError(
            f"{name}: prompt and detail cannot be combined, because detail selects the prompt; remove one of them"
        )
    rest = {key: value for key, value in typed.items() if key != "detail"}
    prompt = prompt_of_detail(levels, typed["detail"], name)
    return rest | ({"prompt": prompt} if prompt else {})


def parse_value(written: str) -> str:
    """Decodes a value that `quoted` encoded."""
    return written.replace("%26", "&").replace("%25", "%")


def quoted(value: str) -> str:
    """Encodes the value of an option for use in a captioner's name."""
    return value.replace("%", "%25").replace("&", "%26")


def load_family(model_type: str, folder: str) -> tuple[Any, type[Captioner]] | None:
    """Loads the model in a folder with its captioner class; returns None if no family is registered for its type."""
    if model_type not in CAPTIONERS or not (entry := CAPTIONERS.find(model_type)).model_type:
        return None
    loaded: tuple[Any, type[Captioner]] = entry.factory(folder)
    return loaded


CONFIG = {"model_type": "own"}  # model folders are recognized by their config.json


def load_custom(path: str, options: dict[str, Any], folder: str | None = None) -> Captioner:
    """Calls the user's factory at ``path`` with ``options`` and returns its captioner.

    The captioner's ``save`` also records the factory, so that the ``folder`` can be loaded again; the factory is then
    called with ``folder=FOLDER`` only. Raises `UsageError` if user code is not allowed to run (`utils.registry`), or if
    the factory does not return a captioner.
    """
    asks = f"captioner {path}" if folder is None else f"the model's folder {folder}"
    captioner = call_factory(path, "captioner", asks, options if folder is None else {"folder": folder})
    if not isinstance(captioner, Captioner):
        raise UsageError(
            f"captioner {path} returned a {type(captioner).__name__}; expected a tellapart.captioners.Captioner"
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
    """Wraps a ``generate`` without ``seeds``: calls it per picture after seeding torch's default generator."""
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
            rows += one.rows()
        tokens_RT, valid_RT = (x.to(visual.device) for x in pad_rows(rows, captioner.tokenizer.pad_token_id))
        return Rollout(tokens_RT, valid_RT, decode_rows(tokens_RT, valid_RT, captioner.tokenizer), decoding.samples)

    return seeded


def check_fit(captioner: Captioner) -> None:
    """Raises `TellapartError` if the processor or the tokenizer does not fit the model."""
    if captioner.processor is not None:
        check_pictures(captioner)
    check_tokens(captioner)
    prompt = getattr(captioner, "before", None)
    getattr(prompt, "of_blank", None)  # evaluated here, so that a prompt that the processor rejects fails early


def check_pictures(captioner: Captioner) -> None:
    """Raises `TellapartError` if the processor's picture size differs from the vision encoder's input size."""
    config: Any = captioner.model.config
    side = getattr(getattr(config, "vision_config", None), "image_size", None)
    pixels = captioner.pixels([Image.new("RGB", (64, 48))])
    if isinstance(side, int) and pixels.ndim == 4 and tuple(pixels.shape[-2:]) != (side, side):
        shape = f"{pixels.shape[-1]}×{pixels.shape[-2]}"
        raise TellapartError(
            f"{captioner.name}: its processor returns pictures of {shape} pixels, but its vision encoder expects "
            f"{side}×{side}; use the processor saved with the model (preprocessor_config.json)"
        )


def check_tokens(captioner: Captioner) -> None:
    """Checks that the language model has a word embedding for every token in the tokenizer, except picture tokens."""
    places = set(getattr(captioner, "places", ()))
    highest = max(set(captioner.tokenizer.get_vocab().values()) - places, default=0)
    text = getattr(captioner.model.config, "text_config", captioner.model.config)
    rows = getattr(text, "vocab_size", None)
    if isinstance(rows, int) and highest >= rows:
        raise TellapartError(
            f"{captioner.name}: its tokenizer has {highest + 1:,} tokens, but its language model has {rows:,}; "
            "use the tokenizer saved with the model"
        )
