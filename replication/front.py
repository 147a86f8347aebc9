"""The picture of ``replication tradeoff --svg``: R@1 among look-alikes against hallucination, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any

from tellapart.report.curves import PlotFrame

WIDTH, HEIGHT, LEFT, BELOW, MARGIN = 640, 400, 56, 48, 24
FRAME = PlotFrame(WIDTH, HEIGHT, left=LEFT, right=MARGIN, top=MARGIN, bottom=BELOW)
LETTER, LINE = 6.6, 14  # of a name, in the units of the picture
FLOOR = HEIGHT - BELOW
Box = tuple[float, float, float, float]  # left, top, right, bottom
At = Callable[[float, float], tuple[float, float]]  # from both values to the picture's units
X, Y = "hallucination", "hard"
CURVE = "#0b6e99"
OTHER = "#5f6368"


def front_svg(systems: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """An SVG of ``systems`` as `TradeoffResult.to_json` has them. The line is self-distillation at all its settings.

    Arms that claim nothing are left out. Raises ValueError where no arm is left.
    """
    arms = {name: (row[X], row[Y]) for name, row in systems.items() if row[X]["value"] is not None}
    if not arms:
        raise ValueError("no arm to draw; expected one with hallucination and R@1")
    most_x = 1.1 * max(x["high"] for x, _ in arms.values()) or 1.0
    most_y = 1.1 * max(y["high"] for _, y in arms.values()) or 1.0

    to_x, to_y = FRAME.x(0, most_x), FRAME.y(0, most_y)

    def at(x: float, y: float) -> tuple[float, float]:
        return round(to_x(x), 1), round(to_y(y), 1)

    parts = [_axes(most_x, most_y, at)]
    ours = sorted((x["value"], y["value"]) for name, (x, y) in arms.items() if is_ours(name))
    points = " ".join("{},{}".format(*at(*one)) for one in ours)
    parts.append(f'<polyline points="{points}" fill="none" stroke="{CURVE}" stroke-width="1.5"/>')
    dots = {name: Dot(at, x, y) for name, (x, y) in arms.items()}
    places = labels(dots)
    for name, dot in dots.items():
        colour = CURVE if is_ours(name) else OTHER
        parts.append(
            f'<g stroke="{colour}" stroke-opacity="0.5"><path d="{dot.whiskers}"/></g>'
            f'<circle cx="{dot.x}" cy="{dot.y}" r="4" fill="{colour}"/>'
        )
        text_x, text_y = places[name]
        near_x = min(text_x, text_x + LETTER * len(name), key=lambda end: abs(end - dot.x))
        parts.append(f'<path d="M{dot.x} {dot.y}L{near_x:.1f} {text_y - 4}" stroke="{colour}" opacity="0.4"/>')
        parts.append(f'<text x="{text_x}" y="{text_y}" fill="{colour}">{escape(name)}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">'
        "<title>R@1 among look-alikes against hallucination</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


class Dot:
    """An arm in the picture's units: its place, and its intervals."""

    def __init__(self, at: At, x: Mapping[str, Any], y: Mapping[str, Any]) -> None:
        (self.x, self.y), (self.left, self.low), (self.right, self.high) = (
            at(x[key], y[key]) for key in ("value", "low", "high")
        )

    @property
    def whiskers(self) -> str:
        """Both intervals as a path."""
        return f"M{self.left} {self.y}H{self.right}M{self.x} {self.low}V{self.high}"

    @property
    def boxes(self) -> list[Box]:
        """What no name may stand on."""
        return [
            (self.x - 5, self.y - 5, self.x + 5, self.y + 5),
            (self.left, self.y - 1, self.right, self.y + 1),
            (self.x - 1, self.high, self.x + 1, self.low),
        ]


def labels(dots: Mapping[str, Dot]) -> dict[str, tuple[float, float]]:
    """Where each dot's name begins (its baseline): the nearest free place, on no other name, dot or interval."""
    taken = [box for dot in dots.values() for box in dot.boxes]
    found: dict[str, tuple[float, float]] = {}
    for name, dot in dots.items():
        width = LETTER * len(name)
        boxes = []
        for lines in sorted(range(-12, 13), key=abs):
            for left in (dot.x + 6 + 4 * abs(lines), dot.x - 6 - 4 * abs(lines) - width):
                bottom = dot.y - 3 + LINE * lines
                boxes.append((left, bottom - LINE + 3, left + width, bottom + 3))
        inside = [box for box in boxes if box[0] > LEFT + 2 and box[2] < WIDTH and box[1] > 0 and box[3] < FLOOR]
        free = [box for box in inside if not any(_overlap(box, other) for other in taken)]
        chosen = (free or boxes)[0]
        taken.append(chosen)
        found[name] = round(chosen[0], 1), round(chosen[3] - 3, 1)
    return found


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def is_ours(name: str) -> bool:
    """Whether an arm is self-distillation at one of its settings."""
    return name == "truthful" or name.startswith("speaker")


def _axes(most_x: float, most_y: float, at: At) -> str:
    (x0, y0), (x1, y1) = at(0, 0), at(most_x, most_y)
    lines = [f'<path d="M{x0} {y1}V{y0}H{x1}" fill="none" stroke="{OTHER}"/>']
    for value in ticks(most_x):
        x = at(value, 0)[0]
        lines.append(f'<text x="{x}" y="{y0 + 16}" text-anchor="middle" fill="{OTHER}">{value:g}</text>')
    for value in ticks(most_y):
        y = at(0, value)[1]
        lines.append(f'<text x="{x0 - 6}" y="{y + 4}" text-anchor="end" fill="{OTHER}">{value:g}</text>')
    middle_x, middle_y = (x0 + x1) / 2, (y0 + y1) / 2
    lines.append(f'<text x="{middle_x}" y="{y0 + 36}" text-anchor="middle">hallucinations, % of claims</text>')
    lines.append(
        f'<text x="16" y="{middle_y}" text-anchor="middle" transform="rotate(-90 16 {middle_y})">'
        "R@1 among look-alikes, %</text>"
    )
    return "".join(lines)


def ticks(most: float) -> list[float]:
    """Four to eight round values from 0 to ``most``."""
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if most / step <= 8)
    return [round(step * number, 1) for number in range(int(most / step) + 1)]
