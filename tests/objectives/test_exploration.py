"""Sequence-level exploration (paper 4) by hand, and its identities."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tellapart.models.decoding import Decoding
from tellapart.objectives import no_baseline
from tellapart.objectives.caption_distances import bleu_distance, bleu_similarity, edit_distance
from tellapart.objectives.exploration import Exploration, distance_by_name, exploration
from tellapart.objectives.reinforce import Reinforce
from tellapart.objectives.reward_terms import RewardTerm
from tellapart.types import Batch, Rollout

A, B = "a red cube left of a ball", "a red cube right of a ball"


def told(*texts: str, samples: int) -> Rollout:
    shape = len(texts), 2
    return Rollout(torch.ones(shape, dtype=torch.long), torch.ones(shape, dtype=torch.bool), list(texts), samples)


DISTANCE = torch.tensor([[[0.0, 1.0, 2.0], [1.0, 0.0, 0.5], [2.0, 0.5, 0.0]]])
PRECISION = torch.tensor([[0.3, -0.2, 1.0]])


def test_equation_sixteen_by_hand() -> None:
    """Σ_k d is 3, 1.5, 2.5, its mean 7/3; α·Δ + (1 − α)·(2/3)·(Σ_k d − 7/3)."""
    expected = [0.75 * p + 0.25 * 2 / 3 * (d - 7 / 3) for p, d in zip((0.3, -0.2, 1.0), (3, 1.5, 2.5), strict=True)]
    assert exploration(PRECISION, DISTANCE)[0].tolist() == pytest.approx(expected)


def test_the_literal_baseline_is_s_times_too_small() -> None:
    """The paper's mean of all pairs is 7/9 where Σ_k d has the mean 7/3: every multiplier would be positive."""
    literal = exploration(torch.zeros(1, 3), DISTANCE, baseline="literal", alpha=0.0)
    assert literal[0].tolist() == pytest.approx([2 / 3 * (d - 7 / 9) for d in (3, 1.5, 2.5)])
    assert (literal > 0).all()
    matching = exploration(torch.zeros(1, 3), DISTANCE, alpha=0.0)
    assert float(matching.sum()) == pytest.approx(0, abs=1e-6)
    none = exploration(torch.zeros(1, 3), DISTANCE, baseline="none", alpha=0.0)
    assert none[0].tolist() == pytest.approx([2.0, 1.0, 5 / 3])


@pytest.mark.parametrize("S", [4, 5])
def test_the_expected_gradient_of_each_baseline(S: int) -> None:
    """Of all sets of S samples of a policy over three captions: what is left of equation 8's gradient, exactly.

    E[Σ_j multiplier_j ∇ log p_j / s] against ∇ E[d(y, y′)], which is what (2/s)·Σ_k stands for (1 − α is 1).
    """
    d_VV = DISTANCE[0].double()
    table = torch.tensor([0.1, 0.4, -0.3], dtype=torch.double, requires_grad=True)
    (exact,) = torch.autograd.grad(table.softmax(0) @ d_VV @ table.softmax(0), table)
    sets_RS = torch.cartesian_prod(*[torch.arange(3)] * S)
    log_p_RS = table.log_softmax(0)[sets_RS]
    p_R = log_p_RS.sum(1).exp().detach()
    left = {}
    for baseline in ("none", "leave_one_out", "matching", "literal"):
        multiplier_RS = exploration(
            torch.zeros(len(sets_RS), S), d_VV[sets_RS[:, :, None], sets_RS[:, None]], 0.0, baseline
        )
        (found,) = torch.autograd.grad((p_R * (multiplier_RS * log_p_RS).mean(1)).sum(), table, retain_graph=True)
        torch.testing.assert_close(found, exact * (found @ exact) / (exact @ exact), atol=1e-9, rtol=1e-6)
        left[baseline] = float((found @ exact) / (exact @ exact))
    assert left == pytest.approx(
        {4: {"none": 0.75, "leave_one_out": 0.75, "matching": 0.375, "literal": 0.65625}}.get(S)
        or {"none": 0.8, "leave_one_out": 0.8, "matching": 0.48, "literal": 0.736}
    )


def test_the_leave_one_out_baseline_by_hand() -> None:
    """The pair without the first sample is 0.5 apart: Σ_k d of either of its two is 0.5. What equals itself is 2."""
    told = exploration(torch.zeros(1, 3), DISTANCE, alpha=0.0, baseline="leave_one_out")
    expected = [2 / 3 * d for d in (3 - 2 * 0.5, 1.5 - 2 * 2.0, 2.5 - 2 * 1.0)]
    assert told[0].tolist() == pytest.approx(expected)
    alike = exploration(torch.zeros(1, 3), 2 - DISTANCE, alpha=0.0, baseline="leave_one_out")
    assert alike[0].tolist() == pytest.approx([-value for value in expected])
    with pytest.raises(ValueError, match="expected matching, literal, leave_one_out or none"):
        exploration(PRECISION, DISTANCE, baseline="mean")


class Policy:
    """Logits of one step over three captions: what is sampled is the word itself."""

    end = 99

    def __init__(self, told: Rollout) -> None:
        self.told, self.model = told, torch.nn.Identity()
        self.table = torch.tensor([0.1, 0.4, -0.3]).requires_grad_()

    def generate(self, visual: torch.Tensor, decoding: Decoding) -> Rollout:
        return self.told

    def logits(self, visual: torch.Tensor, tokens: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return self.table.expand(len(tokens), 1, 3)


def rows(*words: int) -> Rollout:
    names = ("one two three four", "one two three five", "six seven eight nine")
    tokens = torch.tensor(words)[:, None]
    return Rollout(tokens, torch.ones_like(tokens, dtype=torch.bool), [names[word] for word in words], len(words))


def gradient(told: Rollout, reward: torch.Tensor, exploring: Exploration | None) -> torch.Tensor:
    policy = Policy(told)
    term = RewardTerm(lambda rollout, batch: reward, no_baseline)
    decoding = Decoding(kind="sample", samples=3)
    objective = Reinforce(
        [term], Reinforce.Config(decoding=decoding, length_normalization="none", exploration=exploring)
    )
    objective(policy, Batch([], torch.arange(1), torch.zeros(1, 1))).value.backward()  # type: ignore[no-untyped-call]
    assert policy.table.grad is not None
    return policy.table.grad


def test_alpha_one_is_reinforce_without_diversity() -> None:
    reward = torch.tensor([[1.0, -2.0, 0.5]])
    plain = gradient(rows(0, 1, 2), reward, None)
    assert torch.equal(gradient(rows(0, 1, 2), reward, Exploration(alpha=1.0)), plain)
    assert not torch.allclose(gradient(rows(0, 1, 2), reward, Exploration(alpha=0.5)), plain)


def test_over_all_samples_it_is_the_gradient_of_equation_eight() -> None:
    """Enumerated: the mean over every triple of samples, weighted by its probability, is ∇ of (9)'s diversity term.

    Without baseline; a sample's distance to itself is 0, so (s − 1)/s of the term is in the pairs.
    """
    names = rows(0, 1, 2)
    d = bleu_distance(Rollout(names.tokens_RT, names.valid_RT, names.texts, 3))[0]
    table = torch.tensor([0.1, 0.4, -0.3]).requires_grad_()
    p = table.softmax(0)
    (-(p @ d @ p)).backward()  # type: ignore[no-untyped-call]
    found, weights = torch.zeros(3), table.detach().softmax(0)
    for triple in torch.cartesian_prod(*[torch.arange(3)] * 3).tolist():
        chance = float(weights[triple].prod())
        found += chance * gradient(rows(*triple), torch.zeros(1, 3), Exploration(alpha=0.0, baseline="none"))
    assert table.grad is not None
    assert torch.allclose(found, table.grad * 2 / 3, atol=1e-5)


def test_diversity_is_rewarded_and_its_literal_reading_is_not() -> None:
    """Of two equal captions and a different one, the different one is made likelier; read literally, less likely."""
    said = told(A, A, B, samples=3)
    corrected = exploration(torch.zeros(1, 3), bleu_distance(said), alpha=0.0)[0]
    literal = exploration(torch.zeros(1, 3), bleu_similarity(said), alpha=0.0)[0]
    assert corrected[2] > 0 > corrected[0] and literal[2] < 0 < literal[0]


class TestDistances:
    def test_of_equal_captions_is_zero_however_short(self) -> None:
        for texts in (("a", "a"), ("", ""), (A, A)):
            said = told(*texts, samples=2)
            assert bleu_distance(said).abs().max() == 0 and edit_distance(said).abs().max() == 0
            assert (bleu_similarity(said) == 2).all()

    def test_of_captions_that_share_nothing_is_the_largest(self) -> None:
        said = told("a b c d e", "f g h i j", samples=2)
        assert bleu_distance(said)[0, 0, 1].item() == pytest.approx(2.0, abs=1e-3)
        assert edit_distance(said)[0, 0, 1].item() == 1.0

    def test_bleu_by_hand(self) -> None:
        """One of seven words changed, the fourth: 6/7, 4/6, 2/5, 0/4 of the n-grams are shared."""
        expected = (6 / 7 * 4 / 6 * 2 / 5) ** (1 / 3)
        assert bleu_similarity(told(A, B, samples=2))[0, 0, 1].item() == pytest.approx(expected, abs=1e-2)

    def test_which_side_is_the_reference_matters_to_bleu(self) -> None:
        """Of a short caption inside a long one: as reference of the long one it has no brevity penalty."""
        said = told("a red cube on grass", "a red cube on grass beside a small tree", samples=2)
        other, own, both = (bleu_similarity(said, reference)[0] for reference in ("other", "own", "both"))
        assert torch.allclose(other, own.T) and other[0, 1] != other[1, 0]
        assert torch.allclose(both, both.T) and both[0, 1].item() == pytest.approx(float(other[0, 1] + other[1, 0]) / 2)
        from tellapart.metrics.bleu_score import bleus

        score = bleus([said.texts[0]], [[said.texts[1]]])[1][2:, 0].sum()
        assert other[0, 1].item() == pytest.approx(score, abs=1e-6)

    def test_edits_are_in_words_over_the_longer_caption(self) -> None:
        said = told("a red cube", "a big red ball here", samples=2)  # insert big, cube → ball, insert here
        assert edit_distance(said)[0, 0, 1].item() == pytest.approx(3 / 5)

    def test_pictures_are_not_mixed(self) -> None:
        said = told(A, B, "x y z u v", "x y z u v", samples=2)
        for name in ("bleu", "edit"):
            value: Any = distance_by_name(name)(said)
            assert value.shape == (2, 2, 2) and value[0, 0, 1] > 0 and value[1].abs().max() == 0
