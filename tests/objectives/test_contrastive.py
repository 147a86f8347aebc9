"""The contrastive loss by hand."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import CLIPTokenizer

from tellapart.models.tokens import pad_rows
from tellapart.objectives import Contrastive
from tellapart.objectives.contrastive import symmetric_loss
from tellapart.types import Batch


def test_the_loss_of_equal_matches_is_the_log_of_their_number() -> None:
    assert symmetric_loss(torch.zeros(5, 5)).item() == pytest.approx(math.log(5))


def test_both_directions_count() -> None:
    match = torch.tensor([[1.0, 3.0], [0.0, 2.0]])
    text_to_picture = (math.log(1 + math.exp(2)) + math.log(1 + math.exp(-2))) / 2
    picture_to_text = (math.log(1 + math.exp(-1)) + math.log(1 + math.exp(1))) / 2
    assert symmetric_loss(match).item() == pytest.approx((text_to_picture + picture_to_text) / 2)


class Learner:
    """Features that a test writes down."""

    def __init__(self, images: torch.Tensor, texts: torch.Tensor) -> None:
        self.images, self.texts, self.seen = images, texts, torch.empty(0)
        self.model = SimpleNamespace(logit_scale=torch.tensor(math.log(200.0)))
        self.tokenizer = SimpleNamespace(all_special_ids=[0, 1, 3], unk_token_id=2)

    def image_features(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.images

    def row_features(self, tokens: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        self.seen = tokens
        return self.texts


def batch(rows: int) -> Batch:
    tokens = torch.tensor([[1, 7, 8, 9, 3, 0]] * rows)
    return Batch([], torch.arange(2), torch.zeros(2, 1), tokens, tokens > 0)


def test_several_captions_of_a_picture_are_the_mean_of_one_at_a_time() -> None:
    generator = torch.Generator().manual_seed(0)
    images, texts = (torch.nn.functional.normalize(torch.randn(n, 4, generator=generator), dim=1) for n in (2, 6))
    together = Contrastive()(Learner(images, texts), batch(6)).value
    alone = [Contrastive()(Learner(images, texts[s::3]), batch(2)).value for s in range(3)]
    assert together.item() == pytest.approx(sum(float(value) for value in alone) / 3)


def test_the_scale_is_kept_at_most_a_hundred() -> None:
    learner = Learner(torch.eye(2), torch.eye(2))
    loss = Contrastive()(learner, batch(2))
    assert loss.logs["scale"] == pytest.approx(100.0) and loss.logs["accuracy"] == 100.0


def test_word_dropout_hides_words_and_never_what_marks_a_text() -> None:
    learner = Learner(torch.eye(2), torch.eye(2))
    torch.manual_seed(0)
    Contrastive(word_dropout=0.999)(learner, batch(2))
    assert learner.seen.tolist() == [[1, 2, 2, 2, 3, 0]] * 2
    Contrastive()(learner, batch(2))
    assert learner.seen.tolist() == batch(2).tokens_RT.tolist()  # type: ignore[union-attr]


def test_word_dropout_does_not_end_a_text_of_clip_where_a_word_was(tmp_path: Path) -> None:
    """CLIP's unknown word is its end token, and its feature is that of the first end: words are left out instead."""
    letters = [*"abdegirstu", *(letter + "</w>" for letter in "abdegirstu")]
    vocabulary = {token: n for n, token in enumerate([*letters, "<|startoftext|>", "<|endoftext|>"])}
    tokenizer = CLIPTokenizer(vocab=vocabulary, merges=[])
    assert tokenizer.unk_token_id == tokenizer.eos_token_id == 21
    rows = tokenizer(["a red star", "a big guitar"])["input_ids"]
    tokens, valid = pad_rows(rows, tokenizer.pad_token_id)
    torch.manual_seed(0)
    seen, kept = Contrastive(word_dropout=0.5).drop_words(tokens, valid, tokenizer)
    for row, left in zip(rows, [row[valid].tolist() for row, valid in zip(seen, kept, strict=True)], strict=True):
        assert left[0] == 20 and left[-1] == 21 and left.count(21) == 1 and 2 < len(left) < len(row)
        place = iter(row)
        assert all(token in place for token in left), "what is left is in its order"
    assert kept.long().diff(dim=1).max() <= 0, "padding is on the right"
    tokenizer.padding_side = "left"
    assert Contrastive(word_dropout=0.5).drop_words(tokens, valid, tokenizer)[1].long().diff(dim=1).min() >= 0
