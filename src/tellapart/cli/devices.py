"""The options ``--device`` and ``--precision`` of every command that runs a model (docs/devices.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

Device = Annotated[
    str, typer.Option(metavar="NAME", help="auto, cpu, cuda, cuda:1, mps. Auto: the accelerator, else the CPU.")
]
InferencePrecision = Annotated[
    str, typer.Option("--precision", help="auto, fp32, bf16, fp16. Auto: bf16 where the device multiplies in it.")
]
ExactPrecision = Annotated[
    str, typer.Option("--precision", help="auto, fp32, bf16, fp16. Auto: fp32, as metrics are compared in.")
]
RecipePrecision = Annotated[str, typer.Option("--precision", help="auto, fp32, bf16. Auto: what the recipe says.")]


def precision_settings(precision: str) -> Sequence[str]:
    """The ``--set`` that ``--precision`` stands for in training. Raises `UsageError`."""
    from tellapart.errors import UsageError

    if precision == "fp16":
        raise UsageError("fp16 would need a scaled loss, which training here does not have; type: --precision bf16")
    if precision not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {precision}: expected auto, fp32 or bf16")
    return () if precision == "auto" else (f"training.precision={precision}",)
