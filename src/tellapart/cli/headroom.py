"""``tellapart eval headroom``: how much of what a captioner knows its captions say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.cli.common import App, Device, Json, show

if TYPE_CHECKING:
    from rich.table import Table

    from tellapart.evaluation.headroom import Headroom, Interval

app = App()


@app.command("eval headroom", hidden=True)
def headroom(
    model: Annotated[str, typer.Argument(help="A captioner: folder, run, hub name, or 'scenes'.")],
    pictures: Annotated[list[str], typer.Argument(help="Data sets as kind:path?key=value, with references or scenes.")],
    samples: Annotated[int, typer.Option(min=1, metavar="N", help="Sampled captions of each picture.")] = 10,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest caption, in tokens.")] = 40,
    seed: Annotated[int, typer.Option(min=0, help="Of the samples.")] = 0,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Rank what a captioner states of pictures by its own confidence, and see how much of it its captions say.

    Prints precision and recall of the greedy captions beside what the captioner could state at the same precision. On
    scenes claims are compared with the scenes themselves, elsewhere words with the words of the references.
    """
    from tellapart.captioners import load_captioner
    from tellapart.data import open_many
    from tellapart.evaluation.headroom import measure_headroom
    from tellapart.features.store import FeatureStore
    from tellapart.features.views import make_view
    from tellapart.models.device import resolve_device
    from tellapart.utils.messages import say

    captioner, dataset = load_captioner(model, resolve_device(device), "fp32"), open_many(pictures)
    view = make_view(captioner, FeatureStore())
    items = view.readable(dataset, dataset.unreadable)
    found = measure_headroom(captioner, items, view.rows(items), samples=samples, max_tokens=max_tokens, seed=seed)
    show(found.to_json(), lambda: headroom_table(found, model), as_json)
    for line in dataset.report():
        say(line)


def headroom_table(found: Headroom, model: str) -> Table:
    """For the terminal: the greedy captions, and points of the curve."""
    from rich.table import Table

    from tellapart.evaluation.headroom import LEVELS

    greedy = found.greedy()
    shown = Table(title=f"{model}: {len(found.facts_N):,} pictures, by {found.truth}; 95 % intervals over pictures")
    for name in ("claims", "precision, %", "recall, %"):
        shown.add_column(name, justify="left" if name == "claims" else "right")
    shown.add_row("of the greedy captions", _cell(greedy.precision), _cell(greedy.recall))
    shown.add_row("at their precision", f"{greedy.precision[0]:.1f}", _cell(found.recall_at(greedy.precision[0])))
    for level in LEVELS:
        shown.add_row(f"at a precision of {level}", f"{level:.1f}", _cell(found.recall_at(level)))
    return shown


def _cell(value: Interval) -> str:
    return f"{value[0]:.1f} [{value[1]:.1f}, {value[2]:.1f}]"
