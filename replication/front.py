"""``replication front``: distinctiveness (R@1) against hallucination, with one curve per method.

One captioner, trained once, captions at five levels of detail, by beam search or best-of-n; the scorer reranks among
the same look-alikes that evaluate it. Baselines are self-retrieval with several KL weights, with a cost per word, with
CIDEr or with consensus; best-of-n and MBR decoding of the initial captioner; and objectives after BalCapRL and MOCHa
with our components. Points of one curve can differ in KL, see `replication.tradeoff_arms`. Each claim compares a row of
ours with self-retrieval at one of six KL weights: our R@1 among look-alikes is at most 2 points lower, hallucinations
and wrong bindings are at most a quarter, and CIDEr is higher. The last claim is about the upper end of the curve.
Settings were chosen on seeds 0 and 1; the rule was pre-registered before the verdict on seeds 50 to 54.

``--svg`` plots R@1 among look-alikes against hallucination, with intervals (also for ``tradeoff``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from replication import cores
from replication.arms import TEST_SETS
from replication.claim import Claim, Control, Part, greater
from replication.power import ClaimPower
from replication.replay import replay
from replication.seeds import VERDICTS, Seeds
from replication.tradeoff import FOLDER, ArmsLab, measure_rows, systems_json
from replication.tradeoff_arms import DECODINGS, TOLERANCE, arms, captions_of, of
from replication.verdict import RECORDS as CLAIMS_RECORDS
from replication.verdict import claims_power, claims_verdict, to_json
from tellapart.report.plot import PlotFrame

COMMAND, RECORDS = "front", CLAIMS_RECORDS / "front"
SHARE = 0.25  # fraction of self-retrieval's false claims that may remain
# Our row that reaches the R@1 of self-retrieval with this KL weight on development seeds.
AGAINST = {
    "kl1": "detail0_sure",
    "equal_kl": "detail0.25_sure",
    "sr": "detail0.5_sure",
    "kl0.1": "detail0.5",
    "kl0.05": "detail1_best_of",
    "sr_free": "detail1_bold",
}
UPPER_END = "detail1_best_of"
TYPE = {  # the options of each row of ours
    "detail0_sure": "--detail 0 --confidence 0.7",
    "detail0.25_sure": "--detail 0.25 --confidence 0.7",
    "detail0.5_sure": "--detail 0.5 --confidence 0.7",
    "detail0.5": "--detail 0.5",
    "detail1_best_of": "--detail 1 --best-of 24 at temperature 0.35 and confidence 0.75",
    "detail1_bold": "--detail 1 --best-of 24 at temperature 0.5 and confidence 0.4",
}
KL = {"kl1": "1", "equal_kl": "0.5", "sr": "0.2", "kl0.1": "0.1", "kl0.05": "0.05", "sr_free": "0"}


def _against(theirs: str, ours: str) -> Claim:
    """Returns the claim that our row is better than self-retrieval with one KL weight."""

    def fewer(name: str, what: str) -> Part:
        return greater(f"at most a quarter of its {what}", of(theirs, name, SHARE), of(ours, name), effect=0.2)

    return Claim(
        f"front-kl-{KL[theirs]}", 3, "section 3",
        f"{TYPE[ours]} tells apart as well as self-retrieval with KL {KL[theirs]}, with a quarter of its false claims",
        "no figures: the paper has no KL and does not count false claims",
        (
            greater("R@1 at most 2 lower", of(ours, "hard"), of(theirs, "hard"), tolerance=TOLERANCE, effect=3.0),
            fewer("hallucination", "hallucinations"),
            fewer("bindings", "wrong bindings"),
            greater("higher CIDEr", of(ours, "cider"), of(theirs, "cider"), effect=5.0),
        ),
        Control("self-retrieval with CIDEr in its place", {captions_of(ours)[0]: "sr_cider"}),
    )  # fmt: skip


CLAIMS = (
    *(_against(theirs, ours) for theirs, ours in AGAINST.items()),
    Claim(
        "front-upper-end", 3, "section 3", "the most detail finds the picture among look-alikes, and is true",
        "no figures: the paper has no look-alikes and does not count false claims",
        (
            Part("R@1 among look-alikes above 45", (of(UPPER_END, "hard"),), lower=45.0, effect=3.0),
            # Bounds of 0 and 1.5: only the interval counts, and power is computed for the middle.
            Part("hallucination below 1.5", (of(UPPER_END, "hallucination"),), upper=1.5, effect=0.2),
        ),
        Control("self-retrieval with CIDEr in its place", {captions_of(UPPER_END)[0]: "sr_cider"}),
    ),
)  # fmt: skip


def make_lab(folder: Path = FOLDER) -> ArmsLab:
    """Creates the lab of ``replication tradeoff``, because both train the same arms in one folder."""
    return ArmsLab(folder, arms(), TEST_SETS, DECODINGS)


def run_front(seeds: Sequence[int], folder: Path = FOLDER) -> dict[str, Any]:
    """Measures everything on these seeds: ``{"claims": […], "systems": {…}, …}``. Trained models are reused."""
    rows = list(dict.fromkeys(row for curve in CURVES for row in curve.rows))
    results = replay(CLAIMS, make_lab(folder), seeds, workers=cores())
    table = measure_rows(make_lab(folder), rows, seeds, cores())  # a lab that has measured cannot be sent to processes
    return {**to_json(results), "systems": systems_json(table, len(seeds)), "seeds": list(seeds)}


def front_power(seeds: Seeds) -> tuple[list[ClaimPower], dict[str, Any]]:
    """Computes the power of the claims with the verdict's number of seeds; stores its record for the verdict.

    Raises `UsageError` if an arm of these seeds is not trained.
    """
    return claims_power(CLAIMS, make_lab(), seeds, RECORDS, COMMAND)


def front_verdict() -> dict[str, Any]:
    """Returns the verdict on seeds 50 to 54, given once per settings after the power is stored."""
    return claims_verdict(CLAIMS, make_lab(), lambda: run_front(VERDICTS[COMMAND]), RECORDS, COMMAND)


# The picture.


WIDTH, HEIGHT, LEFT, BELOW, MARGIN = 640, 400, 56, 48, 24
FRAME = PlotFrame(WIDTH, HEIGHT, left=LEFT, right=MARGIN, top=MARGIN, bottom=BELOW)
LETTER, LINE = 6.6, 14  # size of a label, in units of the picture
FLOOR = HEIGHT - BELOW
Box = tuple[float, float, float, float]  # left, top, right, bottom
At = Callable[[float, float], tuple[float, float]]  # maps both values to the picture's units
X, Y = "hallucination", "hard"
OURS = "#0b6e99"
OTHER = "#5f6368"
COLOURS = ("#5f6368", "#b3591d", "#7a4b94", "#3d7d3a", "#a3333d", "#8a6d00", "#4a5a8a", "#2b8a8a")  # of other curves


@dataclass(frozen=True)
class Curve:
    """Rows joined by a line, in order of hallucination. label: the curve's name; "": each row has its own label."""

    rows: tuple[str, ...]
    label: str = ""
    ours: bool = False


CURVES = (
    Curve(("detail0", "detail0.25", "detail0.5", "detail0.75", "detail1"), "--detail 0 to 1", ours=True),
    Curve(("detail0_sure", "detail0.25_sure", "detail0.5_sure"), "--confidence 0.7", ours=True),
    Curve(("detail0_best_of", "detail0.5_best_of", "detail1_best_of", "detail1_bold"), "--best-of 24", ours=True),
    Curve(("kl1", "equal_kl", "sr", "kl0.1", "kl0.05", "sr_free"), "self-retrieval, by KL"),
    Curve(("length", "length0.1"), "a price of words"),
    Curve(("sr_cider", "cider1", "cider2"), "CIDEr beside it"),
    Curve(("consensus0.5", "consensus2"), "consensus beside it"),
    Curve(("start", "start_consensus", "start_best_of3", "start_best_of"), "start, best of N"),
    Curve(("balcap4", "balcap16"), "after BalCapRL"),
    Curve(("mocha0.5",), "after MOCHa"),
)


def front_svg(systems: Mapping[str, Mapping[str, Mapping[str, Any]]], curves: Sequence[Curve] = ()) -> str:
    """Draws an SVG of ``systems`` (row → measure → ``{"value", "low", "high"}``); rows without a curve are dots.

    Omits rows that claim nothing. Raises ValueError if none is left.
    """
    rows = {name: (row[X], row[Y]) for name, row in systems.items() if row[X]["value"] is not None}
    if not rows:
        raise ValueError("no arm to draw; expected one with hallucination and R@1")
    most_x = 1.1 * max(x["high"] for x, _ in rows.values()) or 1.0
    most_y = 1.1 * max(y["high"] for _, y in rows.values()) or 1.0

    to_x, to_y = FRAME.x(0, most_x), FRAME.y(0, most_y)

    def at(x: float, y: float) -> tuple[float, float]:
        return round(to_x(x), 1), round(to_y(y), 1)

    parts, colours, names = [_axes(most_x, most_y, at)], dict.fromkeys(rows, OTHER), {name: name for name in rows}
    others = iter(COLOURS)
    for curve in curves:
        colour = OURS if curve.ours else next(others)
        drawn = sorted((name for name in curve.rows if name in rows), key=lambda name: rows[name][0]["value"])
        points = " ".join("{},{}".format(*at(*(one["value"] for one in rows[name]))) for name in drawn)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        colours |= dict.fromkeys(drawn, colour)
        if curve.label:
            names |= {name: curve.label if name == drawn[-1] else "" for name in drawn}
    dots = {name: Dot(at, x, y) for name, (x, y) in rows.items()}
    places = labels(dots, names)
    for name, dot in dots.items():
        colour = colours[name]
        parts.append(
            f'<g stroke="{colour}" stroke-opacity="0.5"><path d="{dot.whiskers}"/></g>'
            f'<circle cx="{dot.x}" cy="{dot.y}" r="4" fill="{colour}"><title>{escape(name)}</title></circle>'
        )
        if not names[name]:
            continue
        text_x, text_y = places[name]
        near_x = min(text_x, text_x + LETTER * len(names[name]), key=lambda end: abs(end - dot.x))
        parts.append(f'<path d="M{dot.x} {dot.y}L{near_x:.1f} {text_y - 4}" stroke="{colour}" opacity="0.4"/>')
        parts.append(f'<text x="{text_x}" y="{text_y}" fill="{colour}">{escape(names[name])}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="system-ui, sans-serif" font-size="12">'
        "<title>R@1 among look-alikes against hallucination</title>"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )


class Dot:
    """An arm's position and intervals, in the units of the picture."""

    def __init__(self, at: At, x: Mapping[str, Any], y: Mapping[str, Any]) -> None:
        (self.x, self.y), (self.left, self.low), (self.right, self.high) = (
            at(x[key], y[key]) for key in ("value", "low", "high")
        )

    @property
    def whiskers(self) -> str:
        """Returns both intervals as an SVG path."""
        return f"M{self.left} {self.y}H{self.right}M{self.x} {self.low}V{self.high}"

    @property
    def boxes(self) -> list[Box]:
        """Returns the boxes that labels must not overlap."""
        return [
            (self.x - 5, self.y - 5, self.x + 5, self.y + 5),
            (self.left, self.y - 1, self.right, self.y + 1),
            (self.x - 1, self.high, self.x + 1, self.low),
        ]


def labels(dots: Mapping[str, Dot], names: Mapping[str, str] | None = None) -> dict[str, tuple[float, float]]:
    """Places each dot's label (start of its baseline) at the nearest position free of labels, dots and intervals.

    names: the labels by the dots' keys (default: the key); "" gets no label.
    """
    taken = [box for dot in dots.values() for box in dot.boxes]
    found: dict[str, tuple[float, float]] = {}
    for name, dot in dots.items():
        if not (written := name if names is None else names[name]):
            continue
        width = LETTER * len(written)
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
    """Returns four to eight round values from 0 to ``most``."""
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if most / step <= 8)
    return [round(step * number, 1) for number in range(int(most / step) + 1)]
