"""Options shared by several commands. docs/devices.md explains ``--device`` and ``--precision``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from tellapart.errors import UsageError, nearest
from tellapart.jobs.worker_share import Workers

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


PANEL = "Multiple workers"
LEAST_RESOURCES = {"cpus": 0.1, "gpus": 0.0}  # per worker


@dataclass(frozen=True)
class WorkerOptions:
    """The options of commands that support multiple workers.

    Args:
        workers: Number of worker processes on this machine.
        ray: Address of a Ray cluster, or local, optionally with the CPUs and GPUs per worker. Without an address: the
            cluster that this machine has joined.
        shard_items: Number of pictures per shard, if the data is a folder, a list or JSON lines. Default: 1024.
    """

    workers: Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel=PANEL)] = None
    ray: Annotated[str | None, typer.Option(metavar="[ADDRESS][?cpus=4&gpus=0.5]", rich_help_panel=PANEL)] = None
    shard_items: Annotated[int | None, typer.Option(min=1, rich_help_panel=PANEL)] = None

    @property
    def wanted(self) -> bool:
        """Returns whether to run the command as a job. Raises `UsageError` for options that only affect jobs."""
        if self.workers is not None or self.ray is not None:
            return True
        for name, value in asdict(self).items():
            if value not in (None, False):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} requires multiple workers; add --workers 2 or --ray, or remove it")
        return False

    def cluster(self) -> Workers:
        """Returns the requested workers."""

        address = (self.ray or "local").partition("?")[0] or "auto"
        resources = self.resources()
        return Workers(
            self.workers, None if address == "local" else address, resources.get("cpus"), resources.get("gpus")
        )

    def resources(self) -> dict[str, float]:
        """Returns the ``cpus`` and ``gpus`` per worker, as specified in ``--ray``. Raises `UsageError`."""
        result: dict[str, float] = {}
        for pair in filter(None, (self.ray or "").partition("?")[2].split("&")):
            name, _, value = pair.partition("=")
            if name not in LEAST_RESOURCES:
                raise UsageError(f"--ray {self.ray}: unknown setting '{name}'{nearest(name, LEAST_RESOURCES)}")
            try:
                result[name] = float(value)
            except ValueError:
                result[name] = -1.0
            if not LEAST_RESOURCES[name] <= result[name] < float("inf"):
                raise UsageError(
                    f"--ray {self.ray}: expected a number of at least {LEAST_RESOURCES[name]:g}, such as {name}=1"
                )
        return result


@dataclass(frozen=True)
class JobOptions(WorkerOptions):
    """The options of commands that run as a single job, whose cost can be estimated.

    Args:
        estimate: Time a sample, print the estimated hours, cost and disk space, and exit.
        price: Hourly price of one worker (requires --estimate).
    """

    estimate: Annotated[bool, typer.Option(rich_help_panel=PANEL)] = False
    price: Annotated[float | None, typer.Option(min=0, metavar="AMOUNT", rich_help_panel=PANEL)] = None

    @property
    def wanted(self) -> bool:
        """Like `WorkerOptions.wanted`, but also checks ``--price``."""
        wanted = super().wanted
        if wanted and self.price is not None and not self.estimate:
            raise UsageError("--price requires --estimate; add it, or remove --price")
        return wanted


def recipe_names(incomplete: str) -> list[str]:
    """Completes the names of included recipes, TOML files and folders in the shell."""
    from tellapart.recipe.shipped_recipes import shipped

    folder, begun = Path(incomplete).parent if "/" in incomplete else Path(), incomplete.rpartition("/")[2]
    found = sorted(folder.glob(f"{begun}*")) if folder.is_dir() else []
    files = [f"{each}/" if each.is_dir() else str(each) for each in found if each.is_dir() or each.suffix == ".toml"]
    return [name for name in shipped() if name.startswith(incomplete)] + files
