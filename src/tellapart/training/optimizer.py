"""What the optimizer updates, its schedule, and their state on disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from tellapart.captioners.lora_weights import is_adapter
from tellapart.errors import TellapartError, UsageError
from tellapart.models import ranks
from tellapart.models.protocols import Learner
from tellapart.recipe.schema import Training

LARGE = 2**24  # parameters: 64 MB in fp32


class TrainableParts:
    """The parts that learn: their parameters, for the optimizer, and all their tensors, for a checkpoint.

    A part with LoRA learns in LoRA's parameters alone. All else is frozen. Raises `UsageError` for a part that the
    learner does not have.
    """

    def __init__(self, learner: Learner, parts: tuple[str, ...]) -> None:
        learner.model.requires_grad_(False)
        modules = learner.parts()
        if unknown := [part for part in parts if part not in modules]:
            raise UsageError(f"{learner.name} has no part '{unknown[0]}'; it has: {', '.join(modules)}")
        self.modules = {part: modules[part] for part in parts}
        self.adapted = {part for part in parts if any(map(is_adapter, modules[part].state_dict()))}
        for part, module in self.modules.items():
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(part not in self.adapted or is_adapter(name))
        learning = (p for module in self.modules.values() for p in module.parameters() if p.requires_grad)
        self.parameters = list({id(p): p for p in learning}.values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers (the running means of a batch norm move too) by name; tied ones once.

        Of a part with LoRA only what it adds, and buffers: its other parameters stay as they are.
        """
        named: dict[str, torch.Tensor] = {}
        for part, module in self.modules.items():
            buffers = dict(module.named_buffers())
            for name, tensor in module.state_dict().items():
                if part not in self.adapted or is_adapter(name) or name in buffers:
                    named[f"{part}.{name}"] = tensor
        once = {tensor.data_ptr(): name for name, tensor in reversed(named.items())}
        return {name: named[name] for name in once.values()}

    # Where ranks share weights and state (`training.sharding`), these are acts of all ranks.
    def shard(self) -> None:
        """Keep what this rank keeps between steps: here everything."""

    def whole(self) -> AbstractContextManager[None]:
        """Inside, this rank has all weights."""
        return nullcontext()

    def add_up_gradients(self) -> None:
        """Gradients become their sums over the ranks."""
        ranks.add_up_gradients(self.parameters)

    def clip_gradients(self, max_norm: float) -> float:
        """Scale the gradients down to ``max_norm``; returns the norm that they had."""
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The whole state of the optimizer, for a checkpoint."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Take up what `optimizer_state` gave."""
        optimizer.load_state_dict(state)


def make_optimizer(trainable: TrainableParts, settings: Training) -> Optimizer:
    """Adam or AdamW; vectors and scalars (norms, biases, the scale) are not decayed."""
    matrices = [p for p in trainable.parameters if p.ndim > 1]
    vectors = [p for p in trainable.parameters if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    fused = True if runs_fused(trainable.parameters) else None
    return kind([g for g in groups if g["params"]], lr=settings.learning_rate, betas=settings.betas, fused=fused)


def runs_fused(parameters: Sequence[torch.nn.Parameter]) -> bool:
    """Whether one kernel updates all parameters: on CUDA, and on a CPU where they are too large for its caches.

    Sums are rounded in another order then; small models on a CPU keep the numbers that they had.
    """
    if {p.device.type for p in parameters} == {"cuda"}:
        return True
    return {p.device.type for p in parameters} == {"cpu"} and sum(p.numel() for p in parameters) >= LARGE


def make_scheduler(optimizer: Optimizer, settings: Training) -> LRScheduler:
    """The rate as the recipe says; after the warm-up it changes each ``schedule_every`` steps."""
    from transformers import get_scheduler

    name = "constant_with_warmup" if settings.schedule == "constant" else settings.schedule
    every, warmup, steps = settings.schedule_every, settings.warmup, settings.steps
    scheduler: LambdaLR = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    if every == 1:
        return scheduler
    factor = scheduler.lr_lambdas[0]
    return LambdaLR(optimizer, lambda step: factor(max(step - step % every, min(step, warmup))))


def save_state(folder: Path | None, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Weights, optimizer and scheduler, for a resume. An act of all ranks; those that write nothing have no folder."""
    state = trainable.optimizer_state(optimizer)
    if folder is not None:
        torch.save({"optimiser": state, "scheduler": scheduler.state_dict()}, folder / "optimiser.pt")
    del state
    with trainable.whole():
        if folder is not None:
            weights = {name: t.detach().contiguous() for name, t in trainable.tensors().items()}
            save_file(weights, folder / "weights.safetensors")


def load_weights(folder: Path, trainable: TrainableParts) -> None:
    """The weights that `save_state` saved. Raises `TellapartError` for a checkpoint of another model."""
    weights, tensors = load_file(folder / "weights.safetensors"), trainable.tensors()
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in tensors.items()}:
        raise TellapartError(f"{folder} is a checkpoint of another model; start again with another --out")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(weights[name])


def load_optimizer(folder: Path, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Optimizer and scheduler as `save_state` saved them."""
    saved = torch.load(folder / "optimiser.pt", weights_only=True)
    trainable.load_optimizer_state(optimizer, saved["optimiser"])
    scheduler.load_state_dict(saved["scheduler"])


def memory_of(trainable: TrainableParts, optimizer: Optimizer) -> dict[str, int]:
    """Bytes that this rank keeps of what learns: weights, gradients, the optimizer's state; and its peak.

    The peak is the accelerator's, or the process's resident set where there is none.
    """
    gradients = [p.grad for p in trainable.parameters if p.grad is not None]
    state = [t for own in optimizer.state.values() for t in own.values() if isinstance(t, torch.Tensor)]
    kept: dict[str, Sequence[torch.Tensor]] = {
        "weights": trainable.parameters,
        "gradients": gradients,
        "optimizer": state,
    }
    found = {name: sum(map(bytes_here, tensors)) for name, tensors in kept.items()}
    return found | {"peak": peak_memory(trainable.parameters[0].device)}


def bytes_here(tensor: torch.Tensor) -> int:
    """Bytes of a tensor on this rank."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a share is a DTensor
    return int(local.numel() * local.element_size())


def peak_memory(device: torch.device) -> int:
    """Bytes: the most that this process has had on the device, or resident where that is the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    import resource
    import sys

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
