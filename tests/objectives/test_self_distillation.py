"""Self-distillation: which captions are made of a description, which one is chosen, and that runs learn it."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from stepping import micro_batches

from tellapart.errors import UsageError
from tellapart.language.condensing import Description
from tellapart.objectives.self_distillation import (
    Belief,
    Describer,
    Listener,
    SelfDistillation,
    best,
    candidates,
    caption_values,
    whole_words,
)
from tellapart.recipe.presets import objective_table
from tellapart.recipe.reading import check_recipe
from tellapart.scenes.claims import count_claims
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of, train_visual
from tellapart.types import Batch, Rollout
from tellapart.utils.rng import ItemSeeds

SCENE = "a large red star is above a small blue star which is left of a green moon and everything is on the sand"


def belief_in(text: str, *unsure: str, said: tuple[str, ...] = ()) -> Belief:
    description = Description(text)
    believed = frozenset(n for n, word in enumerate(description.texts) if word not in unsure)
    return Belief(description, believed, frozenset(n for n in believed if description.texts[n] in said), "shape")


def drawn(belief: Belief, count: int = 300) -> list[str]:
    return candidates(belief, count, ItemSeeds(("one",), 3))


def test_candidates_say_nothing_that_is_doubted_and_keep_what_the_plain_caption_says() -> None:
    found = drawn(belief_in(SCENE, "everything", "red", said=("sand",)))
    assert all("red" not in text and text.endswith(" on the sand") for text in found)
    assert {"a large star on the sand", "a shape on the sand", "a moon on the sand"} <= set(found)
    assert len(set(found)) == len(found) > 10


def test_candidates_name_one_object_or_the_first_ones_and_no_noun_twice() -> None:
    found = drawn(belief_in(SCENE, "everything"))
    assert any(text.count("star") == 1 and "moon" not in text for text in found)
    assert not [text for text in found if text.count("star") > 1 or text.count("shape") > 1]
    # The moon stands behind both others, or alone.
    assert all(
        text.count(" and ") + text.count(" above ") + text.count(" left of ") != 1 for text in found if "moon" in text
    )


def test_a_noun_and_its_plural_are_one_noun() -> None:
    found = drawn(belief_in("a red shape and two blue shapes"))
    assert found and not [text for text in found if text.count("shape") > 1]


def test_a_picture_of_which_nothing_is_believed_is_still_captioned() -> None:
    belief = Belief(Description("a red star"), frozenset(), frozenset(), "thing")
    assert drawn(belief) == ["a thing"]


def test_a_picture_has_the_same_candidates_in_any_batch() -> None:
    belief = belief_in(SCENE)
    assert drawn(belief) == candidates(belief, 300, ItemSeeds(("zero", "one"), 3)[1:])


def test_the_rent_is_for_words() -> None:
    texts, value_C = ["a star", "a large red star"], torch.tensor([-1.0, -0.5])
    assert best(texts, value_C, 0.0) == "a large red star" and best(texts, value_C, 0.3) == "a star"


class Ends:
    stop_tokens = (9,)


def test_a_description_that_was_cut_loses_its_last_word() -> None:
    tokens_RT = torch.tensor([[1, 2, 9, 0], [1, 2, 3, 4]])
    rollout = Rollout(tokens_RT, tokens_RT > 0, ["a red surfboard", "a red surf"])
    assert whole_words(rollout, Ends()) == ["a red surfboard", "a red"]  # type: ignore[arg-type]


class Words:
    """A scorer whose features count the letters of a text, so that pictures can be named by letters."""

    scale = 10.0

    def text_features(self, texts: list[str]) -> torch.Tensor:
        count_ND = torch.tensor([[text.count("r"), text.count("b"), 1.0] for text in texts])
        return count_ND / count_ND.norm(dim=1, keepdim=True)


def test_the_listener_compares_a_picture_with_its_look_alikes_only() -> None:
    features_ND = np.eye(3, dtype=np.float32)
    listener = Listener([(Words(), features_ND)], lambda rows_B: 1 - rows_B[:, None])  # type: ignore[list-item]
    rows_BM = listener.among(np.array([0, 1]))
    assert rows_BM.tolist() == [[0, 1], [1, 0]]
    heard = listener.logits(rows_BM, [["r", "b", "a"], ["b"]])
    assert [tuple(one_KMC.shape) for one_KMC in heard] == [(1, 2, 3), (1, 2, 1)]
    spoken = [torch.zeros_like(one_KMC[0]) for one_KMC in heard]
    found = [caption_values(*both, 0.0) for both in zip(heard, spoken, strict=True)]
    scores_K = 10 * torch.tensor([1.0, 0.0]) / 2**0.5
    torch.testing.assert_close(found[0][0], scores_K.softmax(0)[0])
    torch.testing.assert_close(found[0][2], torch.tensor(0.5))
    assert found[0][0] > found[0][2] > found[0][1] and found[1][0] == found[0][0]


def test_only_scorers_that_never_saw_the_picture_listen_and_the_least_sure_counts() -> None:
    swapped = np.eye(3, dtype=np.float32)[[1, 0, 2]]
    ears = [(Words(), np.eye(3, dtype=np.float32)), (Words(), swapped), (Words(), swapped)]
    unseen_KN = np.array([[True, False], [False, True], [True, True]])
    listener = Listener(ears, lambda rows_B: 1 - rows_B[:, None], None, unseen_KN)  # type: ignore[arg-type]
    heard = listener.logits(np.array([[0, 1], [1, 0]]), [["r", "b"], ["b"]])
    assert [len(one_KMC) for one_KMC in heard] == [2, 2]
    sure = (10 * torch.tensor([1.0, 0.0]) / 2**0.5).softmax(0)
    value_C = caption_values(heard[0], torch.zeros(2, 2), 0.0)
    torch.testing.assert_close(value_C, sure[[1, 1]])  # of "r" the first is sure and the third is not
    torch.testing.assert_close(caption_values(heard[1], torch.zeros(2, 1), 0.0), sure[[1]])


def test_a_word_that_the_start_finds_false_of_a_look_alike_tells_them_apart() -> None:
    heard_MC, spoken_MC = torch.zeros(1, 2, 2), torch.tensor([[-3.0, -2.0], [-9.0, -2.5]])
    value_C = caption_values(heard_MC, spoken_MC, 0.1, 0.5)
    expected = [1 / (1 + math.exp(-3.0)) - 0.3, 1 / (1 + math.exp(-0.25)) - 0.2]
    torch.testing.assert_close(value_C, torch.tensor(expected))
    assert caption_values(heard_MC, spoken_MC, 0.1).tolist() == pytest.approx([0.5 - 0.3, 0.5 - 0.2])


@pytest.fixture(scope="module")
def shipped() -> TrainingSetup:
    """The shipped models on a few pictures, as the preset has them."""
    table = {
        "name": "small",
        "data": {"train": "scenes:plain?split=train&n=24&seed=5", "validation": "scenes:plain?split=validation&n=4"},
        "captioner": {"name": "scenes"},
        "scorer": {"name": "scenes"},
        "objective": {**objective_table("self-distillation"), "speaker": 0.0},
        "training": {"steps": 2, "batch_size": 12, "learning_rate": 1e-4},
    }
    return TrainingSetup(check_recipe(table, "test"), lambda name: name)


@pytest.mark.long
def test_what_is_learned_is_true_of_pictures_and_says_more_than_plain_captions(shipped: TrainingSetup) -> None:
    objective, data = objective_of(shipped), shipped.training_set()
    assert isinstance(objective, SelfDistillation)
    batches = [data.batch(step) for step in range(2)]
    texts = [text for batch in batches for text in objective.captions(batch)]
    counts = [count_claims(text, item.truth) for text, item in zip(texts, data_items(batches), strict=True)]
    plain = shipped.learner.generate(batches[0].visual, objective.cfg.decoding).texts
    assert sum(one.correct for one in counts) >= 0.97 * sum(one.claims for one in counts)
    assert np.mean([len(t.split()) for t in texts]) > np.mean([len(t.split()) for t in plain]) + 2
    assert not any(one.repetitions for one in counts)
    resumed = objective_of(shipped)
    resumed.load_state_dict(json.loads(json.dumps(objective.state_dict())))
    assert isinstance(resumed, SelfDistillation) and resumed.captions(batches[1]) == objective.captions(batches[1])


@pytest.mark.parametrize("at_once", [8, 2])
def test_captions_of_look_alikes_are_scored_as_one_by_one(
    shipped: TrainingSetup, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tellapart.objectives.self_distillation.LISTS_AT_ONCE", at_once)
    objective = objective_of(shipped)
    assert isinstance(objective, SelfDistillation)
    show = train_visual(shipped)
    rows_BM = np.array([[3, 7, 1], [0, 2, 9], [5, 4, 8]])
    options = [["a red star", "a large red star on the sand", "a star"], ["a heart"], ["a blue heart", "a moon"]]
    found = objective.describer.log_probs(show(rows_BM.ravel()), options)
    for row_M, texts, log_p_MC in zip(rows_BM, options, found, strict=True):
        assert log_p_MC.shape == (3, len(texts))
        for row, log_p_C in zip(row_M, log_p_MC, strict=True):
            alone = [objective.describer.log_probs(show(np.array([row])), [[text]])[0][0, 0] for text in texts]
            torch.testing.assert_close(log_p_C, torch.stack(alone), rtol=0, atol=1e-4)
    batch = shipped.training_set().batch(0)
    assert torch.equal(show(batch.rows_B.numpy()), batch.visual)


def test_captions_are_chosen_without_gradient_and_in_full_precision(shipped: TrainingSetup) -> None:
    seen: list[tuple[bool, bool]] = []

    class Watched(Describer):
        def view(self, visual: torch.Tensor) -> torch.Tensor:
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            return super().view(visual)

    objective, batch = objective_of(shipped), shipped.training_set().batch(0)
    assert isinstance(objective, SelfDistillation)
    plain = objective.describer.plain
    cfg = SelfDistillation.Config(kind="self_distillation", decoding=objective.cfg.decoding, candidates=2)
    watched = SelfDistillation(Watched(plain, plain, cfg), None, cfg)
    with torch.autocast("cpu", torch.bfloat16):
        assert len(watched.captions(batch)) == len(batch.rows_B) and torch.is_autocast_enabled("cpu")
    assert seen == [(False, False)]


def data_items(batches: list[Batch]) -> list[Any]:
    return [item for batch in batches for item in batch.items]


def test_the_loss_is_maximum_likelihood_of_those_captions_in_whole_and_in_parts(shipped: TrainingSetup) -> None:
    objective, batch, learner = objective_of(shipped), shipped.training_set().batch(0), shipped.learner
    learner.model.eval()
    tokens_RT, valid_RT = learner.pad(learner.tokenize(objective.captions(batch)))
    log_p_RTV = learner.logits(batch.visual, tokens_RT, valid_RT).log_softmax(-1)
    expected = -log_p_RTV.gather(-1, tokens_RT[..., None]).squeeze(-1)[valid_RT].mean()
    for chunks in (1, 3):
        loss = sum(part.value.detach() for part in micro_batches(objective, learner, batch, chunks))
        torch.testing.assert_close(loss, expected.detach())


def test_needs_a_start_and_a_scorer(tiny_recipe: dict[str, Any]) -> None:
    table = {key: value for key, value in tiny_recipe.items() if key not in ("scorer", "evaluation")}
    table |= {"objective": {"kind": "self_distillation"}, "validation": {"select": "loss"}}
    with pytest.raises(UsageError, match=r"\[scorer\] is missing"):
        check_recipe(table, "test")
    check_recipe({**table, "objective": {"kind": "self_distillation", "select": "random"}}, "test")
    learned = {**tiny_recipe, "objective": {"kind": "self_distillation"}}
    with pytest.raises(UsageError, match="augment flips pictures"):
        check_recipe({**learned, "training": {**table["training"], "augment": "crop-flip"}}, "test")
    with pytest.raises(UsageError, match=r"training.captions_per_picture has no effect with objective"):
        training = {**table["training"], "captions_per_picture": 2}
        check_recipe({**tiny_recipe, "objective": {"kind": "self_distillation"}, "training": training}, "test")
