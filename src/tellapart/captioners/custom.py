"""Loads captioners that user code creates (``package.module:make``)."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.decoding import decode_rows
from tellapart.errors import UsageError
from tellapart.models.captioner_options import (
    OPTIONS_FILE,
    saved_decoding,
)
from tellapart.models.decoding import Decoding
from tellapart.models.tokens import pad_rows
from tellapart.types import Rollout
from tellapart.utils.checksums import write_sums
from tellapart.utils.code_loading import call_factory
from tellapart.utils.rng import ItemSeeds

CONFIG = {"model_type": "own"}  # model folders are recognized by their config.json


def load_custom(path: str, options: dict[str, Any], folder: str | None = None) -> Captioner:
    """Calls the user's factory at ``path`` with ``options`` and returns its captioner.

    The captioner's ``save`` also records the factory, so that the saved folder can be loaded again. In that case, the
    factory is called with ``folder=FOLDER`` only. Raises `UsageError` if user code is not allowed to run
    (`utils.allowed_code`), or if the factory does not return a captioner.
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
    """Wraps a ``generate`` method without ``seeds``: calls it for each picture, after seeding torch's default
    generator.
    """
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
