"""Weights, gradients and the optimizer's state in shares: FSDP2 (`torch.distributed.fsdp.fully_shard`).

Each rank keeps its share of every parameter that learns, of its gradient and of the optimizer's state. While a rank
computes (a step's captions, scores and gradients; a validation) the weights are whole, for ranks run the model a
different number of times: captions of like length are scored together, and some ranks write longer ones. FSDP's own
hooks gather layer by layer inside ``forward``, which every rank would have to call equally often. So the parameters are
managed in groups of bounded size beside the model: ``unshard`` gathers a group, and a group's own ``forward``, which
does nothing, has the backward pass that sums its gradients over the ranks and leaves each rank its share.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from tellapart.errors import UsageError
from tellapart.models import ranks
from tellapart.models.protocols import Learner
from tellapart.training.optimizer import TrainableParts

GROUP = 2**24  # numbers that are gathered, and whose gradients are summed, at once

Place = tuple[nn.Module, str]  # a module and the name of a parameter of its own


class Holder(nn.Module):
    """A module's own parameters, in its own table, so that what FSDP puts there the module has.

    FSDP also hooks what it manages, ``state_dict`` included, and the model is to be left alone.
    """

    def __init__(self, owner: nn.Module) -> None:
        super().__init__()
        object.__setattr__(self, "_parameters", owner._parameters)


class Group(nn.Module):
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
        self._groups: list[FSDPModule] = []
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
        """Keep this rank's share alone. Optimizers are made after it: ``parameters`` are others then."""
        if ranks.count() == 1:
            return
        if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
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
            group = Group(owners)
            others = {p for p in group.parameters() if id(p) not in mine}
            fully_shard(group, mesh=mesh, reshard_after_forward=False, ignored_params=others)
            managed = cast(FSDPModule, group)
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
        return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)

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
            if isinstance(parameter, DTensor):
                own.update(
                    {name: _share(value, parameter) for name, value in own.items() if value.shape == parameter.shape}
                )
        optimizer.load_state_dict(state)

    def _places(self) -> dict[int, list[Place]]:
        """Where each parameter that learns lies, by its id; tied ones lie in several places."""
        found: dict[int, list[Place]] = {id(parameter): [] for parameter in self.parameters}
        for module in {id(m): m for root in self._roots for m in root.modules()}.values():
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                if id(parameter) in found:
                    found[id(parameter)].append((module, name))
        return found


def _groups(
    parameters: list[nn.Parameter], places: dict[int, list[Place]]
) -> Iterator[tuple[list[nn.Module], set[int]]]:
    """Groups of about `GROUP` numbers: the modules that own them, and the ids of their parameters.

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
    if not isinstance(value, DTensor):
        return value
    full = value.full_tensor()
    return full.cpu() if ranks.is_main() else None


def _share(value: torch.Tensor, parameter: DTensor) -> DTensor:
    found = value.to(parameter.device, parameter.dtype)
    return distribute_tensor(found, parameter.device_mesh, parameter.placements, src_data_rank=None)
