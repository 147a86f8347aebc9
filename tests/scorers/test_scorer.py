"""Scorers: real CLIP and SigLIP layouts, features, windows."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_blip import save_blip

from tellapart.errors import TellapartError
from tellapart.recipe.schema import NewScorer
from tellapart.scorers import Scorer, load_scorer
from tellapart.scorers.base import text_window
from tellapart.training.new_models import build_scorer

TEXTS = [
    "a red circle",
    "two shapes in the sky",
    "a red circle",
    "a large blue star above a small green tree on the sand",
]


@pytest.fixture(scope="module")
def scorer() -> Scorer:
    torch.manual_seed(0)
    made = build_scorer(NewScorer(image_size=32, width=4, text_width=16, text_heads=2, projection=8), TEXTS, "tiny")
    made.model.eval()
    return made


def test_features_are_normalised_and_in_order(scorer: Scorer) -> None:
    features = scorer.text_features(TEXTS, batch_size=2)
    assert torch.allclose(features.norm(dim=1), torch.ones(4), atol=1e-5)
    assert torch.equal(features[0], features[2])
    for k, text in enumerate(TEXTS):
        assert torch.allclose(features[k], scorer.text_features([text])[0], atol=1e-5)


@pytest.mark.parametrize("factor", [0.0, 1e30, float("inf")])
def test_features_without_a_direction_are_refused(scorer: Scorer, factor: float) -> None:
    """A projection of zeros, or one that overflows: every picture would match every text alike."""
    scorer = deepcopy(scorer)
    pixels = scorer.pixels([Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")])
    heads = {"texts": scorer.model.text_projection.weight, "pictures": scorer.model.visual_projection.weight}
    encode = {"texts": lambda: scorer.text_features(TEXTS), "pictures": lambda: scorer.encoder.encode(pixels)}
    for what, weight in heads.items():
        weight.data.mul_(factor)
        with pytest.raises(TellapartError, match=f"the features of {what} contain rows of zeros, NaN or infinity,"):
            encode[what]()


def test_padding_to_the_longest_or_to_the_window_gives_the_same_feature(scorer: Scorer) -> None:
    rows = scorer.tokenize(TEXTS)
    short = scorer.row_features(*scorer.pad(rows))
    wide = [torch.nn.functional.pad(x, (0, scorer.window - x.shape[1])) for x in scorer.pad(rows)]
    assert torch.allclose(short, scorer.row_features(*wide), atol=1e-5)


def test_word_order_and_every_word_matter(scorer: Scorer) -> None:
    a, b = scorer.text_features(["a red circle", "circle red a"])
    assert not torch.allclose(a, b, atol=1e-4)


def test_texts_beyond_the_window_are_counted_and_keep_their_end(scorer: Scorer) -> None:
    before = scorer.cut_texts
    rows = scorer.tokenize(["red " * 200, "a circle"])
    assert scorer.cut_texts == before + 1
    assert len(rows[0]) == scorer.window and rows[0][-1] == scorer.tokenizer.eos_token_id


def test_saved_and_loaded_it_is_the_same_scorer(scorer: Scorer, tmp_path: Path) -> None:
    scorer.save(str(tmp_path))  # a text will do, as in `save_pretrained`
    again = load_scorer(str(tmp_path))
    assert again.fingerprint == scorer.fingerprint and again.scale == pytest.approx(scorer.scale)
    assert torch.allclose(again.text_features(TEXTS), scorer.text_features(TEXTS), atol=1e-6)
    image = Image.new("RGB", (50, 40), "red")
    assert torch.allclose(again.encoder.encode(again.pixels([image])), scorer.encoder.encode(scorer.pixels([image])))


def test_other_weights_or_preprocessing_have_another_fingerprint(scorer: Scorer, tmp_path: Path) -> None:
    scorer.save(tmp_path)
    other = load_scorer(str(tmp_path))
    other.processor.image_mean = [0.0, 0.0, 0.0]
    assert other.fingerprint != scorer.fingerprint
    moved = load_scorer(str(tmp_path))
    with torch.no_grad():
        moved.model.logit_scale += 1
    assert moved.fingerprint != scorer.fingerprint


@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_real_dual_encoders_load_from_their_own_layout(family: str, tmp_path: Path) -> None:
    made = dual_encoder(family)
    from tellapart.models.word_tokenizer import word_tokenizer

    tokenizer = word_tokenizer(TEXTS, max_length=16)
    made[0].save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    made[1].save_pretrained(tmp_path)
    scorer = load_scorer(str(tmp_path))
    texts, images = scorer.text_features(TEXTS), scorer.image_features(scorer.pixels([Image.new("RGB", (40, 30))] * 2))
    assert texts.shape == (4, 16) and images.shape == (2, 16)
    assert scorer.fixed_length == (family == "siglip")
    assert scorer.scale == pytest.approx(float(made[0].logit_scale.detach().exp()))


def dual_encoder(family: str) -> Any:
    import transformers as t

    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**small, "image_size": 32, "patch_size": 16}
    text = {
        **small,
        "vocab_size": 40,
        "max_position_embeddings": 16,
        "bos_token_id": 1,
        "eos_token_id": 3,
        "pad_token_id": 0,
    }
    torch.manual_seed(0)
    if family == "clip":
        config = t.CLIPConfig(vision_config=vision, text_config=text, projection_dim=16)
        return t.CLIPModel(config).eval(), t.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size=32)
    config = t.SiglipConfig(vision_config=vision, text_config=text)
    return t.SiglipModel(config).eval(), t.SiglipImageProcessorPil(size={"height": 32, "width": 32})


def test_what_scores_nothing_is_one_line(tiny_captioner: Path) -> None:
    with pytest.raises(TellapartError, match="does not score texts against pictures"):
        load_scorer(str(tiny_captioner))


def test_a_captioner_whose_family_has_a_dual_encoder_is_no_scorer_of_random_weights(tmp_path: Path) -> None:
    """BLIP's captioner loads as a `BlipModel`, whose text tower and projections it does not have."""
    save_blip(tmp_path, ["a", "dog"])
    with pytest.raises(TellapartError, match=r"lacks .* weights of a BlipModel"):
        load_scorer(str(tmp_path))


def test_another_configuration_has_other_features_and_another_name_in_signatures(tmp_path: Path) -> None:
    """CLIPs that were converted with the wrong activation are repaired in config.json alone."""
    from tellapart.models.word_tokenizer import word_tokenizer

    model, processor = dual_encoder("clip")[:2]
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    word_tokenizer(TEXTS, max_length=16).save_pretrained(tmp_path)
    wrong, same = load_scorer(str(tmp_path)), load_scorer(str(tmp_path))
    assert same.encoder.fingerprint == wrong.encoder.fingerprint
    same.save(str(tmp_path / "saved"))
    assert load_scorer(str(tmp_path / "saved")).encoder.fingerprint == wrong.encoder.fingerprint
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["hidden_act"] = "gelu_new"
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert load_scorer(str(tmp_path)).encoder.fingerprint != wrong.encoder.fingerprint


def test_altclip_loses_positions_to_padding_as_roberta_does() -> None:
    text = SimpleNamespace(model_type="altclip_text_model", max_position_embeddings=18, pad_token_id=1)
    model, tokenizer = SimpleNamespace(config=SimpleNamespace(text_config=text)), SimpleNamespace(model_max_length=512)
    assert text_window(model, tokenizer) == 16
