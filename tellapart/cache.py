"""``tellapart cache``: what the feature store holds."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tellapart.features import FeatureStore


def describe_cache() -> tuple[dict[str, Any], Any]:
    """The store's content as a plain value, and as a table for people."""
    from rich.table import Table

    store = FeatureStore()
    uses = store.usage()
    value = {
        "folder": str(store.folder),
        "bytes": sum(use.bytes for use in uses),
        "encoders": [
            {"label": use.label, "pictures": use.pictures, "bytes": use.bytes, "used": use.used} for use in uses
        ],
    }
    title = f"{store.folder}: {sum(use.bytes for use in uses) / 1e9:.2f} GB"
    table = Table(title=title, caption="tellapart cache --empty drops it all")
    for name in ("encoder", "pictures", "MB", "last used"):
        table.add_column(name, justify="left" if name == "encoder" else "right")
    for use in uses:
        used = datetime.fromtimestamp(use.used).isoformat(sep=" ", timespec="minutes")
        table.add_row(use.label, f"{use.pictures:,}", f"{use.bytes / 1e6:,.1f}", used)
    return value, table


def empty_cache() -> tuple[dict[str, Any], str]:
    """Drop everything; what that set free, as a plain value and as a line for people."""
    store = FeatureStore()
    freed = store.empty()
    return {"folder": str(store.folder), "freed_bytes": freed}, f"{store.folder}: {freed / 1e9:.2f} GB set free"
