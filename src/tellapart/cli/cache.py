"""``tellapart cache``: shows or deletes cached features, METEOR's index, models and thumbnails."""

from __future__ import annotations

import difflib
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from tellapart.cli.app import HOUSEKEEPING, App
from tellapart.cli.options import Json
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.utils.tables import table_of

if TYPE_CHECKING:
    from tellapart.features.store import FeatureStore

app = App()


@app.command(rich_help_panel=HOUSEKEEPING)
def cache(
    empty: bool = False,
    remove: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    as_json: Json = False,
) -> None:
    """Show the location and size of the feature cache; delete part of it with --remove, or all with --empty.

    Args:
        empty: Delete the whole cache.
        remove: Delete the features of one encoder, by name or label.
    """
    if empty and remove is not None:
        raise UsageError(
            "--empty and --remove cannot be combined: --empty deletes everything, while --remove "
            "deletes a single encoder's features; remove one of them"
        )
    from tellapart.features.store import FeatureStore

    store = FeatureStore()
    value, shown = describe_cache(store) if not empty and remove is None else delete(store, remove)
    show(value, lambda: shown, as_json)


def describe_cache(store: FeatureStore) -> tuple[dict[str, Any], Table]:
    """Returns the content of the cache as JSON values and as a table."""
    uses = store.usage()
    others = {name: _size(_folders(store.folder, name)) for name in CACHE_FOLDERS}
    whole = sum(use.bytes for use in uses) + sum(others.values())
    value = {"folder": str(store.folder), "bytes": whole, "encoders": [asdict(use) for use in uses]}
    rows = [
        (use.name or "?", use.label, f"{use.pictures:,}", f"{use.bytes / 1e6:,.1f}",
         datetime.fromtimestamp(use.used).isoformat(sep=" ", timespec="minutes"))
        for use in uses
    ]  # fmt: skip
    rows += [(CACHE_FOLDERS[name][0], "", "", f"{size / 1e6:,.1f}", "") for name, size in others.items() if size]
    heads = ("encoder", "label", "pictures", "MB", "last used")
    table = table_of(heads, rows, f"{store.folder}: {whole / 1e9:.2f} GB")
    table.caption = "tellapart cache --remove NAME deletes the features of one encoder; --empty deletes everything"
    return value | {f"{name}_bytes": size for name, size in others.items()}, table


def delete(store: FeatureStore, name: str | None) -> tuple[dict[str, Any], str]:
    """Deletes the features of all encoders with this name or label, or the whole cache if it is None. Returns what was
    deleted as JSON values and as a line of text.
    """
    value: dict[str, Any] = {"folder": str(store.folder)}
    if name is None:
        folders = [folder for each in CACHE_FOLDERS for folder in _folders(store.folder, each)]
        freed = store.empty() + _size(folders)
        for folder in folders:
            shutil.rmtree(folder)
        return value | {"freed_bytes": freed}, f"{store.folder}: freed {freed / 1e9:.2f} GB"
    uses = store.usage()
    chosen = [use.label for use in uses if name in (use.name, use.label)]
    if not chosen:
        known = sorted({known for use in uses for known in (use.name, use.label) if known})
        similar = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean '{similar[0]}'?" if similar else f"; run tellapart cache to list all {len(uses):,}"
        raise UsageError(f"{store.folder}: no encoder '{name}'{hint}")
    freed = sum(map(store.table.remove, chosen))
    line = f"{store.folder}: removed {', '.join(chosen)} and freed {freed / 1e9:.2f} GB"
    return value | {"removed": chosen, "freed_bytes": freed}, line


# What the cache contains besides features: the label in the table, and a pattern for the names of the folders.
CACHE_FOLDERS = {
    "meteor": ("(METEOR's tables)", r"[0-9a-f]{20}|\.making-.+"),
    "models": ("(models of packages)", r"[\w.-]+-[0-9a-f]{8}|tmp\w+"),
    "thumbnails": ("(thumbnails)", "[0-9a-f]{2}"),
}


def _folders(home: Path, name: str) -> list[Path]:
    """Returns the folders below ``name`` that tellapart created, including unfinished ones."""
    inside = (home / name).glob("*")
    return [path for path in inside if path.is_dir() and re.fullmatch(CACHE_FOLDERS[name][1], path.name)]


def _size(folders: Iterable[Path]) -> int:
    return sum(file.stat().st_size for folder in folders for file in folder.rglob("*") if file.is_file())
