"""Opens accelerate's trackers, such as ``tensorboard``, and checks before training that they are installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import accelerate
import accelerate.tracking
import accelerate.utils

from tellapart.errors import MissingExtra, UsageError, nearest

Track = Callable[[dict[str, float], int], None]  # logs and step


def check_trackers(names: Sequence[str]) -> None:
    """Raises `UsageError` for an unknown tracker, or one that is not installed; accelerate would silently skip it."""
    known = [str(kind.value) for kind in accelerate.utils.LoggerType if kind != accelerate.utils.LoggerType.ALL]
    installed = {str(kind.value) for kind in accelerate.tracking.get_available_trackers()}
    for name in names:
        if name not in known:
            raise UsageError(f"training.trackers: unknown tracker '{name}'{nearest(name, known)}")
        if name not in installed:
            if name == "tensorboard":
                raise MissingExtra("tensorboard", "the tracker 'tensorboard'")
            raise UsageError(f"training.trackers: '{name}' is not installed; run: pip install {name}")


@contextlib.contextmanager
def open_trackers(names: Sequence[str], project: str, folder: Path) -> Iterator[Track]:
    """Opens accelerate's trackers by name (``tensorboard``, ``wandb``, …). They write to the run's folder.

    Ends them after an error or Ctrl-C, too.
    """
    if not names:
        yield lambda logs, step: None
        return
    accelerator = accelerate.Accelerator(log_with=list(names), project_dir=str(folder))
    accelerator.init_trackers(project)
    try:
        yield lambda logs, step: accelerator.log(logs, step=step)
    finally:
        accelerator.end_training()
