"""Regenerates the tables of docs/data.md from the registry of readers: python tools/data_tables.py"""

from __future__ import annotations

import re
from pathlib import Path

from tellapart.data.reader_tables import keys_table, layouts_table

PAGE = Path(__file__).parent.parent / "docs" / "data.md"


def with_tables(text: str) -> str:
    """Returns the page with tables of the current readers."""
    for name, table in (("layouts", layouts_table()), ("keys", keys_table())):
        block = f"<!-- {name} -->\n{table}<!-- end -->"
        text = re.sub(f"<!-- {name} -->\n.*?<!-- end -->", lambda _, block=block: block, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
