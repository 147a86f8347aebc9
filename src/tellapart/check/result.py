"""The result of a check: findings by kind, and the kinds that exceed their level."""

from __future__ import annotations

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
    """Findings by kind, and the number of captions and pictures checked. ``skipped``: kinds whose input is missing."""

    captions: int
    pictures: int
    found: dict[str, list[Finding]]
    facts: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: tuple[str, ...] = ()

    def count(self, kind: str) -> int:
        """Returns the number of captions or pictures with this kind of defect."""
        return len({(one.id, one.text) for one in self.found.get(kind, ())})

    def rate(self, kind: str) -> float:
        """Returns the share (0 to 1) of captions or pictures with this kind of defect; 0 for an empty set."""
        whole = self.captions if DEFECTS[kind].of == CAPTION else self.pictures
        return self.count(kind) / whole if whole else 0.0

    def alarms(self, levels: Mapping[str, float | None] | None = None) -> list[str]:
        """Returns the kinds that exceed their level.

        levels: the kinds to consider (default: all), each with the share that it must exceed; None stands for the
            kind's own level. If a kind also occurs in clean data, the excess must be significant (p < 0.05), so that
            one short caption among sixty does not raise an alarm.
        """
        chosen = dict.fromkeys(DEFECTS) if levels is None else levels
        return [name for name, level in chosen.items() if name not in self.skipped and self._is_alarm(name, level)]

    def _is_alarm(self, name: str, level: float | None) -> bool:
        if level is not None:
            return self.rate(name) > level
        own = DEFECTS[name].level
        whole = self.captions if DEFECTS[name].of == CAPTION else self.pictures
        return self.rate(name) > own and (own <= RARE or _more_than_chance(self.count(name), whole * own))

    def worst(self) -> list[tuple[str, list[Finding]]]:
        """Returns (id, findings) for the 50 worst captions and pictures, worst first.

        Those with the most kinds that exceed their level come first. Ties alternate between kinds, the rarest first.
        """
        loud = set(self.alarms())
        count_of = {kind: self.count(kind) for kind in self.found}
        by_id: dict[str, list[Finding]] = defaultdict(list)
        for own in self.found.values():
            for one in own:
                by_id[one.id].append(one)
        turn: Counter[str] = Counter()
        order = []
        for key, own in sorted(by_id.items()):
            rarest = min(own, key=lambda one: (one.kind not in loud, count_of[one.kind]))
            kinds = {one.kind for one in own}
            order.append((-len(kinds & loud), turn[rarest.kind], count_of[rarest.kind], key))
            turn[rarest.kind] += 1
        return [(key, by_id[key]) for *_, key in sorted(order)[:50]]

    def to_json(self) -> dict[str, Any]:
        """Returns a JSON object with counts, rates and levels by kind, findings, statistics and notes."""
        alarms = self.alarms()
        return {
            "captions": self.captions,
            "pictures": self.pictures,
            "kinds": {
                name: {
                    "count": self.count(name),
                    "rate": self.rate(name),
                    "level": kind.level,
                    "alarm": name in alarms,
                    "of": kind.of,
                }
                for name, kind in DEFECTS.items()
                if name not in self.skipped
            },
            "facts": json_value(self.facts),
            "findings": [
                {"kind": one.kind, "id": one.id} | ({"caption": one.text} if one.text else {}) | {"detail": one.detail}
                for own in self.found.values()
                for one in own
            ],
            "skipped": list(self.skipped),
            "notes": self.notes,
        }

    def rows(self) -> list[tuple[Kind, int, float, bool, str]]:
        """Returns (kind, count, rate, alarm, example) for each kind checked: alarms first, then other findings."""
        alarms = self.alarms()
        names = sorted(
            (name for name in DEFECTS if name not in self.skipped),
            key=lambda name: (name not in alarms, not self.count(name)),
        )
        return [
            (DEFECTS[name], self.count(name), self.rate(name), name in alarms, self._example(name)) for name in names
        ]

    def _example(self, kind: str) -> str:
        found = self.found.get(kind, [])
        if not found:
            return ""
        one = found[0]
        return f"{one.id}: {one.detail or one.text}"

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
        columns = {"": "left", "kind": "left", "count": "right", "%": "right", "threshold": "right"}
        for name, justify in columns.items():
            table.add_column(name, justify=justify)  # type: ignore[arg-type]
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
