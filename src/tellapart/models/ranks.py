"""Ranks: the processes started by torchrun or ``accelerate launch`` that share the work of a training step.

All ranks have the same batch, and each rank processes a share of its pictures. Values that depend on the whole batch
are computed identically on every rank, from gathered values. Without a launcher, there is a single rank.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from accelerate import PartialState

from tellapart.errors import TellapartError
from tellapart.models.devices import best_device
from tellapart.models.rank_watch import RankWatch
from tellapart.utils.messages import Verbosity, say, set_verbosity
from tellapart.utils.shares import share_of

BUCKET = 2**24  # approximate number of values per all-reduce
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
            tell_lone_process()
        return

    PartialState(cpu=best_device().type == "cpu", timeout=LONGEST)
    global _gloo
    _gloo = None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo", timeout=LONGEST)
    default: Any = dist.distributed_c10d._get_default_store()
    store = default.clone()  # the thread needs its own connection
    global _watch
    _watch = RankWatch(store, dist.get_rank(), dist.get_world_size(), os.getppid() if by_elastic_launcher() else 0)
    _watch.start()
    atexit.register(leave)
    atexit.register(time.sleep, SETTLE)  # registered last, so called first
    if not is_main():
        set_verbosity(Verbosity.QUIET)


def by_elastic_launcher() -> bool:
    """Returns True if torchrun, ``accelerate launch`` or ``--nproc`` started this process and waits for its end."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def lone_process_of_accelerate() -> bool:
    """Returns True if ``accelerate launch`` started one process instead of several: it set a port, but no rank."""
    named = {"ACCELERATE_MIXED_PRECISION", "ACCELERATE_USE_CPU", "MASTER_PORT"} <= os.environ.keys()
    return named and "WORLD_SIZE" not in os.environ and "SLURM_JOB_ID" not in os.environ


@cache
def tell_lone_process() -> None:
    """Prints the hint for `lone_process_of_accelerate`, once per process."""
    say(
        "accelerate launch was asked for several processes but started only one, as it does on CPUs without MPI; "
        "replace --cpu with --multi_gpu, or use --nproc 2 instead of accelerate launch"
    )


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
    _check_together()
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


def _check_together() -> None:
    """Raises RuntimeError if called inside `main_first`, where the other ranks do not take part."""
    if _alone_in:
        raise RuntimeError(
            f"Only one rank called a collective operation, at this step: {_alone_in}; this rank would wait forever"
        )


def gather_rows(rows: torch.Tensor, fill: float = 0) -> torch.Tensor:
    """Gathers all ranks' rows, in rank order. Only this rank's rows keep their gradient.

    All axes except the first may differ in length between ranks. Shorter axes are padded with ``fill`` at the end.
    """
    if count() == 1:
        return rows
    _check_together()
    shape = torch.tensor(rows.shape, device=rows.device)
    shapes = [torch.empty_like(shape) for _ in range(count())]
    dist.all_gather(shapes, shape)
    largest = torch.stack(shapes).max(0).values.tolist()
    sent = padded(rows.detach(), largest, fill)
    gathered = [torch.empty_like(sent) for _ in range(count())]
    dist.all_gather(gathered, sent)
    parts = [part[: int(each[0])] for part, each in zip(gathered, shapes, strict=True)]
    parts[index()] = padded(rows, [len(rows), *largest[1:]], fill)
    return torch.cat(parts).to(rows.dtype)


def padded(rows: torch.Tensor, shape: Sequence[int], fill: float) -> torch.Tensor:
    """Pads ``rows`` to ``shape`` at the end of each axis. Converts booleans to bytes, which all backends support."""
    missing = [
        pad for have, want in zip(reversed(rows.shape), reversed(shape), strict=True) for pad in (0, want - have)
    ]
    numbers = rows.byte() if rows.dtype == torch.bool else rows
    return F.pad(numbers, missing, value=fill) if any(missing) else numbers.contiguous()


def gather_texts(texts: Sequence[str]) -> list[str]:
    """Gathers all ranks' texts, in rank order."""
    if count() == 1:
        return list(texts)
    sent = torch.frombuffer(bytearray(json.dumps(list(texts)).encode()), dtype=torch.uint8)
    lengths = gather_rows(torch.tensor([len(sent)], device=_device()))
    everything = gather_rows(sent.to(_device())).cpu()
    parts = everything.split(lengths.tolist())
    return [text for part in parts for text in json.loads(part.numpy().tobytes())]


def from_main(number: float) -> float:
    """Returns the main rank's ``number``."""
    if count() == 1:
        return number
    _check_together()
    sent = torch.tensor([number], dtype=torch.float64).to(_device())
    dist.broadcast(sent, src=0)
    return float(sent)


def anywhere(flag: bool) -> bool:
    """Returns True if ``flag`` is set on any rank. Does not synchronize with the device."""
    if count() == 1:
        return flag
    _check_together()
    flags = torch.tensor([flag], dtype=torch.int32)
    dist.all_reduce(flags, dist.ReduceOp.MAX, group=_gloo)
    return bool(flags)


def add_up(numbers: dict[str, float]) -> dict[str, float]:
    """Sums values over the ranks by name. A value that is missing on a rank counts as 0."""
    if count() == 1:
        return numbers
    tables = [json.loads(text) for text in gather_texts([json.dumps(numbers)])]
    names = list(dict.fromkeys(name for each in tables for name in each))
    return {name: sum(each.get(name, 0.0) for each in tables) for name in names}


def add_up_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replaces every gradient with its sum over the ranks. Parameters that no rank used get no gradient."""
    if count() == 1:
        return
    learned = fill_gradients(parameters)
    for bucket in buckets([parameter.grad for parameter in learned if parameter.grad is not None]):
        flat = torch.cat([gradient.flatten() for gradient in bucket])
        dist.all_reduce(flat)
        for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket]), strict=True):
            gradient.copy_(summed.view_as(gradient))


def fill_gradients(parameters: Iterable[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    """Returns the parameters that at least one rank used, and sets their missing gradients to 0."""
    everything = list(parameters)
    used = torch.tensor([parameter.grad is not None for parameter in everything], device=_device()).int()
    dist.all_reduce(used, dist.ReduceOp.MAX)
    learned = [parameter for parameter, one in zip(everything, used.tolist(), strict=True) if one]
    for parameter in learned:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    return learned


def buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yields groups of tensors of the same dtype with about `BUCKET` elements in total."""
    bucket: list[torch.Tensor] = []
    for tensor in tensors:
        full = sum(one.numel() for one in bucket) + tensor.numel() > BUCKET
        if bucket and (full or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def same_everywhere(tensors: Iterable[torch.Tensor]) -> None:
    """Broadcasts the main rank's values to every rank."""
    if count() > 1:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)


def _device() -> torch.device:
    return torch.device("cpu") if dist.get_backend() == "gloo" else best_device()
