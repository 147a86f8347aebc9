"""The result of a check: findings by kind, and the kinds that exceed their level."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import rich.console
import rich.table
import rich.text
from rich import box

from tellapart.check.kinds import CAPTION, DEFECTS, RARE, Finding, Kind
from tellapart.utils.listed_names import few
from tellapart.utils.strict_json import json_value


@dataclass
class Check:
    """Findings by kind, and the number of captions and pictures checked.

    ``skipped``: the kinds that were not checked, and the argument that each of them requires.
    """

    captions: int
    pictures: int
    found: dict[str, list[Finding]]
    facts: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)

    def count(self, kind: str) -> int:
        """Returns the number of captions or pictures with this kind of defect."""
        return len(self.found.get(kind, ()))

    def _whole(self, kind: str) -> int:
        return self.captions if DEFECTS[kind].of == CAPTION else self.pictures

    def rate(self, kind: str) -> float:
        """Returns the share (0 to 1) of captions or pictures with this kind of defect; 0 for an empty set."""
        return self.count(kind) / max(self._whole(kind), 1)

    def alarms(self, levels: Mapping[str, float | None] | None = None) -> list[str]:
        """Returns the kinds that exceed their level.

        levels: the kinds to consider (default: all), each with the share that it must exceed; None stands for the
            kind's own level. If a kind also occurs in clean data, the excess must be significant (p < 0.05), so that
            one short caption among sixty does not raise an alarm.
        """
        chosen = dict.fromkeys(DEFECTS) if levels is None else levels
        return [name for name, level in chosen.items() if name not in self.skipped and self._is_alarm(name, level)]

    def _is_alarm(self, name: str, level: float | None) -> bool:
        usual = DEFECTS[name].level
        if level is not None or usual <= RARE:
            return self.rate(name) > (usual if level is None else level)
        return self.rate(name) > usual and _more_than_chance(self.count(name), self._whole(name) * usual)

    def worst(self) -> list[tuple[str, list[Finding]]]:
        """Returns (id, findings) for the 50 worst captions and pictures, worst first.

        Those with the most kinds that exceed their level come first. Ties alternate between kinds, the rarest first.
        """
        loud, turn = set(self.alarms()), Counter[str]()
        count_of = {kind: self.count(kind) for kind in self.found}
        by_id: dict[str, list[Finding]] = defaultdict(list)
        for one in itertools.chain(*self.found.values()):
            by_id[one.id].append(one)
        order = []
        for key, own in sorted(by_id.items()):
            rarest = min((one.kind for one in own), key=lambda kind: (kind not in loud, count_of[kind]))
            order.append((-len(loud.intersection(one.kind for one in own)), turn[rarest], count_of[rarest], key))
            turn[rarest] += 1
        return [(key, by_id[key]) for *_, key in sorted(order)[:50]]

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON object with counts, rates and levels by kind, findings, statistics and notes."""
        return {
            "captions": self.captions,
            "pictures": self.pictures,
            "kinds": {
                kind.name: {"count": count, "rate": rate, "level": kind.level, "alarm": alarm, "of": kind.of}
                for kind, count, rate, alarm, _ in self.rows()
            },
            "facts": json_value(self.facts),
            "findings": [
                {"kind": one.kind, "id": one.id} | ({"caption": one.text} if one.text else {}) | {"detail": one.detail}
                for one in itertools.chain(*self.found.values())
            ],
            "skipped": list(self.skipped),
            "notes": self.notes,
        }

    def rows(self) -> list[tuple[Kind, int, float, bool, str]]:
        """Returns (kind, count, rate, alarm, example) for each kind checked: alarms first, then other findings."""
        alarms, rows = self.alarms(), []
        for name, kind in DEFECTS.items():
            if name not in self.skipped:
                example = next((one.example() for one in self.found.get(name, ())), "")
                rows.append((kind, self.count(name), self.rate(name), name in alarms, example))
        return sorted(rows, key=lambda row: (not row[3], not row[1]))

    def headline(self) -> str:
        """Returns the result in one sentence."""
        alarms = self.alarms()
        of = f"{self.captions:,} captions of {self.pictures:,} pictures"
        if not alarms:
            return f"{of}: no kind of defect exceeds its threshold"
        kinds = "kind of defect exceeds" if len(alarms) == 1 else "kinds of defects exceed"
        return f"{of}: {len(alarms)} {kinds} {'its' if len(alarms) == 1 else 'their'} threshold: {few(alarms, 4)}"

    def table(self) -> rich.console.Group:
        """Returns the table of kinds for the terminal, alarms first."""
        table = rich.table.Table(box=box.SIMPLE_HEAD, title=self.headline(), title_justify="left")
        table.add_column()
        table.add_column("kind")
        for name in ("count", "%", "threshold"):
            table.add_column(name, justify="right")
        table.add_column("example", overflow="ellipsis", no_wrap=True, max_width=70)
        for kind, count, rate, alarm, example in self.rows():
            level = f"{100 * kind.level:g}"
            cells = ("!" if alarm else "", kind.name, f"{count:,}", f"{100 * rate:.2f}", level, rich.text.Text(example))
            table.add_row(*cells, style="bold" if alarm else "" if count else "dim")
        facts = [f"{name}: {value:,.3g}" for name, value in self.facts.items()]
        return rich.console.Group(
            table,
            *map(rich.text.Text, facts),
            *(rich.text.Text(f"note: {note}", style="yellow") for note in self.notes),
        )


def _more_than_chance(count: int, expected: float) -> bool:
    """Returns whether a Poisson variable with mean ``expected`` is at least ``count`` with probability below 0.05."""
    if expected > 100:
        return count > expected + 1.645 * math.sqrt(expected)
    below = sum(math.exp(n * math.log(expected) - expected - math.lgamma(n + 1)) for n in range(count))
    return 1 - below < 0.05
