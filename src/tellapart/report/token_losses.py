"""Draws the loss of each token in a caption."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.report.plot import nice_ticks, value_text
from tellapart.report.template import HERE, template


def draw_token_losses(title: str, losses: Sequence[tuple[str, float, float, str, float]]) -> str:
    """Draws an SVG that shows each token's losses under MLE and SMILE side by side, and the likeliest token below them.

    losses: the result of `tellapart.evaluation.mle_smile_losses.token_losses`.
    """
    highest = max([1e-9, *(max(mle, smile) for _, mle, smile, _, _ in losses)])
    ticks = [(tick, value_text(tick)) for tick in nice_ticks(0, highest, 4)]
    return template(HERE / "token_losses.html").render(title=title, losses=losses, highest=highest, ticks=ticks)
