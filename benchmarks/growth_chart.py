"""The picture of ``benchmarks growth``: curves over the number of items, both axes logarithmic, as one SVG.

A page shows it at any width: its text follows the page's colours where it stands inline, and grey where it is an image.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tellapart.report.curves import PlotFrame, path, step_text, value_text

FRAME = PlotFrame(360, 230, left=52, right=18, top=34, bottom=34)  # one below the other, for a telephone's width
RIGHT, FLOOR = FRAME.width - FRAME.right, FRAME.height - FRAME.bottom
COLOURS = ("#2b6cb0", "#b7791f")
GREY, FAINT = "#718096", "#cbd5e0"


@dataclass(frozen=True)
class Curve:
    """One measured amount by number of items."""

    name: str
    unit: str
    amounts: Mapping[int, float]


def draw(title: str, items: str, curves: Sequence[Curve]) -> str:
    """The SVG. A dashed line shows linear growth from the second size on."""
    height = FRAME.height * len(curves)
    summary = "; ".join(
        f"{curve.name}: " + ", ".join(f"{value_text(y)} {curve.unit} at {x:,}" for x, y in curve.amounts.items())
        for curve in curves
    )
    parts = [_curve(curve, items, at * FRAME.height, COLOURS[at % len(COLOURS)]) for at, curve in enumerate(curves)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {FRAME.width} {height}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="11">\n<title>{escape(title)}</title>\n'
        f"<desc>{escape(summary)}</desc>\n{''.join(parts)}</svg>\n"
    )


def _curve(curve: Curve, items: str, top: int, colour: str) -> str:
    counts, amounts = list(curve.amounts), [max(y, 1e-3) for y in curve.amounts.values()]
    first, last = math.log10(counts[0]), math.log10(counts[-1])
    low, high = math.floor(math.log10(min(amounts))), math.ceil(math.log10(max(amounts)) + 1e-9)
    to_x = FRAME.x(first, last)
    to_y = FRAME.y(low, max(high, low + 1))
    spots = [(to_x(math.log10(x)), to_y(math.log10(y))) for x, y in zip(counts, amounts, strict=True)]
    lines = [f'<g transform="translate(0 {top})">\n<text x="{FRAME.left - 40}" y="16" fill="{GREY}" font-weight="600">']
    lines.append(f"{escape(curve.name)} ({escape(curve.unit)})</text>\n")
    for power in range(low, max(high, low + 1) + 1):
        y = to_y(power)
        lines.append(f'<path d="M{FRAME.left} {y:.1f}H{RIGHT}" stroke="{FAINT}" stroke-width=".6"/>')
        text = step_text(10.0**power) if power >= 3 else value_text(10.0**power)
        lines.append(f'<text x="{FRAME.left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{GREY}">{text}</text>\n')
    for count, (x, _) in zip(counts, spots, strict=True):
        label = f'<text x="{x:.1f}" y="{FLOOR + 16}" text-anchor="middle" fill="{GREY}">'
        lines.append(f"{label}{step_text(count)}</text>\n")
    lines.append(
        f'<text x="{RIGHT}" y="{FRAME.height - 4}" text-anchor="end" fill="{GREY}">{escape(items)}; dashed: linear'
        "</text>\n"
    )
    if len(spots) > 2:
        end = math.log10(amounts[1]) + last - math.log10(counts[1])
        stop = min(end, max(high, low + 1))
        x = to_x(last - (end - stop))
        lines.append(
            f'<path d="{path((spots[1], (x, to_y(stop))))}" stroke="{GREY}" stroke-dasharray="4 4" fill="none"/>\n'
        )
    lines.append(f'<path d="{path(spots)}" stroke="{colour}" stroke-width="2" fill="none"/>\n')
    for (x, y), count, amount in zip(spots, counts, amounts, strict=True):
        anchor = "start" if count == counts[0] else "end" if count == counts[-1] else "middle"
        lines.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')
        lines.append(
            f'<text x="{x:.1f}" y="{y - 7:.1f}" text-anchor="{anchor}" fill="{colour}">{_amount(amount)}</text>\n'
        )
    return "".join([*lines, "</g>\n"])


def _amount(value: float) -> str:
    """Three digits, thousands apart."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
