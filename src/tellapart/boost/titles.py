"""Titles for the kinds of captions, in tables and on pages."""

from __future__ import annotations

import math

from tellapart.boost import stages
from tellapart.boost.stages import STAGE_NAMES


def percent(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "–"


HUMAN = "human"
CAPTION_KINDS = (HUMAN, *STAGE_NAMES)
TITLES = {HUMAN: "human", **stages.TITLES}
