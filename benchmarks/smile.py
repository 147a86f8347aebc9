"""``benchmarks smile``: compares SMILE, fused with the output layer, with paper 1's Algorithm 1 on logits, at BLIP's
size.

Both multiply the same hidden states by the same layer and compute the gradients with respect to the hidden states and
the layer. Runs on the CPU and, if there is one, on a GPU. To select one, use ``--only cpu`` or ``--only cuda``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.rows import Comparison, Row, RunResult
from tellapart.errors import UsageError
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

if TYPE_CHECKING:
    import torch

B, T, H, V = 32, 40, 768, 30_524  # captions of the full window, the most work for ours
FASTER, SMALLER = 5, 10
TOLERANCE = 3e-6  # for float32 sums in different order; tests require 1e-6
MB = 1e6

Loss = Callable[..., "torch.Tensor"]
Step = Callable[[], "torch.Tensor"]
Measure = Callable[[Step, str, int], "tuple[float, torch.Tensor]"]


def rows(repeat: int, only: str = "") -> list[Row]:
    """Measures time and peak memory on each device, ``repeat`` times alternately. ``only``: part of a row's name."""
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
        raise UsageError(f"no row contains '{only}'; use, for example, 'SMILE … cpu: time' or '… cuda: peak memory …'")
    found = []
    with Progress(2 * repeat * len(chosen), "measuring, ours and theirs") as progress:
        for measure, goal, unit, device, work in chosen:
            say(f"measuring: {work}")
            bench = _Layer(device, measure)
            found.append(Comparison(work, goal, unit, bench.ours, bench.theirs, TOLERANCE).run(repeat, progress))
    return found


def algorithm_1(
    hidden_BTH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor, labels_BT: torch.Tensor
) -> torch.Tensor:
    """Computes paper 1's Algorithm 1, as printed, on the output layer's logits."""
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
    """BLIP's output layer with random weights, and its input, which is a different batch in each round."""

    def __init__(self, device: str, measure: Measure) -> None:
        import torch

        self.device, self.measure = device, measure
        torch.manual_seed(0)
        self.weight_VH = (0.02 * torch.randn(V, H)).to(device).requires_grad_()
        self.bias_V = torch.zeros(V, device=device, requires_grad=True)
        for loss_function in (ours, algorithm_1):  # the first call of a library sets it up
            self._outputs(loss_function, *self._batch(0))

    def ours(self, number: int) -> RunResult:
        return self._run(ours, number)

    def theirs(self, number: int) -> RunResult:
        return self._run(algorithm_1, number)

    def _run(self, loss_function: Loss, number: int) -> RunResult:
        batch = self._batch(number)
        gradient = 4 * (self.weight_VH.numel() + self.bias_V.numel())
        amount, loss = self.measure(lambda: self._step(loss_function, *batch), self.device, gradient)
        return RunResult(amount, self._summarize(loss, batch[0]))

    def _outputs(self, loss_function: Loss, hidden_BTH: torch.Tensor, labels_BT: torch.Tensor) -> list[float]:
        return self._summarize(self._step(loss_function, hidden_BTH, labels_BT), hidden_BTH)

    def _step(self, loss_function: Loss, hidden_BTH: torch.Tensor, labels_BT: torch.Tensor) -> torch.Tensor:
        import torch

        loss = loss_function(hidden_BTH, self.weight_VH, self.bias_V, labels_BT)
        torch.autograd.backward(loss)
        return loss.detach()

    def _summarize(self, loss: torch.Tensor, hidden_BTH: torch.Tensor) -> list[float]:
        """Returns the loss and, for each gradient, its norm and a sum with fixed signs. Clears the gradients."""
        values = [float(loss)]
        for leaf in (hidden_BTH, self.weight_VH, self.bias_V):
            assert leaf.grad is not None
            values += [float(leaf.grad.norm()), float(leaf.grad[::2].sum() - leaf.grad[1::2].sum())]
            leaf.grad = None
        return values

    def _batch(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        import torch

        rng = torch.Generator().manual_seed(number)
        hidden_BTH = torch.randn(B, T, H, generator=rng).to(self.device).requires_grad_()
        return hidden_BTH, torch.randint(V, (B, T), generator=rng).to(self.device)


def seconds(step: Step, device: str, gradient: int) -> tuple[float, torch.Tensor]:
    """Measures how many milliseconds a step takes."""
    import torch

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    wait()
    start = time.perf_counter()
    found = step()
    wait()
    return 1e3 * (time.perf_counter() - start), found


def peak(step: Step, device: str, gradient: int) -> tuple[float, torch.Tensor]:
    """Measures the peak memory of a step in MB, beyond earlier allocations and the weights' gradient."""
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
    return (max(_allocated_bytes(profiler)) - gradient) / MB, found


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Silences stderr, because torch's profiler writes to it and has no setting to disable that."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _allocated_bytes(profiler: torch.profiler.profile) -> Iterator[int]:
    """Returns the allocated bytes after each call of torch's CPU allocator."""
    results: Any = profiler.profiler  # torch gives its events no types
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    allocated = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        allocated += event.nbytes()
        yield allocated
