"""``tellapart demo``: demonstrates self-distillation on the synthetic world `scenes`, step by step."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rich
import rich.color
import rich.console
import rich.style
import rich.table
import rich.text
from PIL import Image
from rich import box
from rich.console import RenderableType

from tellapart.cli.app import TRAINING, App
from tellapart.cli.options import Device, Json, RecipePrecision, precision_settings
from tellapart.cli.output import show
from tellapart.report.folder import read_run
from tellapart.report.system_comparison import compare
from tellapart.utils.messages import say
from tellapart.utils.terminal_text import console

RECIPE = "demo"
METRIC_ROWS = ("recall@1.lookalike", "listener_accuracy", "attribute_precision", "hallucination_rate", "cider")
app = App()


@app.command(rich_help_panel=TRAINING)
def demo(
    out: Path = Path("runs/demo"),
    device: Device = "auto",
    precision: RecipePrecision = "auto",
    as_json: Json = False,
) -> None:
    """Train a small captioner to distinguish look-alikes in the synthetic world, in about two minutes.

    Args:
        out: Run folder.
    """
    from tellapart.models.devices import running_on

    with running_on(device):
        run_demo(out, precision_settings(precision))
    show(json.loads((out / "results.json").read_text(encoding="utf-8")), lambda: summary(out), as_json)
    say(f"model: {out / 'model'}")


def run_demo(out: Path, settings: Sequence[str] = ()) -> None:
    """Trains the demo recipe, then shows three pictures with their captions before and after training.

    An interrupted demo continues from its last checkpoint. A finished demo is shown again.
    """
    from tellapart.recipe.reading import read_recipe
    from tellapart.recipe.shipped_recipes import find_recipe
    from tellapart.training.runs import train

    say(
        "A small captioner, trained on scenes by maximum likelihood, writes captions that fit many pictures.\n"
        "It now learns to write captions that are accurate and fit only one picture. It trains on its own\n"
        "captions: short ones that use only words it is sure of, chosen by a scorer that must find the picture\n"
        "among its look-alikes."
    )
    run = train(read_recipe(find_recipe(RECIPE), settings), out, resume=True)
    for example in examples(run.folder):
        show_example(run.folder, example)


def examples(folder: Path, count: int = 3) -> list[dict[str, Any]]:
    """Returns the gallery's first look-alike sets whose captions before and after training differ."""
    path = folder / "gallery.json"
    sets = json.loads(path.read_text(encoding="utf-8"))["sets"] if path.is_file() else []
    differing = [s for s in sets if s["systems"]["before"]["caption"] != s["systems"]["after"]["caption"]]
    return differing[:count]


def show_example(folder: Path, example: dict[str, Any]) -> None:
    """Prints one picture (drawn with half blocks in a terminal) and its captions."""
    gallery = json.loads((folder / "gallery.json").read_text(encoding="utf-8"))
    say("")
    if sys.stderr.isatty():
        with Image.open(folder / gallery["pictures"][example["target"]]) as image:
            draw(image.convert("RGB"))
    for name in ("before", "after"):
        answer = example["systems"][name]
        found = ("finds it" if answer["picked"] == example["target"] else "finds another picture") + claims_text(answer)
        say(f"  {name + ':':8}{answer['caption'] or '(nothing)'}\n          → among look-alikes, the scorer {found}")


def claims_text(answer: dict[str, Any]) -> str:
    """Describes how many of a caption's claims are correct, and which words are false.

    Returns an empty string for runs of tellapart 0.1, which did not record claims.
    """
    if not (claims := answer.get("claims")):
        return ""
    false = ", ".join(f"“{answer['caption'][start:end]}” is {why}" for start, end, why in claims["false"])
    return f"; {claims['correct']} of {claims['of']} claims correct" + (f": {false}" if false else "")


def draw(image: Image.Image, columns: int = 40) -> None:
    """Prints a picture in a terminal: each character shows two pixels, one above the other."""
    small = image.resize((columns, columns))
    text = rich.text.Text()
    for y in range(0, columns - 1, 2):
        text.append("  ")
        for x in range(columns):
            upper, lower = (rich.color.Color.from_rgb(*small.getpixel((x, y + dy))) for dy in (0, 1))  # type: ignore[misc]
            text.append("▀", rich.style.Style(color=upper, bgcolor=lower))
        text.append("\n")
    console(stderr=True).print(text, end="")


def summary(folder: Path) -> RenderableType:
    """Returns a table of the five main changes, and the path of the report that contains all of them."""
    results = read_run(folder).results
    comparison = compare(results) if results is not None else None
    if comparison is None:
        return "there is nothing to compare"
    table = rich.table.Table(box=box.SIMPLE_HEAD)
    for head in ("metric", "chance", comparison.before, comparison.after, "difference", ""):
        table.add_column(head, justify="right" if head not in ("metric", "") else "left")
    for c in filter(None, map(comparison.get, METRIC_ROWS)):
        chance = c.metric.candidates.chance if c.metric.candidates else None
        table.add_row(
            c.metric.name, "" if chance is None else f"{chance:.1f}", *c.values.split(" to "), c.by, c.verdict
        )
    return rich.console.Group(
        table, rich.text.Text(f"all {len(comparison.changes)} metrics, with intervals: {folder / 'report.html'}")
    )
