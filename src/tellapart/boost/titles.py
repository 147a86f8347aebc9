"""Names of the kinds of captions in tables and on pages."""

from __future__ import annotations

import math

from tellapart.boost import stages
from tellapart.boost.stages import NAMES


def percent(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "–"


HUMAN = "human"
KINDS = (HUMAN, *NAMES)
TITLES = {HUMAN: "human", **stages.TITLES}
