"""GEM and sparsemax against literal transcriptions, from logits and from the output layer, and in a recipe."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tellapart.models.output_layer import head_loss
from tellapart.objectives import gem_loss, smile_loss, sparsemax_loss
from tellapart.objectives.gem import GemTerm
from tellapart.objectives.labels import flat_positions
from tellapart.objectives.mle import mle_loss
from tellapart.objectives.sparsemax import SparsemaxTerm, sparsemax
from tellapart.recipe.reading import check_recipe
from tellapart.training.runs import train

B, T, V, H = 3, 4, 11, 5


def inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits_BTV = 3 * torch.randn(B, T, V, generator=generator, dtype=torch.float64)
    valid_BT = torch.ones(B, T, dtype=torch.bool)
    valid_BT[1, 2:] = False
    return logits_BTV, torch.randint(V, (B, T), generator=generator), valid_BT


def literal_gem(z: list[float], y: int, beta: float, h: str) -> float:
    """−Σ_v q_v · w_v · (log p_y − log p_v) for one token, in plain Python."""
    p = [math.exp(value) for value in z]
    p = [value / sum(p) for value in p]
    q = [math.exp(value / beta) for value in z]
    q = [value / sum(q) for value in q]
    w = [1.0 if h == "linear" else 1 / (1 + math.exp(-0.01 * (value - z[y]))) for value in z]
    return -sum(q[v] * w[v] * (math.log(p[y]) - math.log(p[v])) for v in range(len(z)))


def literal_sparsemax_loss(z: list[float], y: int) -> float:
    """−z_y + ½ Σ_{v∈S} (z_v² − τ²) + ½ for one token, with S found by trying every size."""
    ordered = sorted(z, reverse=True)
    for size in range(len(z), 0, -1):
        tau = (sum(ordered[:size]) - 1) / size
        if ordered[size - 1] > tau:
            break
    return -z[y] + 0.5 * sum(value**2 - tau**2 for value in z if value > tau) + 0.5


@pytest.mark.parametrize("h", ["linear", "log_sigmoid"])
@pytest.mark.parametrize("beta", [0.3, 0.7, 1.0])
def test_gem_is_its_formula(beta: float, h: Any) -> None:
    logits_BTV, labels_BT, valid_BT = inputs()
    each = [
        literal_gem(logits_BTV[b, t].tolist(), int(labels_BT[b, t]), beta, h) for b, t in valid_BT.nonzero().tolist()
    ]
    assert float(gem_loss(logits_BTV, labels_BT, valid_BT, beta=beta, h=h)) == pytest.approx(sum(each) / len(each))


def test_gem_leaves_a_label_alone_that_the_sharpened_model_is_sure_of() -> None:
    """Its gradient is q − label, which vanishes as q does; cross-entropy still moves all words to the label."""
    logits_BTV = torch.tensor([[[4.0, 1.0, 0.0]]], requires_grad=True)
    gem_loss(logits_BTV, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool), beta=0.1).backward()
    assert logits_BTV.grad is not None and float(logits_BTV.grad.abs().max()) < 1e-10
    expected_V = (torch.tensor([4.0, 1.0, 0.0]) / 0.7).softmax(0) - torch.tensor([1.0, 0.0, 0.0])
    logits_BTV.grad = None
    gem_loss(logits_BTV, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool)).backward()
    assert torch.allclose(logits_BTV.grad, expected_V)


def test_sparsemax_is_its_formula() -> None:
    logits_BTV, labels_BT, valid_BT = inputs()
    each = [
        literal_sparsemax_loss(logits_BTV[b, t].tolist(), int(labels_BT[b, t])) for b, t in valid_BT.nonzero().tolist()
    ]
    assert float(sparsemax_loss(logits_BTV, labels_BT, valid_BT)) == pytest.approx(sum(each) / len(each))


def test_sparsemax_is_the_nearest_point_of_the_simplex() -> None:
    """No other point is nearer: the optimality conditions of the projection hold."""
    scores_NV = 2 * torch.randn(50, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    p_NV = sparsemax(scores_NV)
    assert torch.allclose(p_NV.sum(1), torch.ones(50, dtype=torch.float64)) and bool((p_NV >= 0).all())
    assert 0 < int((p_NV == 0).sum()) < p_NV.numel()
    slack_NV = scores_NV - p_NV
    tau_N1 = torch.where(p_NV > 0, slack_NV, -torch.inf).amax(1, keepdim=True)
    assert torch.allclose(slack_NV[p_NV > 0], tau_N1.expand_as(p_NV)[p_NV > 0])
    assert bool((slack_NV <= tau_N1 + 1e-12).all())


@pytest.mark.parametrize("loss", ["gem", "gem log_sigmoid", "sparsemax"])
@pytest.mark.parametrize("bias", [True, False])
def test_the_output_layer_gives_value_and_gradients_of_the_logits(
    loss: str, bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tellapart.models.output_layer.CHUNK_SCORES", 3 * V)  # three tokens at a time
    _, labels_BT, valid_BT = inputs()
    generator = torch.Generator().manual_seed(2)
    made = [torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((B, T, H), (V, H), (V,))]
    found = []
    for whole in (True, False):
        leaves = [tensor.clone().requires_grad_() for tensor in (made if bias else made[:2])]
        hidden_BTH, weight_VH, bias_V = leaves if bias else (*leaves, None)
        h = "log_sigmoid" if "log" in loss else "linear"
        if whole:
            logits_BTV = torch.nn.functional.linear(hidden_BTH, weight_VH, bias_V)
            of_logits = sparsemax_loss if loss == "sparsemax" else lambda *rest, h=h: gem_loss(*rest, beta=0.6, h=h)
            value = of_logits(logits_BTV, labels_BT, valid_BT)
        else:
            rest = flat_positions(valid_BT), labels_BT[valid_BT], 1 / int(valid_BT.sum())
            term = SparsemaxTerm(*rest) if loss == "sparsemax" else GemTerm(*rest, beta=0.6, h=h)  # type: ignore[arg-type]
            value = head_loss(hidden_BTH, weight_VH, bias_V, [term])
        (2 * value).backward()
        found.append([value.detach(), *(leaf.grad for leaf in leaves)])
    for ours, plain in zip(*found, strict=True):
        assert torch.allclose(ours, plain, atol=1e-10)


def test_the_losses_differ() -> None:
    logits_BTV, labels_BT, valid_BT = inputs()
    losses = [loss(logits_BTV, labels_BT, valid_BT) for loss in (mle_loss, smile_loss, gem_loss, sparsemax_loss)]
    assert len({round(float(value), 6) for value in losses}) == 4


@pytest.mark.parametrize(
    "objective",
    [{"kind": "gem"}, {"kind": "gem", "beta": 0.5, "h": "log_sigmoid"}, {"kind": "sparsemax"}],
    ids=lambda table: "-".join(map(str, table.values())),
)
def test_a_recipe_trains_with_it(tiny_recipe: dict[str, Any], tmp_path: Path, objective: dict[str, Any]) -> None:
    changes = {**tiny_recipe["training"], "steps": 2}
    recipe = check_recipe({**tiny_recipe, "objective": objective, "training": changes}, "test")
    train(recipe, tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if "loss" in line]
    assert len(losses) >= 2 and all(math.isfinite(loss) for loss in losses) and recipe.objective.measure == "recall"
