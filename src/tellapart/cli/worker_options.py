"""The options of commands that support multiple workers: ``--workers``, ``--ray`` and those that depend on them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from tellapart.errors import UsageError, nearest
from tellapart.jobs.worker_share import Workers

PANEL = "Multiple workers"
LEAST_RESOURCES = {"cpus": 0.1, "gpus": 0.0}  # per worker
# The optional value of --ray.
RAY_ADDRESS = re.compile(r"(?:auto|ray://[^\s?]+|[\w.\-\[\]:]+:\d+)(?:\?\S+)?|(?:local)?\?\S+")


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


def with_optional_values(args: list[str]) -> list[str]:
    """Rewrites ``--ray`` as ``--ray=auto``, unless the next argument is its address."""
    replaced: list[str] = []
    for place, argument in enumerate(args):
        if argument == "--":
            return [*replaced, *args[place:]]
        following = args[place + 1] if place + 1 < len(args) else ""
        bare = argument == "--ray" and not RAY_ADDRESS.fullmatch(following)
        replaced.append("--ray=auto" if bare else argument)
    return replaced
