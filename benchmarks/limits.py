"""What bounds a training step on this machine, measured in the same run: matrix products and memory.

A pass over the captioner's text model multiplies each of its matrices with the vectors of some positions. How fast that
is alone, without attention, activations or Python, is what no implementation of the step goes beyond. With few
positions (generating) the matrices are read from memory once for each token, and the memory is the bound; with
hundreds (scoring, backward) the processor is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from benchmarks.full_size import full_size_captioner
from benchmarks.rows import Row
from benchmarks.step_rows import device_words
from tellapart.models.devices import best_device, multiplies_in_bf16
from tellapart.models.onednn import multiplies_by_onednn, multiply
from tellapart.utils.messages import say

if TYPE_CHECKING:
    from tellapart.captioners.captioner import Captioner

POSITIONS = (16, 400)  # one token of 16 captions; 16 captions of 25 positions, ten of the prefix among them
RUNS, COPIED_MB = 5, 512
SMALLEST = 64  # of a matrix's sides: others are no layers


def limit_rows(model: str, only: str = "") -> list[Row]:
    """Rows whose work contains ``only``: GFLOP/s of the text model's products, and GB/s of a copy; also on stderr."""
    device = best_device()
    names = [("fp32", torch.float32), *([("bf16", torch.bfloat16)] if multiplies_in_bf16(device) else [])]
    works = {
        f"limit: {name} products of {positions} positions with the matrices of {model}": (dtype, positions)
        for name, dtype in names
        for positions in POSITIONS
    }
    copy = f"limit: memory read and written, a copy of {COPIED_MB} MB"
    found: list[Row] = []
    if any(only.lower() in work.lower() for work in works):
        shapes = layer_shapes(full_size_captioner(model))
        for work, (dtype, positions) in works.items():
            if only.lower() in work.lower():
                found.append(Row(work, product_rates(shapes, positions, dtype, device), [], 0.0, "GFLOP/s"))
    if only.lower() in copy.lower():
        found.append(Row(copy, copy_rates(device), [], 0.0, "GB/s"))
    for row in found:
        say(f"{row.work}: {row.ours:,.0f} {row.unit}, on {device_words(device)}")
    return found


def layer_shapes(captioner: Captioner) -> list[tuple[int, ...]]:
    """The shapes of all matrices but those of the vision tower, whose features are stored."""
    vision = {id(parameter) for parameter in captioner.parts()["vision"].parameters()}
    matrices = [matrix for matrix in captioner.model.parameters() if id(matrix) not in vision and matrix.dim() == 2]
    return [tuple(matrix.shape) for matrix in matrices if min(matrix.shape) >= SMALLEST]


def product_rates(
    shapes: list[tuple[int, ...]], positions: int, dtype: torch.dtype, device: torch.device
) -> list[float]:
    """GFLOP/s of one pass over matrices of these shapes, each run over all of them: no cache holds them together."""
    matrices = [torch.full(shape, 0.01, dtype=dtype, device=device) for shape in shapes]
    vectors = {size: torch.full((positions, size), 0.01, dtype=dtype, device=device) for size, _ in shapes}
    operations = sum(2 * positions * rows * columns for rows, columns in shapes)

    def run() -> None:
        for matrix in matrices:
            vector = vectors[matrix.shape[0]]
            multiply(vector, matrix.T) if multiplies_by_onednn(vector, matrix) else vector @ matrix

    return [operations / seconds / 1e9 for seconds in timed(run, device)]


def copy_rates(device: torch.device) -> list[float]:
    """GB/s of a copy, bytes that are read and bytes that are written counted."""
    source = torch.ones(COPIED_MB * 1_000_000, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return [2 * source.numel() / seconds / 1e9 for seconds in timed(lambda: target.copy_(source), device)]


def timed(run: Callable[[], object], device: torch.device) -> list[float]:
    """Seconds of `RUNS` runs after one that is not counted."""
    seconds = []
    for _ in range(1 + RUNS):
        start = time.perf_counter()
        with torch.inference_mode():
            run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]
