"""``objective.prompt`` of maximum likelihood: the prompt is read and not learned."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stepping import micro_batches

from tellapart.errors import UsageError
from tellapart.models.word_tokenizer import word_tokenizer
from tellapart.objectives.mle import Mle
from tellapart.recipe.reading import check_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of

SCENES = "scenes:plain?n=20&split=train&seed=3&detail=0.9"


def setup_of(recipe: dict[str, Any], objective: dict[str, Any], train: Any) -> TrainingSetup:
    table = {**recipe, "objective": objective, "data": {**recipe["data"], "train": train}}
    return TrainingSetup(check_recipe(table, "test"), lambda name: name)


def test_the_tokens_of_the_prompt_do_not_count(tiny_recipe: dict[str, Any]) -> None:
    specs = [SCENES, f"{SCENES}&describe=on the"]
    setup = setup_of(tiny_recipe, {"kind": "mle", "prompt": "on the"}, specs)
    objective, batch, learner = objective_of(setup), setup.training_set().batch(0), setup.captioner
    assert isinstance(objective, Mle) and len(objective.prompt) == 2
    assert batch.tokens_RT is not None and batch.valid_RT is not None
    learner.model.eval()
    described_R = torch.tensor([item.id.endswith("#description") for item in batch.items])
    assert 0 < int(described_R.sum()) < len(described_R)
    log_p_RTV = learner.logits(batch.visual, batch.tokens_RT, batch.valid_RT).log_softmax(-1)
    loss_RT = -log_p_RTV.gather(-1, batch.tokens_RT[..., None]).squeeze(-1)
    counted_RT = batch.valid_RT.clone()
    counted_RT[described_R, :2] = False
    expected = loss_RT[counted_RT].mean().detach()
    for chunks in (1, 3):
        found = sum(part.value.detach() for part in micro_batches(objective, learner, batch, chunks))
        torch.testing.assert_close(found, expected)
    assert not torch.isclose(Mle()(learner, batch).value, expected)


def test_a_prompt_that_no_reference_begins_with_is_an_error(tiny_recipe: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"objective.prompt is 'look at', but no training"):
        objective_of(setup_of(tiny_recipe, {"kind": "mle", "prompt": "look at"}, SCENES))


def test_the_ends_of_sentences_are_words() -> None:
    texts = ["A dog runs . Is it 3.5 m, e.g. two?", "Two men sit! One's red ..."]
    tokenizer = word_tokenizer(texts, sentences=True)
    decoded = [tokenizer.decode(row, skip_special_tokens=True) for row in tokenizer(texts)["input_ids"]]
    assert decoded == ["a dog runs . is it 3 5 m e g . two", "two men sit . one's red"]
    assert "." not in word_tokenizer(texts).get_vocab()
