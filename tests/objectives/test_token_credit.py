"""Rewards of single tokens: their baselines, their sum with rewards of captions, and what they are equal to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tellapart.errors import TellapartError
from tellapart.models.decoding import Decoding
from tellapart.objectives import Reinforce, RunningMean, group_mean, leave_one_out, no_baseline
from tellapart.objectives.baselines import leave_one_out_tokens, like_class_means
from tellapart.objectives.caption_log_probs import caption_log_probs, token_weights
from tellapart.objectives.reinforce import group_deviation, sum_of_gains
from tellapart.objectives.reward_terms import RewardTerm
from tellapart.recipe.reading import check_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts
from tellapart.types import Batch, Rollout

END, NAN = 9, math.nan


def random_rollout(B: int, S: int, T: int, seed: int) -> Rollout:
    generator = torch.Generator().manual_seed(seed)
    length_R = torch.randint(1, T + 1, (B * S,), generator=generator)
    length_R[0] = T
    tokens_RT = torch.randint(0, END, (B * S, T), generator=generator)
    valid_RT = torch.arange(T) < length_R[:, None]
    tokens_RT[torch.arange(B * S), length_R - 1] = END
    return Rollout(tokens_RT.masked_fill(~valid_RT, 0), valid_RT, [str(r) for r in range(B * S)], S)


class Table:
    """A table of logits in float64 as a policy."""

    def __init__(self, told: Rollout) -> None:
        generator = torch.Generator().manual_seed(3)
        shape = (*told.tokens_RT.shape, 10)
        self.table = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        self.told, self.end, self.model = told, END, torch.nn.Identity()

    def generate(self, visual: torch.Tensor, decoding: Decoding) -> Rollout:
        if decoding.kind != "greedy":
            return self.told
        first = slice(None, None, self.told.samples)
        return Rollout(self.told.tokens_RT[first], self.told.valid_RT[first], self.told.texts[first])

    def logits(self, visual: torch.Tensor, tokens: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return self.table


class PerToken:
    """The same reward on every token of a caption, whose tokens are of several classes."""

    def __init__(self, reward_BS: torch.Tensor) -> None:
        self.reward_BS = reward_BS

    def __call__(self, rollout: Rollout, batch: Batch) -> torch.Tensor:
        return self.reward_BS[:, : rollout.samples, None].expand(-1, -1, rollout.tokens_RT.shape[1])

    def word_classes(self, rollout: Rollout) -> torch.Tensor:
        return rollout.tokens_RT % 3


def loss_and_gradient(told: Rollout, terms: list[RewardTerm], B: int, **settings: Any) -> tuple[float, torch.Tensor]:
    learner = Table(told)
    objective = Reinforce(terms, Reinforce.Config(decoding=Decoding(kind="sample", samples=told.samples), **settings))
    loss = objective(learner, Batch([], torch.arange(B), torch.zeros(B, 1)))
    loss.value.backward()  # type: ignore[no-untyped-call]
    assert learner.table.grad is not None
    return loss.value.item(), learner.table.grad


BASELINES = {"none": no_baseline, "leave_one_out": leave_one_out, "group_mean": group_mean, "greedy": "greedy"}


@pytest.mark.parametrize("length_normalization", ["length+1", "length", "words", "none"])
@pytest.mark.parametrize("baseline", [*BASELINES, "running_mean"])
@pytest.mark.parametrize("abstains", [False, True])
def test_a_reward_that_is_the_same_for_all_tokens_is_the_old_path(
    length_normalization: str, baseline: str, abstains: bool
) -> None:
    """Value and gradient, in float64, of captions of any length, with a second reward beside it."""
    B, S = 5, 4
    told = random_rollout(B, S, 7, seed=1)
    reward_BS = torch.randn(B, S, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    if abstains:
        reward_BS[1, 2] = reward_BS[3] = NAN
    second_BS = torch.randn(B, S, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    found, states = [], []
    for reward in (lambda r, b: reward_BS[:, : r.samples], PerToken(reward_BS)):
        kept = RunningMean() if baseline == "running_mean" else BASELINES[baseline]
        if baseline == "running_mean":
            kept.mean, kept.count = 0.3, 4
        terms = [RewardTerm(reward, kept, 0.7, "one"), RewardTerm(lambda r, b: second_BS, leave_one_out, 0.2, "two")]
        settings = {"length_normalization": length_normalization, "group_normalization": abstains}
        found.append(loss_and_gradient(told, terms, B, **settings))
        states.append(kept.state_dict() if isinstance(kept, RunningMean) else None)
    assert states[0] == states[1]
    assert found[0][0] == pytest.approx(found[1][0], abs=1e-12)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-12, rtol=0)
    assert found[0][1].abs().max() > 1e-3


@pytest.mark.parametrize("settings", [{"whiten": False, "group_normalization": True}])
def test_gdpo_divides_each_reward_by_its_deviation_among_the_samples(settings: dict[str, Any]) -> None:
    """A reward a hundred times as large has no more say; equal rewards of a picture say nothing."""
    reward_BS = torch.tensor([[1.0, 2.0, 6.0], [4.0, 4.0, 4.0]], dtype=torch.float64)
    advantages = []
    for scale in (1.0, 100.0):
        terms = [
            RewardTerm(lambda r, b, scale=scale: scale * reward_BS, group_mean, 1.0, "one"),
            RewardTerm(lambda r, b: reward_BS.flip(1), group_mean, 0.5, "two"),
        ]
        objective = Reinforce(terms, Reinforce.Config(decoding=Decoding(kind="sample", samples=3), **settings))
        told = random_rollout(2, 3, 4, seed=5)
        advantages.append(objective.advantages(told, None, Batch([], torch.arange(2), torch.zeros(2, 1)))[0])
    deviation = math.sqrt((4 + 1 + 9) / 3)  # of 1, 2, 6 about 3
    expected = [(-2 + 0.5 * 3) / deviation, (-1 - 0.5) / deviation, (3 - 0.5 * 2) / deviation]
    assert advantages[0][0].tolist() == pytest.approx(expected, rel=1e-3)
    assert advantages[1][0].tolist() == pytest.approx(expected, rel=1e-3)
    assert advantages[0][1].tolist() == pytest.approx([0.0] * 3)


def test_the_deviation_of_a_reward_of_tokens_is_over_all_tokens_of_a_picture() -> None:
    reward_BST = torch.tensor([[[1.0, NAN], [2.0, 6.0]]])
    # 1 and (2, 6) about the mean of the samples' means, 2.5
    assert group_deviation(reward_BST).item() == pytest.approx(math.sqrt((1.5**2 + (0.5**2 + 3.5**2) / 2) / 2))


class TestBaseline:
    def test_words_of_like_class_are_compared(self) -> None:
        """Classes 1 and 2; the second sample has no word of class 2, so its mean over all tokens stands in."""
        reward_BST = torch.tensor([[[1.0, 5.0], [3.0, 7.0], [NAN, 2.0]]])
        class_BST = torch.tensor([[[1, 2], [1, 1], [2, 2]]])
        expected = [
            # class 1: mean of sample two (3, 7) and, without class 1, of all of sample three (2)
            [(5 + 2) / 2, (5 + 2) / 2],  # class 2: sample two has none (mean 5), sample three 2
            [(1 + 2) / 2, (1 + 2) / 2],
            [(5 + 5) / 2, (5 + 5) / 2],  # class 2: 5 of sample one, and sample two's mean
        ]
        assert leave_one_out_tokens(reward_BST, class_BST)[0].tolist() == expected

    def test_a_token_has_no_part_in_its_own_baseline(self) -> None:
        """Changing one sample's rewards changes no baseline of its own tokens: the gradient stays unbiased."""
        reward_BST = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
        class_BST = torch.randint(0, 3, (2, 3, 5), generator=torch.Generator().manual_seed(1))
        before = leave_one_out_tokens(reward_BST, class_BST)
        reward_BST[0, 1] += 10
        after = leave_one_out_tokens(reward_BST, class_BST)
        assert torch.equal(before[0, 1], after[0, 1]) and not torch.equal(before[0, 0], after[0, 0])

    def test_other_captions_may_have_another_length(self) -> None:
        reward_BST, other_BOU = torch.zeros(1, 1, 2), torch.tensor([[[4.0, 8.0, 1.0]]])
        value = like_class_means(reward_BST, torch.tensor([[[0, 1]]]), other_BOU, torch.tensor([[[0, 0, 1]]]))
        assert value.flatten().tolist() == [6.0, 1.0]

    def test_a_single_sample_has_no_others(self) -> None:
        with pytest.raises(ValueError, match="at least 2"):
            leave_one_out_tokens(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3, dtype=torch.long))


def test_sums_abstain_where_all_do() -> None:
    token_BST = torch.tensor([[[1.0, NAN, NAN]]])
    valid_BST = torch.tensor([[[True, True, False]]])
    summed = sum_of_gains([torch.tensor([[0.5]]), token_BST], valid_BST)[0, 0]
    assert summed[:2].tolist() == [1.5, 0.5] and summed[2].isnan()
    alone = sum_of_gains([token_BST], valid_BST)[0, 0]
    assert alone[0] == 1.0 and alone[1:].isnan().all()


@pytest.mark.parametrize("length_normalization", ["length+1", "length", "words", "none"])
def test_weights_of_tokens_add_up_to_a_captions_log_probability(length_normalization: str) -> None:
    told = random_rollout(6, 1, 5, seed=8)
    told.tokens_RT[2], told.valid_RT[2] = torch.tensor([END, 0, 0, 0, 0]), torch.arange(5) < 1  # an empty caption
    log_p_RT = torch.randn(6, 5, dtype=torch.float64)
    summed = (log_p_RT * token_weights(told, END, length_normalization)).sum(1)
    assert torch.allclose(summed, caption_log_probs(log_p_RT, told, END, length_normalization), atol=1e-12)


def test_a_reward_of_a_wrong_shape_is_one_line() -> None:
    told = random_rollout(2, 2, 3, seed=0)
    term = RewardTerm(lambda r, b: torch.zeros(2, 2, 4), no_baseline, name="mine")
    with pytest.raises(
        TellapartError,
        match=r"'mine' returned shape \(2, 2, 4\); expected shape \(2, 2\) \(B×S\) or \(2, 2, 3\) \(B×S×T\)",
    ):
        loss_and_gradient(told, [term], 2)


def test_what_stands_on_padding_is_not_looked_at() -> None:
    told = random_rollout(2, 2, 4, seed=0)
    found = []
    for padding in (0.0, math.inf, NAN):
        reward_RT = torch.where(told.valid_RT, 1.0 + torch.arange(4.0), padding)
        term = RewardTerm(lambda r, b, reward=reward_RT: reward.view(2, 2, 4), leave_one_out)
        found.append(loss_and_gradient(told, [term], 2))
    assert found[0][0] == found[1][0] == found[2][0] and torch.equal(found[0][1], found[1][1])


REWARDS: dict[str, dict[str, Any]] = {
    "paid words": {"kind": "paid_words", "nearest": 4, "others": 3},
    "by deletion and log-probability": {
        "kind": "paid_words",
        "replace": "delete",
        "confidence": "log_prob",
        "baseline": "leave_one_out",
        "rent": 0.2,
    },
    "of captions": {"kind": "paid_words", "per": "caption", "shuffled_gates": True, "others": 2},
    "mutual information": {"kind": "pmi"},
    "of words": {"kind": "pmi", "per": "word", "baseline": "group_mean"},
    "exact truth": {"kind": "exact_truth", "per": "token"},
}


@pytest.mark.long
@pytest.mark.parametrize("name", REWARDS)
def test_rewards_of_tokens_train_beside_self_retrieval(tiny_recipe: dict[str, Any], name: str) -> None:
    """A step of the loop in one part and in three gives the same; greedy baselines and GDPO run."""
    table = tiny_recipe
    table["objective"] |= {
        "decoding": {"kind": "sample", "samples": 3, "max_tokens": 6},
        "baseline": "leave_one_out",
        "dropout_in_rollout": False,
        "group_normalization": name == "of words",
        "rewards": [{"kind": "self_retrieval"}, {**REWARDS[name], "weight": 0.5}],
    }
    logs = []
    for parts in (1, 3):
        table["training"] |= {"gradient_accumulation_steps": parts}
        setup = TrainingSetup(check_recipe(table, "test"), lambda model: model)
        data, objective = setup.training_set(), objective_of(setup)
        trainable = TrainableParts(setup.learner, setup.trained_parts)
        optimizer = make_optimizer(trainable, setup.recipe.training)
        setup.learner.model.eval()
        logs.append(
            train_step(
                setup, data, objective, trainable, optimizer, make_scheduler(optimizer, setup.recipe.training), 0
            )
        )
    assert logs[0]["gradient_norm"] > 0
    for key in ("loss", "gradient_norm", "reward"):
        assert logs[0][key] == pytest.approx(logs[1][key], rel=1e-4, abs=1e-6)


def test_the_exact_truth_is_refused_where_nobody_knows_it(
    tiny_recipe: dict[str, Any], cli: Any, tmp_path: Path
) -> None:
    from PIL import Image

    folder = tmp_path / "photos"
    folder.mkdir()
    for number in range(4):
        Image.new("RGB", (90, 60), (60 * number, 20, 200)).save(folder / f"{number}.jpg")
    from tellapart.errors import UsageError
    from tellapart.training.checks import check_setup

    tiny_recipe["data"]["train"] = str(folder)
    tiny_recipe["objective"]["rewards"] = [{"kind": "exact_truth"}]
    with pytest.raises(UsageError, match=r"but reward 'exact_truth' \(an upper bound\) requires"):
        check_setup(TrainingSetup(check_recipe(tiny_recipe, "test"), lambda name: name))
