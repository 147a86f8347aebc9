"""A captioner of the user's own: ``package.module:make?key=value`` in place of a model's name."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tellapart.captioners.base import OPTIONS_FILE, Captioner
from tellapart.errors import UsageError
from tellapart.models.plugins import made_by

CONFIG = {"model_type": "own"}  # a model's folder is known by its config.json


def load_own(path: str, options: dict[str, Any], folder: str | None = None) -> Captioner:
    """What ``path`` makes of ``options``. Its ``save`` also writes down who made it, so that the ``folder`` loads
    again: then it is called with ``folder=FOLDER`` alone, if its code is allowed to run (`models.plugins`). Raises
    `UsageError` where it is not, or makes something else.
    """
    asks = f"captioner {path}" if folder is None else f"the model's folder {folder}"
    captioner = made_by(path, "captioner", asks, options if folder is None else {"folder": folder})
    if not isinstance(captioner, Captioner):
        raise UsageError(
            f"captioner {path} made a {type(captioner).__name__}; expected a tellapart.captioners.Captioner"
        )
    captioner.save = remembering(captioner.save, path)  # type: ignore[method-assign, assignment]
    return captioner


def remembering(save: Callable[[Path], None], path: str) -> Callable[[Path], None]:
    @functools.wraps(save)
    def save_and_remember(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        save(folder)
        if not (folder / "config.json").is_file():
            (folder / "config.json").write_text(json.dumps(CONFIG) + "\n", encoding="utf-8")
        (folder / OPTIONS_FILE).write_text(json.dumps({"made_by": path}) + "\n", encoding="utf-8")

    return save_and_remember
