"""Loads a captioner by name: a transformers model, a published checkpoint, an adapter, or a user-defined captioner."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
import transformers

from tellapart.captioners.adapters import (
    ADAPTER,
    adapter_settings,
    base_of_adapter,
    merge_adapter,
    tokenizer_of_adapter,
)
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.custom import load_custom
from tellapart.captioners.fit_checks import check_fit
from tellapart.captioners.name_options import DETAIL, STOP, parse_options, parse_value, with_detail
from tellapart.captioners.registry import CAPTIONERS
from tellapart.errors import TellapartError, UsageError
from tellapart.models.captioner_options import (
    decoding_in,
    levels_in,
    saved_options,
)
from tellapart.models.devices import resolve_device
from tellapart.models.names import is_server
from tellapart.models.precision import Precision, dtype_of, resolve_precision, set_precision
from tellapart.models.saved import checked_model_folder, loading_errors
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
    chosen, bare, written = resolve_precision(precision, device), *name.partition("?")[::2]
    if (custom := load_without_folder(bare, written)) is not None:
        keeps = precision == "auto" and code_path(bare, "captioner") is not None
        return prepared(custom, None if keeps else chosen, adapter, device)
    folder = Path(bare).expanduser()
    if (folder / ADAPTER).is_file() and not (folder / "config.json").is_file():
        return load_adapted(name, folder, written, device, precision)
    where = checked_model_folder(bare, "captioner")
    if (maker := saved_options(where).get("made_by")) is not None:
        if written:
            raise UsageError(f"{bare} was saved by a custom captioner, together with its options; remove '?{written}'")
        custom = load_custom(str(maker), {}, where)
        custom.decoding = decoding_in(saved_options(where))
        return prepared(custom, None if precision == "auto" else chosen, adapter, device)
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
        kind = transformers.AutoConfig.from_pretrained(where, trust_remote_code=False).model_type
        if kind in CAPTIONERS and (entry := CAPTIONERS.find(kind)).model_type:
            model, family = entry.factory(where)
            set_precision(model, precision)
            tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
            processor = None
            if family.reads_pictures(model):
                processor = transformers.AutoImageProcessor.from_pretrained(
                    where, backend="pil", trust_remote_code=False
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
    """Loads the base model of a PEFT adapter and merges the adapter.

    ``written``: options for the adapter and for its base model.
    """
    settings = adapter_settings(folder)
    check_sums(folder)
    pairs = [pair for pair in written.split("&") if pair]
    named = [pair.partition("=")[2] for pair in pairs if pair.startswith("base_model=")]
    base = base_of_adapter(folder, settings, parse_value(named[-1]) if named else None)
    rest = "&".join(pair for pair in pairs if not pair.startswith("base_model="))
    try:
        captioner = load_captioner(f"{base}?{rest}" if rest else base, device, precision, folder)
    except TellapartError as error:
        if str(folder) in str(error).partition(":")[0]:  # the error is about the adapter, not about its base model
            raise
        elsewhere = f"if the base model is in another place, use '{folder}?base_model=PLACE'"
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
