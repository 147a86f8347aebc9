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
from collections.abc import Iterator
from typing import Any

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.jobs.worker_share import Share, Workers, share

STORE_BYTES = 80 << 20  # Ray's lower bound is 75 MB


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
        cpus = max(os.cpu_count() or 1, math.ceil((workers.count or 1) * workers.local_cpus))
        settings |= {"num_cpus": cpus, "object_store_memory": STORE_BYTES}
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


def alive_nodes(ray: Any) -> set[str]:
    """Returns the ids of all nodes that are alive."""
    try:
        return {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    except Exception as error:
        raise TellapartError(
            f"the cluster disconnected ({type(error).__name__}); run the same command again to resume"
        ) from None
