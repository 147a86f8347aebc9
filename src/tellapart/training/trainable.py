"""The trained parts of a learner."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.lora import is_lora_weight
from tellapart.errors import UsageError
from tellapart.models import collectives
from tellapart.scorers.base import Scorer


class TrainableParts:
    """The trained parts of a learner: parameters for the optimizer, and all tensors for a checkpoint.

    In a part with LoRA, only the LoRA parameters are trained; everything else is frozen. Raises `UsageError` for a part
    that the learner does not have.
    """

    def __init__(self, learner: Captioner | Scorer, parts: tuple[str, ...]) -> None:
        learner.model.requires_grad_(False)
        modules = learner.parts()
        if unknown := [part for part in parts if part not in modules]:
            raise UsageError(f"{learner.name} has no part '{unknown[0]}'; expected {', '.join(modules)}")
        self.modules = {part: modules[part] for part in parts}
        self.adapted = {part for part in parts if any(map(is_lora_weight, modules[part].state_dict()))}
        for part, module in self.modules.items():
            for name, parameter in module.named_parameters():
                parameter.requires_grad_(part not in self.adapted or is_lora_weight(name))
        learning = (p for module in self.modules.values() for p in module.parameters() if p.requires_grad)
        self.parameters = list({id(p): p for p in learning}.values())

    def parameters_of(self, part: str | None, others: Collection[str]) -> list[nn.Parameter]:
        """Returns the trained parameters of a part or, if ``part`` is None, of all parts except ``others``.

        Tied parameters belong to the first part that has them.
        """
        owner: dict[int, str] = {}
        for name, module in self.modules.items():
            for parameter in module.parameters():
                owner.setdefault(id(parameter), name)
        if not others:
            return self.parameters
        return [p for p in self.parameters if (owner[id(p)] == part if part else owner[id(p)] not in others)]

    def tensors(self) -> dict[str, torch.Tensor]:
        """Returns parameters and buffers (e.g. batch norm's running statistics) by name. Tied tensors appear only once.

        A part with LoRA contributes only its LoRA weights and buffers, because its other parameters do not change.
        """
        named: dict[str, torch.Tensor] = {}
        for part, module in self.modules.items():
            buffers = dict(module.named_buffers())
            for name, tensor in module.state_dict().items():
                if part not in self.adapted or is_lora_weight(name) or name in buffers:
                    named[f"{part}.{name}"] = tensor
        once = {tensor.data_ptr(): name for name, tensor in reversed(named.items())}
        return {name: named[name] for name in once.values()}

    # With ``training.sharding``, the following methods are collective calls.
    def shard(self) -> None:
        """Keeps only this rank's shards between steps. This class does not shard, so the method has no effect."""

    def whole(self) -> AbstractContextManager[None]:
        """Returns a context in which this rank has all weights."""
        return nullcontext()

    def add_up_gradients(self) -> None:
        """Replaces gradients with their sums over the ranks."""
        collectives.add_up_gradients(self.parameters)

    def clip_gradients(self, max_norm: float) -> float:
        """Clips the gradients to ``max_norm`` and returns their norm before clipping."""
        return float(torch.nn.utils.clip_grad_norm_(self.parameters, max_norm))

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Returns the complete optimizer state for a checkpoint."""
        return optimizer.state_dict()

    def load_optimizer_state(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """Loads a state that `optimizer_state` returned."""
        optimizer.load_state_dict(state)
