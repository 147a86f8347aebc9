"""Appends hand-written texts to a ``.replaced.jsonl`` file before they are replaced."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path


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
