"""What people call a metric: its key in any case, the COCO tools' name, the papers' name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from tellapart.evaluation.registry import Metric
from tellapart.evaluation.several import SUFFIXES

_ALIKE = 0.75  # below this, two names are no misspelling of each other: 'choir' is not 'cider'
_SHORTEST_START = 4  # letters of a name that may stand for the whole in a suggestion


def normalized(name: str) -> str:
    """A name without what people spell differently: case, blanks, hyphens, underscores, brackets."""
    return re.sub(r"[\s_(){}-]+", "", name.lower())


def resolve(name: str, table: Mapping[str, Metric]) -> list[str]:
    """The keys that a name stands for, in the order of the table; empty where it is no metric's name."""
    if name in table:
        return [name]
    wanted = normalized(name)
    if family := [key for key, metric in table.items() if wanted in metric.families and not key.endswith(SUFFIXES)]:
        return family
    suffix = next((suffix for suffix in SUFFIXES if wanted.endswith(suffix)), "")
    base = wanted.removesuffix(suffix)
    found = (key for key, metric in table.items() if base in (normalized(key), *metric.aliases))
    return [key + suffix for key in found if key + suffix in table][:1]


def suggestion(name: str, table: Mapping[str, Metric]) -> str:
    """A hint at the metric that was meant, such as ``; did you mean 'meteor'?``; else how to see them all."""
    wanted = normalized(name)
    names = {normalized(key): key for key in table}
    names |= {alias: key for key, metric in table.items() for alias in metric.aliases}
    starts = [known for known in names if len(wanted) >= _SHORTEST_START and known.startswith(wanted)]
    close = sorted(starts) or difflib.get_close_matches(wanted, names, n=1, cutoff=_ALIKE)
    return f"; did you mean '{names[close[0]]}'?" if close else "; type --metrics list to see them all"
