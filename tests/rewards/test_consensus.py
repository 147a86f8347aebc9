"""The consensus reward against its definition, on the synthetic world `scenes` and on real layouts with 3:2 photos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from captioners.families import FAMILIES
from PIL import Image
from pydantic import ValidationError
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.language.words import content_words
from tellapart.models.decoding import Decoding
from tellapart.rewards.consensus import Consensus
from tellapart.rewards.speaker import Speaker
from tellapart.rewards.start_samples import StartSamples
from tellapart.types import Batch, Item

DRAWN = Decoding(kind="sample", samples=5, temperature=0.8, max_tokens=8)
WORDS = ["a", "red", "dog", "##s", "on", "the", "grass", "bri", "##ck", "and", "cat"]


def batch_of(captioner: Any, pictures: list[Any], *, step: int = 0) -> Batch:
    with torch.no_grad():
        visual = captioner.encode(captioner.pixels(pictures))
    items = [Item(str(k), None) for k in range(len(pictures))]  # type: ignore[arg-type]
    return Batch(items, torch.arange(len(pictures)), visual, step=step)


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    return [Image.effect_noise((90, 60), 30 + 40 * k).convert("RGB") for k in range(3)]


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Any:
    captioner = load_captioner(str(save_blip(tmp_path_factory.mktemp("blip"), WORDS)), precision="fp32")
    captioner.model.eval()
    return captioner


def words_of(text: str) -> set[str]:
    return {text[word.start : word.end] for word in content_words(text)}


def test_a_captions_words_are_counted_in_the_samples_of_its_own_picture(blip: Any, photos: list[Any]) -> None:
    batch = batch_of(blip, photos)
    reward = Consensus(StartSamples(Speaker(blip), DRAWN))
    pool = reward.samples(batch)
    assert len(pool) == 15 and len(set(pool)) > 5
    told = blip.generate(batch.visual, Decoding(kind="sample", samples=2, max_tokens=8))
    told.texts[:] = ["a red dog", "A Cat and a cat on the grass", "red grass", "", "a cat and two dogs", "and a"]
    reward_BS = reward(told, batch)
    assert reward_BS.shape == (3, 2)
    for r, text in enumerate(told.texts):
        own = [words_of(one) for one in pool[r // 2 * 5 : r // 2 * 5 + 5]]
        shares = [sum(word in one for one in own) / 5 for word in words_of(text.lower())]
        assert float(reward_BS.flatten()[r]) == pytest.approx(sum(shares) / max(1, len(shares)))
    assert reward_BS[1, 1] == reward_BS[2, 1] == 0 and 0 < float(reward_BS.max()) <= 1


def test_samples_are_a_pictures_own_and_are_not_those_of_the_rollout(blip: Any, photos: list[Any]) -> None:
    """Whatever stands beside a picture; anew at each step; not by the numbers by which captions are sampled."""
    batch, samples = batch_of(blip, photos), StartSamples(Speaker(blip), DRAWN)
    pool = samples(batch)
    alone = Batch(batch.items[1:2], batch.rows_B[1:2], batch.visual[1:2])
    assert samples(alone) == pool[5:10]
    assert samples(batch_of(blip, photos, step=1)) != pool
    assert blip.generate(batch.visual, DRAWN, batch.seeds).texts != pool


def test_pixels_are_encoded_by_the_start(blip: Any, photos: list[Any]) -> None:
    batch = batch_of(blip, photos)
    seen = Batch(batch.items, batch.rows_B, blip.pixels(photos))
    assert StartSamples(Speaker(blip, pixels=True), DRAWN)(seen) == StartSamples(Speaker(blip), DRAWN)(batch)


def test_pictures_that_keep_their_shapes(tmp_path: Path, photos: list[Any]) -> None:
    """Qwen2-VL's layout: a 3:2 photo and an upright one have different numbers of patches."""
    qwen = load_captioner(str(FAMILIES["qwen2_vl"](tmp_path / "qwen")), precision="fp32")
    qwen.model.eval()
    batch = batch_of(qwen, [photos[0], photos[1].rotate(90, expand=True)])
    told = qwen.generate(batch.visual, Decoding(kind="sample", samples=3, max_tokens=8), batch.seeds)
    reward_BS = Consensus(StartSamples(Speaker(qwen), DRAWN))(told, batch)
    assert reward_BS.shape == (2, 3) and bool(((reward_BS >= 0) & (reward_BS <= 1)).all())


@pytest.mark.parametrize(
    ("decoding", "told"),
    [
        ({"kind": "greedy"}, "decoding is greedy with samples = 1; a consensus needs at least 2 samples, so"),
        ({"kind": "beam", "samples": 4}, "decoding is beam with samples = 4"),
        ({"kind": "sample"}, "decoding is sample with samples = 1"),
        ({"kind": "sample", "samples": 8, "confidence": 0.1}, "decoding.confidence edits captions, but the"),
        ({"kind": "sample", "samples": 8, "paragraphs": True}, "decoding.paragraphs edits captions, but the"),
    ],
)
def test_settings_without_an_effect_are_refused(decoding: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Consensus.Config(kind="consensus", decoding=decoding)  # type: ignore[arg-type]
