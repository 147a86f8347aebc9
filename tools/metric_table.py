"""Writes the table of metrics in docs/reference/metrics.md from the registry: python tools/metric_table.py"""

from __future__ import annotations

from pathlib import Path

from tellapart.evaluation.metric_list import list_metrics, metric_markdown

DOCS = Path(__file__).parent.parent / "docs" / "reference" / "metrics.md"
START, END = "<!-- metrics -->\n", "<!-- end -->"


def main() -> None:
    """Replaces the text between the two marks."""
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(START)
    DOCS.write_text(before + START + metric_markdown(list_metrics()) + END + rest.partition(END)[2], encoding="utf-8")


if __name__ == "__main__":
    main()
