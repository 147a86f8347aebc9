"""The requested workers, and each one's share of a cluster's resources."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tellapart.errors import UsageError


@dataclass(frozen=True)
class Workers:
    """The requested workers.

    count: the number of workers, or None for as many as fit into the cluster.
    address: the cluster's address, or None for this machine.
    cpus, gpus: the resources per worker, or None to let `share` choose. ``gpus`` can be a fraction.
    """

    count: int | None = None
    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None

    @property
    def local_cpus(self) -> float:
        """The CPUs per worker on this machine. By default, the workers share the cores equally."""
        return max(1, (os.cpu_count() or 1) // (self.count or 1)) if self.cpus is None else self.cpus


@dataclass(frozen=True)
class Share:
    """The resources for each of ``count`` workers."""

    count: int
    cpus: float
    gpus: float


def share(workers: Workers, nodes: Sequence[Mapping[str, float]]) -> Share:
    """Computes each worker's share of the resources on a cluster's nodes. Each worker runs on a single node.

    By default, a worker gets one CPU and one GPU, or no GPU if the cluster has none. On this machine, workers share the
    cores and GPUs equally. Raises `UsageError` if there are too few resources.
    """
    gpus = sum(node.get("GPU", 0.0) for node in nodes)
    if workers.gpus and not gpus:
        raise UsageError(f"--ray ?gpus={workers.gpus:g}: this cluster has no GPU; remove gpus= from the address")
    if workers.gpus and workers.gpus > 1 and workers.gpus % 1:
        raise UsageError(f"--ray ?gpus={workers.gpus:g}: expected a fraction of one GPU, or an integer")
    count = workers.count or 1
    if workers.address is None:
        cpus, usual = workers.local_cpus, 1 / math.ceil(count / gpus) if gpus else 0.0
    else:
        cpus, usual = workers.cpus if workers.cpus is not None else 1.0, min(1.0, gpus)
    each = workers.gpus if workers.gpus is not None else usual
    room = sum(_room(node, cpus, each) for node in nodes)
    if room < 1:
        available = "; ".join(sorted({f"{node.get('CPU', 0):g} CPUs, {node.get('GPU', 0):g} GPUs" for node in nodes}))
        raise UsageError(
            f"no machine in the cluster has {cpus:g} CPUs and {each:g} GPUs for a worker "
            f"(available: {available}); request fewer with --ray 'ADDRESS?cpus=1&gpus=0.5'"
        )
    if workers.address is not None and workers.count is None:
        count = int(min(room, 10_000))
    return Share(count, cpus, each)


def _room(node: Mapping[str, float], cpus: float, gpus: float) -> float:
    """Returns how many workers with these CPUs and GPUs fit on a node. A fraction of a GPU must come from a
    single GPU.
    """
    by_cpu = node.get("CPU", 0.0) // cpus if cpus else math.inf
    there = node.get("GPU", 0.0)
    return min(by_cpu, (there // gpus if gpus >= 1 else there * (1 // gpus)) if gpus else math.inf)
