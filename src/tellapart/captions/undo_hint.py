"""Tells people how to restore the texts that a run replaced."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection
from pathlib import Path

from tellapart.utils.messages import say


def say_replaced(texts: Collection[Path]) -> None:
    """Prints how many hand-written texts were replaced, and how to restore them."""
    folder = Path(os.path.commonpath([path.parent for path in texts]))
    say(
        f"replaced {len(texts):,} texts that were written, edited or accepted by hand; to restore them, run: "
        f"{undo_command(folder)}"
    )


def undo_command(path: Path) -> str:
    """Returns the command that restores what a run replaced in a folder or caption file."""
    typed = [str(path)] if path.is_dir() else ["FOLDER", "--captions", str(path)]
    return f"tellapart captions undo {' '.join(map(shlex.quote, typed))}"
