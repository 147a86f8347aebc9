"""Ranks: the processes started by torchrun or ``accelerate launch`` that share the work of a training step.

All ranks have the same batch, and each rank processes a share of its pictures. Values that depend on the whole batch
are computed identically on every rank, from gathered values. Without a launcher, there is a single rank.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from accelerate import PartialState

from tellapart.errors import TellapartError
from tellapart.models.devices import best_device
from tellapart.models.rank_watch import RankWatch
from tellapart.utils.messages import Verbosity, say_once, set_verbosity
from tellapart.utils.shares import share_of

PATIENCE = timedelta(days=1)  # timeout while a single rank encodes; if a rank dies, the launcher ends all other ranks
LONGEST = timedelta(days=7)  # timeout while another run locks the folder, or one rank works between collectives
# Seconds that a process waits before it exits. If a gloo thread frees the tensors of the last collective during
# interpreter shutdown, the process aborts (pytorch issues 179291 and 190489), and torch has no way to wait for it.
SETTLE = 0.5

_left: int | None = None  # this rank's number, set once it has left the group
_gloo: dist.ProcessGroup | None = None  # group for barriers, which can time out; None: use the default group
_watch: RankWatch | None = None
_alone_in = ""  # the `main_first` step that this rank is running


def start() -> None:
    """Joins the process group if a launcher started several processes. From then on, only the first rank prints."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized() or _left is not None:
        if lone_process_of_accelerate():
            say_once(
                "accelerate launch was asked for several processes but started only one, as it does on CPUs without "
                "MPI; replace --cpu with --multi_gpu, or use --nproc 2 instead of accelerate launch"
            )
        return

    PartialState(cpu=best_device().type == "cpu", timeout=LONGEST)
    global _gloo
    _gloo = None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo", timeout=LONGEST)
    default: Any = dist.distributed_c10d._get_default_store()
    store = default.clone()  # the thread needs its own connection
    global _watch
    launcher = os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0  # torchrun and others wait for this process
    _watch = RankWatch(store, dist.get_rank(), dist.get_world_size(), launcher)
    _watch.start()
    atexit.register(leave)
    atexit.register(time.sleep, SETTLE)  # registered last, so called first
    if not is_main():
        set_verbosity(Verbosity.QUIET)


def lone_process_of_accelerate() -> bool:
    """Returns True if ``accelerate launch`` started one process instead of several: it set a port, but no rank."""
    named = {"ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU", "MASTER_PORT"} <= os.environ.keys()
    return named and "WORLD_SIZE" not in os.environ and "SLURM_JOB_ID" not in os.environ


def leave() -> None:
    """Leaves the process group. This rank keeps its number."""
    global _left
    if _watch is not None:
        _watch.stop()
    if dist.is_initialized():
        _left = dist.get_rank()
        dist.destroy_process_group()


def count() -> int:
    """Returns the number of ranks, which is 1 without a launcher or after `leave`."""
    return dist.get_world_size() if dist.is_initialized() else 1


def index() -> int:
    """Returns the index of this rank, starting at 0."""
    return dist.get_rank() if dist.is_initialized() else _left or 0


def is_main() -> bool:
    """Returns True on the rank that writes and prints."""
    return index() == 0


def share(total: int) -> slice:
    """Returns this rank's share of ``total`` rows (see `tellapart.utils.shares.share_of`)."""
    return share_of(total, index(), count())


@contextmanager
def main_first(step: str) -> Iterator[None]:
    """Runs the block on the main rank first, then on all other ranks, which can use the files that the main rank has
    written.

    Collectives inside the block would deadlock, so they raise RuntimeError. ``step``: see `barrier`.
    """
    global _alone_in
    if not is_main():
        barrier(step)
    _alone_in = step
    try:
        yield
    finally:
        _alone_in = ""
    if is_main():
        barrier(step)


def barrier(step: str, patience: timedelta | None = None) -> None:
    """Waits for all ranks, for at most ``patience`` (default: `PATIENCE`).

    Raises `TellapartError` if a rank does not arrive in time. ``step``: the work in progress, for the message.
    """
    if count() == 1:
        return
    check_together()
    patience, begun = patience or PATIENCE, time.monotonic()
    try:
        dist.barrier(_gloo, async_op=True).wait(patience)
    except RuntimeError as error:
        if time.monotonic() - begun < patience.total_seconds():
            raise  # another rank ended
        raise TellapartError(
            f"rank {index()} of {count()} waited {patience} for the other ranks at this step: {step}; check what they "
            "are doing (py-spy dump), and restart with --resume"
        ) from error


def check_together() -> None:
    """Raises RuntimeError if called inside `main_first`, where the other ranks do not take part."""
    if _alone_in:
        raise RuntimeError(
            f"Only one rank called a collective operation, at this step: {_alone_in}; this rank would wait forever"
        )


def anywhere(flag: bool) -> bool:
    """Returns True if ``flag`` is set on any rank. Does not synchronize with the device."""
    if count() == 1:
        return flag
    check_together()
    flags = torch.tensor([flag], dtype=torch.int32)
    dist.all_reduce(flags, dist.ReduceOp.MAX, group=_gloo)
    return bool(flags)
