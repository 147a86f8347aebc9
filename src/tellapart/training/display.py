"""What a person sees of training: the progress bar, accelerate's trackers, and what was truncated."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tellapart.scorers import Scorer

Track = Callable[[dict[str, float], int], None]  # logs and step


@contextlib.contextmanager
def progress_bar(label: str, total: int, done: int) -> Iterator[Callable[[str], None]]:
    """The progress of training. Call what it yields after each step, with the text to show beside the count."""
    from tellapart.progress import Progress

    with Progress(total, label, done=done) as progress:

        def advance(note: str) -> None:
            progress.note = note
            progress.advance()

        yield advance


@contextlib.contextmanager
def open_trackers(names: Sequence[str], project: str, folder: Path) -> Iterator[Track]:
    """accelerate's trackers by name (``tensorboard``, ``wandb``, …), which write into the run's folder."""
    if not names:
        yield lambda logs, step: None
        return
    from accelerate import Accelerator

    accelerator = Accelerator(log_with=list(names), project_dir=str(folder))
    accelerator.init_trackers(project)
    yield lambda logs, step: accelerator.log(logs, step=step)
    accelerator.end_training()


def truncation_lines(scorers: Sequence[Scorer]) -> list[str]:
    """One line for each scorer that captions were too long for: it reads as much as its window holds."""
    return [
        f"{scorer.cut_texts:,} captions were longer than the window of {scorer.window} tokens of {scorer.name}; it "
        "scored what fits"
        for scorer in scorers
        if scorer.cut_texts
    ]


def progress_note(logs: dict[str, float], select: str, validated: float, state: dict[str, Any]) -> str:
    """Loss and reward of the step, the last validation's value of ``select``, and the best one so far and its step.

    ``validated`` is NaN before the first validation of this process: a run that was resumed shows the best alone.
    """
    shown = [f"{key} {logs[key]:.4g}" for key in ("loss", "reward") if key in logs]
    if state["best_step"] is not None:
        best = -state["best_value"] if select == "loss" else state["best_value"]
        last = "" if math.isnan(validated) else f"{validated:.4g}, "
        shown.append(f"{select} {last}best {best:.4g} at step {state['best_step']:,}")
    return ", ".join(shown)
