"""``tellapart cache``: the size of the feature store and of METEOR's index, and how to empty them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.cli.common import HOUSEKEEPING, App
from tellapart.cli.output import Json, show

if TYPE_CHECKING:
    from rich.table import Table

app = App()


@app.command(rich_help_panel=HOUSEKEEPING)
def cache(
    empty: Annotated[bool, typer.Option("--empty", help="Delete everything.")] = False,
    as_json: Json = False,
) -> None:
    """Show where encoded pictures are cached and how large the cache is; --empty deletes it."""
    value, summary = empty_cache() if empty else describe_cache()
    show(value, lambda: summary, as_json)


def describe_cache() -> tuple[dict[str, Any], Table]:
    """The content of the cache as JSON values and as a table."""
    from rich.table import Table

    from tellapart.features.store import FeatureStore

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
    table = Table(title=title, caption="tellapart cache --empty deletes it all")
    for name in ("encoder", "pictures", "MB", "last used"):
        table.add_column(name, justify="left" if name == "encoder" else "right")
    for use in uses:
        used = datetime.fromtimestamp(use.used).isoformat(sep=" ", timespec="minutes")
        table.add_row(use.label, f"{use.pictures:,}", f"{use.bytes / 1e6:,.1f}", used)
    if meteor:
        table.add_row("(METEOR's tables)", "", f"{meteor / 1e6:,.1f}", "")
    return value, table


def empty_cache() -> tuple[dict[str, Any], str]:
    """Delete everything. Returns the freed bytes as JSON values and as a line of text."""
    from tellapart.features.store import FeatureStore

    store = FeatureStore()
    indexes = _meteor(store.folder)
    freed = store.empty() + _size(indexes)
    for folder in indexes:
        shutil.rmtree(folder)
    return {"folder": str(store.folder), "freed_bytes": freed}, f"{store.folder}: {freed / 1e9:.2f} GB freed"


def _meteor(home: Path) -> list[Path]:
    """The folders of `tellapart.metrics.meteor_index`, unfinished ones included; other files there are not ours."""
    inside = (home / "meteor").glob("*")
    return [path for path in inside if path.is_dir() and re.fullmatch(r"[0-9a-f]{20}|\.making-.+", path.name)]


def _size(folders: Iterable[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
