"""What every objective is: a callable over (learner, batch), with a little state to resume."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from tellapart.types import Batch


@dataclass(slots=True)
class Loss:
    """A scalar to descend, and numbers for the log."""

    value: torch.Tensor
    logs: dict[str, float] = field(default_factory=dict)


class Objective(Protocol):
    """``objective(learner, batch) -> Loss``; the state dict is plain JSON (numbers, strings, lists)."""

    def __call__(self, learner: Any, batch: Batch) -> Loss: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Stateless:
    """For objectives that remember nothing between steps."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state:
            raise ValueError(f"state for an objective that has none: {sorted(state)}")


def token_log_probs(logits_RTV: torch.Tensor, tokens_RT: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Log-probability R×T of each token, in nats, from raw scores divided by ``temperature``."""
    logits_RTV = logits_RTV.float() / temperature
    return logits_RTV.gather(-1, tokens_RT[..., None]).squeeze(-1) - logits_RTV.logsumexp(-1)
