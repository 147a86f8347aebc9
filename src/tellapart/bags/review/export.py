"""Exports a benchmark of the bags that reviewers keep."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tellapart.bags.file import Bag, bag_lines, read_bags
from tellapart.bags.review.agreement import agreements
from tellapart.bags.review.store import Decision, DecisionStore, bag_key, now
from tellapart.bags.truematch import write_truematch
from tellapart.errors import UsageError
from tellapart.utils.outputs import check_output, remove_output, write_output
from tellapart.utils.strict_json import json_value, parse_json

RULES = ("majority", "all", "any")
PROVENANCE = "tellapart review"


@dataclass(frozen=True)
class Exported:
    """The folder of an exported benchmark, and its numbers of bags."""

    folder: Path
    kept: int
    dropped: int
    undecided: int
    reviewers: tuple[str, ...]
    kappa: float | None

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON that ``bags export --json`` prints."""
        return {**asdict(self), "folder": str(self.folder)}


def export_review(bags: Path, decisions: Path, out: Path, rule: str = "majority") -> Exported:
    """Writes ``bags.jsonl``, TrueMatch's ``{size}.json`` and ``review.json`` (all decisions, including undone ones).

    rule: keeps a bag if more reviewers keep than drop it (majority; ties drop it), if all reviewers who decided keep
        it, or if any reviewer keeps it.
    Bags without a decision are left out and counted. All commands can read the ``bags.jsonl``, in which each bag also
    has its decisions and the facets selected by reviewers who keep it. Raises `UsageError` if no bag is kept, or if
    ``out`` would overwrite the bags.
    """
    if rule not in RULES:
        raise UsageError(f"--keep {rule}: expected one of {', '.join(RULES)}")
    file = read_bags(bags)
    if (out / "bags.jsonl").resolve() == bags.resolve():
        raise UsageError(f"-o {out}: this folder contains {bags.name} itself; choose another folder")
    for name in ("bags.jsonl", "review.json"):
        check_output(out / name)
    with DecisionStore.open(decisions, create=False) as store:
        standing, log = store.standing(), store.log()
    known = {bag_key(bag.ids) for bag in file.bags}
    of_bag: dict[str, list[Decision]] = {}
    for decision in standing:
        if decision.bag in known:
            of_bag.setdefault(decision.bag, []).append(decision)
    kept = [bag for bag in file.bags if _keeps(of_bag.get(bag_key(bag.ids), ()), rule)]
    if not kept:
        raise UsageError(
            f"{decisions}: none of the {len(of_bag)} reviewed bags of {bags} was kept, so the benchmark would be empty"
        )
    reviewed = [decision for own in of_bag.values() for decision in own]
    pairs = agreements(reviewed)
    kappas = [pair.kappa for pair in pairs if pair.kappa is not None]
    exported = Exported(
        folder=out,
        kept=len(kept),
        dropped=len(of_bag) - len(kept),
        undecided=len(known) - len(of_bag),
        reviewers=tuple(sorted({decision.reviewer for decision in reviewed})),
        kappa=sum(kappas) / len(kappas) if kappas else None,
    )
    provenance = {
        "kind": PROVENANCE,
        "exported": now(),
        "rule": rule,
        "source": {"file": bags.name, "sha256": hashlib.sha256(bags.read_bytes()).hexdigest()},
        **{name: value for name, value in exported.to_json().items() if name != "folder"},
        "agreement": [pair.to_json() for pair in pairs],
    }
    every = [{"bag": _ids(d), **_entry(d), "undone": d.undone, "in_file": d.bag in known} for d in log]
    _remove_earlier(out)
    header = replace(file.header, sizes=tuple(sorted({*map(len, kept)})))
    records = (_record(bag, of_bag[bag_key(bag.ids)]) for bag in kept)
    write_output(out / "bags.jsonl", "".join(bag_lines(header, records, review=provenance)))
    whole = {**provenance, "files": [path.name for path in write_truematch(out, kept)], "decisions": every}
    write_output(out / "review.json", json.dumps(whole, ensure_ascii=False, indent=1) + "\n")
    return exported


def _keeps(decisions: Sequence[Decision], rule: str) -> bool:
    keep = sum(decision.verdict == "keep" for decision in decisions)
    drop = len(decisions) - keep
    return keep > 0 and {"majority": keep > drop, "all": drop == 0, "any": True}[rule]


def _record(bag: Bag, decisions: Sequence[Decision]) -> dict[str, Any]:
    facets = dict.fromkeys(facet for d in decisions if d.verdict == "keep" for facet in d.facets)
    similarity, entries = json_value(bag.similarity), [_entry(d) for d in decisions]
    return {"ids": bag.ids, "similarity": similarity, "facets": list(facets), "decisions": entries}


def _entry(decision: Decision) -> dict[str, Any]:
    return {name: getattr(decision, name) for name in ("reviewer", "at", "verdict", "facets", "note")}


def _ids(decision: Decision) -> list[str]:
    """Returns the ids of the decision's bag."""
    try:
        ids = parse_json(decision.bag)
    except ValueError:
        ids = None
    if not isinstance(ids, list) or not all(isinstance(id_, str) for id_ in ids):
        raise UsageError(f"decision {decision.id} is damaged and refers to no bag; restore the decisions file")
    return ids


def _remove_earlier(out: Path) -> None:
    """Removes an earlier export's files of other sizes, such as 7.json, which would seem to belong to this one."""
    try:
        earlier = parse_json((out / "review.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(earlier, dict) and earlier.get("kind") == PROVENANCE:
        for name in earlier.get("files", ()):
            if str(name).removesuffix(".json").isdecimal():
                remove_output(out / str(name))
