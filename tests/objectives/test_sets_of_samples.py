"""max@k and the quality of sets of samples: formulas, enumeration, and a recipe that uses them."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tellapart.errors import TellapartError
from tellapart.objectives.baselines import leave_one_out
from tellapart.objectives.caption_distances import word_distance
from tellapart.objectives.max_at_k import MaxAtK, max_at_k
from tellapart.objectives.reinforce import Reinforce
from tellapart.objectives.reward_terms import RewardTerm
from tellapart.objectives.set_quality import SetQuality, marginal_diversity, set_diversity, share_of_others
from tellapart.recipe.reading import check_recipe
from tellapart.training.runs import train
from tellapart.types import Batch, Rollout

NAN = math.nan


def by_enumeration(rewards: list[float], k: int) -> list[float]:
    """The sum over k-subsets with i of their maximum minus the maximum without i, over the number of subsets."""
    gains = [0.0] * len(rewards)
    subsets = list(itertools.combinations(range(len(rewards)), k))
    for subset in subsets:
        for i in subset:
            gains[i] += max(rewards[j] for j in subset) - max(rewards[j] for j in subset if j != i)
    return [gain / len(subsets) for gain in gains]


@pytest.mark.parametrize(("n", "k"), [(7, 3), (7, 2), (7, 7), (5, 4), (2, 2)])
def test_max_at_k_is_the_sum_over_subsets(n: int, k: int) -> None:
    reward_BS = torch.randn(6, n, generator=torch.Generator().manual_seed(n * k), dtype=torch.float64)
    reward_BS[0] = reward_BS[0].round()  # ties
    expected_BS = torch.tensor([by_enumeration(row, k) for row in reward_BS.tolist()], dtype=torch.float64)
    assert torch.allclose(max_at_k(reward_BS, k), expected_BS, atol=1e-12)
    assert torch.allclose(max_at_k(reward_BS - 5.0, k), expected_BS, atol=1e-12)  # a constant has no effect


def test_its_gradient_is_that_of_the_expected_maximum() -> None:
    """Over all outcomes of four samples from three captions, weighted by their probabilities: no sampling error."""
    n, k, rewards = 4, 2, torch.tensor([0.2, 1.0, -0.4], dtype=torch.float64)
    logits = torch.tensor([0.3, -0.5, 0.1], dtype=torch.float64, requires_grad=True)
    log_p = logits.log_softmax(0)
    pairs = list(itertools.product(range(3), repeat=k))
    maximum = sum(log_p[list(pair)].sum().exp() * rewards[list(pair)].max() for pair in pairs)
    (expected,) = torch.autograd.grad(maximum, logits, retain_graph=True)
    estimate = torch.zeros(3, dtype=torch.float64)
    for outcome in itertools.product(range(3), repeat=n):
        chosen = torch.tensor(outcome)
        weight_S = max_at_k(rewards[chosen][None], k)[0]
        (gradient,) = torch.autograd.grad((weight_S * log_p[chosen]).sum(), logits, retain_graph=True)
        estimate += log_p[chosen].sum().exp().detach() * gradient
    assert torch.allclose(estimate, expected, atol=1e-12)


def test_abstaining_captions_are_not_counted() -> None:
    reward_BS = torch.tensor([[0.1, NAN, 0.7, 0.4], [NAN, NAN, 0.3, NAN], [NAN] * 4])
    found_BS = max_at_k(reward_BS, 2)
    assert found_BS[0, [0, 2, 3]].tolist() == pytest.approx(by_enumeration([0.1, 0.7, 0.4], 2))
    assert bool(found_BS[0, 1].isnan()) and bool(found_BS[1:].isnan().all())
    with pytest.raises(ValueError, match="max@k requires k >= 2, got 1; for k = 1, use"):
        max_at_k(reward_BS, 1)


def test_k_is_annealed_in_whole_numbers() -> None:
    schedule = MaxAtK(k=4, k_end=1, steps=6)
    assert [schedule.at(step) for step in (0, 1, 2, 3, 4, 6, 50)] == [4, 4, 3, 2, 2, 1, 1]
    assert schedule.largest == 4 and MaxAtK(k=3).at(99) == 3
    for wrong in ({"k": 1}, {"k": 2, "k_end": 4}, {"k": 2, "steps": 5}, {"k": 1, "k_end": 1, "steps": 3}):
        with pytest.raises(ValidationError):
            MaxAtK(**wrong)


def rollout_of(*captions: list[str]) -> Rollout:
    texts = [text for texts in captions for text in texts]
    tokens_RT = torch.zeros(len(texts), 1, dtype=torch.long)
    return Rollout(tokens_RT, torch.ones_like(tokens_RT).bool(), texts, len(captions[0]))


def advantages(rewards: list[list[float]], rollout: Rollout, step: int = 0, **cfg: Any) -> torch.Tensor:
    reward_BS = torch.tensor(rewards)
    options = Reinforce.Config(
        decoding={"kind": "sample", "samples": rollout.samples},  # type: ignore[arg-type]
        baseline="leave_one_out",
        **cfg,
    )
    objective = Reinforce([RewardTerm(lambda rollout, batch: reward_BS, leave_one_out, 2.0)], options)
    batch = Batch([], torch.arange(len(rewards)), torch.zeros(len(rewards), 1), step=step)
    return objective.advantages(rollout, None, batch)[0]


def test_the_objective_uses_max_at_k_until_it_is_annealed_away() -> None:
    rollout, rewards = rollout_of(["a", "b", "c", "d"]), [[0.5, 2.0, 1.0, 0.0]]
    table = {"k": 3, "k_end": 1, "steps": 10}
    now = advantages(rewards, rollout, max_at_k=table)
    assert now[0].tolist() == pytest.approx([2 * 4 * gain for gain in by_enumeration(rewards[0], 3)])
    assert advantages(rewards, rollout, step=10, max_at_k=table).tolist() == advantages(rewards, rollout).tolist()


DISHES = ["a red ball", "the red ball", "a blue ball", "grass"]


def test_captions_that_say_the_same_words_are_one_class() -> None:
    distance_SS = word_distance(rollout_of(DISHES))[0]
    assert distance_SS.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]


def test_the_product_form_is_reward_times_the_share_of_other_classes() -> None:
    """Darling: the number of samples outside the class of a sample, over n − 1."""
    distance_BSS = word_distance(rollout_of(DISHES))
    assert share_of_others(distance_BSS)[0].tolist() == pytest.approx([2 / 3, 2 / 3, 1, 1])
    rewards = [[1.0, 0.5, 0.2, 0.0]]
    product = torch.tensor([[1.0 * 2 / 3, 0.5 * 2 / 3, 0.2, 0.0]])
    expected = 2 * (product - leave_one_out(product, None))  # type: ignore[arg-type]
    assert torch.allclose(advantages(rewards, rollout_of(DISHES), set_quality={}), expected)
    with pytest.raises(TellapartError, match=r"reward 'reward' is -1 for a caption; objective.set_quality with form ="):
        advantages([[1.0, 0.5, 0.2, -1.0]], rollout_of(DISHES), set_quality={})


def literal_diversity(k: list[list[float]], members: list[int]) -> float:
    if len(members) < 2:
        return 0.0
    terms = [-math.log(1 + sum(k[i][j] for j in members if j != i) / (len(members) - 1)) for i in members]
    return sum(terms) / len(terms)


def test_the_marginal_form_is_the_set_with_and_without_a_sample() -> None:
    generator = torch.Generator().manual_seed(3)
    similarity_BSS = torch.rand(2, 4, 4, generator=generator, dtype=torch.float64)
    similarity_BSS = (similarity_BSS + similarity_BSS.transpose(1, 2)) / 2
    for b, k in enumerate(similarity_BSS.tolist()):
        whole = literal_diversity(k, [0, 1, 2, 3])
        assert float(set_diversity(similarity_BSS)[b]) == pytest.approx(whole)
        each = [whole - literal_diversity(k, [j for j in range(4) if j != i]) for i in range(4)]
        assert marginal_diversity(similarity_BSS)[b].tolist() == pytest.approx(each)


def test_a_rare_caption_contributes_most() -> None:
    marginal_S = marginal_diversity(1 - word_distance(rollout_of(["a dog", "a dog", "a dog", "grass"])))[0]
    assert float(marginal_S[3]) > 0 > float(marginal_S[0])
    rewards = [[0.0, 0.0, 0.0, 0.0]]
    table = {"form": "marginal", "weight": 0.5}
    found = advantages(rewards, rollout_of(["a dog", "a dog", "a dog", "grass"]), set_quality=table)[0]
    assert torch.allclose(found, 0.5 * (marginal_S - marginal_S.mean()))


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        ({"max_at_k": {"k": 4}}, "max_at_k requires at least 4 samples per picture, but decoding.samples is 3; set,"),
        ({"set_quality": {}, "exploration": {}}, "exploration and set_quality both add diversity"),
        ({"set_quality": {}, "baseline": "greedy"}, "baseline = 'greedy' uses the reward of a single caption,"),
        ({"set_quality": {"weight": 2.0}}, "weight requires form = 'marginal'; remove"),
        (
            {"max_at_k": {"k": 2}, "rewards": [{"kind": "exact_truth", "per": "token"}]},
            "max_at_k requires rewards per caption, but one of the rewards is per token;",
        ),
    ],
)
def test_settings_that_contradict_each_other(objective: dict[str, Any], told: str) -> None:
    decoding: Any = {"kind": "sample", "samples": 3}
    with pytest.raises(ValidationError, match=told):
        Reinforce.Config(decoding=decoding, **objective)


@pytest.mark.parametrize(
    "objective",
    [
        {"max_at_k": {"k": 3, "k_end": 1, "steps": 2}},
        {"set_quality": {}, "rewards": [{"kind": "self_retrieval", "score": "accuracy"}]},
        {"set_quality": {"form": "marginal", "distance": "edit"}},
    ],
    ids=["max_at_k", "product", "marginal"],
)
def test_a_recipe_trains_with_it(tiny_recipe: dict[str, Any], tmp_path: Path, objective: dict[str, Any]) -> None:
    table = {**tiny_recipe["objective"], "decoding": {"kind": "sample", "samples": 4, "max_tokens": 6}, **objective}
    training = {**tiny_recipe["training"], "steps": 2}
    recipe = check_recipe({**tiny_recipe, "objective": table, "training": training}, "test")
    train(recipe, tmp_path / "run")
    log = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    steps = [line for line in log if "loss" in line]
    assert len(steps) >= 2 and all(math.isfinite(line["loss"]) for line in steps)
    assert ("k" in steps[0]) == ("max_at_k" in objective) and ("diversity" in steps[0]) == ("set_quality" in objective)
    assert SetQuality().form == "product"
