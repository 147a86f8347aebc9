"""Large fp32 layers by oneDNN: equal to torch's, in training too."""

from __future__ import annotations

import copy

import pytest
import torch
from models.linear_layers import AVX512, layer
from transformers.activations import NewGELUActivation

from tellapart.models import onednn
from tellapart.models.onednn import OneDnnLinear, linear, speed_up


@AVX512
@pytest.mark.parametrize("kind", ["Linear", "without bias", "Conv1D"])
@pytest.mark.parametrize("shape", [(5,), (577,), (2, 7), (3, 1, 5)])
def test_large_models_learn_by_onednn_as_by_torch(
    kind: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onednn, "LARGE", 0)
    x = torch.randn(*shape, 48, generator=torch.manual_seed(1))
    found = []
    for fast in (False, True):
        model = torch.nn.Sequential(layer(kind, torch.float32), NewGELUActivation(), torch.nn.Linear(30, 4))
        if fast:
            speed_up(model)
            assert all(isinstance(vars(model[place])["forward"], OneDnnLinear) for place in (0, 2))
            assert type(model[1]) is torch.nn.GELU
            model = copy.deepcopy(model)  # its layers multiply by their own weights
            assert vars(model[0])["forward"].module is model[0]
        inner = x.clone().requires_grad_(True)
        out = model(inner)
        out.square().sum().backward()
        named = dict(model.named_parameters())
        assert all(parameter.grad.stride() == parameter.stride() for parameter in named.values())
        with torch.no_grad():
            assert torch.allclose(model(x), out, atol=1e-5)
        found.append([out.detach(), inner.grad, *(named[name].grad for name in sorted(named))])
    for ours, theirs in zip(*found, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@AVX512
def test_small_models_other_precisions_and_transposed_rows_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    small = torch.nn.Sequential(layer("Linear", torch.float32), NewGELUActivation())
    speed_up(small)
    assert "forward" not in vars(small[0]) and type(small[1]) is NewGELUActivation
    monkeypatch.setattr(onednn, "LARGE", 0)
    speed_up(small)
    x = torch.randn(48, 6, generator=torch.manual_seed(1)).T
    plain = torch.nn.functional.linear(x, small[0].weight, small[0].bias)
    assert torch.allclose(small[0](x), plain, atol=1e-5)
    assert torch.allclose(linear(x, small[0].weight, small[0].bias), plain, atol=1e-5)
    assert small[0](x[:0]).shape == (0, 30)
    with torch.autocast("cpu", torch.bfloat16):
        assert small[0](x).dtype == linear(x, small[0].weight).dtype == torch.bfloat16
    assert small.double()[0](x.double()).dtype == torch.float64
