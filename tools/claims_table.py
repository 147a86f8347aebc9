"""Write the tables of settings into docs/claims.md, from the declarations: python tools/claims_table.py"""

from __future__ import annotations

from pathlib import Path

from tellapart.claims import all_claims, further_claims
from tellapart.claims.setting_tables import markdown

DOCS = Path(__file__).parent.parent / "docs" / "claims.md"
START, END = "<!-- claims -->\n", "<!-- end -->"


def with_tables(text: str) -> str:
    """The page with what stands between the two marks made anew."""
    before, _, rest = text.partition(START)
    return before + START + markdown((*all_claims(), *further_claims())) + END + rest.partition(END)[2]


if __name__ == "__main__":
    DOCS.write_text(with_tables(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
