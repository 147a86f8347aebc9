"""What the optimizer updates, its schedule, and their state: whole on each rank or in shares (FSDP2)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from tellapart.captioners.base import is_adapter
from tellapart.errors import TellapartError, UsageError
from tellapart.models import ranks
from tellapart.models.protocols import Learner
from tellapart.recipe.schema import Training
from tellapart.utils.lazy import LazyModule

if TYPE_CHECKING:
    from torch.distributed import fsdp
    from torch.distributed import tensor as dtensor
else:  # a second that a run without shares does not need
    fsdp, dtensor = LazyModule("torch.distributed.fsdp"), LazyModule("torch.distributed.tensor")

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
        """Returns parameters and buffers (the running means of a batch norm move too) by name; tied ones once.

        A part with LoRA gives only the weights that LoRA adds, and buffers: its other parameters stay as they are.
        """
        named: dict[str, torch.Tensor] = {}
        for part, module in self.modules.items():
            buffers = dict(module.named_buffers())
            for name, tensor in module.state_dict().items():
                if part not in self.adapted or is_adapter(name) or name in buffers:
                    named[f"{part}.{name}"] = tensor
        once = {tensor.data_ptr(): name for name, tensor in reversed(named.items())}
        return {name: named[name] for name in once.values()}

    # Where ranks share weights and state (``training.sharding``), these are acts of all ranks.
    def shard(self) -> None:
        """Keep what this rank keeps between steps: here everything."""

    def whole(self) -> AbstractContextManager[None]:
        """Inside, this rank has all weights."""
        return nullcontext()

    def add_up_gradients(self) -> None:
        """Gradients become their sums over the ranks."""
        ranks.add_up_gradients(self.parameters)

    def clip_gradients(self, max_norm: float) -> float:
        """Scales the gradients down to ``max_norm``; returns the norm that they had."""
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """The whole state of the optimizer, for a checkpoint."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Takes up what `optimizer_state` gave."""
        optimizer.load_state_dict(state)


def make_optimizer(trainable: TrainableParts, settings: Training) -> Optimizer:
    """Makes Adam or AdamW; vectors and scalars (norms, biases, the scale) are not decayed."""
    matrices = [p for p in trainable.parameters if p.ndim > 1]
    vectors = [p for p in trainable.parameters if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    fused = True if runs_fused(trainable.parameters) else None
    return kind([g for g in groups if g["params"]], lr=settings.learning_rate, betas=settings.betas, fused=fused)


def runs_fused(parameters: Sequence[torch.nn.Parameter]) -> bool:
    """Returns whether one kernel updates all parameters: on CUDA, and on a CPU where they are too large for its caches.

    Sums are rounded in another order then; small models on a CPU keep the numbers that they had.
    """
    if {p.device.type for p in parameters} == {"cuda"}:
        return True
    return {p.device.type for p in parameters} == {"cpu"} and sum(p.numel() for p in parameters) >= LARGE


def make_scheduler(optimizer: Optimizer, settings: Training) -> LRScheduler:
    """Makes the schedule of the recipe; after the warm-up it changes each ``schedule_every`` steps."""
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


GROUP = 2**24  # numbers that are gathered, and whose gradients are summed, at once

Place = tuple[nn.Module, str]  # a module and the name of a parameter of its own


class Holder(nn.Module):
    """A module's own parameters, in its own table, so that what FSDP puts there the module has.

    FSDP also hooks what it manages, ``state_dict`` included, and the model is to be left alone.
    """

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_parameters", owner._parameters)


class GatherGroup(nn.Module):
    """Parameters that are gathered together. It is no part of the model."""

    def __init__(self, owners: list[nn.Module]) -> None:
        super().__init__()
        self.holders = nn.ModuleList(map(Holder, owners))

    def forward(self, one: torch.Tensor) -> torch.Tensor:
        """The same number: its backward pass is what reduces gradients."""
        return one * 1


class ShardedParts(TrainableParts):
    """The parts that learn, in shares from `shard` on. With one rank it is all there is."""

    def __init__(self, learner: Learner, parts: tuple[str, ...]) -> None:
        super().__init__(learner, parts)
        self._roots = [learner.model, *self.modules.values()]
        self._groups: list[fsdp.FSDPModule] = []
        for name, module in learner.model.named_modules():
            for own, parameter in module.named_parameters(recurse=False):
                single, recurrent = parameter.ndim == 0, isinstance(module, nn.RNNBase)  # which keeps a second list
                if parameter.requires_grad and (single or recurrent):
                    why = "a single number" if single else "of a recurrent network"
                    raise UsageError(
                        f"training.sharding = 'full' cannot share out {learner.name}'s "
                        f"{'.'.join(filter(None, (name, own)))}, which is {why}; leave sharding out, or that part out "
                        "of captioner.train"
                    )

    def shard(self) -> None:
        """Keeps this rank's share alone. Optimizers are made after it: ``parameters`` are others then."""
        if ranks.count() == 1:
            return
        if not hasattr(fsdp.FSDPModule, "set_force_sum_reduction_for_comms"):
            raise UsageError(
                f"training.sharding = 'full' needs a newer torch than {torch.__version__}; type: pip install -U torch, "
                "or leave sharding out"
            )
        from torch.distributed.device_mesh import init_device_mesh

        device = self.parameters[0].device
        mesh = init_device_mesh(device.type, (ranks.count(),))
        places = self._places()
        for parameter in self.parameters:
            parameter.data = parameter.data.contiguous()
        for owners, mine in _groups(self.parameters, places):
            group = GatherGroup(owners)
            others = {p for p in group.parameters() if id(p) not in mine}
            fsdp.fully_shard(group, mesh=mesh, reshard_after_forward=False, ignored_params=others)
            managed = cast("fsdp.FSDPModule", group)
            managed.set_gradient_divide_factor(1.0)  # losses are divided by the counts of the whole batch already
            managed.set_force_sum_reduction_for_comms(True)
            self._groups.append(managed)
        self.parameters = [getattr(*places[id(parameter)][0]) for parameter in self.parameters]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, every rank has all weights. Entering is an act of all ranks."""
        for group in self._groups:
            group.unshard()
        try:
            yield
        finally:
            for group in self._groups:
                group.reshard()

    def add_up_gradients(self) -> None:
        """Each share's gradient becomes its sum over the ranks; within `whole`, which has ended for them then."""
        if not self._groups:
            super().add_up_gradients()
            return
        modules = {id(m): m for root in self._roots for m in root.modules()}.values()
        now = {id(p): p for module in modules for p in module.parameters(recurse=False) if p.requires_grad}
        ranks.fill_gradients(now.values())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*FSDP2-wrapped module.*")
            for group in self._groups:
                one = torch.zeros(1, device=self.parameters[0].device, requires_grad=True)
                cast(nn.Module, group)(one).sum().backward()

    def clip_gradients(self, max_norm: float) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, max_norm)
        return float(norm.full_tensor() if isinstance(norm, dtensor.DTensor) else norm)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """As one process has it, on the main rank; an act of all ranks."""
        state = optimizer.state_dict()
        whole = {
            number: {name: _gathered(value) for name, value in own.items()} for number, own in state["state"].items()
        }
        return {**state, "state": whole}

    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, own in state["state"].items():
            parameter = parameters[number]
            if isinstance(parameter, dtensor.DTensor):
                own.update(
                    {name: _share(value, parameter) for name, value in own.items() if value.shape == parameter.shape}
                )
        optimizer.load_state_dict(state)

    def _places(self) -> dict[int, list[Place]]:
        """Finds where each parameter that learns lies, by its id; tied ones lie in several places."""
        found: dict[int, list[Place]] = {id(parameter): [] for parameter in self.parameters}
        for module in {id(m): m for root in self._roots for m in root.modules()}.values():
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                if id(parameter) in found:
                    found[id(parameter)].append((module, name))
        return found


def _groups(
    parameters: list[nn.Parameter], places: dict[int, list[Place]]
) -> Iterator[tuple[list[nn.Module], set[int]]]:
    """Yields groups of about `GROUP` numbers: the modules that own them, and the ids of their parameters.

    All parameters of a module are in one group, and all modules of a tied parameter.
    """
    taken: set[int] = set()
    owners: list[nn.Module] = []
    mine: set[int] = set()
    size = 0
    for parameter in parameters:
        waiting = [module for module, _ in places[id(parameter)]]
        while waiting:
            module = waiting.pop()
            if id(module) in taken:
                continue
            taken.add(id(module))
            owners.append(module)
            for own in module.parameters(recurse=False):
                if id(own) in places and id(own) not in mine:
                    mine.add(id(own))
                    size += own.numel()
                    waiting += [other for other, _ in places[id(own)]]
        if size >= GROUP:
            yield owners, mine
            owners, mine, size = [], set(), 0
    if owners:
        yield owners, mine


def _gathered(value: Any) -> Any:
    if not isinstance(value, dtensor.DTensor):
        return value
    full = value.full_tensor()
    return full.cpu() if ranks.is_main() else None


def _share(value: torch.Tensor, parameter: dtensor.DTensor) -> dtensor.DTensor:
    found = value.to(parameter.device, parameter.dtype)
    return dtensor.distribute_tensor(found, parameter.device_mesh, parameter.placements, src_data_rank=None)
