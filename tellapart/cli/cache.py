"""``tellapart cache``: what the feature store and METEOR's index hold."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from tellapart.features.store import FeatureStore


def describe_cache() -> tuple[dict[str, Any], Any]:
    """The cache's content as a plain value, and as a table for people."""
    from rich.table import Table

    store = FeatureStore()
    uses = store.usage()
    meteor = _size(_meteor(store.folder))
    whole = sum(use.bytes for use in uses) + meteor
    value = {
        "folder": str(store.folder),
        "bytes": whole,
        "encoders": [
            {"label": use.label, "pictures": use.pictures, "bytes": use.bytes, "used": use.used} for use in uses
        ],
        "meteor_bytes": meteor,
    }
    title = f"{store.folder}: {whole / 1e9:.2f} GB"
    table = Table(title=title, caption="tellapart cache --empty drops it all")
    for name in ("encoder", "pictures", "MB", "last used"):
        table.add_column(name, justify="left" if name == "encoder" else "right")
    for use in uses:
        used = datetime.fromtimestamp(use.used).isoformat(sep=" ", timespec="minutes")
        table.add_row(use.label, f"{use.pictures:,}", f"{use.bytes / 1e6:,.1f}", used)
    if meteor:
        table.add_row("(METEOR's tables)", "", f"{meteor / 1e6:,.1f}", "")
    return value, table


def empty_cache() -> tuple[dict[str, Any], str]:
    """Drop everything; what that set free, as a plain value and as a line for people."""
    store = FeatureStore()
    indexes = _meteor(store.folder)
    freed = store.empty() + _size(indexes)
    for folder in indexes:
        shutil.rmtree(folder)
    return {"folder": str(store.folder), "freed_bytes": freed}, f"{store.folder}: {freed / 1e9:.2f} GB set free"


def _meteor(home: Path) -> list[Path]:
    """The folders of `tellapart.metrics.meteor_index`, also a half-made one; what else lies there is somebody's own."""
    inside = (home / "meteor").glob("*")
    return [path for path in inside if path.is_dir() and re.fullmatch(r"[0-9a-f]{20}|\.making-.+", path.name)]


def _size(folders: Iterable[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
