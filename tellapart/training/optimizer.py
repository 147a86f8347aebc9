"""What the optimizer updates, its schedule, and their state on disk."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from tellapart.captioners.lora_weights import is_adapter
from tellapart.errors import TellapartError, UsageError
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


def save_state(folder: Path, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Weights, optimizer and scheduler, for a resume."""
    save_file(
        {name: t.detach().contiguous() for name, t in trainable.tensors().items()}, folder / "weights.safetensors"
    )
    torch.save({"optimiser": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, folder / "optimiser.pt")


def load_state(folder: Path, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Load what `save_state` saved. Raises `TellapartError` for a checkpoint of another model."""
    weights, tensors = load_file(folder / "weights.safetensors"), trainable.tensors()
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in tensors.items()}:
        raise TellapartError(f"{folder} is a checkpoint of another model; start again with another --out")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(weights[name])
    saved = torch.load(folder / "optimiser.pt", weights_only=True)
    optimizer.load_state_dict(saved["optimiser"])
    scheduler.load_state_dict(saved["scheduler"])
