"""Shards the trained parts of a learner over the ranks with FSDP2."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.distributed import fsdp
from torch.distributed import tensor as dtensor
from torch.distributed.device_mesh import init_device_mesh

from tellapart.captioners.captioner import Captioner
from tellapart.errors import UsageError
from tellapart.models import collectives, ranks
from tellapart.scorers.base import Scorer
from tellapart.training.trainable import TrainableParts

GROUP_NUMBERS = 2**24  # number of parameters to gather (and of gradients to reduce) at once

Place = tuple[nn.Module, str]  # a module, and the name of one of its own parameters


class Holder(nn.Module):
    """Shares a module's parameter table, so that FSDP replaces the parameters of that module.

    FSDP adds hooks, for example for ``state_dict``, to the module that it manages. This class keeps these hooks off the
    model itself.
    """

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_parameters", owner._parameters)


class GatherGroup(nn.Module):
    """A group of parameters that are gathered together. This module is not part of the model."""

    def __init__(self, owners: list[nn.Module]) -> None:
        super().__init__()
        self.holders = nn.ModuleList(map(Holder, owners))

    def forward(self, one: torch.Tensor) -> torch.Tensor:
        """Returns the input unchanged. The backward pass reduces the gradients."""
        return one * 1


class ShardedParts(TrainableParts):
    """`TrainableParts` that are sharded over the ranks by `shard`. With a single rank, nothing is sharded."""

    def __init__(self, learner: Captioner | Scorer, parts: tuple[str, ...]) -> None:
        super().__init__(learner, parts)
        if hasattr(learner, "graphs"):
            learner.graphs = None  # CUDA graphs read weights at fixed addresses, but gathered weights move
        self._roots = [learner.model, *self.modules.values()]
        self._groups: list[fsdp.FSDPModule] = []
        for name, module in learner.model.named_modules():
            for parameter_name, parameter in module.named_parameters(recurse=False):
                single, recurrent = parameter.ndim == 0, isinstance(module, nn.RNNBase)  # RNNs list weights twice
                if parameter.requires_grad and (single or recurrent):
                    why = "a scalar" if single else "part of a recurrent network"
                    raise UsageError(
                        "training.sharding = 'full' cannot shard "
                        f"{'.'.join(filter(None, (name, parameter_name)))} of {learner.name}, which is {why}; "
                        "remove training.sharding, or remove that part from captioner.train"
                    )

    def shard(self) -> None:
        """Keeps only this rank's shards. Create the optimizer afterwards, because this replaces ``parameters``."""
        if ranks.count() == 1:
            return
        if not hasattr(fsdp.FSDPModule, "set_force_sum_reduction_for_comms"):
            raise UsageError(
                f"training.sharding = 'full' requires a newer torch than {torch.__version__}; run: pip install -U "
                "torch, or remove training.sharding"
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
            managed.set_gradient_divide_factor(1.0)  # losses have already been divided by the whole batch's counts
            managed.set_force_sum_reduction_for_comms(True)
            self._groups.append(managed)
        self.parameters = [getattr(*places[id(parameter)][0]) for parameter in self.parameters]

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Returns a context in which every rank has all weights. All ranks must enter the context."""
        for group in self._groups:
            group.unshard()
        try:
            yield
        finally:
            for group in self._groups:
                group.reshard()

    def add_up_gradients(self) -> None:
        """Reduces each shard's gradient to the sum over the ranks. Call this within `whole`, because it reshards the
        weights.
        """
        if not self._groups:
            super().add_up_gradients()
            return
        modules = {id(m): m for root in self._roots for m in root.modules()}.values()
        now = {id(p): p for module in modules for p in module.parameters(recurse=False) if p.requires_grad}
        collectives.fill_gradients(now.values())
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*FSDP2-wrapped module.*")
            for group in self._groups:
                one = torch.zeros(1, device=self.parameters[0].device, requires_grad=True)
                cast(nn.Module, group)(one).sum().backward()

    def clip_gradients(self, max_norm: float) -> float:
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, max_norm)
        return float(norm.full_tensor() if isinstance(norm, dtensor.DTensor) else norm)

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Returns the unsharded optimizer state on the main rank. All ranks must call this method."""
        state = optimizer.state_dict()
        whole = {
            number: {name: _gathered(value) for name, value in values.items()}
            for number, values in state["state"].items()
        }
        return {**state, "state": whole}

    def load_optimizer_state(self, optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        for number, values in state["state"].items():
            parameter = parameters[number]
            if isinstance(parameter, dtensor.DTensor):
                values.update(
                    {name: _share(value, parameter) for name, value in values.items() if value.shape == parameter.shape}
                )
        optimizer.load_state_dict(state)

    def _places(self) -> dict[int, list[Place]]:
        """Maps the id of each trained parameter to its modules and names. Tied parameters have several of them."""
        places: dict[int, list[Place]] = {id(parameter): [] for parameter in self.parameters}
        for module in {id(m): m for root in self._roots for m in root.modules()}.values():
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                if id(parameter) in places:
                    places[id(parameter)].append((module, name))
        return places


def _groups(
    parameters: list[nn.Parameter], places: dict[int, list[Place]]
) -> Iterator[tuple[list[nn.Module], set[int]]]:
    """Yields groups of about `GROUP_NUMBERS` parameters: the modules that own them, and the parameters' ids.

    All parameters of a module, and all modules of a tied parameter, are in the same group.
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
            for parameter_of_module in module.parameters(recurse=False):
                if id(parameter_of_module) in places and id(parameter_of_module) not in mine:
                    mine.add(id(parameter_of_module))
                    size += parameter_of_module.numel()
                    waiting += [other for other, _ in places[id(parameter_of_module)]]
        if size >= GROUP_NUMBERS:
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
    tensor = value.to(parameter.device, parameter.dtype)
    return dtensor.distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)
