"""Weights, gradients and optimizer state in shares (FSDP2): the same run, in less memory on each rank."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import test_ranks
import torch
from captioners.families import FAMILIES
from ranks_run import STEPS, table
from safetensors.torch import load_file
from test_ranks import assert_same, logged, runs, weights

from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe
from tellapart.training.fingerprint import content_of
from tellapart.training.sharding import ShardedParts

WAYS = ["running_mean", "smile"]  # rollouts with several samples, rewards and KL; references


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen2-VL in the real layout."""
    return FAMILIES["qwen2_vl"](tmp_path_factory.mktemp("qwen"))


def memory(folder: Path) -> list[dict[str, int]]:
    found: list[dict[str, int]] = json.loads((folder / "run.json").read_text())["memory"]
    return found


@pytest.mark.parametrize(
    "names", [pytest.param(WAYS[:1], marks=pytest.mark.long), pytest.param(WAYS[1:], marks=pytest.mark.slow)]
)
def test_two_ranks_that_share_the_weights_train_as_one_that_has_all(
    names: list[str], qwen: Path, tiny_scorer: Path, tmp_path: Path
) -> None:
    plain = runs(1, tmp_path / "plain", qwen, tiny_scorer, names)
    two = runs(2, tmp_path / "two", qwen, tiny_scorer, [f"{name}:sharded" for name in names])
    for name in names:
        sharded = two / f"{name}:sharded"
        assert_same(plain / name, sharded)  # rewards, lengths of rollouts and validation too
        losses = [
            [record["loss"] for record in logged(folder) if "loss" in record] for folder in (plain / name, sharded)
        ]
        assert losses[1] == pytest.approx(losses[0], rel=0, abs=1e-5)
        model = [load_file(folder / "model" / "model.safetensors") for folder in (plain / name, sharded)]
        assert {key: value.shape for key, value in model[0].items()} == {key: v.shape for key, v in model[1].items()}
        whole, shares = memory(plain / name)[0], memory(sharded)
        assert len(shares) == 2
        for kind in ("weights", "gradients", "optimizer"):
            assert whole[kind] / 2 <= max(share[kind] for share in shares) < 0.6 * whole[kind]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_a_checkpoint_of_shares_is_whole_and_resumes_on_one_or_two_ranks(
    ranks: int, qwen: Path, tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = runs(1, tmp_path / "plain", qwen, tiny_scorer, ["running_mean"])
    monkeypatch.setattr(test_ranks, "ENVIRONMENT", test_ranks.ENVIRONMENT | {"UNTIL": "9"})
    out = runs(2, tmp_path, qwen, tiny_scorer, ["running_mean:sharded"]) / "running_mean:sharded"
    checkpoint = out / "checkpoints" / "step-0000007"
    shapes = {name: tensor.shape for name, tensor in load_file(checkpoint / "weights.safetensors").items()}
    assert shapes == {name: tensor.shape for name, tensor in weights(plain / "running_mean").items()}
    assert len(logged(out)) < STEPS
    monkeypatch.setattr(test_ranks, "ENVIRONMENT", test_ranks.ENVIRONMENT | {"UNTIL": str(STEPS)})
    if ranks == 1:  # and without shares: a fingerprint has no sharding
        shutil.copytree(out, tmp_path / "running_mean")
        assert_same(plain / "running_mean", runs(1, tmp_path, qwen, tiny_scorer, ["running_mean"]) / "running_mean")
    assert_same(plain / "running_mean", runs(ranks, tmp_path, qwen, tiny_scorer, ["running_mean:sharded"]) / out.name)


def recipe(name: str, captioner: Path, scorer: Path, **training: Any) -> Any:
    made = table(name, str(captioner), str(scorer))
    made["training"] |= training
    return check_recipe(made, name)


def test_sharding_changes_no_fingerprint(tiny_captioner: Path, tiny_scorer: Path) -> None:
    plain, shared = (content_of(recipe(name, tiny_captioner, tiny_scorer)) for name in ("smile", "smile:sharded"))
    assert plain.fingerprint == shared.fingerprint


def test_a_torch_without_what_is_needed_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.fsdp.FSDPModule", object)
    monkeypatch.setattr("tellapart.models.ranks.count", lambda: 2)
    with pytest.raises(UsageError, match=r"training.sharding = 'full' requires a newer torch than .*; run:"):
        ShardedParts.shard(object.__new__(ShardedParts))


def test_what_cannot_be_shared_out_is_one_line(tiny_captioner: Path, tiny_scorer: Path) -> None:
    with pytest.raises(UsageError, match=r"training.sharding applies to captioners, but this recipe trains a"):
        recipe("contrastive:sharded", tiny_captioner, tiny_scorer)

    class Scaled(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(2, 2)
            self.scale = torch.nn.Parameter(torch.ones(()))

    class Learner:
        name, model = "mine", Scaled()

        def parts(self) -> dict[str, torch.nn.Module]:
            return {"all": self.model}

    with pytest.raises(UsageError, match=r"training.sharding = 'full' cannot shard scale of mine, which is"):
        ShardedParts(Learner(), ("all",))  # type: ignore[arg-type]
