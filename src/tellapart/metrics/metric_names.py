"""The names of metrics: keys in any spelling, the COCO tools' names and the papers' names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from tellapart.metrics.metric import Metric
from tellapart.metrics.result_keys import KEY_SUFFIXES

_ALIKE = 0.75  # minimum similarity of a misspelling; 'choir' must not count as a misspelt 'cider'


_SHORTEST_START = 4  # minimum length of a prefix for which a name is suggested


def normalized(name: str) -> str:
    """Removes spelling variation from a name: case, spaces, hyphens, underscores and brackets."""
    return re.sub(r"[\s_(){}-]+", "", name.lower())


def resolve(name: str, table: Mapping[str, Metric]) -> list[str]:
    """Returns the keys that a name stands for, in table order, or an empty list if no metric has this name."""
    if name in table:
        return [name]
    wanted = normalized(name)
    if family := [key for key, metric in table.items() if wanted in metric.families and not key.endswith(KEY_SUFFIXES)]:
        return family
    suffix = next((suffix for suffix in KEY_SUFFIXES if wanted.endswith(suffix)), "")
    base = wanted.removesuffix(suffix)
    found = (key for key, metric in table.items() if base in (normalized(key), *metric.aliases))
    return [key + suffix for key in found if key + suffix in table][:1]


def suggestion(name: str, table: Mapping[str, Metric]) -> str:
    """Returns a hint such as ``; did you mean 'meteor'?``, or a hint on how to list all metrics."""
    wanted = normalized(name)
    names = {normalized(key): key for key in table}
    names |= {alias: key for key, metric in table.items() for alias in metric.aliases}
    starts = [known for known in names if len(wanted) >= _SHORTEST_START and known.startswith(wanted)]
    close = sorted(starts) or difflib.get_close_matches(wanted, names, n=1, cutoff=_ALIKE)
    return f"; did you mean '{names[close[0]]}'?" if close else "; see --metrics list for all metrics"
