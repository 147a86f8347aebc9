"""The cluster: Ray on this machine for as long as a job runs, or one that is there (``ray start --head``).

Ray sends nothing anywhere: its usage statistics are off. Its object store is small, for no data of a job pass through
it: workers read their shards and write their results themselves.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError

STORE_BYTES = 80 << 20  # Ray's own lower bound is 75 MB


@dataclass(frozen=True)
class Workers:
    """What was asked for. ``count`` None: as many as the cluster has room for; ``address`` None: this machine.

    ``cpus`` and ``gpus`` of each worker: None chooses (see `share`); ``gpus`` may be a fraction.
    """

    count: int | None = None
    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None


@dataclass(frozen=True)
class Share:
    """What each of ``count`` workers gets."""

    count: int
    cpus: float
    gpus: float


def load_ray() -> Any:
    """Ray, or a `MissingExtra` that says what to install."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "--workers") from None
    return ray


@contextlib.contextmanager
def connected(wanted: Workers) -> Iterator[tuple[Any, Share]]:
    """Ray, connected, and what each worker gets. Ray that was started here ends with the block.

    Raises `UsageError` where there is no cluster at the address.
    """
    ray = load_ray()
    settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "CRITICAL"}
    if wanted.address is None:
        cores = os.cpu_count() or 1
        count = wanted.count or 1
        cpus = wanted.cpus if wanted.cpus is not None else max(1, cores // count)
        settings |= {"num_cpus": max(cores, math.ceil(count * cpus)), "object_store_memory": STORE_BYTES}
        settings["address"] = "local"
    else:
        settings["address"] = wanted.address
        del settings["include_dashboard"]
    try:
        ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if wanted.address is None else f"at '{wanted.address}'"
        first = " ".join(str(error).split())[:160]
        raise UsageError(
            f"no Ray cluster {where} ({first}); start one with: ray start --head, or leave out --ray"
        ) from None
    try:
        yield ray, share(wanted, ray.cluster_resources())
    finally:
        ray.shutdown()


def share(wanted: Workers, there: dict[str, float]) -> Share:
    """What each worker gets of the resources of a cluster.

    GPUs: what was asked for, else one each, or on this machine an equal part of those it has; 0 where there are none.
    CPUs: one, or on this machine an equal part of its cores. Raises `UsageError` for more than the cluster has.
    """
    cores, gpus = there.get("CPU", 0.0), there.get("GPU", 0.0)
    if wanted.gpus and not gpus:
        raise UsageError(f"--gpus-per-worker {wanted.gpus:g}: this cluster has no GPU; leave it out")
    if wanted.address is None:
        count = wanted.count or 1
        each = wanted.gpus if wanted.gpus is not None else min(1.0, gpus / count)
        return Share(count, wanted.cpus if wanted.cpus is not None else max(1, (os.cpu_count() or 1) // count), each)
    each = wanted.gpus if wanted.gpus is not None else min(1.0, gpus)
    cpus = wanted.cpus if wanted.cpus is not None else 1.0
    room = min(cores // cpus if cpus else math.inf, gpus // each if each else math.inf)
    if room < 1:
        raise UsageError(f"the cluster has {cores:g} CPUs and {gpus:g} GPUs, too few for one worker; ask for less")
    count = wanted.count if wanted.count is not None else int(min(room, 10_000))
    return Share(count, cpus, each)


def alive_nodes(ray: Any) -> set[str]:
    """The ids of the nodes that are there."""
    try:
        return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    except Exception as error:
        raise TellapartError(f"the cluster is gone ({type(error).__name__}); the same command goes on") from None
