"""A captioner of the user's own: ``package.module:make?key=value`` in place of a model's name."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tellapart.captioners.base import OPTIONS_FILE, Captioner
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding, decode_rows
from tellapart.models.plugins import call_factory
from tellapart.models.tokens import pad_rows
from tellapart.types import Rollout
from tellapart.utils.files import write_sums
from tellapart.utils.rng import ItemSeeds

CONFIG = {"model_type": "own"}  # a model's folder is known by its config.json


def load_custom(path: str, options: dict[str, Any], folder: str | None = None) -> Captioner:
    """What ``path`` makes of ``options``. Its ``save`` also writes down who made it, so that the ``folder`` loads
    again: then it is called with ``folder=FOLDER`` alone, if its code is allowed to run (`models.plugins`). Raises
    `UsageError` where it is not, or makes something else.
    """
    asks = f"captioner {path}" if folder is None else f"the model's folder {folder}"
    captioner = call_factory(path, "captioner", asks, options if folder is None else {"folder": folder})
    if not isinstance(captioner, Captioner):
        raise UsageError(
            f"captioner {path} made a {type(captioner).__name__}; expected a tellapart.captioners.Captioner"
        )
    captioner.save = saving_factory(captioner.save, path)  # type: ignore[method-assign, assignment]
    if "seeds" not in inspect.signature(captioner.generate).parameters:
        captioner.generate = generate_per_picture(captioner)  # type: ignore[method-assign]
    return captioner


def saving_factory(save: Callable[[Path], None], path: str) -> Callable[[Path], None]:
    @functools.wraps(save)
    def save_and_remember(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save(folder)
        if not (folder / "config.json").is_file():
            (folder / "config.json").write_text(json.dumps(CONFIG) + "\n", encoding="utf-8")
        (folder / OPTIONS_FILE).write_text(json.dumps({"made_by": path}) + "\n", encoding="utf-8")
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
