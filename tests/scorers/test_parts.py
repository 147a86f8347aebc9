"""Scorers and captioners that start from encoders and a language model that exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import BertConfig, BertModel, CLIPImageProcessorPil, GPT2Config, GPT2LMHeadModel, ResNetConfig
from transformers import ResNetModel as ResNet

from tellapart.captioners import load_captioner
from tellapart.data.pictures import FilePicture
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.models.decoding import Decoding
from tellapart.models.efficientnet import EfficientNetLite, EfficientNetLiteConfig
from tellapart.models.word_tokenizer import word_tokenizer
from tellapart.recipe.reading import check_recipe
from tellapart.scorers import load_scorer
from tellapart.scorers.parts import PartsModel, PartsScorer
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts
from tellapart.types import Item

WORDS = ["a red circle left of a blue square on grass", "a small green ring above a star"]
DATA = {"train": "scenes:plain?n=40", "validation": "scenes:plain?n=30&split=validation"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of a CNN, a BERT and a GPT-2, each as transformers saves them."""
    place = tmp_path_factory.mktemp("parts")
    torch.manual_seed(0)
    tokenizer = word_tokenizer(WORDS, max_length=64)
    ids: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0}
    resnet = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    bert = BertConfig(vocab_size=len(tokenizer), hidden_size=12, num_hidden_layers=1, num_attention_heads=2,
                      intermediate_size=24, max_position_embeddings=64, pad_token_id=0)  # fmt: skip
    gpt2 = GPT2Config(vocab_size=len(tokenizer), n_positions=64, n_embd=16, n_layer=1, n_head=2, **ids)
    for name, model in (("vision", ResNet(resnet)), ("text", BertModel(bert)), ("lm", GPT2LMHeadModel(gpt2))):
        model.save_pretrained(place / name)
        tokenizer.save_pretrained(place / name)
    CLIPImageProcessorPil(size={"height": 64, "width": 64}, do_center_crop=False).save_pretrained(place / "vision")
    return {name: str(place / name) for name in ("vision", "text", "lm")}


def scorer_setup(
    folders: dict[str, str], cache: Path, train: list[str] | None = None, **training: Any
) -> TrainingSetup:
    new = {"vision": folders["vision"], "text": folders["text"], "visual": "cells", "grid": 2, "projection": 8}
    table = {
        "name": "parts",
        "data": DATA,
        "scorer": {"new": {**new, "hidden": 6}, **({"train": train} if train else {})},
        "objective": {"kind": "contrastive"},
        "training": {"steps": 2, "batch_size": 10, "learning_rate": 1e-2, **training},
    }
    return TrainingSetup(check_recipe(table, "test"), lambda name: name, store=FeatureStore(cache))


def trained(setup: TrainingSetup) -> dict[str, bool]:
    """Takes two steps; returns whether each part's weights moved."""
    parts = setup.learner.parts()
    before = {name: [p.detach().clone() for p in part.parameters()] for name, part in parts.items()}
    data, objective = setup.training_set(), objective_of(setup)
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    optimizer = make_optimizer(trainable, setup.recipe.training)
    scheduler = make_scheduler(optimizer, setup.recipe.training)
    setup.learner.model.train()
    for step in range(2):
        train_step(setup, data, objective, trainable, optimizer, scheduler, step)
    return {
        name: any(not torch.equal(old, new) for old, new in zip(before[name], part.parameters(), strict=True))
        for name, part in parts.items()
    }


def test_by_default_the_heads_learn_from_kept_features(folders: dict[str, str], tmp_path: Path) -> None:
    setup = scorer_setup(folders, tmp_path)
    assert not setup.reads_pixels
    assert trained(setup) == {"vision": False, "text": False, "heads": True}
    scorer = setup.learner
    assert isinstance(scorer, PartsScorer) and scorer.kept_texts
    features = scorer.text_features(WORDS)
    scorer.kept_texts = None
    assert torch.allclose(scorer.text_features(WORDS), features, atol=1e-6)


def test_a_second_scorer_reads_the_texts_that_the_first_one_encoded(
    folders: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = (scorer_setup(folders, tmp_path).learner for _ in range(2))
    assert isinstance(first, PartsScorer) and isinstance(again, PartsScorer) and again.text_rows is not None
    read: list[int] = []
    encoder = PartsModel.read

    def counted(model: PartsModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        read.append(len(ids))
        return encoder(model, ids, mask)

    monkeypatch.setattr(PartsModel, "read", counted)
    features = first.text_features(WORDS)
    assert read == [1, 1], "one at a time, so that no text depends on the others"
    assert torch.equal(again.text_features([*WORDS[::-1], WORDS[0]]), features[[1, 0, 0]])
    assert read == [1, 1], "encoded again"
    another = scorer_setup(folders, tmp_path).learner
    assert isinstance(another, PartsScorer)
    with torch.no_grad():
        another.model.text_model.embeddings.word_embeddings.weight.mul_(2)
    another.text_features(WORDS)
    assert read == [1, 1, 1, 1], "texts of another encoder were taken"


def test_kept_texts_do_not_depend_on_which_were_read_before(folders: dict[str, str], tmp_path: Path) -> None:
    texts = [*WORDS, "a", f"{WORDS[0]} and {WORDS[1]}"]
    rows = []
    histories = {"at once": [texts], "some": [texts[2:3], texts], "single": [[text] for text in texts]}
    for name, history in histories.items():
        scorer = scorer_setup(folders, tmp_path / name).learner
        assert isinstance(scorer, PartsScorer)
        for some in history:
            scorer.text_features(some)
        rows.append(scorer.kept_texts or {})
    for other in rows[1:]:
        assert len(other) == len(texts) and all(torch.equal(rows[0][key], row) for key, row in other.items())


def test_parts_that_are_named_learn_at_rates_of_their_own(folders: dict[str, str], tmp_path: Path) -> None:
    setup = scorer_setup(folders, tmp_path, ["vision", "heads"], learning_rates={"vision": 1e-4})
    assert trained(setup) == {"vision": True, "text": False, "heads": True}
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    groups = make_optimizer(trainable, setup.recipe.training).param_groups
    rates = {id(p): group["lr"] for group in groups for p in group["params"]}
    parts = setup.learner.parts()
    assert {rates[id(p)] for p in parts["vision"].parameters()} == {1e-4}
    assert {rates[id(p)] for p in parts["heads"].parameters()} == {1e-2}
    with pytest.raises(UsageError, match=r"training.learning_rates contains 'text',"):
        make_optimizer(trainable, setup.recipe.training.model_copy(update={"learning_rates": {"text": 1e-4}}))


def test_scorer_and_captioner_share_the_rows_of_one_encoder(folders: dict[str, str], tmp_path: Path) -> None:
    """The features of a scorer from parts are those of its pixels, made of rows that a captioner's encoder left."""
    scorer = scorer_setup(folders, tmp_path / "a").learner
    assert isinstance(scorer, PartsScorer)
    scorer.model.eval()
    items = []
    for number in range(5):
        Image.new("RGB", (40, 30), (number * 50, 20, 200)).save(tmp_path / f"{number}.png")
        items.append(Item(str(number), FilePicture(tmp_path / f"{number}.png")))
    store = FeatureStore(tmp_path / "cache")
    rows = store.features(items, captioner_setup(folders, tmp_path / "b").captioner.encoder)
    assert rows.shape == (5, 4, 16)
    asked: list[int] = []
    pixels = scorer.pixels
    scorer.pixels = lambda images: asked.append(len(images)) or pixels(images)  # type: ignore[method-assign, func-returns-value]
    found = np.asarray(store.features(items, scorer.encoder))
    assert asked == []
    with torch.no_grad():
        direct = torch.cat([scorer.image_features(pixels([item.picture.image()])) for item in items])
    assert np.allclose(found, direct.numpy(), atol=1e-5)


def test_saved_and_loaded_it_is_the_same_scorer(folders: dict[str, str], tmp_path: Path) -> None:
    scorer = scorer_setup(folders, tmp_path / "cache").learner
    scorer.save(tmp_path / "model")
    again = load_scorer(str(tmp_path / "model"))
    assert isinstance(again, PartsScorer)
    assert torch.allclose(again.text_features(WORDS), scorer.text_features(WORDS), atol=1e-6)
    picture = again.pixels([Image.new("RGB", (50, 40), "red")])
    scorer.model.eval()
    assert torch.allclose(again.image_features(picture), scorer.image_features(picture), atol=1e-6)


@pytest.mark.parametrize(
    ("new", "told"),
    [
        ({"vision": "a"}, "vision and text must be set together; name"),
        ({"vision": "a", "text": "b", "width": 8}, "width applies only to a scorer trained from scratch"),
        ({"hidden": 8}, "hidden applies only to a scorer built from existing"),
    ],
)
def test_keys_without_effect_are_errors(new: dict[str, Any], told: str) -> None:
    table = {"name": "x", "data": DATA, "scorer": {"new": new}, "objective": {"kind": "contrastive"}}
    with pytest.raises(UsageError, match=told):
        check_recipe({**table, "training": {"steps": 1, "learning_rate": 1e-3}}, "test")


def captioner_setup(folders: dict[str, str], cache: Path, **captioner: Any) -> TrainingSetup:
    new = {"vision": folders["vision"], "language_model": folders["lm"], "visual": "cells", "grid": 2}
    table = {
        "name": "caps",
        "data": DATA,
        "captioner": {"new": {**new, "mapper": "linear"}, **captioner},
        "objective": {"kind": "mle"},
        "training": {"steps": 2, "batch_size": 10, "learning_rate": 1e-2},
        "validation": {"select": "loss"},
    }
    return TrainingSetup(check_recipe(table, "test"), lambda name: name, store=FeatureStore(cache))


def test_a_captioner_starts_from_a_language_model(folders: dict[str, str], tmp_path: Path) -> None:
    setup = captioner_setup(folders, tmp_path / "cache")
    start = GPT2LMHeadModel.from_pretrained(folders["lm"])
    state = setup.captioner.model.language_model.state_dict()
    assert all(torch.equal(state[name], weight) for name, weight in start.state_dict().items())
    assert trained(setup) == {"vision": False, "mapper": True, "language_model": True}
    setup.captioner.save(tmp_path / "model")
    pictures = [Image.new("RGB", (50, 40), "red")]
    greedy = Decoding(kind="greedy", max_tokens=5)
    setup.captioner.model.eval()
    assert load_captioner(str(tmp_path / "model")).caption(pictures, greedy) == setup.captioner.caption(
        pictures, greedy
    )


def test_a_convolutional_encoder_at_another_size_is_saved_and_loaded(folders: dict[str, str], tmp_path: Path) -> None:
    """``NAME?pixels=48``: the captioner reads pictures of that size again."""
    torch.manual_seed(0)
    EfficientNetLite(EfficientNetLiteConfig(width=0.1, depth=0.1, image_size=64, grid=2)).save_pretrained(
        tmp_path / "lite"
    )
    CLIPImageProcessorPil(size={"height": 64, "width": 64}, do_center_crop=False).save_pretrained(tmp_path / "lite")
    setup = captioner_setup({**folders, "vision": f"{tmp_path / 'lite'}?pixels=48"}, tmp_path / "cache")
    setup.captioner.save(tmp_path / "model")
    assert load_captioner(str(tmp_path / "model")).pixels([Image.new("RGB", (50, 40))]).shape[-2:] == (48, 48)


def test_a_language_model_that_exists_learns_in_low_rank(folders: dict[str, str], tmp_path: Path) -> None:
    setup = captioner_setup(
        folders, tmp_path, lora={"rank": 2, "modules": ["c_attn"]}, train=["mapper", "language_model"]
    )
    model = setup.captioner.model.language_model
    whole = {name: p.detach().clone() for name, p in model.named_parameters() if ".lora_" not in name}
    assert len(whole) < len(list(model.named_parameters()))
    assert trained(setup)["language_model"]
    assert all(torch.equal(p, whole[name]) for name, p in model.named_parameters() if name in whole)
