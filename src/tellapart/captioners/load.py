"""Loads a captioner by name: a transformers model, a published checkpoint, an adapter, or a user-defined captioner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from tellapart.captioners.adapters import (
    base_of_adapter,
    is_adapter_folder,
    merge_adapter,
    tokenizer_of_adapter,
)
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.custom import load_custom
from tellapart.captioners.name_options import parse_options
from tellapart.captioners.registry import CAPTIONERS
from tellapart.errors import TellapartError, UsageError
from tellapart.models.devices import resolve_device
from tellapart.models.encoded_options import without_option
from tellapart.models.loading_errors import loading_errors
from tellapart.models.names import is_server
from tellapart.models.precision import Precision, dtype_of, resolve_precision, set_precision
from tellapart.models.saved import checked_model_folder, load_config, load_processor, load_tokenizer
from tellapart.models.saved_options import saved_options
from tellapart.utils.allowed_code import code_path
from tellapart.utils.checksums import check_sums


def load_captioner(
    name: str, device: str | torch.device = "auto", precision: str = "auto", adapter: Path | None = None
) -> Captioner:
    """Loads a captioner from a folder, a run, a hub name, or ``scenes`` (included in the package).

    Options may follow the name: ``Salesforce/blip-image-captioning-base?prompt=a picture of``. A captioner's options
    are saved with it. With ``stop=.``, captions also end with any token whose text contains ".". If the folder contains
    a PEFT adapter, loads the adapter's base model and merges the adapter; ``base_model`` overrides the location of the
    base model. ``FILE.pt`` and ``FILE.pth`` are published checkpoints (`official`).
    ``clipcap?vision=NAME&language_model=NAME`` builds a ClipCap with a new mapper. ``package.module:make?key=value`` is
    user code (`load_custom`), which runs only if the command line, `tellapart.utils.allowed_code.allow_code` or an
    installed entry point names it. For all other names, only safetensors are loaded.

    device: ``auto`` selects an accelerator if there is one.
    precision: ``auto`` selects ``bf16`` if the device supports it, otherwise ``fp32``. Weights in less than ``fp32``
        are for inference only and do not require gradients, so pass ``fp32`` for training. With ``auto``, user-defined
        captioners keep their own precision.
    adapter: folder of a PEFT adapter to merge, which may contain a tokenizer with additional tokens.

    Raises `TellapartError`, with the command to run, if the model does not exist, and `UsageError` for unknown options
    and for a device or precision that this machine does not support.
    """
    if is_server(name):
        raise UsageError(
            f"{name.partition('@')[0]} runs on a server and has no local weights, so it works only with 'tellapart "
            "caption' and 'tellapart eval --captioner'; use a local captioner here"
        )
    device = resolve_device(device)
    chosen, (bare, _, written) = resolve_precision(precision, device), name.partition("?")
    keeps = None if precision == "auto" else chosen  # the precision of user code
    for entry in CAPTIONERS.builtin().values():
        if entry.takes and re.fullmatch(entry.takes, bare):
            return prepared(entry.factory(bare, written), chosen, adapter, device)
    if (path := code_path(bare, "captioner")) is not None:
        options = dict(pair.split("=", 1) for pair in written.split("&") if "=" in pair)
        return prepared(load_custom(path, options), keeps, adapter, device)
    if is_adapter_folder(bare):
        return load_adapted(name, Path(bare).expanduser(), device, precision)
    where = checked_model_folder(bare, "captioner")
    if (saved := saved_options(where)).made_by:
        if written:
            raise UsageError(f"{bare} was saved by a custom captioner, together with its options; remove '?{written}'")
        custom = load_custom(saved.made_by, {}, where)
        custom.decoding = saved.decoding
        return prepared(custom, keeps, adapter, device)
    model, family, tokenizer, processor = load_parts(where, bare, chosen, adapter)
    saved = saved_options(where, from_hub=True)
    options = saved.chosen | parse_options(written, {**family.options, "stop": str}, bare, saved.detail)
    model.requires_grad_(chosen == "fp32").eval().to(device)
    with loading_errors(bare, "a processor that fits the model"):
        arguments = {key: value for key, value in options.items() if key != "stop"}
        captioner: Captioner = family(model, tokenizer, processor, str(name), **arguments)
        check_fit(captioner)
    captioner.chosen, captioner.decoding, captioner.levels = options, saved.decoding, saved.detail
    captioner.set_stop(options.get("stop", ""))
    return captioner


def prepared(
    captioner: Captioner, precision: Precision | None, adapter: Path | None, device: torch.device
) -> Captioner:
    """Casts the captioner's model (None: keeps its precision), merges an adapter, and moves the model to the device."""
    if precision is not None:
        set_precision(captioner.model, precision)
    if adapter is not None:
        merge_adapter(captioner.model, adapter)
    captioner.model.eval().to(device)
    return captioner


def load_parts(where: str, bare: str, precision: Precision, adapter: Path | None) -> tuple[Any, Any, Any, Any]:
    """Returns a folder's model (with the adapter merged), the model's family, its tokenizer and its processor."""
    with loading_errors(bare, "a captioner: a folder or hub name with config.json and safetensors"):
        kind = load_config(where).model_type
        if kind in CAPTIONERS and (entry := CAPTIONERS.find(kind)).model_type:
            model, family = entry.factory(where)
            set_precision(model, precision)
            tokenizer = load_tokenizer(where)
            processor = load_processor(where) if family.reads_pictures(model) else None
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


def load_adapted(name: str, folder: Path, device: torch.device, precision: str) -> Captioner:
    """Loads the base model of a PEFT adapter and merges the adapter.

    ``name``: the adapter's folder, with options for the adapter and for its base model.
    """
    rest, base_model = without_option(name, "base_model")
    base = base_of_adapter(folder, base_model)
    check_sums(folder)
    _, mark, written = rest.partition("?")
    try:
        captioner = load_captioner(f"{base}{mark}{written}", device, precision, folder)
    except TellapartError as error:
        if str(folder) in str(error).partition(":")[0]:  # the error is about the adapter, not about its base model
            raise
        elsewhere = f"if the base model is in another place, use '{folder}?base_model=PLACE'"
        raise type(error)(f"{folder} is an adapter for {base}: {error}; {elsewhere}") from None
    captioner.name = name
    return captioner


def check_fit(captioner: Captioner) -> None:
    """Raises `TellapartError` if the processor or the tokenizer does not fit the model.

    The processor's pictures must have the size that the vision encoder expects, and every token, other than a picture
    token, needs a word embedding.
    """
    config: Any = captioner.model.config
    if captioner.processor is not None:
        side = getattr(getattr(config, "vision_config", None), "image_size", None)
        pixels = captioner.pixels([Image.new("RGB", (64, 48))])
        if isinstance(side, int) and pixels.ndim == 4 and tuple(pixels.shape[-2:]) != (side, side):
            shape = f"{pixels.shape[-1]}×{pixels.shape[-2]}"
            raise TellapartError(
                f"{captioner.name}: its processor returns pictures of {shape} pixels, but its vision encoder expects "
                f"{side}×{side}; use the processor saved with the model (preprocessor_config.json)"
            )
    places = set(getattr(captioner, "places", ()))
    highest = max(set(captioner.tokenizer.get_vocab().values()) - places, default=0)
    rows = getattr(getattr(config, "text_config", config), "vocab_size", None)
    if isinstance(rows, int) and highest >= rows:
        raise TellapartError(
            f"{captioner.name}: its tokenizer has {highest + 1:,} tokens, but its language model has only {rows:,} "
            "word embeddings; use the tokenizer saved with the model"
        )
    prompt = getattr(captioner, "before", None)
    getattr(prompt, "of_blank", None)  # evaluate this here, so that a prompt that the processor rejects fails early
