"""Options that several commands have. ``--device`` and ``--precision``: docs/devices.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tellapart.errors import UsageError

if TYPE_CHECKING:
    from tellapart.jobs.cluster import Workers as ClusterWorkers

Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout, and nothing else there.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a key, as in training.steps=200. Repeatable."),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Remove the run in --out and begin anew, once all is checked and loaded.")
]
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
    if precision == "fp16":
        raise UsageError("fp16 would need a scaled loss, which training here does not have; type: --precision bf16")
    if precision not in ("auto", "fp32", "bf16"):
        raise UsageError(f"--precision {precision}: expected auto, fp32 or bf16")
    return () if precision == "auto" else (f"training.precision={precision}",)


PANEL = "Many workers"


@dataclass(frozen=True)
class WorkerOptions:
    """The options of commands that many workers can do."""

    workers: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="N processes on this machine, by Ray.", rich_help_panel=PANEL),
    ] = None
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="[ADDRESS]",
            help="The Ray cluster that this machine has joined by ray start.",
            rich_help_panel=PANEL,
        ),
    ] = None
    cpus_per_worker: Annotated[
        float | None, typer.Option(min=0.1, help="CPU cores of each worker.", rich_help_panel=PANEL)
    ] = None
    gpus_per_worker: Annotated[
        float | None, typer.Option(min=0, help="GPUs of each worker; 0.5: two share one.", rich_help_panel=PANEL)
    ] = None
    shard_items: Annotated[
        int | None, typer.Option(min=1, help="Pictures in a shard of a list. Default: 1024.", rich_help_panel=PANEL)
    ] = None

    @property
    def wanted(self) -> bool:
        """Is True where the command is a job. Raises `UsageError` for an option that has no effect without."""
        if self.workers is not None or self.ray is not None:
            return True
        for name, value in asdict(self).items():
            if value not in (None, False):
                option = f"--{name.replace('_', '-')}"
                raise UsageError(f"{option} is for many workers; type --workers 2 or --ray with it, or leave it out")
        return False

    def cluster(self) -> ClusterWorkers:
        """Returns the workers that are wanted."""
        from tellapart.jobs.cluster import Workers

        return Workers(self.workers, self.ray, self.cpus_per_worker, self.gpus_per_worker)


@dataclass(frozen=True)
class JobOptions(WorkerOptions):
    """The options of commands that are one job, which can be estimated."""

    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Time a sample, print hours, cost and disk, and stop.", rich_help_panel=PANEL),
    ] = False
    price: Annotated[
        float | None,
        typer.Option(min=0, metavar="AMOUNT", help="With --estimate: of a worker for an hour.", rich_help_panel=PANEL),
    ] = None

    @property
    def wanted(self) -> bool:
        """As `WorkerOptions.wanted`."""
        wanted = super().wanted
        if wanted and self.price is not None and not self.estimate:
            raise UsageError("--price is for --estimate; type it with it, or leave it out")
        return wanted


def recipe_names(incomplete: str) -> list[str]:
    """Recipes that ship with the package, and TOML files and folders that begin so, for the shell's completion."""
    from tellapart.recipe.reading import shipped

    folder, begun = Path(incomplete).parent if "/" in incomplete else Path(), incomplete.rpartition("/")[2]
    found = sorted(folder.glob(f"{begun}*")) if folder.is_dir() else []
    files = [f"{each}/" if each.is_dir() else str(each) for each in found if each.is_dir() or each.suffix == ".toml"]
    return [name for name in shipped() if name.startswith(incomplete)] + files
