"""A finished run as Markdown for the docs: its table, and its gallery in words (the photos are not ours to copy).

python tools/run_to_markdown.py runs/flickr8k_sr > docs/flickr8k_run.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(folder: str) -> None:
    run = Path(folder)
    info, results = (json.loads((run / name).read_text()) for name in ("run.json", "results.json"))
    print(f"Printed by `python tools/run_to_markdown.py {folder}` from the run of {info['created']}.\n")
    print("\n".join([*table(results), "", *gallery(json.loads((run / "gallery.json").read_text()))]))


def table(results: dict[str, Any]) -> list[str]:
    """Metrics down, n, candidates and chance, systems across, and the paired difference with its interval."""
    systems = [name for name in ("before", "after", "human") if name in results["systems"]]
    pairs = {pair["metric"]: pair for pair in results["pairs"] if (pair["a"], pair["b"]) == ("before", "after")}
    lines = [f"| metric | n | candidates | chance | {' | '.join(systems)} | after − before, 95 % |"]
    lines.append("|---|" + "---:|" * (len(systems) + 4))
    for metric in results["signatures"]:
        cells = [number(results["systems"][name].get(metric, {}).get("value")) for name in systems]
        pair = pairs.get(metric)
        change = f"{pair['difference']:+.2f} [{pair['low']:+.2f}, {pair['high']:+.2f}]" if pair else "–"
        lines.append(f"| `{metric}` | {' | '.join(setting(results, metric))} | {' | '.join(cells)} | {change} |")
    return lines


def setting(results: dict[str, Any], metric: str) -> tuple[str, str, str]:
    """n, and of a recall the number of candidates and chance."""
    n = max((found[metric]["n"] for found in results["systems"].values() if metric in found), default=0)
    among = results.get("candidates", {}).get(metric)
    if among is None:
        return f"{n:,}", "", ""
    size = f"{among['fewest']}" if among["fewest"] == among["most"] else f"{among['fewest']}–{among['most']}"
    return f"{n:,}", size, f"{among['chance']:.1f}"


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def gallery(found: dict[str, Any], count: int = 24) -> list[str]:
    lines = ["| picture | before | after |", "|---|---|---|"]
    for entry in found["sets"][:count]:
        cells = [answer(entry, name) for name in ("before", "after")]
        lines.append(f"| `{entry['target']}` | {' | '.join(cells)} |")
    return lines


def answer(entry: dict[str, Any], system: str) -> str:
    answer = entry["systems"][system]
    verdict = "found" if answer["picked"] == entry["target"] else f"taken for `{answer['picked']}`"
    return f"{answer['caption'].replace('|', '/')} *({verdict})*"


if __name__ == "__main__":
    main(sys.argv[1])
