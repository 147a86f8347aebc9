"""SMILE in a recipe: what it refuses, what it hands to the loss, and a run with tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from pydantic import ValidationError
from tiny_blip import SPECIAL, save_blip

from tellapart.captioners import Captioner, load_captioner
from tellapart.errors import UsageError
from tellapart.objectives import Smile, smile_loss
from tellapart.objectives.smile import alternative_forms
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of
from tellapart.training.runs import train, upstream
from tellapart.types import Batch


def recipe_of(table: dict[str, Any], **objective: Any) -> Recipe:
    return check_recipe({**table, "objective": {"kind": "smile", **objective}}, "test")


class WithoutHead:
    """A captioner whose scores are no linear layer of anything: they are squeezed as some models do."""

    def __init__(self, captioner: Captioner) -> None:
        self.captioner, self.model = captioner, captioner.model

    def head(self) -> None:
        return None

    def hidden(self, *args: Any) -> torch.Tensor:
        weight_VH, bias_V = self.captioner.head() or (None, None)
        return 30 * (F.linear(self.captioner.hidden(*args), weight_VH, bias_V) / 30).tanh()  # type: ignore[arg-type]

    def logits(self, *args: Any) -> torch.Tensor:
        return Captioner.logits(self, *args)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        ({"mle_weight": 1.1}, "objective.mle_weight must be less than or equal to 1; found 1.1"),
        ({"mle_weight": -0.1}, "objective.mle_weight must be greater than or equal to 0; found -0.1"),
        ({"subset": "onw"}, "objective.subset must be 'own', 'random' or 'reverse'; found 'onw'"),
        (
            {"first_token": "mle", "frist_token": "x"},
            "unknown key 'objective.frist_token'; did you mean 'first_token'?",
        ),
        (
            {"label_smoothing": 0.1},
            "objective: label_smoothing applies to the MLE term, but mle_weight is 0; set, for example,",
        ),
        ({"random_size": 5}, "objective: random_size requires subset = 'random', but subset is 'own'; remove"),
        ({"random_size": 0, "subset": "random"}, "objective.random_size must be greater than or equal to 1; found 0"),
        (
            {"shift": [["a", "the"]]},
            "objective: shift requires first_token = 'shift', but first_token is 'mle'; remove shift",
        ),
    ],
)
def test_a_bad_recipe_is_refused_in_one_line(tiny_recipe: dict[str, Any], objective: Any, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        recipe_of(tiny_recipe, **objective)
    assert str(caught.value).startswith(f"test: {told}") and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("objective", "told"),
    [
        ({"subset": "random", "random_size": 5000}, "objective.random_size is 5000, but the vocabulary of .* has only"),
        ({"first_token": "shift"}, "objective.first_token = 'shift' requires two forms of each"),
        ({"first_token": "shift", "shift": [["a", "<unkn>"]]}, "no token '<unkn>'; did you mean '<unk>'"),
    ],
)
def test_what_the_vocabulary_lacks_is_said_before_any_training(
    tiny_recipe: dict[str, Any], tmp_path: Path, objective: Any, told: str
) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        train(recipe_of(tiny_recipe, **objective), tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run" / "log.jsonl").exists()


def test_a_recipes_objective_is_the_loss_of_its_captioner(tiny_recipe: dict[str, Any]) -> None:
    ways: list[dict[str, Any]] = [
        {},
        {"first_token": "shift", "shift": [["a", "<unk>"], ["the", "<unk>"]]},
        {"subset": "random", "random_size": 4, "mle_weight": 0.1, "label_smoothing": 0.1},
        {"subset": "reverse", "first_token": "none"},
    ]
    setup = TrainingSetup(recipe_of(tiny_recipe), upstream)
    learner, batch = setup.learner, setup.training_set().batch(0)
    logits_RTV = learner.logits(batch.visual, batch.tokens_RT, batch.valid_RT).detach()
    found = []
    for way in ways:
        objective = objective_of(TrainingSetup(recipe_of(tiny_recipe, **way), upstream))
        assert isinstance(objective, Smile)
        found.append(float(objective(learner, batch).value.detach()))
        ids = learner.tokenizer.get_vocab()
        argument = {"first_token": "first", "mle_weight": "mle"}
        told = {argument.get(key, key): value for key, value in way.items() if key != "shift"}
        if way.get("first_token") == "shift":
            told["shift_V"] = torch.arange(len(ids))
            told["shift_V"][[ids[a] for a, _ in way["shift"]]] = ids["<unk>"]
        if way.get("subset") == "random":
            assert batch.seeds is not None
            told["uniform_BK"] = batch.seeds.uniform("subset", 4)
        expected = smile_loss(logits_RTV, batch.tokens_RT, batch.valid_RT, **told)  # type: ignore[arg-type]
        assert found[-1] == pytest.approx(float(expected), abs=1e-5)
    assert len({round(value, 4) for value in found}) == len(ways)


def test_a_captioner_without_a_head_learns_from_its_scores(tiny_recipe: dict[str, Any]) -> None:
    setup = TrainingSetup(recipe_of(tiny_recipe), upstream)
    learner, batch = WithoutHead(setup.learner), setup.training_set().batch(0)
    logits_RTV = learner.hidden(batch.visual, batch.tokens_RT, batch.valid_RT)
    assert batch.tokens_RT is not None and batch.valid_RT is not None
    expected = smile_loss(logits_RTV, batch.tokens_RT, batch.valid_RT)
    assert float(Smile(Smile.Config(kind="smile"))(learner, batch).value.detach()) == pytest.approx(
        float(expected.detach()), abs=1e-6
    )


@pytest.mark.long
@pytest.mark.parametrize("objective", [{"mle_weight": 0.1, "label_smoothing": 0.1}, {"subset": "random"}], ids=str)
def test_a_run_learns_and_resumes_to_the_same_end(
    tiny_recipe: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: dict[str, Any]
) -> None:
    from tests.training.test_train import losses, same, stop_after, weights

    recipe = recipe_of(tiny_recipe, **objective)
    run = train(recipe, tmp_path / "whole", evaluate=False)
    lines = [json.loads(line) for line in run.log_path.read_text().splitlines()]
    validation = [line["loss"] for line in lines if line.get("event") == "validation"]
    told = losses(tmp_path / "whole")
    assert len(told) == 6 and validation[-1] < validation[0]
    stop_after(3, recipe, tmp_path / "stopped", monkeypatch)
    train(recipe, tmp_path / "stopped", resume=True, evaluate=False)
    assert losses(tmp_path / "stopped") == told
    assert same(weights(tmp_path / "stopped"), weights(tmp_path / "whole"))


def test_the_other_form_of_a_word_is_the_tokenizers_own() -> None:
    class Words:
        def __init__(self, *words: str) -> None:
            self.words = words

        def get_vocab(self) -> dict[str, int]:
            return {word: place for place, word in enumerate(self.words)}

    assert alternative_forms(Words("a", "dog", "##a", "##s"), 5).tolist() == [2, 1, 2, 3, 4]
    assert alternative_forms(Words("Ġa", "a", "dog"), 3).tolist() == [1, 0, 2]
    assert alternative_forms(Words("▁a", "b", "a"), 3).tolist() == [2, 1, 0]
    assert alternative_forms(Words("a", "b", "##a"), 3, [("a", "b")]).tolist() == [1, 1, 2]


def test_blip_learns_from_what_its_output_layer_is_given(tmp_path: Path) -> None:
    """Its hidden states go through a transform first, and the layer has a bias."""
    words = ["a", "##a", "red", "dog", "on", "grass"]
    captioner: Any = load_captioner(str(save_blip(tmp_path, words)))
    rows = captioner.tokenize(["a red dog on grass", "a dog"])
    tokens_RT, valid_RT = captioner.pad(rows)
    visual = torch.randn(2, 5, 16)

    def slopes(loss: torch.Tensor) -> list[torch.Tensor]:
        parameters = list(captioner.model.text_decoder.parameters())
        return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))

    shift_V = alternative_forms(captioner.tokenizer, len(SPECIAL) + len(words))
    assert shift_V.tolist() == [0, 1, 2, 3, 4, 5, 7, 7, 8, 9, 10, 11]
    settings: dict[str, Any] = {"first": "shift", "shift_V": shift_V, "mle": 0.2}
    torch.nn.init.normal_(captioner.head()[1])
    plain = smile_loss(captioner.logits(visual, tokens_RT, valid_RT), tokens_RT, valid_RT, **settings)
    smile = Smile(Smile.Config(kind="smile", first_token="shift", mle_weight=0.2), shift_V)
    ours = smile(captioner, Batch([], torch.arange(2), visual, tokens_RT, valid_RT)).value
    assert float(ours.detach()) == pytest.approx(float(plain.detach()), abs=1e-6)
    for mine, other in zip(slopes(ours), slopes(plain), strict=True):
        torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)


def test_as_in_the_authors_program_the_decoder_reads_the_stand_in(tmp_path: Path) -> None:
    """And a word without another form is the unknown token, as label and as input."""
    words = ["a", "##a", "dog", "red", "##red", "runs"]
    captioner: Any = load_captioner(str(save_blip(tmp_path, words)))
    ids = captioner.tokenizer.get_vocab()
    objective = Smile.Config(kind="smile", first_token="shift", shift_as="program")
    smile = objective.build(SimpleNamespace(captioner=captioner))  # type: ignore[arg-type]
    assert smile.shift_V is not None
    stands = {word: captioner.tokenizer.convert_ids_to_tokens(int(smile.shift_V[ids[word]])) for word in ids}
    assert [stands[word] for word in ("a", "red", "dog", "runs")] == ["##a", "##red", "[UNK]", "[UNK]"]
    assert all(stands[word] == word for word in captioner.tokenizer.all_special_tokens)
    tokens_RT, valid_RT = captioner.pad(captioner.tokenize(["a red dog", "dog runs"]))
    visual = captioner.encode(captioner.pixels([Image.new("RGB", (32, 32), c) for c in ("red", "blue")]))
    batch = Batch([], torch.arange(2), visual, tokens_RT, valid_RT)
    read_RT = tokens_RT.clone()
    read_RT[:, 0] = torch.tensor([ids["##a"], ids["[UNK]"]])
    expected = smile_loss(captioner.logits(visual, read_RT, valid_RT), read_RT, valid_RT, first="none")
    assert float(smile(captioner, batch).value.detach()) == pytest.approx(float(expected.detach()), abs=1e-6)
    label_alone = Smile(Smile.Config(kind="smile", first_token="shift"), smile.shift_V)
    assert float(label_alone(captioner, batch).value.detach()) != pytest.approx(float(expected.detach()), abs=1e-4)
    with pytest.raises(ValidationError, match="shift_as requires first_token = 'shift', but first_token is 'mle';"):
        Smile.Config(kind="smile", shift_as="program")
