"""Captioners that look at several frames of a clip."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from real_data import DATA
from tiny_blip import save_blip

from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.blip import Blip
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.inference.caption import caption_pictures
from tellapart.models.decoding import Decoding
from tellapart.objectives.caption_log_probs import token_log_probs
from tellapart.recipe.reading import check_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.runs import train
from tellapart.types import Item

GREEDY = Decoding(max_tokens=6)


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BLIP that looks at three frames, saved and to be loaded as such."""
    words = ["a", "star", "moves", "left", "red", "blue", "on", "grass"]
    captioner = load_captioner(str(save_blip(tmp_path_factory.mktemp("plain"), words)))
    assert captioner.frames == 1
    captioner.frames = 3
    for weight in captioner.model.parameters():
        if weight.ndim > 1:  # transformers' own start is so near 0 that all pictures look alike
            torch.nn.init.normal_(weight, std=0.3)
    folder = tmp_path_factory.mktemp("video")
    captioner.save(folder)
    return folder


@pytest.fixture
def items() -> list[Item]:
    """Three clips and a picture that stands still."""
    return [*open_data("scenes:plain?frames=6&n=3"), *open_data("scenes:plain?n=1")]


def by_hand(captioner: Any, item: Item) -> torch.Tensor:
    """The features of three frames of it, one by one: 3×P×D."""
    scene = item.truth
    frames = [scene.image()] * 3 if scene.length == 1 else [scene.frames()[place] for place in (1, 3, 5)]
    return torch.cat([captioner.encode(captioner.pixels([frame])) for frame in frames]).detach()


def test_blip_reads_the_tokens_of_all_frames_one_frame_after_the_other(
    blip: Path, items: list[Item], tmp_path: Path
) -> None:
    captioner: Any = load_captioner(str(blip))
    assert isinstance(captioner, Blip) and captioner.frames == 3
    visual = torch.tensor(np.array(FeatureStore(tmp_path).features(items, captioner.encoder, progress=False)))
    expected = torch.stack([by_hand(captioner, item).flatten(0, 1) for item in items])
    assert visual.shape == (4, 3 * 5, 16)
    torch.testing.assert_close(visual, expected, atol=1e-5, rtol=1e-5)
    tokens, valid = captioner.pad(captioner.tokenize(["a red star moves left", "a star", "blue on grass", "star"]))
    start = torch.tensor([captioner.start] * 4)
    theirs = captioner.model.text_decoder(
        input_ids=torch.cat([start, tokens], 1), encoder_hidden_states=expected, is_decoder=True
    ).logits[:, len(captioner.start) - 1 : -1]
    ours = captioner.logits(visual, tokens, valid)
    torch.testing.assert_close(ours[valid], theirs[valid], atol=1e-4, rtol=1e-4)
    middle = torch.stack([by_hand(captioner, item)[1] for item in items])
    assert not torch.allclose(captioner.logits(middle, tokens, valid), ours, atol=1e-4), "the other frames count"


def test_a_video_captioner_learns_and_says_the_same_when_loaded_again(
    blip: Path, items: list[Item], tmp_path: Path
) -> None:
    captioner: Any = load_captioner(str(blip))
    visual = torch.tensor(np.array(FeatureStore(tmp_path / "c").features(items, captioner.encoder, progress=False)))
    tokens, valid = captioner.pad(captioner.tokenize(["a red star moves left"] * 4))
    learner = torch.optim.Adam(captioner.model.parameters(), 1e-2)
    losses = []
    for _ in range(4):
        loss = -token_log_probs(captioner.logits(visual, tokens, valid), tokens)[valid].mean()
        learner.zero_grad()
        loss.backward()
        learner.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    captioner.save(tmp_path / "saved")
    again = load_captioner(str(tmp_path / "saved"))
    assert again.frames == 3
    assert generate_captions(again, visual, GREEDY) == generate_captions(captioner, visual, GREEDY)


def test_frames_of_one_vector_are_averaged(tiny_captioner: Path, items: list[Item], tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(tiny_captioner))
    plain = captioner.encoder.fingerprint
    captioner.frames = 3
    assert captioner.encoder.fingerprint != plain
    visual = FeatureStore(tmp_path).features(items, captioner.encoder, progress=False)
    expected = torch.stack([by_hand(captioner, item).mean(0) for item in items])
    np.testing.assert_allclose(visual, expected.numpy(), atol=1e-5)
    vectors_FD = torch.arange(6.0).reshape(3, 2)
    assert captioner.join_frames(vectors_FD).tolist() == [2.0, 3.0]
    assert captioner.join_frames(vectors_FD[:1]).tolist() == [0.0, 1.0]


def test_a_folder_of_clips_and_pictures_is_captioned_and_broken_clips_are_named(blip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mixed"
    folder.mkdir()
    for number, scene in enumerate(open_data("scenes:plain?frames=5&n=2")):
        first, *others = scene.truth.frames()
        first.save(folder / f"clip{number}.gif", save_all=True, append_images=others, duration=100)
    Image.new("RGB", (40, 30), "red").save(folder / "still.png")
    (folder / "broken.gif").write_bytes(b"GIF89a")
    (folder / "broken.mp4").write_bytes(b"no clip")
    captioner = load_captioner(str(blip))
    files = []
    for name, store in (("kept", FeatureStore(tmp_path / "cache")), ("forgotten", None)):
        out, dataset = tmp_path / f"{name}.jsonl", open_data(f"folder:{folder}")
        summary = caption_pictures(captioner, dataset, out, decoding=GREEDY, store=store, progress=False)
        assert summary.written == 3 and sorted(Path(name).name for name, _ in summary.skipped) == [
            "broken.gif",
            "broken.mp4",
        ]
        files.append(out.read_text())
    assert files[0] == files[1] and '"clip1.gif"' in files[0]


@pytest.mark.data
@pytest.mark.skipif(not (DATA / "clips").is_dir(), reason="no clips in ../shared/data")
def test_real_clips_are_captioned(blip: Path, tmp_path: Path) -> None:
    pytest.importorskip("av")
    (tmp_path / "clips").mkdir()
    for name in ("video9971.mp4", "WTf5EgVY5uU_124_128.avi", "UXs3eq68ZjE_250_255.gif"):
        (tmp_path / "clips" / name).symlink_to(DATA / "clips" / name)
    out, dataset = tmp_path / "said.jsonl", open_data(str(tmp_path / "clips"))
    summary = caption_pictures(load_captioner(str(blip)), dataset, out, decoding=GREEDY, progress=False)
    said = [json.loads(line) for line in out.read_text().splitlines()]
    assert summary.written == 3 and not summary.skipped
    assert {row["id"] for row in said if "id" in row} == {item.id for item in dataset}


def test_a_captioner_of_single_pictures_says_so(blip: Path) -> None:
    class Single(Blip):
        sees_clips = False

    told = load_captioner(str(blip))
    single = Single(told.model, told.tokenizer, told.processor, "single")
    assert single.frames == 1 and single.encoder.frames == 1
    with pytest.raises(UsageError, match="single reads single pictures, not 4 frames; remove"):
        single.frames = 4


@pytest.mark.long
def test_self_retrieval_among_clips_from_a_recipe_to_the_gallery(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """A new captioner that sees the cells of two frames learns, is saved so, and its page shows frames."""
    scorer = tiny_recipe["scorer"]["name"]
    new = {"vision": scorer, "visual": "cells", "mapper": "linear", "width": 16, "layers": 1, "heads": 2}
    table = {
        **tiny_recipe,
        "data": {key: f"{spec}&frames=4&family=3" for key, spec in tiny_recipe["data"].items()},
        "captioner": {"new": new, "frames": 2, "train": ["mapper", "language_model"]},
        "training": {**tiny_recipe["training"], "steps": 2},
        "objective": {**tiny_recipe["objective"], "kl": 0.0},
    }
    train(check_recipe(table, "test"), tmp_path / "run")
    captioner = load_captioner(str(tmp_path / "run"))
    assert captioner.frames == 2
    item = open_data(table["data"]["test"])[0]
    cells = captioner.encode(captioner.pixels([item.truth.frames()[1]])).shape[1]
    assert captioner.encoder.join(captioner.encode(captioner.pixels(item.truth.frames(2)))).shape[0] == 2 * cells  # type: ignore[misc]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert "clips:mean-of-8-frames" in json.dumps(results)
    sheet = Image.open(next((tmp_path / "run" / "gallery").iterdir()))
    assert sheet.size == (129, 129)


def test_a_vision_encoder_does_not_learn_from_clips(blip: Path) -> None:
    table = {
        "name": "x",
        "data": {"train": "scenes:plain?n=4&frames=3", "validation": "scenes:plain?n=4&frames=3"},
        "captioner": {"name": str(blip), "train": ["vision"]},
        "objective": {"kind": "mle"},
        "training": {"steps": 1, "learning_rate": 1e-4},
        "validation": {"select": "loss"},
    }
    with pytest.raises(
        UsageError, match=r"captioner.train contains 'vision', but the captioner reads 3 frames per clip"
    ):
        _ = TrainingSetup(check_recipe(table, "test"), lambda name: name).learner
    chosen = {**table, "captioner": {"name": str(blip), "frames": 1, "train": ["vision"]}}
    assert TrainingSetup(check_recipe(chosen, "test"), lambda name: name).learner.frames == 1
