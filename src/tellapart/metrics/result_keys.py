"""The keys of results, such as ``recall@1.random100@second``: metric, candidate sets and additional scorer."""

from __future__ import annotations

import re
from typing import NamedTuple

from tellapart.metrics.metric_info import Candidates

ORACLE = ".oracle"  # suffix for each picture's best caption according to the metric itself
BEST = ".best"  # suffix for the caption that the scorer prefers
KEY_SUFFIXES = (ORACLE, BEST)
_KEY = re.compile(r"(?P<base>(?:recall@(?P<k>\d+)|[^@.]+)(?:\.(?P<pools>[^@]+))?)(?:@(?P<scorer>.+))?")
_SIZE = re.compile(r"(?:random|bag)(\d+)\b")


class MetricKey(NamedTuple):
    """The parts of a key. ``base``: the key without the scorer's name. ``k``: the k in recall@k, or None for other
    metrics.
    """

    base: str
    k: int | None = None
    pools: str = ""
    scorer: str = ""

    @property
    def candidates(self) -> Candidates | None:
        """Returns the number of candidates if the key is a recall that states it, as in ``recall@1.random100``."""
        if self.k is None or (named := _SIZE.match(self.pools)) is None:
            return None
        size = int(named[1])
        return Candidates(size, size, 100 * min(1.0, self.k / size))


def parse_key(key: str) -> MetricKey:
    """Parses a key. If the key does not match the pattern, the whole key becomes the base."""
    found = _KEY.fullmatch(key)
    if found is None:
        return MetricKey(key)
    k = None if found["k"] is None else int(found["k"])
    return MetricKey(found["base"], k, found["pools"] or "", found["scorer"] or "")
