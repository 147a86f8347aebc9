"""``python -m benchmarks NAME``: timings against reference implementations."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmarks import BENCHMARKS, run_bench
from tellapart.cli.app import App
from tellapart.cli.entry import run
from tellapart.cli.options import Json
from tellapart.cli.output import show

app = App(context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False)


@app.command()
def bench(
    work: Annotated[str, typer.Argument(help=f"Benchmark: {', '.join(BENCHMARKS)}.")],
    repeat: Annotated[int | None, typer.Option(min=1, help="Number of runs; medians are shown. [default: 3]")] = None,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Run only rows whose name contains this text.")] = "",
    full: Annotated[
        bool,
        typer.Option("--full", help="Run all rows, not only those that take at most five minutes (bags, caption)."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Model to train (rollout): clipcap-gpt2, blip-base or qwen2-vl-2b."),
    ] = None,
    pictures: Annotated[
        int | None, typer.Option(min=1, help="Number of photos, split into --repeat parts (caption).")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Device (caption): auto, cpu, cuda, cuda:1, or mps.")] = None,
    precision: Annotated[str | None, typer.Option(help="Precision (caption): auto (both), bf16 or fp32.")] = None,
    what: Annotated[str | None, typer.Option(help="Work (growth): eval, caption or bags. [default: eval]")] = None,
    to: Annotated[float | None, typer.Option(help="Largest size (growth), such as 1e6. [default: 1e5]")] = None,
    as_json: Json = False,
) -> None:
    """Time our implementations side by side with common ones, or measure how time and memory grow with the data."""
    from benchmarks.rows import table

    chosen: dict[str, object] = {"model": model, "pictures": pictures, "device": device, "precision": precision}
    chosen |= {"what": what, "to": to, "full": full or None}
    options = {name: value for name, value in chosen.items() if value is not None}
    rows = run_bench(work, repeat, only, **options)
    runs = max((len(row.ours_R) for row in rows), default=0)
    title = f"{work}: medians of {runs} runs (least–most); ratio above 1: ours is better"
    show({"rows": [row.to_json() for row in rows]}, lambda: table(rows, title), as_json)


def main() -> None:
    """Runs ``python -m benchmarks NAME``."""
    run(app, "python -m benchmarks")


if __name__ == "__main__":
    main()
