"""What a page says of each word, against its definition worked out one caption at a time."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_blip import save_blip

from tellapart.captioners import Captioner, load_captioner
from tellapart.evaluation.word_values import add_word_values
from tellapart.language.removed_claim import neutral
from tellapart.language.words import content_words
from tellapart.rewards.paid_words import Price
from tellapart.scorers import Scorer, load_scorer

IDS = ["a", "b", "c", "d"]
WORDS = ["a", "red", "dog", "##s", "on", "the", "grass", "bri", "##ck", "and", "cat"]
CAPTIONS = {
    "before": ["a dog on the grass", "", "a cat"],
    "after": ["red dogs on the brick", "a red cat and a zebra", "a red dog and a cat on the grass"],
}


@pytest.fixture(scope="module")
def scorer(tiny_scorer: Path) -> Scorer:
    return load_scorer(str(tiny_scorer))


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Captioner:
    captioner = load_captioner(str(save_blip(tmp_path_factory.mktemp("blip"), WORDS)), precision="fp32")
    captioner.model.eval()
    return captioner


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    """3:2, as cameras take them."""
    return [Image.new("RGB", (90, 60), (80 * k, 120, 200 - 60 * k)) for k in range(len(IDS))]


@pytest.fixture(scope="module")
def features_ND(scorer: Scorer, photos: list[Image.Image]) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(scorer.image_features(scorer.pixels(photos)))


@pytest.fixture(scope="module")
def visual(blip: Captioner, photos: list[Image.Image]) -> np.ndarray:
    with torch.no_grad():
        return np.asarray(blip.encode(blip.pixels(photos)).float())


def gallery_of(captions: dict[str, list[str]]) -> dict[str, Any]:
    """Three sets: a target, and every other picture as a look-alike."""
    return {
        "sets": [
            {
                "target": target,
                "candidates": [target, *(key for key in IDS if key != target)],
                "systems": {name: {"caption": texts[place]} for name, texts in captions.items()},
            }
            for place, target in enumerate(IDS[:3])
        ]
    }


def log_p(scorer: Scorer, text: str, features_ND: np.ndarray, target: int, among: list[int]) -> float:
    """log p(target | text) by the scorer."""
    cosine_N = (scorer.text_features([text]).detach().numpy() @ features_ND.T)[0]
    logit_K = scorer.scale * cosine_N[among]
    return float(scorer.scale * cosine_N[target] - logit_K.max() - np.log(np.exp(logit_K - logit_K.max()).sum()))


def token_log_p(blip: Captioner, seen: torch.Tensor, text: str) -> torch.Tensor:
    tokens_1T, valid_1T = blip.pad(blip.tokenize([text]))
    with torch.no_grad():
        scores_TV = blip.logits(seen[None], tokens_1T, valid_1T)[0].log_softmax(-1)
    return scores_TV.gather(1, tokens_1T[0][:, None])[:, 0]


def test_worth_and_belief_are_those_of_one_word_at_a_time(
    scorer: Scorer, blip: Captioner, features_ND: np.ndarray, visual: np.ndarray
) -> None:
    sets = gallery_of(CAPTIONS)
    add_word_values(sets, IDS, scorer, features_ND, blip, visual)
    for target, entry in enumerate(sets["sets"]):
        for name, answer in entry["systems"].items():
            text = CAPTIONS[name][target]
            assert answer["caption"] == text
            words = {(w.start, w.end): w for w in content_words(text) if "zebra" not in text[w.start : w.end]}
            assert [tuple(found[:2]) for found in answer["words"]] == list(words)
            for start, end, worth, belief in answer["words"]:
                changed = neutral(text, words[start, end])
                fall = {
                    pool: log_p(scorer, text, features_ND, target, among)
                    - log_p(scorer, changed, features_ND, target, among)
                    for pool, among in (("near", [0, 1, 2, 3]), ("far", [0, 1, 2]))
                }
                assert worth == pytest.approx(fall["near"], abs=2e-3)
                assert 0 <= belief <= 1
    # red dog ##s on the bri ##ck: "dogs" is two tokens
    text, seen = "red dogs on the brick", torch.from_numpy(visual[:3])
    own, average = (token_log_p(blip, one, text)[1:3].sum() for one in (seen[0], seen.mean(0)))
    far = log_p(scorer, text, features_ND, 0, [0, 1, 2]) - log_p(
        scorer, "red thing on the brick", features_ND, 0, [0, 1, 2]
    )
    evidence = float(own + 0.5 * (own - average)) + Price().truth * far
    expected = 1 / (1 + math.exp(-Price().slope * (evidence - Price().offset)))
    assert sets["sets"][0]["systems"]["after"]["words"][1][3] == pytest.approx(expected, abs=2e-3)


def test_one_set_has_nothing_to_be_compared_with(
    scorer: Scorer, blip: Captioner, features_ND: np.ndarray, visual: np.ndarray
) -> None:
    sets = gallery_of(CAPTIONS)
    sets["sets"] = sets["sets"][:1]
    add_word_values(sets, IDS, scorer, features_ND, blip, visual)
    assert "words" not in sets["sets"][0]["systems"]["after"]
