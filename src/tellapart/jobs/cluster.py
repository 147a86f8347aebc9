"""A Ray cluster: this machine for as long as a command runs, or one that is there (``ray start --head``).

Ray sends nothing anywhere: its usage statistics are off. Its object store is small, because no data of a job pass
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

STORE_BYTES = 80 << 20  # Ray's own lower bound is 75 MB


@dataclass(frozen=True)
class Workers:
    """The request for workers. ``count`` None: as many as the cluster has room for; ``address`` None: this machine.

    ``cpus`` and ``gpus`` of each worker: None chooses (see `share`); ``gpus`` may be a fraction.
    """

    count: int | None = None
    address: str | None = None
    cpus: float | None = None
    gpus: float | None = None


@dataclass(frozen=True)
class Share:
    """The resources of each of ``count`` workers."""

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
def _own_sigterm() -> Iterator[None]:
    """Takes back the handler that Ray replaces by its own, which prints a stack of C++."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:  # of Ray's, while it starts
        raise KeyboardInterrupt from None
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)


@contextlib.contextmanager
def connected(workers: Workers) -> Iterator[tuple[Any, Share]]:
    """Ray, connected, and what each worker gets. Ray that was started here ends with the block.

    Raises `UsageError` where there is no cluster at the address.
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
    try:
        if workers.address is not None:
            settings["address"] = workers.address
            if workers.address == "auto":
                _check_joined()
        with _own_sigterm():
            ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError) as error:
        where = "on this machine" if workers.address is None else f"at '{workers.address}'"
        first = " ".join(str(error).split())
        token = "" if workers.address in (None, "auto") else ", where it asks for a token export RAY_AUTH_MODE=token"
        raise UsageError(
            f"no Ray cluster {where} ({first}); start one with: ray start --head{token}, or leave out --ray"
        ) from None
    try:
        yield ray, share(workers, [node["Resources"] for node in ray.nodes() if node["Alive"]])
    finally:
        ray.shutdown()


def _check_joined() -> None:
    """Raises `ConnectionError` where RAY_ADDRESS is not set and this machine has joined no cluster by ``ray start``.

    Ray's own "auto" would then take what another command has started for itself, and that ends with it.
    """
    from ray._private.services import find_bootstrap_address

    if not os.environ.get("RAY_ADDRESS") and not find_bootstrap_address(None):
        raise ConnectionError("this machine has joined none, and RAY_ADDRESS is not set")


def share(workers: Workers, nodes: Sequence[Mapping[str, float]]) -> Share:
    """Returns what each worker gets of the resources of a cluster's nodes. A worker is on one node.

    GPUs: what was asked for, else one each, or on this machine an equal part of those it has; 0 where there are none.
    CPUs: one, or on this machine an equal part of its cores. Raises `UsageError` for more than the cluster has.
    """
    gpus = sum(node.get("GPU", 0.0) for node in nodes)
    if workers.gpus and not gpus:
        raise UsageError(f"--gpus-per-worker {workers.gpus:g}: this cluster has no GPU; leave it out")
    if workers.gpus and workers.gpus > 1 and workers.gpus % 1:
        raise UsageError(f"--gpus-per-worker {workers.gpus:g}: expected a part of one GPU, or a whole number of them")
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
            f"no machine of the cluster has {cpus:g} CPUs and {each:g} GPUs for a worker (there are: {available}); ask "
            "for less with --cpus-per-worker and --gpus-per-worker"
        )
    if workers.address is not None and workers.count is None:
        count = int(min(room, 10_000))
    return Share(count, cpus, each)


def _room(node: Mapping[str, float], cpus: float, gpus: float) -> float:
    """Returns how many workers of so many CPUs and GPUs a node has room for; parts of a worker's GPU are of one GPU."""
    by_cpu = node.get("CPU", 0.0) // cpus if cpus else math.inf
    there = node.get("GPU", 0.0)
    return min(by_cpu, (there // gpus if gpus >= 1 else there * (1 // gpus)) if gpus else math.inf)


def alive_nodes(ray: Any) -> set[str]:
    """Returns the ids of the nodes that are there."""
    try:
        return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    except Exception as error:
        raise TellapartError(f"the cluster is gone ({type(error).__name__}); the same command goes on") from None
