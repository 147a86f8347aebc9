"""Exchanges values between ranks: gathers, sums and broadcasts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tellapart.models import ranks
from tellapart.models.devices import best_device
from tellapart.types import Rollout

BUCKET = 2**24  # approximate number of values per all-reduce


def gather_rows(rows: torch.Tensor, fill: float = 0) -> torch.Tensor:
    """Gathers all ranks' rows, in rank order. Only this rank's rows keep their gradient.

    All axes except the first may differ in length between ranks. Shorter axes are padded with ``fill`` at the end.
    """
    if ranks.count() == 1:
        return rows
    ranks.check_together()
    shapes = gather(torch.tensor(rows.shape, device=rows.device))
    largest = torch.stack(shapes).max(0).values.tolist()
    gathered = gather(padded(rows.detach(), largest, fill))
    parts = [part[: int(each[0])] for part, each in zip(gathered, shapes, strict=True)]
    parts[ranks.index()] = padded(rows, [len(rows), *largest[1:]], fill)
    return torch.cat(parts).to(rows.dtype)


def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Gathers all ranks' tensors, which have the same shape."""
    tensors = [torch.empty_like(tensor) for _ in range(ranks.count())]
    dist.all_gather(tensors, tensor)
    return tensors


def padded(rows: torch.Tensor, shape: Sequence[int], fill: float) -> torch.Tensor:
    """Pads ``rows`` to ``shape`` at the end of each axis. Converts booleans to bytes, which all backends support."""
    missing = [
        pad for have, want in zip(reversed(rows.shape), reversed(shape), strict=True) for pad in (0, want - have)
    ]
    numbers = rows.byte() if rows.dtype == torch.bool else rows
    return F.pad(numbers, missing, value=fill) if any(missing) else numbers.contiguous()


def gather_texts(texts: Sequence[str]) -> list[str]:
    """Gathers all ranks' texts, in rank order."""
    if ranks.count() == 1:
        return list(texts)
    sent = torch.frombuffer(bytearray(json.dumps(list(texts)).encode()), dtype=torch.uint8)
    lengths = gather_rows(torch.tensor([len(sent)], device=_device()))
    everything = gather_rows(sent.to(_device())).cpu()
    parts = everything.split(lengths.tolist())
    return [text for part in parts for text in json.loads(part.numpy().tobytes())]


def gather_rollout(rollout: Rollout, pad: int) -> Rollout:
    """Gathers the captions from all ranks, in the order of the pictures."""
    tokens_RT = gather_rows(rollout.tokens_RT, fill=pad)
    valid_RT = gather_rows(rollout.valid_RT).bool()
    return Rollout(tokens_RT, valid_RT, gather_texts(rollout.texts), rollout.samples)


def from_main(number: float) -> float:
    """Returns the main rank's ``number``."""
    if ranks.count() == 1:
        return number
    ranks.check_together()
    sent = torch.tensor([number], dtype=torch.float64).to(_device())
    dist.broadcast(sent, src=0)
    return float(sent)


def add_up(numbers: dict[str, float]) -> dict[str, float]:
    """Sums values over the ranks by name. A value that is missing on a rank counts as 0."""
    if ranks.count() == 1:
        return numbers
    tables = [json.loads(text) for text in gather_texts([json.dumps(numbers)])]
    names = list(dict.fromkeys(name for each in tables for name in each))
    return {name: sum(each.get(name, 0.0) for each in tables) for name in names}


def add_up_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Replaces every gradient with its sum over the ranks. Parameters that no rank used get no gradient."""
    if ranks.count() == 1:
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
    if ranks.count() > 1:
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)


def _device() -> torch.device:
    return torch.device("cpu") if dist.get_backend() == "gloo" else best_device()
