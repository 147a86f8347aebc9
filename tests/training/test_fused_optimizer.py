"""The optimizer of large models runs in one kernel, and gives what the plain one gives."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tellapart.recipe.schema import Training
from tellapart.training import optimizer


@pytest.mark.parametrize("kind", ["adam", "adamw"])
def test_fused_steps_are_those_of_the_plain_optimizer(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Training(steps=5, batch_size=2, learning_rate=0.01, optimizer=kind, weight_decay=0.1)
    weights = []
    for large in (10**9, 1):
        monkeypatch.setattr(optimizer, "LARGE", large)
        torch.manual_seed(0)
        layer = torch.nn.Linear(7, 5)
        parameters = list(layer.parameters())
        trainable: Any = SimpleNamespace(
            parameters=parameters, modules={"model": layer}, parameters_of=lambda part, rates, own=parameters: own
        )
        made = optimizer.make_optimizer(trainable, settings)
        assert bool(made.defaults["fused"]) == (large == 1)
        for step in range(5):
            made.zero_grad()
            layer(torch.randn(4, 7, generator=torch.Generator().manual_seed(step))).square().sum().backward()
            made.step()
        weights.append(layer.weight.detach())
    torch.testing.assert_close(weights[0], weights[1], atol=1e-6, rtol=0)
    torch.manual_seed(0)
    assert (weights[0] - torch.nn.Linear(7, 5).weight).abs().max() > 0.01, "the steps moved something"


def test_norms_and_biases_are_decayed_where_all_are() -> None:
    """With gradients of zero a step of AdamW is the decay alone: 1 - rate x decay."""
    found = {}
    for decayed in ("matrices", "all"):
        settings = Training(steps=1, batch_size=2, learning_rate=0.1, weight_decay=0.5, decayed=decayed)
        layer = torch.nn.Linear(3, 2)
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.ones_(layer.bias)
        trainable: Any = SimpleNamespace(
            parameters=list(layer.parameters()),
            modules={"model": layer},
            parameters_of=lambda part, rates, own=layer: list(own.parameters()),
        )
        made = optimizer.make_optimizer(trainable, settings)
        (0 * layer(torch.ones(1, 3))).sum().backward()
        made.step()
        found[decayed] = layer.weight.unique().tolist() + layer.bias.unique().tolist()
    assert found["matrices"] == pytest.approx([0.95, 1]) and found["all"] == pytest.approx([0.95, 0.95])
    with pytest.raises(ValidationError, match="decayed has no effect, because weight_decay is 0; set,"):
        Training(steps=1, batch_size=2, learning_rate=0.1, decayed="all")
