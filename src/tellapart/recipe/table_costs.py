"""Estimates the cost of the commands that measure a table of a paper."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import torch

from tellapart.recipe.table_plan import Plan, Step, recipe_of


@dataclass(frozen=True)
class StepEstimate:
    """The order of magnitude of a command's cost: floating-point operations, and minimum bytes of memory and disk."""

    flops: float
    memory: float
    disk: float

    def to_json(self) -> dict[str, float]:
        return {"flops": self.flops, "memory_bytes": self.memory, "disk_bytes": self.disk}

    def text(self, speed: float) -> str:
        """Returns "3.2 h, 3.6 GB of memory, 5.4 GB of disk" on a machine of ``speed`` operations per second."""
        hours = self.flops / speed / 3600
        time = f"{hours:,.1f} h" if hours >= 1 else f"{60 * hours:,.0f} min"
        return f"{time}, {self.memory / 1e9:.1f} GB of memory, {self.disk / 1e9:.1f} GB of disk"


TEST_PICTURES = 5000  # per test set; estimates do not open the data, which may be missing


def estimates(plan: Plan) -> Iterator[tuple[Step, StepEstimate | None]]:
    """Yields every command of a plan with its estimate; None for ``eval`` and for models of unknown size."""
    for step in plan.commands():
        yield step, _estimate(step)


def _estimate(step: Step) -> StepEstimate | None:
    """Estimates a ``train`` or ``caption`` command from the model's size.

    Training takes 6 operations per parameter and token, generation 2 (Kaplan et al. 2020, section 2.1). AdamW keeps
    weights, gradients and two moments at four bytes each. A checkpoint has weights and moments; a run has two.
    """
    system = step.system
    if system is None or not system.parameters or step.words[0] not in ("train", "caption"):
        return None
    if step.words[0] == "caption":
        return StepEstimate(
            2 * system.parameters * system.tokens * TEST_PICTURES, 4 * system.parameters, 200.0 * TEST_PICTURES
        )
    recipe = recipe_of(step)
    decoding = getattr(recipe.objective, "decoding", None)
    per_picture = max(recipe.training.captions_per_picture, decoding.samples if decoding else 1)
    captions = recipe.training.steps * recipe.training.batch_size * per_picture
    flops = (8 if decoding else 6) * system.parameters * system.tokens * captions
    return StepEstimate(flops, 16 * system.parameters, 2 * 12 * system.parameters)


@cache
def machine_speed() -> float:
    """Measures the FLOP/s of float32 matrix products on this machine's GPU, or on its CPU if there is none."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size, best = 4096 if device == "cuda" else 1024, float("inf")
    a = torch.rand(size, size, device=device)
    for _ in range(4):
        started = time.perf_counter()
        float((a @ a)[0, 0])
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best
