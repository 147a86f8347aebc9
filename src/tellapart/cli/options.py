"""Options shared by several commands. docs/devices.md explains ``--device`` and ``--precision``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from tellapart.errors import UsageError

Pictures = Annotated[list[str], typer.Argument(help="Folders, picture files, or data sets as kind:path?key=value.")]
OutFile = Annotated[Path, typer.Option("--out", "-o", dir_okay=False)]
OutFolder = Annotated[Path, typer.Option("--out", "-o", file_okay=False)]
OptionalFile = Annotated[Path | None, typer.Option(dir_okay=False)]
Count = Annotated[int, typer.Option(min=1)]
OptionalCount = Annotated[int | None, typer.Option(min=1)]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on the loopback address; 0 picks a free one.")]
OpenPage = Annotated[bool, typer.Option("--open", help="Open the page in the browser.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON to stdout.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key, such as training.steps=200. Repeatable."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing run in --out.")]
Device = Annotated[
    str, typer.Option(metavar="NAME", help="Device: auto (the accelerator, if present), cpu, cuda, cuda:1, or mps.")
]
InferencePrecision = Annotated[
    str, typer.Option("--precision", help="auto (bf16 if the device supports it, otherwise fp32), fp32, bf16, or fp16.")
]
ExactPrecision = Annotated[
    str, typer.Option("--precision", help="auto (fp32, for comparable metrics), fp32, bf16, or fp16.")
]
RecipePrecision = Annotated[
    str,
    typer.Option("--precision", help="auto (the recipe's precision; finetune: bf16 if supported), fp32, or bf16."),
]


def precision_settings(precision: str) -> Sequence[str]:
    """Returns the ``--set`` that corresponds to ``--precision`` in training. Raises `UsageError`."""
    if precision == "fp16":
        raise UsageError(
            "--precision fp16 is not supported for training, which does not scale the loss; use --precision bf16"
        )
    if precision not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {precision}: expected auto, fp32 or bf16")
    return () if precision == "auto" else (f"training.precision={precision}",)
