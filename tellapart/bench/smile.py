"""``tellapart bench smile``: SMILE from the output layer against paper 1's Algorithm 1 on its scores, at BLIP's size.

Both multiply the same hidden states with the same layer, and go forward and backward to the gradients of both. On
the processor, and on a GPU too where there is one: ``--only cpu``, ``--only cuda``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tellapart.bench.rows import Contest, Row, Taken
from tellapart.errors import UsageError
from tellapart.progress import Progress
from tellapart.utils.messages import say

if TYPE_CHECKING:
    import torch

B, T, H, V = 32, 40, 768, 30_524  # captions, all of the full window, where ours has the most to do
FASTER, SMALLER = 5, 10
TOLERANCE = 3e-6  # both in float32, summed in another order; that they are the same to 1e-6 is for the tests
MB = 1e6

Way = Callable[..., "torch.Tensor"]


def rows(repeat: int, only: str = "") -> list[Row]:
    """Time and peak memory on each device (of works that contain ``only``), ``repeat`` times each, in turns."""
    import torch

    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    chosen = [
        (measure, goal, unit, device, work)
        for device in devices
        for measure, goal, unit, what in (
            (seconds, FASTER, "ms", "time"),
            (peak, SMALLER, "MB", "peak memory beyond the weights and their gradient"),
        )
        if only.lower() in (work := f"SMILE, {B} captions × {T} tokens, {V:,} words, {device}: {what}").lower()
    ]
    if not chosen:
        raise UsageError(f"no work contains '{only}'; a work is 'SMILE … cpu: time', say, or '… cuda: peak memory …'")
    found = []
    with Progress(2 * repeat * len(chosen), "measuring, ours and theirs") as progress:
        for measure, goal, unit, device, work in chosen:
            say(f"measuring: {work}")
            bench = _Layer(device, measure)
            found.append(Contest(work, goal, unit, bench.ours, bench.theirs, TOLERANCE).hold(repeat, progress))
    return found


def algorithm_1(
    hidden_BTH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor, labels_BT: torch.Tensor
) -> torch.Tensor:
    """Paper 1's Algorithm 1 as it is printed, on the scores of the layer."""
    import torch
    import torch.nn.functional as F

    logits = F.linear(hidden_BTH, weight_VH, bias_V)
    mask = torch.zeros(B, V, dtype=torch.bool, device=logits.device).scatter_(1, labels_BT, True)
    mask = mask.unsqueeze(1).expand(-1, T, -1).clone()
    mask[:, 0, :] = True
    selected = logits.masked_fill(mask == False, float("-inf"))  # noqa: E712
    return F.cross_entropy(selected.view(-1, V), labels_BT.view(-1))


def ours(
    hidden_BTH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor, labels_BT: torch.Tensor
) -> torch.Tensor:
    import torch

    from tellapart.objectives import smile_head_loss

    return smile_head_loss(hidden_BTH, weight_VH, labels_BT, torch.ones_like(labels_BT, dtype=torch.bool), bias_V)


class _Layer:
    """BLIP's output layer with random weights, and a batch in front of it; every round has another batch."""

    def __init__(self, device: str, measure: Callable[[Callable[[], Any], str, int], tuple[float, Any]]) -> None:
        import torch

        self.device, self.measure = device, measure
        torch.manual_seed(0)
        self.weight_VH = (0.02 * torch.randn(V, H)).to(device).requires_grad_()
        self.bias_V = torch.zeros(V, device=device, requires_grad=True)
        for way in (ours, algorithm_1):  # the first call of a library sets it up
            self._found(way, *self._batch(0))

    def ours(self, number: int) -> Taken:
        return self._run(ours, number)

    def theirs(self, number: int) -> Taken:
        return self._run(algorithm_1, number)

    def _run(self, way: Way, number: int) -> Taken:
        batch = self._batch(number)
        gradient = 4 * (self.weight_VH.numel() + self.bias_V.numel())
        amount, loss = self.measure(lambda: self._step(way, *batch), self.device, gradient)
        return Taken(amount, self._told(loss, batch[0]))

    def _found(self, way: Way, hidden_BTH: torch.Tensor, labels_BT: torch.Tensor) -> list[float]:
        return self._told(self._step(way, hidden_BTH, labels_BT), hidden_BTH)

    def _step(self, way: Way, hidden_BTH: torch.Tensor, labels_BT: torch.Tensor) -> torch.Tensor:
        loss = way(hidden_BTH, self.weight_VH, self.bias_V, labels_BT)
        loss.backward()
        return loss.detach()

    def _told(self, loss: torch.Tensor, hidden_BTH: torch.Tensor) -> list[float]:
        """The loss, and of each gradient the size and one sum with fixed signs; the gradients are let go."""
        told = [float(loss)]
        for leaf in (hidden_BTH, self.weight_VH, self.bias_V):
            assert leaf.grad is not None
            told += [float(leaf.grad.norm()), float(leaf.grad[::2].sum() - leaf.grad[1::2].sum())]
            leaf.grad = None
        return told

    def _batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        rng = torch.Generator().manual_seed(number)
        hidden_BTH = torch.randn(B, T, H, generator=rng).to(self.device).requires_grad_()
        return hidden_BTH, torch.randint(V, (B, T), generator=rng).to(self.device)


def seconds(step: Callable[[], Any], device: str, gradient: int) -> tuple[float, Any]:
    """Milliseconds of a step."""
    import torch

    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    found = step()
    wait()
    return 1e3 * (time.perf_counter() - start), found


def peak(step: Callable[[], Any], device: str, gradient: int) -> tuple[float, Any]:
    """The most memory, in MB, that a step held at once beyond what was there before it and the weights' gradient."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        found = step()
        torch.cuda.synchronize()
        return (torch.cuda.max_memory_allocated() - before - gradient) / MB, found
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True)
    with _no_stderr(), profiler:
        found = step()
    return (max(_held(profiler)) - gradient) / MB, found


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Torch's profiler writes lines of its own to the process's stderr, and has no setting against it."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _held(profiler: Any) -> Iterator[int]:
    """Bytes held after each call of torch's allocator for the processor's memory."""
    held = 0
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        yield held
