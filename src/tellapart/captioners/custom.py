"""Loads captioners that user code creates (``package.module:make``)."""

from __future__ import annotations

import functools
import inspect
import json
from pathlib import Path
from typing import Any

from tellapart.captioners.captioner import Captioner
from tellapart.errors import UsageError
from tellapart.models.saved_options import SavedOptions
from tellapart.utils.checksums import write_sums
from tellapart.utils.code_loading import call_factory

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
    if "seeds" not in inspect.signature(captioner.generate).parameters:
        raise UsageError(
            f"captioner {path}: its generate does not take seeds; expected generate(visual, decoding, seeds)"
        )
    save = captioner.save

    @functools.wraps(save)
    def save_and_remember(folder: str | Path) -> None:
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        save(folder)
        if not (folder / "config.json").is_file():
            (folder / "config.json").write_text(json.dumps(CONFIG) + "\n", encoding="utf-8")
        SavedOptions(made_by=path, decoding=captioner.decoding).write(folder)
        write_sums(folder)

    captioner.save = save_and_remember  # type: ignore[method-assign]
    return captioner
