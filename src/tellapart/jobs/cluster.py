"""Connects to a Ray cluster: either this machine while a command runs, or an existing cluster (``ray start --head``).

Ray's usage statistics are turned off, so that Ray sends nothing. Its object store is small, because no job data passes
through it.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError

STORE_BYTES = 80 << 20  # Ray's lower bound is 75 MB


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


@dataclass(frozen=True)
class Share:
    """The resources for each of ``count`` workers."""

    count: int
    cpus: float
    gpus: float


def load_ray() -> Any:
    """Imports and returns Ray. If Ray is not installed, raises `MissingExtra`, which says what to install."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "--workers") from None
    return ray


@contextlib.contextmanager
def _later_sigterm(ray: Any) -> Iterator[None]:
    """Delays SIGTERM until the end of a block in which Ray starts or shuts down.

    If Ray has only half started when the process ends, it crashes. Ray's own Python handler would exit at once; its C++
    handler calls ours, but first sets an alarm that aborts the process after three seconds.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = list[int]()

    def note(number: int, _: object) -> None:
        signal.alarm(0)
        received.append(number)

    handler, utils = signal.signal(signal.SIGTERM, note), ray._private.utils
    set_handler, utils.set_sigterm_handler = utils.set_sigterm_handler, lambda _: None
    try:
        yield
    finally:
        utils.set_sigterm_handler = set_handler
        signal.signal(signal.SIGTERM, handler)  # Ray has replaced or removed the C-level handler
        if received:
            signal.raise_signal(signal.SIGTERM)


@contextlib.contextmanager
def connected(workers: Workers) -> Iterator[tuple[Any, Share]]:
    """Connects to Ray, and yields Ray and each worker's resources. Disconnects at the end of the block.

    Raises `UsageError` if there is no cluster at the address.
    """
    ray = load_ray()
    settings: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": "CRITICAL"}
    if workers.address is None:
        cores = os.cpu_count() or 1
        count = workers.count or 1
        cpus = workers.cpus if workers.cpus is not None else max(1, cores // count)
        settings |= {"num_cpus": max(cores, math.ceil(count * cpus)), "object_store_memory": STORE_BYTES}
        settings["address"] = "local"
    else:
        del settings["include_dashboard"]
        settings["address"] = workers.address
    ours = not ray.is_initialized()  # otherwise, ``ray.init`` raises RuntimeError, and the cluster keeps running
    try:
        try:
            if workers.address == "auto":
                _check_joined()
            with _later_sigterm(ray):
                ray.init(**settings)
        except (ConnectionError, ValueError, RuntimeError) as error:
            where = "on this machine" if workers.address is None else f"at '{workers.address}'"
            first = " ".join(str(error).split())
            token = "" if workers.address in (None, "auto") else " (if it asks for a token, export RAY_AUTH_MODE=token)"
            raise UsageError(
                f"no Ray cluster {where} ({first}); start one with: ray start --head{token}, or remove --ray"
            ) from None
        yield ray, share(workers, [node["Resources"] for node in ray.nodes() if node["Alive"]])
    finally:
        if ours:
            with _later_sigterm(ray):
                ray.shutdown()


def _check_joined() -> None:
    """Raises `ConnectionError` if RAY_ADDRESS is not set and this machine has not joined a cluster with ``ray start``.

    Without this check, Ray's "auto" could join a cluster that another command started for itself and that ends with
    that command.
    """
    from ray._private.services import find_bootstrap_address

    if not os.environ.get("RAY_ADDRESS") and not find_bootstrap_address(None):
        raise ConnectionError("this machine has not joined a Ray cluster, and RAY_ADDRESS is not set")


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
        cpus = workers.cpus if workers.cpus is not None else max(1, (os.cpu_count() or 1) // count)
        usual = 1 / math.ceil(count / gpus) if gpus else 0.0
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


def alive_nodes(ray: Any) -> set[str]:
    """Returns the ids of all nodes that are alive."""
    try:
        return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    except Exception as error:
        raise TellapartError(
            f"the cluster disconnected ({type(error).__name__}); run the same command again to resume"
        ) from None
