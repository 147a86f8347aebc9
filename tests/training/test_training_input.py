"""What a model learns from: whole references, and the pixels that captioning and evaluation see."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from captioners.families import FAMILIES
from PIL import Image
from scorers.test_families import save as save_scorer
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.fingerprint import content_of
from tellapart.training.objective import objective_of
from tellapart.training.runs import train, upstream
from tellapart.training.validation import Validator

WORDS = ("a", "red", "circle", "above", "the", "blue", "square")


def photos(folder: Path, reference: str = "a red dog", count: int = 4) -> str:
    """Pictures of shape 3:2 and 2:3 with a reference each, as a JSONL file."""
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(0)
    lines = []
    for n in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 9, 3) if n % 2 else (9, 6, 3), dtype=np.uint8))
        coarse.resize((90, 60) if n % 2 else (60, 90), Image.Resampling.BICUBIC).save(folder / f"{n}.png")
        lines.append(json.dumps({"image": f"{n}.png", "captions": [reference]}))
    (folder / "photos.jsonl").write_text("\n".join(lines) + "\n")
    return str(folder / "photos.jsonl")


def setup_of(recipe: dict[str, Any], **changes: Any) -> TrainingSetup:
    return TrainingSetup(check_recipe({**recipe, **changes}, "test"), upstream)


def mle(recipe: dict[str, Any], data: str, **training: Any) -> dict[str, Any]:
    training = {**recipe["training"], "batch_size": 2, "steps": 2, **training}
    data_table = {"train": data, "validation": data}
    validation = {**recipe["validation"], "select": "loss"}
    return {**recipe, "data": data_table, "objective": {"kind": "mle"}, "training": training, "validation": validation}


def test_a_reference_of_sixty_words_is_learned_to_its_end(
    tiny_recipe: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    setup = setup_of(mle(tiny_recipe, photos(tmp_path / "p", " ".join(WORDS[n % 7] for n in range(60)))))
    batch = setup.training_set().batch(0)
    assert batch.tokens_RT is not None and batch.tokens_RT.shape == (2, 61)
    assert batch.tokens_RT[:, -1].tolist() == [setup.learner.end] * 2
    assert len(Validator(setup).token_rows[0]) == 61
    assert "are cut" not in capsys.readouterr().err


def test_what_is_cut_is_counted_and_said(
    tiny_recipe: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = photos(tmp_path / "p", " ".join(WORDS[n % 7] for n in range(80)))
    room = load_captioner(tiny_recipe["captioner"]["name"]).max_caption_tokens
    assert room == 63, "64 positions, of which the prefix takes 2, and the last token is not read"
    for limit, expected in ((None, room), (12, 12)):
        batch = setup_of(mle(tiny_recipe, data, max_reference_tokens=limit)).training_set().batch(0)
        assert batch.tokens_RT is not None and batch.tokens_RT.shape[1] == expected
        told = capsys.readouterr().err
        assert f"4 of 4 training references exceed {expected} tokens and are truncated" in told
        assert ("raise training.max_reference_tokens" in told) == (limit is not None)
    with pytest.raises(UsageError, match=r"training.max_reference_tokens is 64, but .* supports at most 63"):
        setup_of(mle(tiny_recipe, data, max_reference_tokens=64)).training_set()
    train(check_recipe(mle(tiny_recipe, data, max_reference_tokens=12), "test"), tmp_path / "run", evaluate=False)
    assert "4 validation references exceed 12 tokens and are truncated" in capsys.readouterr().err


def test_blip_learns_sixty_words_behind_its_prompt_from_its_own_pixels(
    tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    folder = save_blip(tmp_path, [*WORDS, "picture", "of"], positions=72)
    data = photos(tmp_path / "p", " ".join(WORDS[n % 7] for n in range(60)))
    captioner = {"name": f"{folder}?prompt=a picture of ", "train": ["vision", "language_model"]}
    setup = setup_of(mle(tiny_recipe, data), captioner=captioner)
    assert setup.learner.max_caption_tokens == 72 - 4 + 1
    batch = setup.training_set().batch(0)
    assert batch.tokens_RT is not None and batch.tokens_RT[:, -1].tolist() == [setup.learner.end] * 2
    assert batch.tokens_RT.shape[1] == 61
    found, wanted = training_and_test_features(setup)
    assert torch.allclose(found, wanted, atol=1e-3) and setup.pixels.as_bytes
    loss = objective_of(setup)(setup.learner, replace(batch, visual=found)).value
    assert bool(torch.isfinite(loss))


def test_max_reference_tokens_where_it_has_no_effect_is_refused(tiny_recipe: dict[str, Any]) -> None:
    training = {**tiny_recipe["training"], "max_reference_tokens": 20}
    with pytest.raises(UsageError, match="no effect with objective 'reinforce', which generates its own captions"):
        check_recipe({**tiny_recipe, "training": training}, "test")
    plain = check_recipe(tiny_recipe, "test")
    table = {**tiny_recipe, "training": {**tiny_recipe["training"], "max_reference_tokens": None}}
    assert content_of(check_recipe(table, "test")).fingerprint == content_of(plain).fingerprint, (
        "the default leaves older runs valid"
    )


@pytest.mark.parametrize("family", ["blip2", "git", "llava_next", "paligemma", "qwen2_vl", "vit_gpt2"])
def test_the_longest_caption_of_each_family_fits(family: str, tmp_path: Path) -> None:
    captioner = load_captioner(str(FAMILIES[family](tmp_path)))
    room = captioner.max_caption_tokens
    assert room is not None and room > 0
    (row,) = captioner.tokenize(["red dog " * room])
    assert len(row) == room and captioner.cut_texts == 1
    tokens_RT, valid_RT = captioner.pad([row])
    image = Image.new("RGB", (90, 60), "red")
    with torch.no_grad():
        assert captioner.hidden(captioner.encode(captioner.pixels([image])), tokens_RT, valid_RT).shape[1] == room


def training_and_test_features(setup: TrainingSetup) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the same pictures in the same order: from a training batch, and as evaluation encodes them."""
    batch = setup.training_set().batch(0)
    learner = setup.learner
    learner.model.eval()
    encode = learner.image_features if setup.recipe.trains == "scorer" else learner.encode
    with torch.no_grad():
        found = encode(batch.visual).float()
    return found, torch.from_numpy(np.array(setup.store.features(batch.items, learner.encoder)))


@pytest.mark.long
@pytest.mark.parametrize("family", ["blip2", "llava", "llava_next", "qwen2_vl", "vit_gpt2"])
def test_a_vision_encoder_learns_from_the_pixels_that_captioning_sees(
    family: str, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    """On 3:2 pictures: squashed ones are another picture."""
    captioner = {"name": str(FAMILIES[family](tmp_path)), "train": ["vision", "language_model"]}
    setup = setup_of(mle(tiny_recipe, photos(tmp_path / "p")), captioner=captioner)
    found, wanted = training_and_test_features(setup)
    assert torch.allclose(found, wanted, atol=1e-3)
    assert setup.pixels.as_bytes == (family not in ("qwen2_vl", "llava_next"))
    validation = Validator(setup)
    validated = validation.encode_pixels(validation.pictures, setup.learner.encode)
    captioned = setup.store.features(setup.validation_items, setup.learner.encoder)
    assert np.allclose(validated.detach().numpy(), captioned, atol=1e-3)


@pytest.mark.parametrize("family", ["clip", "siglip", "siglip2-naflex"])
def test_a_scorer_learns_from_the_pixels_that_scoring_sees(
    family: str, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    recipe = mle(tiny_recipe, photos(tmp_path / "p", "a red circle"))
    del recipe["captioner"], recipe["validation"]
    setup = setup_of(recipe, scorer={"name": str(save_scorer(family, tmp_path))}, objective={"kind": "contrastive"})
    found, wanted = training_and_test_features(setup)
    assert torch.allclose(found, wanted, atol=1e-3)
    if "naflex" in family:
        training = {**recipe["training"], "augment": "crop"}
        cropped = {**recipe, "training": training, "scorer": {"name": str(tmp_path)}}
        with pytest.raises(UsageError, match=r"training.augment requires that all pictures have the same shape"):
            setup_of(cropped, objective={"kind": "contrastive"}).training_set()


def test_references_are_cleaned_as_blip_learns_them(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """In training and in the loss of validation; metrics keep people's captions as they are."""
    data = photos(tmp_path / "p", 'A RED circle... (above) "the" square; it\'s #1 ' + "red " * 40)
    setup = setup_of(mle(tiny_recipe, data))
    cleaned = setup_of({**mle(tiny_recipe, data), "data": {"train": data, "validation": data, "clean": "blip"}})
    words = "a red circle above the square it's 1 " + "red " * 22
    assert [item.references for item in cleaned.train_items] == [(words.strip(),)] * 4
    assert cleaned.validation_items[0].references == setup.train_items[0].references
    (wanted,) = cleaned.learner.tokenize([words.strip()])
    batch = cleaned.training_set().batch(0)
    assert batch.tokens_RT is not None and batch.tokens_RT[0].tolist() == list(wanted)
    assert Validator(cleaned).token_rows[0] == list(wanted) != Validator(setup).token_rows[0]
    only = mle(tiny_recipe, photos(tmp_path / "q", "..."))
    with pytest.raises(UsageError, match="4 of 4 pictures have no reference"):
        setup_of({**only, "data": {**only["data"], "clean": "blip"}}).training_set()


def test_blips_augmentation_reads_the_pictures_themselves(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """Of 3:2 pictures parts of the usual proportions, at every step others; validation sees whole pictures."""
    (tmp_path / "blip").mkdir()
    blip = str(save_blip(tmp_path / "blip", list(WORDS), positions=64))
    recipe = mle(tiny_recipe, photos(tmp_path / "p"), augment="blip")
    setup = setup_of(recipe, captioner={"name": blip, "train": ["vision", "language_model"]})
    data = setup.training_set()
    first, again, later = (data.batch(step).visual for step in (0, 0, 2))
    assert torch.equal(first, again) and not torch.equal(first, later)
    plain = setup_of({**recipe, "training": {**recipe["training"], "augment": "none"}},
                     captioner={"name": blip, "train": ["vision", "language_model"]})  # fmt: skip
    assert plain.training_set().batch(0).visual.shape == first.shape
    assert not torch.allclose(plain.training_set().batch(0).visual, first)
    assert np.array_equal(setup.visual(setup.validation_items)[:2], plain.visual(plain.validation_items)[:2])


def test_a_picture_that_the_scorer_cannot_read_is_left_out_beside_features_from_files(
    tiny_recipe: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The captioner reads a file of features, and the scorer that validates the picture itself."""
    data = photos(tmp_path / "p")
    whole = (tmp_path / "p/2.png").read_bytes()
    (tmp_path / "p/2.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "regions").mkdir()
    for item in open_data(data):
        np.save(tmp_path / "regions" / f"{item.id}.npy", np.ones((3, 8), np.float32))
    new = {"kind": "recurrent", "attention": True, "width": 8, "min_count": 1}
    captioner = {"new": new, "features": str(tmp_path / "regions")}
    setup = setup_of(mle(tiny_recipe, data), captioner=captioner)
    assert [Path(item.id).stem for item in setup.validation_items] == ["0", "1", "3"]
    assert "1 of 4 pictures could not be read" in capsys.readouterr().err
