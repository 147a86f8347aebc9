"""Writes the claims' tables in docs/research from declarations and records: python -m replication.docs_tables"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from replication import all_claims, further_claims
from replication.setting_tables import markdown
from replication.stamp import read_verdicts
from replication.verdict import RECORDS, VERDICT_FILE, history, outcomes, read_power

RESEARCH = Path(__file__).parents[1] / "docs" / "research"
PAGES = (RESEARCH / "claims.md", RESEARCH / "claims-settings.md")
END = "<!-- end -->"


def with_tables(text: str) -> str:
    """Returns the page with its tables regenerated, i.e. the text between each table's mark and the next end mark."""
    for mark, table in TABLES.items():
        if f"<!-- {mark} -->" not in text:
            continue
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        text = f"{before}<!-- {mark} -->\n{table()}{END}{rest.partition(END)[2]}"
    return text


def settings_tables() -> str:
    return markdown((*all_claims(), *further_claims()))


def power_table() -> str:
    """Returns the table of the stored power, with its date and command."""
    kept = read_power()
    lines = ["| claim | power | as on dev | control false | weakest part |", "|---|---:|---:|---:|---|"]
    for one in kept["power"]:
        least = min(one["parts"], key=lambda part: float(part["power"]))
        shares = " | ".join(f"{100 * one[key]:.1f}" for key in ("power", "expected", "control"))
        lines.append(f"| `{one['id']}` | {shares} | {least['says']}: {100 * least['power']:.1f} |")
    enough = {key: sum(one[key] >= kept["goal"] for one in kept["power"]) for key in ("power", "expected")}
    source = (
        f"*{kept['date']}, {kept['machine']}, commit {kept['commit']}, `{kept['command']}`:\n{enough['power']} claims "
        f"reach {100 * kept['goal']:.0f}% at the smallest effects, {enough['expected']} where the truth is as on the "
        "development seeds.*"
    )
    return "\n".join([*lines, "", source, ""])


def verdict_tables() -> str:
    """Returns the tables of all verdicts, with the newest verdict first."""
    return "\n".join(verdict_table(given) for given in reversed(read_verdicts(RECORDS / VERDICT_FILE)))


def verdict_table(given: dict[str, Any]) -> str:
    """Returns a verdict's stamp and one row per part of each claim. If the verdict is not finished, returns only the
    stamp.
    """
    lines = history([given])
    if not given["stamp"]["date"]:
        return "\n".join([*lines, ""])
    declared = {claim.id: claim for claim in all_claims()}
    found_outcomes = outcomes(given, all_claims())
    count = Counter(found_outcomes.values())
    lines += [
        "",
        f"Counted with the sign of the paper's figures: **{count['holds']} of {len(found_outcomes)} hold**, "
        f"{count['not worse']} are not worse.",
        "",
        "| claim | | part | paper | ours, 95% | seeds on its side |",
        "|---|---|---|---:|---|---:|",
    ]
    for claim in given["claims"]:
        control = "; its control holds too" if all(part["holds"] for part in claim["control"]) else ""
        for place, (part, found) in enumerate(zip(declared[claim["id"]].parts, claim["parts"], strict=True)):
            head = f"`{claim['id']}` | {found_outcomes[claim['id']]}{control}" if not place else " | "
            paper = "" if part.paper_value is None else f"{part.paper_value:+.3g}"
            other = "" if part.has_paper_sign(found["value"]) else ", the other sign"
            right = sum(part.lower < value < part.upper for value in found["seeds"])
            ours = f"{found['value']:+.3g} [{found['low']:.3g}, {found['high']:.3g}]"
            says = found["says"] if found["holds"] else f"**{found['says']}**"
            lines.append(f"| {head} | {says} | {paper}{other} | {ours} | {right} of {len(found['seeds'])} |")
    return "\n".join([*lines, ""])


TABLES: dict[str, Callable[[], str]] = {
    "claims": settings_tables, "power": power_table, "verdict": verdict_tables,
}  # fmt: skip


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
