"""New words: the old ones stay as they were, the new ones are learned, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_blip import save_blip

from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.new_words import add_words
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import NewRecurrent
from tellapart.training.build import TrainingSetup
from tellapart.training.new_models import build_recurrent
from tellapart.training.runs import train

NEW = ["a zebra and a yak", "a zebra", "a zebra, a yak", "a gnu"]


def test_old_words_stay_and_new_ones_begin_as_the_unknown_one(tiny_captioner: Path) -> None:
    before, after = load_captioner(str(tiny_captioner)), load_captioner(str(tiny_captioner))
    assert add_words(after, NEW, 2) == 2  # zebra and yak; "a" and "and" are known, "gnu" is too rare
    old = len(before.tokenizer)
    assert after.tokenizer.convert_ids_to_tokens([old, old + 1]) == ["zebra", "yak"]
    assert after.tokenizer.decode(after.tokenize(["A yak and a zebra."])[0]) == "a yak and a zebra <end>"
    visual = before._encode_frozen(torch.rand(2, 3, 32, 32))
    tokens_RT, valid_RT = before.pad(before.tokenize(["a red circle", "a blue square"]))
    was, now = before.logits(visual, tokens_RT, valid_RT), after.logits(visual, tokens_RT, valid_RT)
    assert torch.equal(now[..., :old], was)
    unknown = before.tokenizer.unk_token_id
    assert torch.equal(now[..., old:], was[..., [unknown, unknown]])


def test_a_captioner_of_an_lstm_grows_too(tiny_scorer: Path, tmp_path: Path) -> None:
    from tellapart.captioners.vision_encoders import load_vision

    new = NewRecurrent(kind="recurrent", vision=str(tiny_scorer), width=8, min_count=1)
    captioner = build_recurrent(new, ["a red circle"], "tiny", *load_vision(str(tiny_scorer)))
    assert add_words(captioner, NEW, 2) == 2
    captioner.save(tmp_path)
    loaded = load_captioner(str(tmp_path))
    assert len(loaded.tokenizer) == len(captioner.tokenizer) == loaded.model.config.vocab_size


def test_a_run_learns_them(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """Alt-text says what the plain domain does not; what is learned is saved, and loads."""
    name = tiny_recipe["captioner"]["name"]
    data = {key: f"scenes:alt?n=60&split={key}" for key in ("train", "validation")}
    recipe = check_recipe(
        {**tiny_recipe, "data": data, "objective": {"kind": "mle"}, "captioner": {"name": name, "new_words": 3}}, "test"
    )
    run = train(recipe, tmp_path / "run", evaluate=False)
    captioner = load_captioner(str(run.folder))
    assert {"stock", "photo", "illustration"} <= set(captioner.tokenizer.get_vocab())
    assert generate_captions(captioner, captioner._encode_frozen(torch.rand(1, 3, 32, 32)), Decoding(max_tokens=4))


def test_words_that_cannot_be_learned_are_told_before_any_training(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="new_words adds words from references"):
        check_recipe({**tiny_recipe, "captioner": {**tiny_recipe["captioner"], "new_words": 2}}, "test")
    (tmp_path / "blip").mkdir()
    save_blip(tmp_path / "blip", ["a", "red", "circle"])
    captioner = {"name": str(tmp_path / "blip"), "new_words": 2}
    recipe = check_recipe({**tiny_recipe, "objective": {"kind": "mle"}, "captioner": captioner}, "test")
    with pytest.raises(UsageError, match=r"\) splits unknown words into known pieces; remove new_words"):
        _ = TrainingSetup(recipe, lambda given: given).learner
