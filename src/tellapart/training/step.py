"""One training step: the parts that learn, the step itself, the optimizer, its schedule and their checkpoints.

Parameters and optimizer state are whole on each rank (`TrainableParts`) or sharded by FSDP2 (`ShardedParts`).
"""

from __future__ import annotations

import resource
import sys
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed import fsdp
from torch.distributed import tensor as dtensor
from torch.distributed.device_mesh import init_device_mesh
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from transformers import get_scheduler

from tellapart.captioners.lora import is_adapter
from tellapart.errors import TellapartError, UsageError
from tellapart.models import ranks
from tellapart.models.onednn import LARGE
from tellapart.models.protocols import Learner
from tellapart.objectives.base import Objective
from tellapart.recipe.schema import Training
from tellapart.training.batches import TrainingSet
from tellapart.training.build import TrainingSetup
from tellapart.types import Loss


def train_step(
    setup: TrainingSetup,
    data: TrainingSet,
    objective: Objective[Any],
    trainable: TrainableParts,
    optimizer: Optimizer,
    scheduler: LRScheduler,
    step: int,
) -> dict[str, float]:
    """Takes one optimizer step and returns its logs.

    All randomness is drawn from (seed, step), so nothing but weights, optimizer and the objective's state carries over:
    numbers for an item belong to that item (`Batch.seeds`), and torch's own generator serves dropout, which differs
    from rank to rank. Raises `TellapartError` for a loss that is not finite, `UsageError` for a batch with fewer
    pictures than ranks.
    """
    recipe, context = setup.recipe, setup.step_context
    logs: dict[str, float] = {}
    rank = [context.rank] if context.rank else []
    torch.manual_seed(int(np.random.default_rng([recipe.seed, step, 2, *rank]).integers(2**62)))
    batch = data.batch(step)
    if len(batch.rows_B) < context.world_size:
        raise UsageError(
            f"the batch of step {step + 1} has {len(batch.rows_B)} pictures for {context.world_size} ranks; expected "
            "at least one for each; raise training.batch_size, or start fewer"
        )

    def backward(loss: Loss) -> None:
        if not bool(torch.isfinite(loss.value)):
            raise TellapartError(f"the loss is {float(loss.value)} at step {step + 1}; lower training.learning_rate")
        loss.value.backward()
        for key, value in {"loss": float(loss.value.detach()), **loss.logs}.items():
            logs[key] = logs.get(key, 0.0) + value  # micro-batches add up

    optimizer.zero_grad(set_to_none=True)
    with trainable.whole():
        objective.step(setup.learner, batch, replace(context, backward=backward))
        if context.world_size > 1:
            trainable.add_up_gradients()
    logs = ranks.add_up(logs) if context.world_size > 1 else logs
    norm = trainable.clip_gradients(recipe.training.max_grad_norm)
    optimizer.step()
    rate = float(scheduler.get_last_lr()[0])
    scheduler.step()
    return {**logs, "gradient_norm": norm, "learning_rate": rate}


class TrainableParts:
    """The trained parts of a learner: parameters for the optimizer, and all tensors for a checkpoint.

    In a part with LoRA only LoRA's parameters are trained; everything else is frozen. Raises `UsageError` for a part
    that the learner does not have.
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

    def parameters_of(self, part: str | None, others: Collection[str]) -> list[nn.Parameter]:
        """Returns what learns in a part; None: in all parts but ``others``. Tied ones belong to the first of them."""
        owner: dict[int, str] = {}
        for name, module in self.modules.items():
            for parameter in module.parameters():
                owner.setdefault(id(parameter), name)
        if not others:
            return self.parameters
        return [p for p in self.parameters if (owner[id(p)] == part if part else owner[id(p)] not in others)]

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

    # With ``training.sharding`` the following are collective calls of all ranks.
    def shard(self) -> None:
        """Keeps only this rank's shards between steps; here everything."""

    def whole(self) -> AbstractContextManager[None]:
        """Returns a context in which this rank has all weights."""
        return nullcontext()

    def add_up_gradients(self) -> None:
        """Replaces gradients by their sums over the ranks."""
        ranks.add_up_gradients(self.parameters)

    def clip_gradients(self, max_norm: float) -> float:
        """Scales the gradients down to ``max_norm``; returns the norm that they had."""
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Returns the whole state of the optimizer, for a checkpoint."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Loads a state that `optimizer_state` returned."""
        optimizer.load_state_dict(state)


def make_optimizer(trainable: TrainableParts, settings: Training) -> Optimizer:
    """Makes Adam or AdamW; vectors and scalars (norms, biases, the scale) are decayed only where all are.

    A part with a learning rate of its own has two groups of its own. Raises `UsageError` for one of a part that does
    not learn.
    """
    if idle := sorted(settings.learning_rates.keys() - trainable.modules.keys()):
        raise UsageError(
            f"training.learning_rates has '{idle[0]}', which does not learn; expected {', '.join(trainable.modules)}"
        )
    groups: list[dict[str, Any]] = []
    for part in (None, *settings.learning_rates):
        mine = trainable.parameters_of(part, settings.learning_rates)
        rate = {} if part is None else {"lr": settings.learning_rates[part]}
        matrices, vectors = ([p for p in mine if (p.ndim > 1) == many] for many in (True, False))
        groups += [{"params": matrices, "weight_decay": settings.weight_decay, **rate}]
        groups += [{"params": vectors, "weight_decay": settings.weight_decay * (settings.decayed == "all"), **rate}]
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    fused = True if runs_fused(trainable.parameters) else None
    return kind([g for g in groups if g["params"]], lr=settings.learning_rate, betas=settings.betas, fused=fused)


def runs_fused(parameters: Sequence[torch.nn.Parameter]) -> bool:
    """Returns whether to use the fused optimizer: on CUDA, and on a CPU for models that exceed its caches.

    The fused kernel rounds sums in another order, so small models on a CPU do without it.
    """
    if {p.device.type for p in parameters} == {"cuda"}:
        return True
    return {p.device.type for p in parameters} == {"cpu"} and sum(p.numel() for p in parameters) >= LARGE


def make_scheduler(optimizer: Optimizer, settings: Training) -> LRScheduler:
    """Makes the schedule of the recipe; after the warm-up it changes each ``schedule_every`` steps."""

    name = "constant_with_warmup" if settings.schedule == "constant" else settings.schedule
    every, warmup, steps = settings.schedule_every, settings.warmup, settings.steps
    scheduler: LambdaLR = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=steps)
    if every == 1:
        return scheduler
    factor = scheduler.lr_lambdas[0]
    return LambdaLR(optimizer, lambda step: factor(max(step - step % every, min(step, warmup))))


def save_state(folder: Path | None, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Writes weights, optimizer and scheduler into ``folder``. A collective call; ranks that do not write pass None."""
    state = trainable.optimizer_state(optimizer)
    if folder is not None:
        torch.save({"optimiser": state, "scheduler": scheduler.state_dict()}, folder / "optimiser.pt")
    del state
    with trainable.whole():
        if folder is not None:
            weights = {name: t.detach().contiguous() for name, t in trainable.tensors().items()}
            save_file(weights, folder / "weights.safetensors")


def load_weights(folder: Path, trainable: TrainableParts) -> None:
    """Loads the weights that `save_state` wrote. Raises `TellapartError` for a checkpoint of another model."""
    weights, tensors = load_file(folder / "weights.safetensors"), trainable.tensors()
    if {k: v.shape for k, v in weights.items()} != {k: v.shape for k, v in tensors.items()}:
        raise TellapartError(f"{folder} is a checkpoint of another model; start again with another --out")
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(weights[name])


def load_optimizer(folder: Path, trainable: TrainableParts, optimizer: Optimizer, scheduler: LRScheduler) -> None:
    """Loads optimizer and scheduler as `save_state` wrote them."""
    saved = torch.load(folder / "optimiser.pt", weights_only=True)
    trainable.load_optimizer_state(optimizer, saved["optimiser"])
    scheduler.load_state_dict(saved["scheduler"])


def memory_of(trainable: TrainableParts, optimizer: Optimizer) -> dict[str, int]:
    """Returns the bytes on this rank of trained weights, gradients and optimizer state, and its peak memory.

    The peak is the accelerator's, or the resident set of the process on a CPU.
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
    """Returns the bytes of a tensor on this rank."""
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a share is a DTensor
    return int(local.numel() * local.element_size())


def peak_memory(device: torch.device) -> int:
    """Returns the largest number of bytes that this process has had on the device, or resident on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


GROUP = 2**24  # numbers that are gathered, and whose gradients are summed, at once

Place = tuple[nn.Module, str]  # a module and the name of a parameter of its own


class Holder(nn.Module):
    """Shares the parameter table of a module, so that FSDP replaces that module's own parameters.

    FSDP also hooks the module that it manages, ``state_dict`` included; so the model itself stays without hooks.
    """

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_parameters", owner._parameters)


class GatherGroup(nn.Module):
    """A group of parameters that are gathered together; not a part of the model."""

    def __init__(self, owners: list[nn.Module]) -> None:
        super().__init__()
        self.holders = nn.ModuleList(map(Holder, owners))

    def forward(self, one: torch.Tensor) -> torch.Tensor:
        """Returns the same number; its backward pass reduces the gradients."""
        return one * 1


class ShardedParts(TrainableParts):
    """`TrainableParts` that are sharded over the ranks from `shard` on; with one rank they stay whole."""

    def __init__(self, learner: Learner, parts: tuple[str, ...]) -> None:
        super().__init__(learner, parts)
        if hasattr(learner, "graphs"):
            learner.graphs = None  # they read weights where they were recorded, and gathered ones lie anywhere
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
        """Keeps only this rank's shards. Make optimizers after it, as ``parameters`` are replaced."""
        if ranks.count() == 1:
            return
        if not hasattr(fsdp.FSDPModule, "set_force_sum_reduction_for_comms"):
            raise UsageError(
                f"training.sharding = 'full' needs a newer torch than {torch.__version__}; type: pip install -U torch, "
                "or leave sharding out"
            )

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
        """Returns a context in which every rank has all weights; entering is a collective call."""
        for group in self._groups:
            group.unshard()
        try:
            yield
        finally:
            for group in self._groups:
                group.reshard()

    def add_up_gradients(self) -> None:
        """Reduces each shard's gradient to its sum over the ranks; called within `whole`, which it ends."""
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
        """Returns the state as a single process has it, on the main rank; a collective call."""
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
