"""SMILE: Algorithm 1 to a millionth in both forms, and what must be so whatever the numbers are."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tellapart.models import output_layer as head_module
from tellapart.objectives import mle_head_loss, mle_loss, smile_head_loss, smile_loss
from tellapart.objectives.smile import draw_words
from tests.objectives.paper_smile import algorithm_1, algorithm_1_padded

V, H, PAD = 23, 6, 5  # the padding's id is a word that captions also use
WAYS: list[dict[str, Any]] = [
    {"subset": subset, "first": first, "mle": mle, "label_smoothing": 0.1 if mle else 0.0}
    for subset in ("own", "random", "reverse")
    for first in ("mle", "shift", "none")
    for mle in (0.0, 0.3)
]


def captions(*lengths: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random captions with repetitions, and padding of the longest to the others."""
    rng = torch.Generator().manual_seed(seed)
    labels_BT = torch.randint(8, (len(lengths), max(lengths)), generator=rng)
    valid_BT = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return labels_BT.masked_fill(~valid_BT, PAD), valid_BT


def layer(B: int, T: int, dtype: torch.dtype = torch.float64, seed: int = 1) -> tuple[torch.Tensor, ...]:
    """Hidden states, weight and bias of an output layer."""
    rng = torch.Generator().manual_seed(seed)
    shapes = ((B, T, H), (V, H), (V,))
    return tuple(torch.randn(s, generator=rng, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes)


def gradients(loss: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(loss, inputs)


def with_shift(way: dict[str, Any]) -> dict[str, Any]:
    """Every word's other form is ten further on; a generator of its own makes both forms draw the same words."""
    shift_V = (torch.arange(V) + 10) % V if way.get("first") == "shift" else None
    return {**way, "shift_V": shift_V, "generator": torch.Generator().manual_seed(3)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("first", ["mle", "none"])
@pytest.mark.parametrize("lengths", [(7, 7, 7), (7, 1, 4, 6), (1, 1), (1,)])
def test_both_forms_are_algorithm_1(lengths: tuple[int, ...], first: Any, dtype: torch.dtype) -> None:
    labels_BT, valid_BT = captions(*lengths)
    inputs = layer(*labels_BT.shape, dtype=dtype)
    literal = algorithm_1 if len(set(lengths)) == 1 else lambda *a: algorithm_1_padded(a[0], a[1], valid_BT, a[2])
    hidden_BTH, weight_VH, bias_V = inputs
    logits_BTV = F.linear(hidden_BTH, weight_VH, bias_V)
    theirs = literal(logits_BTV, labels_BT, first == "mle")
    for ours in (
        smile_loss(F.linear(*inputs), labels_BT, valid_BT, first=first),
        smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, first=first),
    ):
        assert ours.dtype == dtype and float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-6)
        for mine, paper in zip(
            gradients(ours, inputs), torch.autograd.grad(theirs, inputs, retain_graph=True), strict=True
        ):
            torch.testing.assert_close(mine, paper, rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(str(v) for v in way.values()))
def test_the_form_of_the_head_is_the_form_of_the_scores(way: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(head_module, "CHUNK_SCORES", 3 * V + 1)  # three tokens at a time
    labels_BT, valid_BT = captions(6, 2, 9, 1)
    inputs = layer(*labels_BT.shape)
    plain = smile_loss(F.linear(*inputs), labels_BT, valid_BT, **with_shift(way))
    hidden_BTH, weight_VH, bias_V = inputs
    for bias in (bias_V, None):
        if bias is None:
            plain = smile_loss(F.linear(hidden_BTH, weight_VH), labels_BT, valid_BT, **with_shift(way))
        used = tuple(x for x in (hidden_BTH, weight_VH, bias) if x is not None)
        ours = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias, **with_shift(way))
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)
        for mine, other in zip(gradients(3 * ours, used), gradients(3 * plain, used), strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-12)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS[::2] + WAYS[1:2], ids=lambda way: "-".join(str(v) for v in way.values()))
def test_gradients_are_those_of_small_differences(way: dict[str, Any]) -> None:
    labels_BT, valid_BT = captions(3, 1)
    hidden_BTH, weight_VH, bias_V = layer(*labels_BT.shape)

    def loss(hidden_BTH: torch.Tensor, weight_VH: torch.Tensor, bias_V: torch.Tensor) -> torch.Tensor:
        return smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, **with_shift(way))

    assert torch.autograd.gradcheck(loss, (hidden_BTH, weight_VH, bias_V))
    logits_BTV = torch.randn(2, 3, V, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: smile_loss(x, labels_BT, valid_BT, **with_shift(way)), (logits_BTV,))


def test_numbers_worked_out_on_paper() -> None:
    """Four words; the captions are "1 2" and "0". Scores are logs, so that probabilities are fractions."""
    logits_BTV = torch.tensor([[[1.0, 2, 3, 4], [5, 1, 3, 7]], [[2.0, 2, 4, 8], [1, 1, 1, 1]]]).log()
    labels_BT, valid_BT = torch.tensor([[1, 2], [0, 0]]), torch.tensor([[True, True], [True, False]])

    def nats(*shares: float) -> float:
        return -sum(math.log(share) for share in shares) / len(shares)

    shift_V = torch.tensor([3, 3, 2, 3])
    for way, expected in (
        ({}, nats(2 / 10, 3 / (1 + 3), 2 / 16)),
        ({"first": "none"}, nats(2 / (2 + 3), 3 / (1 + 3), 1)),
        ({"first": "shift", "shift_V": shift_V}, nats(4 / (3 + 4), 3 / (3 + 7), 1)),
        ({"first": "none", "subset": "reverse"}, nats(2 / (1 + 2 + 4), 3 / (5 + 3 + 7), 2 / 16)),
        ({"first": "none", "subset": "random", "random_size": 4}, nats(2 / 10, 3 / 16, 2 / 16)),
        ({"mle": 0.25}, 0.25 * nats(2 / 10, 3 / 16, 2 / 16) + 0.75 * nats(2 / 10, 3 / 4, 2 / 16)),
    ):
        assert float(smile_loss(logits_BTV, labels_BT, valid_BT, **way)) == pytest.approx(expected, abs=1e-6), way
        ours = smile_head_loss(logits_BTV, torch.eye(4), labels_BT, valid_BT, **way)
        assert float(ours) == pytest.approx(expected, abs=1e-6), way


@pytest.mark.parametrize("first", ["mle", "none"])
def test_with_the_whole_vocabulary_it_is_mle(first: Any) -> None:
    labels_BT, valid_BT = torch.arange(V).repeat(2, 1), torch.ones(2, V, dtype=torch.bool)
    inputs = layer(2, V)
    hidden_BTH, weight_VH, bias_V = inputs
    expected = mle_loss(F.linear(*inputs), labels_BT, valid_BT)
    for way in ({}, {"subset": "random", "random_size": V}, {"mle": 1.0, "subset": "reverse"}):
        for ours in (
            smile_loss(F.linear(*inputs), labels_BT, valid_BT, first=first, **way),  # type: ignore[arg-type]
            smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, first=first, **way),  # type: ignore[arg-type]
        ):
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("first", ["mle", "none"])
def test_no_word_outside_the_caption_is_pushed_after_the_first_token(first: Any) -> None:
    labels_BT, valid_BT = captions(7, 4)
    logits_BTV = torch.randn(*labels_BT.shape, V, requires_grad=True)
    slope_BTV = gradients(smile_loss(logits_BTV, labels_BT, valid_BT, first=first), (logits_BTV,))[0]
    for labels_T, valid_T, slope_TV in zip(labels_BT, valid_BT, slope_BTV, strict=True):
        outside = [word for word in range(V) if word not in labels_T[valid_T].tolist()]
        assert bool((slope_TV[1:, outside] == 0).all()) and bool((slope_TV[~valid_T] == 0).all())
        assert bool((slope_TV[0, outside] != 0).all()) == (first == "mle")
    hidden_BTH, weight_VH, bias_V = layer(*labels_BT.shape)
    loss = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, first="none")
    rows_V = gradients(loss, (weight_VH,))[0].abs().sum(1) > 0
    assert set(rows_V.nonzero()[:, 0].tolist()) == set(labels_BT[valid_BT].tolist())


def test_padding_is_in_no_subset_whatever_its_id() -> None:
    for length in (3, 5):
        inputs = tuple(x.detach() for x in layer(2, length))
        labels_BT = torch.tensor([[1, 2, 3, 0, 0], [4, 1, 0, 0, 0]])[:, :length]
        valid_BT = torch.arange(length) < torch.tensor([[3], [2]])
        for pad in (0, 4, 7, -100, V + 3):
            padded_BT = labels_BT.masked_fill(~valid_BT, pad)
            hidden_BTH, weight_VH, bias_V = inputs
            for way in WAYS:
                plain = smile_loss(F.linear(*inputs), labels_BT, valid_BT, **with_shift(way))
                told = smile_head_loss(hidden_BTH, weight_VH, padded_BT, valid_BT, bias_V, **with_shift(way))
                again = smile_loss(F.linear(*inputs), padded_BT, valid_BT, **with_shift(way))
                assert float(again) == float(plain) == pytest.approx(float(told), abs=1e-12)


def test_captions_of_one_token_and_equal_captions() -> None:
    labels_BT, valid_BT = captions(1, 1, 1)
    inputs = layer(3, 1)
    expected = mle_loss(F.linear(*inputs), labels_BT, valid_BT)
    hidden_BTH, weight_VH, bias_V = inputs
    torch.testing.assert_close(smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V), expected)
    alone = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, first="none")
    assert float(alone.detach()) == 0 and all(bool((g == 0).all()) for g in gradients(alone, inputs))
    labels_BT, valid_BT = (x.expand(4, -1) for x in captions(6))
    hidden_BTH, weight_VH, bias_V = layer(4, 6)
    ours = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V)
    theirs = algorithm_1(F.linear(hidden_BTH, weight_VH, bias_V), labels_BT)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
    mine, paper = (gradients(loss, (weight_VH,))[0] for loss in (ours, theirs))
    torch.testing.assert_close(mine, paper, rtol=0, atol=1e-12)


def test_a_prompt_in_front_counts_no_token_and_the_answer_has_the_first_one() -> None:
    """Appendix B: what is asked is not learned; the first token of the answer keeps the vocabulary."""
    labels_BT, inputs = captions(6, 6)[0], layer(2, 6)
    valid_BT = torch.tensor([[False, False, True, True, True, True], [False] * 4 + [True] * 2])
    hidden_BTH, weight_VH, bias_V = inputs
    logits_BTV = F.linear(*inputs)
    expected = 4 * algorithm_1(logits_BTV[:1, 2:], labels_BT[:1, 2:]) + 2 * algorithm_1(
        logits_BTV[1:, 4:], labels_BT[1:, 4:]
    )
    ours = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V)
    torch.testing.assert_close(ours, expected / 6, rtol=0, atol=1e-12)
    torch.testing.assert_close(smile_loss(logits_BTV, labels_BT, valid_BT), expected / 6, rtol=0, atol=1e-12)


def test_a_caption_without_tokens_counts_for_nothing() -> None:
    labels_BT, valid_BT = captions(5, 3)
    hidden_BTH, weight_VH, bias_V = inputs = layer(2, 5)
    valid_BT[1] = False
    for way in WAYS:
        both = smile_head_loss(
            hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, **with_shift({**way, "subset": "own"})
        )
        one = smile_head_loss(
            hidden_BTH[:1], weight_VH, labels_BT[:1], valid_BT[:1], bias_V, **with_shift({**way, "subset": "own"})
        )
        torch.testing.assert_close(both, one, rtol=0, atol=1e-12)
        for mine, alone in zip(gradients(both, inputs), gradients(one, inputs), strict=True):
            torch.testing.assert_close(mine, alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("way", [{}, {"subset": "reverse"}, {"mle": 0.3}], ids=str)
def test_sixteen_bits_are_summed_in_thirty_two(way: dict[str, Any]) -> None:
    labels_BT, valid_BT = captions(7, 4, 6)
    inputs = layer(3, 7, torch.bfloat16)
    hidden_BTH, weight_VH, bias_V = inputs
    ours = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, **way)
    exact = tuple(x.detach().double().requires_grad_() for x in inputs)
    expected = smile_loss(F.linear(*exact), labels_BT, valid_BT, **way)
    assert ours.dtype == torch.float32 and float(ours.detach()) == pytest.approx(float(expected.detach()), rel=2e-3)
    for mine, right in zip(gradients(ours, inputs), gradients(expected, exact), strict=True):
        assert mine.dtype == torch.bfloat16
        torch.testing.assert_close(mine.double(), right, rtol=0.03, atol=3e-3)


def test_under_autocast_it_is_near_the_full_precision() -> None:
    labels_BT, valid_BT = captions(*[40] * 8)
    hidden_BTH, weight_VH, bias_V = inputs = layer(8, 40, torch.float32)
    whole = mle_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V)
    whole_slopes = gradients(whole, inputs)
    with torch.autocast("cpu", torch.bfloat16):
        loss = mle_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V)
        smile = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V)
    assert loss.dtype == torch.float32 and 0 < abs(float(loss) - float(whole)) < 1e-2
    for mine, right in zip(gradients(loss, inputs), whole_slopes, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, right, rtol=0.02, atol=1e-3)
    assert float(smile) == float(smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V))


def test_a_second_backward_gives_the_same_gradient_and_frozen_parts_get_none(monkeypatch: pytest.MonkeyPatch) -> None:
    labels_BT, valid_BT = captions(7, 4)
    hidden_BTH, weight_VH, bias_V = inputs = layer(2, 7)
    loss = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, mle=0.5)
    first, second = (torch.autograd.grad(2 * loss, inputs, retain_graph=True) for _ in range(2))
    assert all(torch.equal(a, b) and bool((a != 0).any()) for a, b in zip(first, second, strict=True))
    frozen = smile_head_loss(hidden_BTH, weight_VH.detach(), labels_BT, valid_BT, bias_V.detach(), mle=0.5)
    torch.testing.assert_close(gradients(2 * frozen, (hidden_BTH,))[0], first[0])
    transposed_BTH = hidden_BTH.detach().transpose(0, 1).contiguous().transpose(0, 1).requires_grad_()
    again = smile_head_loss(transposed_BTH, weight_VH, labels_BT, valid_BT, bias_V, mle=0.5)
    torch.testing.assert_close(gradients(2 * again, (transposed_BTH,))[0], first[0])
    monkeypatch.delattr(head_module.VocabularyTerm, "push_back")  # a validation loss makes no gradient at all
    with torch.no_grad():
        quiet = smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, mle=0.5)
    assert not quiet.requires_grad and float(quiet) == float(loss)


def test_drawn_words_are_distinct_and_every_word_is_drawn_as_often() -> None:
    drawn_BK = draw_words(torch.rand(20_000, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64), 7)
    assert bool((drawn_BK.sort(1).values.diff(dim=1) > 0).all())
    shares = torch.bincount(drawn_BK.flatten(), minlength=7) / drawn_BK.numel()
    torch.testing.assert_close(shares, torch.full((7,), 1 / 7), rtol=0, atol=0.005)
    assert sorted(draw_words(torch.rand(1, 7, dtype=torch.float64), 7)[0].tolist()) == list(range(7))


def test_random_subsets_change_with_torchs_seed_and_with_nothing_else() -> None:
    labels_BT, valid_BT = captions(7, 4)
    hidden_BTH, weight_VH, bias_V = layer(2, 7)
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(float(smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, subset="random")))
    assert found[0] == found[1] != found[2]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"subset": "random", "random_size": V + 1}, f"random_size is {V + 1}; expected at least 1 and at most {V},"),
        ({"mle": 1.5}, "mle is 1.5; expected a weight in"),
        ({"mle": -0.1}, "mle is -0.1"),
        ({"subset": "onw"}, "Expected subset to be own, random or reverse .* got subset 'onw'"),
        ({"first": "shift"}, "shift_V must be given if and only if first ="),
        ({"shift_V": torch.arange(V)}, "shift_V must be given if and only if first ="),
    ],
)
def test_what_cannot_be_meant_is_refused(wrong: dict[str, Any], told: str) -> None:
    labels_BT, valid_BT = captions(7, 4)
    hidden_BTH, weight_VH, bias_V = layer(2, 7)
    with pytest.raises(ValueError, match=told):
        smile_loss(F.linear(hidden_BTH, weight_VH, bias_V), labels_BT, valid_BT, **wrong)
    with pytest.raises(ValueError, match=told):
        smile_head_loss(hidden_BTH, weight_VH, labels_BT, valid_BT, bias_V, **wrong)


def test_a_batch_of_padding_alone_is_refused() -> None:
    labels_BT, valid_BT = captions(7, 4)
    hidden_BTH, weight_VH, bias_V = layer(2, 7)
    for loss in (mle_head_loss, smile_head_loss):
        with pytest.raises(ValueError, match="no valid token"):
            loss(hidden_BTH, weight_VH, labels_BT, torch.zeros_like(valid_BT), bias_V)  # type: ignore[operator]


def test_a_text_model_learns_with_it() -> None:
    """Appendix B: a tiny GPT-2 on text alone, its embeddings tied to its output layer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=12, n_embd=8, n_layer=1, n_head=2)).eval()
    input_ids, valid_BT = captions(9, 5)
    is_answer = valid_BT & (torch.arange(9) >= 3)

    def step(loss: torch.Tensor) -> list[torch.Tensor]:
        return list(torch.autograd.grad(loss, list(model.parameters())))

    layer_ = model.get_output_embeddings()
    hidden_BTH = model.base_model(input_ids).last_hidden_state[:, :-1]
    ours = smile_head_loss(hidden_BTH, layer_.weight, input_ids[:, 1:], is_answer[:, 1:], layer_.bias, mle=0.1)
    plain = smile_loss(model(input_ids).logits[:, :-1], input_ids[:, 1:], is_answer[:, 1:], mle=0.1)
    for mine, other in zip(step(ours), step(plain), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)
