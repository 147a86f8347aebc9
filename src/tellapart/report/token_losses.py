"""Draws the loss of each token in a caption."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tellapart.report.curves import nice_ticks, value_text


def draw_token_losses(title: str, losses: Sequence[tuple[str, float, float, str, float]]) -> str:
    """Draws an SVG with the loss of each token under MLE and SMILE, side by side, and the likeliest token below it.

    losses: the result of `tellapart.evaluation.token_losses.token_losses`.
    """
    step, height, left, top = 74, 180, 44, 44
    highest = max([1e-9, *(max(mle, smile) for _, mle, smile, _, _ in losses)])
    width, bottom = left + step * len(losses) + 12, top + height
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 64}" font-family="sans-serif" '
        f'font-size="11"><rect width="100%" height="100%" fill="#fff"/><title>{escape(title)}</title>',
        f'<text x="{left}" y="16" font-size="13">{escape(title)}</text>',
    ]
    for place, (name, colour) in enumerate(LOSS_COLOURS.items()):
        parts.append(f'<rect x="{left + 90 * place}" y="24" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{left + 14 + 90 * place}" y="33">{name}, nats</text>')
    for tick in nice_ticks(0, highest, 4):
        y = bottom - height * tick / highest
        parts.append(f'<path d="M{left} {y:.1f}H{width - 12}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value_text(tick)}</text>')
    for place, (word, mle, smile, likeliest, p) in enumerate(losses):
        x = left + step * place + 10
        for shift, loss, colour in zip((0, 24), (mle, smile), LOSS_COLOURS.values(), strict=True):
            tall = height * loss / highest
            parts.append(
                f'<rect x="{x + shift}" y="{bottom - tall:.1f}" width="22" height="{tall:.1f}" fill="{colour}">'
                f"<title>{loss:.3f} nats</title></rect>"
            )
        below = ((word, "#000"), (likeliest, "#777"), (f"{100 * p:.0f}%", "#777"))
        for row, (text, colour) in enumerate(below, start=1):
            parts.append(
                f'<text x="{x + 23}" y="{bottom + 16 * row}" text-anchor="middle" fill="{colour}">{escape(text)}</text>'
            )
    return "".join([*parts, "</svg>\n"])


LOSS_COLOURS = {"MLE": "#b04a3a", "SMILE": "#2f6f9f"}
