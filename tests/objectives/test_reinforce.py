"""REINFORCE and its parts, against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.transformers_generate import generation_config, token_samplers
from tellapart.captioners import load_captioner
from tellapart.data.pictures import BytesPicture
from tellapart.errors import TellapartError
from tellapart.models.decoding import Decoding
from tellapart.objectives import Mle, Reinforce, RunningMean, leave_one_out, mle_loss, no_baseline
from tellapart.objectives.caption_log_probs import caption_log_probs, token_log_probs
from tellapart.objectives.reinforce import generate, whitened
from tellapart.objectives.reward_terms import RewardTerm, compute_reward, most_words
from tellapart.rewards import SelfRetrieval
from tellapart.scenes import Scenes
from tellapart.types import Batch, Item, Rollout
from tellapart.utils.rng import ItemSeeds

END = 9


def rollout(*rows: list[int], samples: int = 1) -> Rollout:
    width = max(len(row) for row in rows)
    tokens = torch.tensor([row + [0] * (width - len(row)) for row in rows])
    valid = torch.tensor([[k < len(row) for k in range(width)] for row in rows])
    return Rollout(tokens, valid, ["" for _ in rows], samples)


def batch(count: int, visual: torch.Tensor | None = None) -> Batch:
    return Batch([], torch.arange(count), torch.zeros(count, 1) if visual is None else visual)


def reinforce(terms: list[RewardTerm], decoding: Decoding, *, start: Any = None, **options: Any) -> Reinforce:
    return Reinforce(terms, Reinforce.Config(decoding=decoding, **options), start)


class TestCaptionLogProbs:
    log_probs = torch.tensor([[-1.0, -2.0, -4.0], [-8.0, 0.0, 0.0]])
    rollout = rollout([5, 6, END], [END])

    def test_length_plus_one_leaves_the_end_out(self) -> None:
        """DiscriTune: (−1 − 2) / (2 + 1); an empty caption has only its end to answer for."""
        values = caption_log_probs(self.log_probs, self.rollout, END, "length+1")
        assert values.tolist() == pytest.approx([-1.0, -8.0])

    def test_a_cut_caption_is_divided_by_its_tokens(self) -> None:
        """DiscriTune's program clamps (words + 1) to the most tokens: a cut caption has no end token."""
        log_probs = torch.tensor([[-1.0, -2.0, -3.0], [-1.0, -2.0, 0.0]])
        cut = rollout([5, 6, 7], [5, 6, END])
        values = caption_log_probs(log_probs, cut, END, "length+1", max_tokens=3)
        assert values.tolist() == pytest.approx([-6 / 3, -3 / 3])

    def test_words_leave_the_end_out_of_sum_and_divisor(self) -> None:
        """Paper 2's program: (−1 − 2) / 2."""
        values = caption_log_probs(self.log_probs, self.rollout, END, "words")
        assert values.tolist() == pytest.approx([-1.5, -8.0])

    def test_length_counts_the_end(self) -> None:
        values = caption_log_probs(self.log_probs, self.rollout, END, "length")
        assert values.tolist() == pytest.approx([-7 / 3, -8.0])

    def test_none_is_the_sum(self) -> None:
        assert caption_log_probs(self.log_probs, self.rollout, END, "none").tolist() == pytest.approx([-7.0, -8.0])

    def test_padding_has_no_gradient(self) -> None:
        log_probs = self.log_probs.clone().requires_grad_()
        caption_log_probs(log_probs, self.rollout, END, "length+1").sum().backward()  # type: ignore[no-untyped-call]
        assert log_probs.grad is not None and log_probs.grad[1, 1:].abs().sum() == 0 and log_probs.grad[0, 2] == 0


def test_token_log_probs_are_those_of_the_tempered_softmax() -> None:
    logits = torch.tensor([[[0.0, 1.0, 2.0]]])
    expected = (logits / 0.5).softmax(-1).log()[0, 0, 2]
    assert token_log_probs(logits, torch.tensor([[2]]), 0.5).item() == pytest.approx(expected.item())


def test_token_log_probs_of_many_logits_and_their_gradient_are_those_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.manual_seed(0)
    logits_RTV, tokens_RT = torch.randn(3, 4, 7, generator=generator), torch.randint(7, (3, 4), generator=generator)
    logits_RTV[0, 0, (tokens_RT[0, 0] + 1) % 7] = -torch.inf  # a token that is never generated
    found = []
    for many in (2**22, 0):
        monkeypatch.setattr("tellapart.objectives.caption_log_probs.MANY_LOGITS", many)
        scores_RTV = logits_RTV.clone().requires_grad_(True)
        log_p_RT = token_log_probs(scores_RTV, tokens_RT, 0.7)
        (log_p_RT * torch.arange(12.0).view(3, 4)).sum().backward()
        found.append((log_p_RT.detach(), scores_RTV.grad))
    for ours, plain in zip(*found, strict=True):
        assert ours is not None and plain is not None and torch.allclose(ours, plain, atol=1e-5)


def test_the_running_mean_starts_at_zero_is_used_first_and_updated_after() -> None:
    baseline = RunningMean()
    values = [baseline(torch.full((4, 1), r), batch(4))[0, 0].item() for r in (-2.0, -4.0, -9.0, 0.0)]
    assert values == pytest.approx([0.0, -2.0, -3.0, -5.0])
    again = RunningMean()
    again.load_state_dict(baseline.state_dict())
    assert again(torch.zeros(1, 1), batch(1)).item() == pytest.approx(-15 / 4)


def test_leave_one_out_is_the_mean_of_the_other_samples() -> None:
    reward = torch.tensor([[1.0, 2.0, 6.0], [float("nan"), 3.0, 5.0]])
    expected = [[4.0, 3.5, 1.5], [4.0, 5.0, 3.0]]
    assert leave_one_out(reward, batch(2)).tolist() == expected
    with pytest.raises(ValueError, match="at least 2"):
        leave_one_out(torch.zeros(3, 1), batch(3))


class FixedScorer:
    """Features that a test writes down; what is tested is the reward's arithmetic."""

    device, scale = torch.device("cpu"), 100.0

    def __init__(self, features: dict[str, list[float]]) -> None:
        self.features = features

    def text_features(self, texts: list[str]) -> torch.Tensor:
        return torch.tensor([self.features[text] for text in texts])


def test_the_self_retrieval_reward_is_the_log_softmax_of_the_scaled_cosine() -> None:
    images = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]], dtype=np.float32)
    scorer = FixedScorer({"a": [1.0, 0.0], "b": [0.6, 0.8]})
    scorer.scale = 2.0
    told = Rollout(torch.zeros(4, 1), torch.ones(4, 1, dtype=torch.bool), ["a", "b", "b", "a"], samples=2)
    where = Batch([], torch.tensor([0, 2]), torch.zeros(2, 1))
    reward = SelfRetrieval(scorer, images)(told, where)
    denominators = {"a": math.log(math.exp(2 * 1.0) + math.exp(2 * 0.6)), "b": math.log(math.exp(1.2) + math.exp(2.0))}
    expected = [
        [2 * 1.0 - denominators["a"], 2 * 0.6 - denominators["b"]],
        [2 * 1.0 - denominators["b"], 2 * 0.6 - denominators["a"]],
    ]
    assert torch.allclose(reward, torch.tensor(expected), atol=1e-6)


def test_identical_pictures_are_worth_minus_log_of_their_number() -> None:
    images = np.tile(np.array([[0.6, 0.8]], dtype=np.float32), (7, 1))
    told = Rollout(torch.zeros(7, 1), torch.ones(7, 1, dtype=torch.bool), ["a"] * 7)
    reward = SelfRetrieval(FixedScorer({"a": [1.0, 0.0]}), images)(told, batch(7))
    assert torch.allclose(reward, torch.full((7, 1), -math.log(7)))


class Learner:
    """A table of logits as a policy, so that the gradient can be worked out."""

    def __init__(self, logits_RTV: torch.Tensor, told: Rollout) -> None:
        self.table = logits_RTV.clone().requires_grad_()
        self.told, self.end = told, END
        self.model = torch.nn.Identity()

    def generate(self, visual: torch.Tensor, decoding: Decoding) -> Rollout:
        return self.told

    def logits(self, visual: torch.Tensor, tokens: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return self.table


def test_a_reward_within_a_length_is_nothing_for_longer_captions() -> None:
    """BalCapRL's length-conditional masking, with references of 4 and 2 words: at most 1.5 times as many, 6 and 3."""
    texts = ("one two three", "one two three four five"), ("one two",)
    items = [Item(str(n), BytesPicture(b"", str(n)), own) for n, own in enumerate(texts)]
    most_N = most_words(items, 1.5)
    assert most_N.tolist() == [6.0, 3.0]
    captions = ["w w w w w w", "w w w w w w w", "w w w", "w w w w"]
    told = Rollout(torch.zeros(4, 1).long(), torch.ones(4, 1, dtype=torch.bool), captions, 2)
    term = RewardTerm(lambda r, b: torch.full((2, 2), 0.5), no_baseline, most_words_N=most_N)
    assert compute_reward(term, told, batch(2)).tolist() == [[0.5, 0.0], [0.5, 0.0]]
    shuffled = Batch([], torch.tensor([1, 0]), torch.zeros(2, 1))
    assert compute_reward(term, told, shuffled).tolist() == [[0.0, 0.0], [0.5, 0.5]]
    abstains = RewardTerm(lambda r, b: torch.full((2, 2), math.nan), no_baseline, most_words_N=most_N)
    assert compute_reward(abstains, told, batch(2)).isnan().all()
    for value, found in ((torch.full((2, 2), -0.5), "-0.5 for one caption"), (torch.ones(2, 2, 1), "per token")):
        wrong = RewardTerm(lambda r, b, value=value: value, no_baseline, name="mine", most_words_N=most_N)
        with pytest.raises(TellapartError, match=f"reward 'mine' is {found}; 'within' requires"):
            compute_reward(wrong, told, batch(2))


REWARD_KINDS = ("self_retrieval", "consensus", "claims", "calibration", "exact_truth", "likelihood", "cider", "bleu")


@pytest.mark.parametrize("kind", REWARD_KINDS)
def test_masking_by_length_does_not_change_what_selects_the_checkpoint(kind: str) -> None:
    """A masked reward compares captions with references only if the reward does so without the mask."""
    plain, masked = (
        Reinforce.Config.model_validate({"kind": "reinforce", "rewards": [{"kind": kind, **within}]})
        for within in ({}, {"within": 1.5})
    )
    assert masked.rewards[0].needs() == plain.rewards[0].needs()
    assert masked.measure == plain.measure == ("cider" if kind in ("calibration", "cider", "bleu") else "recall")


def test_a_reward_per_token_cannot_be_masked_by_length() -> None:
    table = {"kind": "reinforce"}
    with pytest.raises(ValueError, match="'within' requires a reward per caption, but this"):
        Reinforce.Config.model_validate({**table, "rewards": [{"kind": "pmi", "per": "word", "within": 2.0}]})


@pytest.mark.parametrize("reward", [[1.0, -2.0], [1.5, float("nan")]])
def test_the_gradient_is_advantage_times_that_of_the_log_probability(reward: list[float]) -> None:
    told = rollout([3, 4, END], [5, END])
    learner = Learner(torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(0)), told)
    objective = reinforce(
        [RewardTerm(lambda r, b: torch.tensor(reward)[:, None], no_baseline)], Decoding(kind="sample")
    )
    loss = objective(learner, batch(2))
    loss.value.backward()  # type: ignore[no-untyped-call]
    expected = torch.zeros_like(learner.table)
    heard = [r for r in reward if not math.isnan(r)]
    for r, words in ((0, [3, 4]), (1, [5])):
        if math.isnan(reward[r]):
            continue
        for t, token in enumerate(words):
            probabilities = learner.table.detach()[r, t].softmax(-1)
            indicator = torch.eye(10)[token]
            expected[r, t] = -reward[r] * (indicator - probabilities) / (len(words) + 1) / len(heard)
    assert torch.allclose(learner.table.grad, expected, atol=1e-6)  # type: ignore[arg-type]
    assert loss.logs["reward"] == pytest.approx(sum(heard) / len(heard))


def test_kl_to_the_start_is_zero_at_the_start_and_grows_away_from_it() -> None:
    told = rollout([3, END], [5, END])
    learner = Learner(torch.randn(2, 2, 10, generator=torch.Generator().manual_seed(0)), told)
    start = Learner(learner.table.detach(), told)
    nothing = RewardTerm(lambda r, b: torch.zeros(2, 1), no_baseline)
    objective = reinforce([nothing], Decoding(kind="sample"), kl=0.5, start=start)
    assert objective(learner, batch(2)).value.item() == pytest.approx(0.0, abs=1e-6)
    with torch.no_grad():
        learner.table[0, 0, 3] += 1.0
    now, then = learner.table.detach()[0, 0].softmax(-1), start.table.detach()[0, 0].softmax(-1)
    expected = float((now * (now / then).log()).sum()) / 4  # one of four tokens moved
    assert objective(learner, batch(2)).value.item() == pytest.approx(0.5 * expected, rel=1e-4)


def two_words(reward: torch.Tensor, **settings: Any) -> tuple[Any, torch.Tensor]:
    """A loss over two captions of one word and an end, and the gradient of its table of logits."""
    told = rollout([3, END], [5, END])
    learner = Learner(torch.randn(2, 2, 10, generator=torch.Generator().manual_seed(0)), told)
    terms = settings.pop("terms", [RewardTerm(lambda r, b: reward, no_baseline)])
    loss = reinforce(terms, Decoding(kind="sample"), **settings)(learner, batch(2))
    loss.value.backward()
    assert learner.table.grad is not None
    return loss, learner.table.grad


def test_several_rewards_are_weighted_and_each_has_its_own_baseline() -> None:
    first, second = torch.tensor([[1.0], [4.0]]), torch.tensor([[10.0], [30.0]])
    kept = RunningMean()
    kept.load_state_dict({"mean": 2.0, "count": 1})
    terms = [RewardTerm(lambda r, b: first, no_baseline, 1.0, "a"), RewardTerm(lambda r, b: second, kept, 0.5, "b")]
    loss, together = two_words(first, terms=terms)
    _, expected = two_words(first + 0.5 * (second - 2.0))
    assert torch.allclose(together, expected)
    assert loss.logs["reward"] == pytest.approx(2.5 + 0.5 * 20) and loss.logs["reward.b"] == pytest.approx(20.0)
    assert kept.mean == pytest.approx((2 + 20) / 2)


def test_a_reward_that_abstains_leaves_the_others_as_they_are() -> None:
    one, other = torch.tensor([[1.0], [4.0]]), torch.tensor([[float("nan")], [3.0]])
    terms = [RewardTerm(lambda r, b: one, no_baseline, 1.0, "a"), RewardTerm(lambda r, b: other, no_baseline, 1.0, "b")]
    _, together = two_words(one, terms=terms)
    assert torch.allclose(together, two_words(torch.tensor([[1.0], [7.0]]))[1])


def test_where_all_abstain_nothing_is_learned_and_nothing_breaks() -> None:
    loss, gradient = two_words(torch.full((2, 1), float("nan")), whiten=True)
    assert loss.value.item() == 0 and gradient.abs().max() == 0


def test_of_leave_one_out_a_sample_without_others_abstains() -> None:
    assert leave_one_out(torch.tensor([[float("nan"), 3.0]]), batch(1)).isnan().tolist() == [[False, True]]


@pytest.mark.parametrize("value", [torch.zeros(2), torch.zeros(1, 2), torch.tensor([[0.0], [float("inf")]])])
def test_what_is_no_reward_is_one_line(value: torch.Tensor) -> None:
    with pytest.raises(TellapartError, match=r"reward 'mine' (returned shape .*expected shape \(2, 1\)|is infinite)"):
        two_words(value, terms=[RewardTerm(lambda r, b: value, no_baseline, name="mine")])


def fails(rollout: Rollout, batch: Batch) -> torch.Tensor:
    raise KeyError("no such word")


@pytest.mark.parametrize(
    ("reward", "told"),
    [
        (fails, r"reward 'mine' failed: KeyError: 'no such word' \(.*test_reinforce.py, line \d+\)"),
        (
            lambda r, b: None,
            r"reward 'mine' returned a NoneType; expected shape \(2, 1\) \(B×S\) or \(2, 1, 2\) \(B×S×T\)",
        ),
        (lambda r, b: {"reward": torch.zeros(2, 1)}, r"returned a dict; expected"),
        (lambda r, b: (torch.zeros(2, 1), torch.zeros(2, 1)), r"returned a tuple; expected|returned shape \(2, 2, 1\)"),
        (lambda r, b: "good", r"returned a str; expected"),
    ],
)
def test_a_reward_of_ones_own_that_fails_or_returns_something_else_is_one_line(reward: Any, told: str) -> None:
    with pytest.raises(TellapartError, match=told) as error:
        two_words(torch.zeros(2, 1), terms=[RewardTerm(reward, no_baseline, name="mine")])
    assert "\n" not in str(error.value)


def test_a_reward_that_is_nan_for_a_whole_batch_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    reward = RewardTerm(lambda r, b: torch.full((2, 1), float("nan")), no_baseline, name="mine")
    told = rollout([3, END], [3, END])
    objective = reinforce([reward], Decoding(kind="sample"))
    for _ in range(3):
        objective(Learner(torch.zeros(2, 2, 10), told), batch(2))
    assert capsys.readouterr().err.splitlines() == [
        "reward 'mine' is NaN for all captions of step 1; it contributes nothing to that step"
    ]


def test_whitened_advantages_have_mean_zero_and_deviation_one() -> None:
    values = whitened(torch.tensor([[1.0, 3.0], [float("nan"), 5.0]]))
    assert values[~values.isnan()].tolist() == pytest.approx([-1.2247, 0.0, 1.2247], abs=1e-3)
    assert whitened(torch.full((3, 2), -4.0)).abs().max() == 0


def test_captions_that_are_all_equal_and_equally_good_teach_nothing() -> None:
    told = rollout([3, END], [3, END], [3, END], [3, END], samples=2)
    learner = Learner(torch.zeros(4, 2, 10), told)
    reward = RewardTerm(lambda r, b: torch.full((2, 2), 1.5), leave_one_out)
    loss = reinforce([reward], Decoding(kind="sample", samples=2), whiten=True)(learner, batch(2))
    loss.value.backward()  # type: ignore[no-untyped-call]
    assert learner.table.grad is not None and learner.table.grad.abs().max() == 0
    assert loss.logs["distinct"] == 0.25


class Greedier(Learner):
    """Writes ``told`` when it samples, and something else when it is greedy; notes whether dropout was on."""

    def __init__(self, logits_RTV: torch.Tensor, told: Rollout, greedy: Rollout) -> None:
        super().__init__(logits_RTV, told)
        self.greedy, self.modes = greedy, []  # type: ignore[var-annotated]

    def generate(self, visual: torch.Tensor, decoding: Decoding) -> Rollout:
        self.modes.append((decoding.kind, decoding.samples, self.model.training))
        return self.greedy if decoding.kind == "greedy" else self.told


def test_the_greedy_baseline_is_the_reward_of_the_greedy_caption_without_dropout() -> None:
    told = rollout([3, END], [4, END], [5, END], [6, END], samples=2)
    greedy = rollout([3, 3, END], [END])
    learner = Greedier(torch.zeros(4, 2, 10), told, greedy)
    term = RewardTerm(lambda r, b: r.valid_RT.sum(1).float().view(-1, r.samples), "greedy")  # its length as reward
    objective = reinforce([term], Decoding(kind="sample", samples=2))
    found = generate(learner, torch.zeros(2, 1), objective.greedy, dropout=False)
    advantage, _ = objective.advantages(told, found, batch(2))
    assert advantage.tolist() == [[2 - 3, 2 - 3], [2 - 1, 2 - 1]]
    assert learner.modes == [("greedy", 1, False)] and learner.model.training


def test_the_entropy_bonus_is_the_mean_entropy_of_a_step_of_what_was_sampled_from() -> None:
    told = rollout([3, END], [END])
    learner = Learner(torch.randn(2, 2, 10, generator=torch.Generator().manual_seed(0)), told)
    nothing = RewardTerm(lambda r, b: torch.zeros(2, 1), no_baseline)
    decoding = Decoding(kind="sample", temperature=0.5)
    loss = reinforce([nothing], decoding, entropy=0.01)(learner, batch(2))
    p = (learner.table.detach() / 0.5).softmax(-1)
    steps = -(p * p.log()).sum(-1)
    expected = float(steps[0, 0] + steps[0, 1] + steps[1, 0]) / 3
    assert loss.logs["entropy"] == pytest.approx(expected, rel=1e-5)
    assert loss.value.item() == pytest.approx(-0.01 * expected, rel=1e-5)


def test_the_entropy_of_a_caption_is_the_sum_over_its_steps_and_its_gradient_by_hand() -> None:
    """Captions of one and of three tokens, a step's logits (0, z): dH/dz = −z · p · (1 − p), p = sigmoid(z).

    The sum adds it four times and divides by two captions, the mean by four tokens: twice the gradient here, and for
    captions of ten words about ten times.
    """
    z, told = 0.7, rollout([0], [0, 0, 0])
    one_step = -z * (p := 1 / (1 + math.exp(-z))) * (1 - p)
    entropy = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    for reduction, steps in (("mean", 4 / 4), ("sum", 4 / 2)):
        logits_RTV = torch.tensor([0.0, z]).repeat(2, 3, 1).requires_grad_()
        nothing = RewardTerm(lambda rollout, batch: torch.zeros(2, 1), no_baseline)
        settings: dict[str, Any] = {"entropy": 0.01, "entropy_reduction": reduction}
        loss = reinforce([nothing], Decoding(), **settings)(Learner(logits_RTV, told), batch(2))  # type: ignore[arg-type]
        loss.value.backward()  # type: ignore[no-untyped-call]
        assert loss.logs["entropy"] == pytest.approx(steps * entropy) and logits_RTV.grad is not None
        assert float(logits_RTV.grad[..., 1].sum()) == pytest.approx(-0.01 * steps * one_step, rel=1e-5)
        assert logits_RTV.grad[0, 1:].abs().max() == 0  # padding


def test_the_state_is_the_baselines_and_an_older_one_is_read() -> None:
    first, second = RunningMean(), RunningMean()
    terms = [RewardTerm(lambda r, b: torch.zeros(2, 1), kept) for kept in (first, second)]
    objective = reinforce([terms[0], RewardTerm(terms[0].reward, no_baseline), terms[1]], Decoding())
    objective.load_state_dict({"baselines": [{"mean": 1.0, "count": 2}, {"mean": 5.0, "count": 3}]})
    assert (first.mean, second.mean) == (1.0, 5.0)
    assert objective.state_dict() == {"baselines": [{"mean": 1.0, "count": 2}, {"mean": 5.0, "count": 3}]}
    reinforce([terms[0]], Decoding()).load_state_dict({"mean": -3.0, "count": 7})
    assert (first.mean, first.count) == (-3.0, 7)


class TestMle:
    def test_a_uniform_guess_costs_the_log_of_the_vocabulary(self) -> None:
        valid = torch.tensor([[True, True, False]])
        assert mle_loss(torch.zeros(1, 3, 50), torch.zeros(1, 3, dtype=torch.long), valid).item() == pytest.approx(
            math.log(50)
        )

    def test_token_zero_is_a_word_like_any_other(self) -> None:
        """GPT-2's 0 is "!": validity is a mask, never a test for 0."""
        logits = torch.tensor([[[2.0, 0.0], [0.0, 1.0]]])
        expected = (-math.log(math.exp(2) / (math.exp(2) + 1)) - math.log(math.e / (math.e + 1))) / 2
        target = torch.tensor([[0, 1]])
        assert mle_loss(logits, target, torch.ones(1, 2, dtype=torch.bool)).item() == pytest.approx(expected)

    def test_no_valid_token_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no valid token"):
            mle_loss(torch.zeros(1, 1, 3), torch.zeros(1, 1, dtype=torch.long), torch.zeros(1, 1, dtype=torch.bool))

    def test_label_smoothing_by_hand(self) -> None:
        logits = torch.tensor([[[1.0, 0.0, -1.0]]])
        log_p = logits.log_softmax(-1)[0, 0]
        expected = -(0.9 * log_p[0] + 0.1 * log_p.mean())
        got = mle_loss(logits, torch.tensor([[0]]), torch.ones(1, 1, dtype=torch.bool), label_smoothing=0.1)
        assert got.item() == pytest.approx(expected.item())


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(kind="greedy", max_tokens=8),
        Decoding(kind="sample", samples=3),
        Decoding(kind="sample", temperature=0.3, max_tokens=8),
        Decoding(kind="sample", max_tokens=1),
    ],
)
def test_what_was_generated_and_what_is_scored_agree(tiny_captioner: Path, decoding: Decoding) -> None:
    """Without dropout, the teacher-forced pass gives the log-probabilities that generation had."""
    captioner: Any = load_captioner(str(tiny_captioner))
    visual = torch.randn(4, captioner.model.config.visual_size, generator=torch.Generator().manual_seed(0))
    config = generation_config(decoding, captioner.tokenizer, [captioner.tokenizer.eos_token_id])
    config.return_dict_in_generate = config.output_logits = True
    seeds = ItemSeeds(("a", "b", "c", "d"), seed=5)
    output = captioner.model.language_model.generate(
        inputs_embeds=captioner.model.mapper(visual),
        generation_config=config,
        logits_processor=token_samplers(decoding, decoding.uniform(4, torch.device("cpu"), seeds), 0),
    )
    objective = reinforce([], decoding, length_normalization="none")
    told = generate(captioner, visual, decoding, seeds, dropout=True)
    theirs_RT = output.sequences[:, : told.tokens_RT.shape[1]]
    assert torch.equal(told.tokens_RT[told.valid_RT], theirs_RT[told.valid_RT])
    assert told.tokens_RT.shape[0] == 4 * decoding.samples and not captioner.model.training
    tempered_RTV = torch.stack(output.logits, 1) / objective.temperature
    generated_RT = tempered_RTV.log_softmax(-1).gather(-1, told.tokens_RT[..., None]).squeeze(-1)
    logits_RTV = captioner.logits(visual, told.tokens_RT, told.valid_RT)
    scored_R = objective.log_probs(logits_RTV, told, captioner.end)
    assert torch.allclose(scored_R, (generated_RT * told.valid_RT).sum(1), atol=1e-4)


def test_mle_learns_a_caption_by_heart(tiny_captioner: Path) -> None:
    captioner: Any = load_captioner(str(tiny_captioner))
    visual = torch.randn(2, captioner.model.config.visual_size, generator=torch.Generator().manual_seed(0))
    told = [scene.references[0] for scene in Scenes(60, detail=0.8)][:2]
    assert told[0] != told[1]
    rows = captioner.tokenize(told)
    tokens, valid = captioner.pad(rows)
    parameters = [*captioner.model.mapper.parameters(), *captioner.model.language_model.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-2)
    learned = Batch([], torch.arange(2), visual, tokens, valid)
    for _ in range(150):
        optimizer.zero_grad()
        Mle()(captioner, learned).value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert captioner.generate(visual, Decoding(max_tokens=20)).texts == told


@pytest.mark.parametrize(("option", "at"), [(None, 0.5), (1.0, 1.0)])
def test_kl_is_at_the_temperature_of_the_samples_unless_it_is_named(
    tiny_captioner: Path, option: float | None, at: float
) -> None:
    captioner, start = (load_captioner(str(tiny_captioner)) for _ in range(2))
    with torch.no_grad():
        captioner.model.mapper.model[0].weight.add_(0.5)
    visual = torch.randn(3, captioner.model.config.visual_size, generator=torch.Generator().manual_seed(0))
    decoding = Decoding(kind="sample", temperature=0.5, max_tokens=6)
    objective = reinforce([], decoding, kl=0.1, kl_temperature=option, start=start)
    told = generate(captioner, visual, decoding, dropout=False)
    with torch.no_grad():
        logits_RTV = captioner.logits(visual, told.tokens_RT, told.valid_RT)
        found_N = objective.kl_divergences(logits_RTV, visual, told, pixels=False)
        start_RTV = start.logits(visual, told.tokens_RT, told.valid_RT)
    now, before = (torch.distributions.Categorical(logits=x[told.valid_RT] / at) for x in (logits_RTV, start_RTV))
    assert torch.allclose(found_N, torch.distributions.kl_divergence(now, before), atol=1e-5) and found_N.max() > 1e-3
