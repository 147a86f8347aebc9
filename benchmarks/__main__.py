"""``python -m benchmarks NAME``: timings against the usual implementations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks import BENCHMARKS, machine_rows, run_bench
from tellapart.cli.app import App
from tellapart.cli.entry import run
from tellapart.cli.options import Json
from tellapart.cli.output import show

app = App(context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False)


@app.command()
def bench(
    work: Annotated[str, typer.Argument(help=f"What to time: {', '.join(BENCHMARKS)}.")],
    repeat: Annotated[int | None, typer.Option(min=1, help="Runs of each; medians are shown. Default: 3.")] = None,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Only rows whose work contains this, of all that --full has.")
    ] = "",
    full: Annotated[
        bool, typer.Option("--full", help="bags, caption, mining: all rows, not those that end within five minutes.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="rollout: a training step of clipcap-gpt2, blip-base or qwen2-vl-2b."),
    ] = None,
    pictures: Annotated[
        int | None, typer.Option(min=1, help="caption: photos, in --repeat parts. jobs: how many.")
    ] = None,
    device: Annotated[str | None, typer.Option(metavar="NAME", help="caption: auto, cpu, cuda, cuda:1, mps.")] = None,
    precision: Annotated[str | None, typer.Option(help="caption: auto (bf16 and fp32), bf16 or fp32.")] = None,
    what: Annotated[str | None, typer.Option(help="growth: of eval, caption or bags. Default: eval.")] = None,
    to: Annotated[float | None, typer.Option(help="growth: the most items, such as 1e6. Default: 1e5.")] = None,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="growth: draw the curve there.")] = None,
    as_json: Json = False,
) -> None:
    """Time our implementations against the usual ones, side by side; or time and memory as the data grow."""
    from benchmarks.rows import table

    chosen: dict[str, object] = {"model": model, "pictures": pictures, "device": device, "precision": precision}
    chosen |= {"what": what, "to": to, "svg": svg, "full": full or None}
    options = {name: value for name, value in chosen.items() if value is not None}
    rows = run_bench(work, repeat, only, **options)
    rows += machine_rows(work, only, **options)
    runs = max((len(row.ours_R) for row in rows), default=0)
    title = f"{work}: medians of {runs} runs (least–most); ratio above 1: ours is better"
    show({"rows": [row.to_json() for row in rows]}, lambda: table(rows, title), as_json)


def main() -> None:
    """Run ``python -m benchmarks NAME``."""
    run(app, "python -m benchmarks")


if __name__ == "__main__":
    main()
