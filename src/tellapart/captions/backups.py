"""Backs up hand-written texts before they are replaced, and tells people how to restore them."""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from tellapart.utils.messages import say


def back_up(captions: Path, texts: Mapping[str, str]) -> Path:
    """Appends hand-written texts, given by row, to the backup next to a caption file. Returns the backup's path."""
    backup = captions.with_name(f"{captions.name.removeprefix('*.')}.replaced.jsonl")
    now = time.strftime("%Y-%m-%d %H:%M:%S")
    lines = [json.dumps({"id": key, "text": text, "replaced": now}) + "\n" for key, text in texts.items()]
    backup.parent.mkdir(parents=True, exist_ok=True)
    with backup.open("a", encoding="utf-8") as file:
        file.writelines(lines)
        file.flush()
        os.fsync(file.fileno())
    return backup


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
