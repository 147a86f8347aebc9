"""Paper 4's captioner: an LSTM behind features, with and without attention to regions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, ConvNextImageProcessorPil, ResNetConfig, ResNetModel

from benchmarks.transformers_generate import generating, generation_config
from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.recurrent import Recurrent, RecurrentModel, regions
from tellapart.captioners.vision_encoders import load_vision
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import NewRecurrent
from tellapart.training.build import TrainingSetup
from tellapart.training.loop import fit
from tellapart.training.new_models import build_recurrent
from tellapart.training.run_folder import Run
from tellapart.training.runs import train, upstream

TEXTS = ["a red dog runs on the green grass", "two cats near a blue house", "the small ball on a table"]
WIDTH = 6


def made(attention: bool, scale: float = 6.0, **changes: Any) -> Recurrent:
    """One with random weights, large ones, so that its captions differ."""
    torch.manual_seed(3)
    new = NewRecurrent(kind="recurrent", attention=attention, width=16, min_count=1, **changes)
    captioner = build_recurrent(new, TEXTS, "tiny", width=WIDTH)
    with torch.no_grad():
        for parameter in captioner.model.parameters():
            parameter.mul_(scale)
    captioner.model.eval()
    return captioner


@pytest.fixture(params=[False, True], ids=["pooled", "attention"])
def captioner(request: pytest.FixtureRequest) -> Recurrent:
    return made(request.param)


def visual(pictures: int = 4, places: int = 5) -> torch.Tensor:
    return torch.randn(pictures, places, WIDTH, generator=torch.Generator().manual_seed(1))


def test_what_is_generated_is_what_teacher_forcing_scores(captioner: Recurrent) -> None:
    """Greedy takes the likeliest word of the scores; beam search's own sum of log-probabilities is theirs too."""
    seen = visual()
    told = captioner.generate(seen, Decoding(max_tokens=7))
    logits_RTV = captioner.logits(seen, told.tokens_RT, told.valid_RT)
    assert (logits_RTV.argmax(-1) == told.tokens_RT)[told.valid_RT].all()
    assert len(set(told.texts)) > 1
    values, there = captioner.model.look(seen)
    config = generation_config(Decoding(kind="beam", beams=3, max_tokens=7), captioner.tokenizer, [captioner.end])
    config.return_dict_in_generate = config.output_scores = True
    config.length_penalty = 0.0
    start = torch.full((4, 1), captioner.tokenizer.bos_token_id)
    beam: Any = generating(captioner.model).generate(start, values=values, there=there, generation_config=config)
    tokens_RT = beam.sequences[:, 1:]
    valid_RT = (tokens_RT == captioner.end).long().cumsum(1) - (tokens_RT == captioner.end).long() == 0
    log_p_RT = captioner.logits(seen, tokens_RT, valid_RT).log_softmax(-1).gather(-1, tokens_RT[..., None])[..., 0]
    assert torch.allclose(beam.sequences_scores, (log_p_RT * valid_RT).sum(1), atol=1e-4)


def test_samples_of_a_picture_lie_side_by_side(captioner: Recurrent) -> None:
    seen, tokens = visual(3), torch.tensor([[5, 6, 7]] * 6)
    together = captioner.logits(seen, tokens, tokens > 0)
    alone = captioner.logits(seen[1:2], tokens[:1], tokens[:1] > 0)
    assert torch.allclose(together[2:4], alone.expand(2, -1, -1), atol=1e-5)
    assert not torch.allclose(together[0], together[2], atol=1e-3)
    told = captioner.generate(seen, Decoding(kind="sample", samples=4, max_tokens=5))
    assert len(told.texts) == 12 and told.samples == 4


def test_a_score_sees_only_the_words_before_it(captioner: Recurrent) -> None:
    a, b = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[5, 6, 9, 8]])
    first, second = (captioner.logits(visual(1), x, x > 0) for x in (a, b))
    assert torch.allclose(first[:, :3], second[:, :3]) and not torch.allclose(first[:, 3], second[:, 3], atol=1e-4)


def test_without_attention_it_starts_from_the_mapped_mean() -> None:
    """Paper 4, section 4.3, written out with torch's own LSTM cell."""
    captioner, seen, tokens = made(False), visual(2), torch.tensor([[5, 6, 7], [8, 4, 3]])
    model = captioner.model
    h, c = model.mapper(seen.mean(1)), torch.zeros(2, 16)
    cell = torch.nn.LSTMCell(16, 16)
    cell.load_state_dict(
        {key.removesuffix("_l0"): value for key, value in model.language_model.lstm.state_dict().items()}
    )
    read = torch.cat([torch.full((2, 1), captioner.tokenizer.bos_token_id), tokens[:, :-1]], dim=1)
    for t in range(3):
        h, c = cell(model.language_model.embed(read[:, t]), (h, c))
        expected = model.language_model.head(h)
        assert torch.allclose(captioner.logits(seen, tokens, tokens > 0)[:, t], expected, atol=1e-5)


def test_rows_of_zeros_are_not_regions(captioner: Recurrent) -> None:
    """Pictures with few regions may stand beside pictures with many."""
    tokens = torch.tensor([[5, 6, 7]])
    alone = captioner.logits(visual(1, 3), tokens, tokens > 0)
    padded = torch.nn.functional.pad(visual(1, 3), (0, 0, 0, 4))
    assert torch.allclose(captioner.logits(padded, tokens, tokens > 0), alone, atol=1e-5)
    assert not torch.allclose(captioner.logits(visual(1, 4), tokens, tokens > 0), alone, atol=1e-3)
    black = captioner.logits(torch.zeros(1, 3, WIDTH), tokens, tokens > 0)
    assert torch.isfinite(black).all()


def test_attention_chooses_among_regions_and_the_mean_does_not() -> None:
    """Two sets of regions with one mean are one picture to the first captioner and two to the second."""
    seen, tokens = visual(1, 4), torch.tensor([[5, 6, 7]])
    other = seen.mean(1, keepdim=True).expand(-1, 4, -1)
    for attention in (False, True):
        captioner = made(attention)
        a, b = (captioner.logits(x, tokens, tokens > 0) for x in (seen, other))
        assert torch.allclose(a, b, atol=1e-4) != attention


def test_frames_of_a_clip_are_pooled() -> None:
    """B×F×D is the mean over frames (paper 4, section 5.1), and frames with cells are all cells."""
    captioner, tokens = made(False), torch.tensor([[5, 6, 7]])
    frames_BFPD = torch.randn(1, 3, 4, WIDTH)
    assert regions(frames_BFPD)[0].shape == (1, 12, WIDTH) and regions(visual(2, 1)[:, 0])[0].shape == (2, 1, WIDTH)
    by_frame = captioner.logits(frames_BFPD.mean(2), tokens, tokens > 0)
    assert torch.allclose(captioner.logits(frames_BFPD.mean((1, 2)), tokens, tokens > 0), by_frame, atol=1e-4)
    assert torch.allclose(captioner.logits(frames_BFPD, tokens, tokens > 0), by_frame, atol=1e-4)


def test_saved_and_loaded_it_says_the_same(captioner: Recurrent, tmp_path: Path) -> None:
    captioner.save(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "recurrent_captioner"
    again = load_captioner(str(tmp_path))
    assert isinstance(AutoModel.from_pretrained(tmp_path), RecurrentModel)
    decoding = Decoding(kind="beam", beams=3, max_tokens=7)
    assert generate_captions(again, visual(), decoding) == generate_captions(captioner, visual(), decoding)
    assert again.model.config.bos_token_id == captioner.tokenizer.bos_token_id
    with pytest.raises(UsageError, match="has no vision encoder and reads features from files; in a"):
        _ = again.encoder


def test_a_clip_is_its_frames(tiny_scorer: Path, tmp_path: Path) -> None:
    """Pooled: the mean over the frames, kept as one row. With attention: the cells of all of them."""
    items = list(open_data("scenes:plain?n=2&frames=4"))
    for attention in (False, True):
        new = NewRecurrent(kind="recurrent", vision=str(tiny_scorer), attention=attention, width=16, min_count=1)
        captioner = build_recurrent(new, TEXTS, "tiny", *load_vision(str(tiny_scorer)))
        captioner.frames = 3
        captioner.model.eval()
        found = FeatureStore(tmp_path / "cache").features(items, captioner.encoder, progress=False)
        for item, row in zip(items, torch.from_numpy(np.array(found)), strict=True):
            with torch.no_grad():
                frames = captioner.encode(captioner.pixels(item.truth.frames(3)))
            assert torch.allclose(row, frames.flatten(0, 1) if attention else frames.mean(0), atol=1e-5)
        captioner.save(tmp_path / str(attention))
        assert load_captioner(str(tmp_path / str(attention))).frames == 3
        assert len(generate_captions(captioner, found, Decoding(max_tokens=5))) == 2


# --- behind a vision encoder


@pytest.fixture(scope="module")
def tiny_resnet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a ResNet as transformers saves it."""
    folder = tmp_path_factory.mktemp("resnet")
    torch.manual_seed(0)
    config = ResNetConfig(embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], layer_type="bottleneck")
    ResNetModel(config).save_pretrained(folder)
    ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=1.0).save_pretrained(folder)
    return folder


def test_a_resnet_is_pooled_over_space(tiny_resnet: Path) -> None:
    vision, processor = load_vision(str(tiny_resnet))
    images = [scene.picture.image() for scene in open_data("scenes:plain?n=2")]
    for attention in (False, True):
        new = NewRecurrent(kind="recurrent", vision="x", attention=attention, width=16, min_count=1)
        captioner = build_recurrent(new, TEXTS, "tiny", vision, processor)
        captioner.model.eval()
        pixels = captioner.pixels(images)
        with torch.no_grad():
            grid = vision.eval()(pixels).last_hidden_state
            found = captioner.encode(pixels)
        expected = grid.flatten(2).transpose(1, 2) if attention else grid.mean((2, 3))
        assert torch.allclose(found, expected, atol=1e-5)


def recipe_of(tiny_scorer: Path, vision: Path, objective: dict[str, Any], **captioner: Any) -> Any:
    table = {
        "name": "recurrent",
        "data": {
            part: f"scenes:plain?n={n}&split={part}" for part, n in (("train", 40), ("validation", 20), ("test", 20))
        },
        "captioner": {"new": {"kind": "recurrent", "vision": str(vision), "width": 16, "min_count": 1}, **captioner},
        "scorer": {"name": str(tiny_scorer)},
        "objective": objective,
        "training": {"steps": 4, "batch_size": 20, "learning_rate": 1e-2, "log_every": 1, "checkpoint_every": 2},
        "validation": {"every": 2, "decoding": {"max_tokens": 6}},
        "evaluation": {"lookalike": 5, "gallery": 2, "decoding": {"max_tokens": 6}},
    }
    return check_recipe(table, "test")


SAMPLED = {"kind": "sample", "samples": 3, "max_tokens": 6}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "mle": {"kind": "mle"},
    "smile": {"kind": "smile"},
    "reinforce": {"kind": "reinforce", "decoding": SAMPLED},
    "exploration": {
        "kind": "reinforce", "decoding": SAMPLED, "rewards": [{"kind": "cider"}], "baseline": "greedy",
        "length_normalization": "none", "exploration": {}, "entropy": 0.01,
    },
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_trains_stops_and_goes_on(
    tiny_scorer: Path, tiny_resnet: Path, tmp_path: Path, objective: str, attention: bool
) -> None:
    """Four steps at once are two steps, a stop, and two more; what learns is the linear layer and the LSTM."""
    new = {"kind": "recurrent", "vision": str(tiny_resnet), "attention": attention, "width": 16, "min_count": 1}
    recipe = recipe_of(tiny_scorer, tiny_resnet, OBJECTIVES[objective], new=new)
    setup, run = TrainingSetup(recipe, upstream), Run(tmp_path / "whole", recipe)
    before = {name: tensor.clone() for name, tensor in setup.learner.model.state_dict().items()}
    run.stamp("cpu")
    fit(setup, run)
    moved = {
        name.split(".")[0] for name, x in setup.learner.model.state_dict().items() if not torch.equal(x, before[name])
    }
    assert moved == {"mapper", "language_model"}

    class Stopped(Exception):
        pass

    second, halfway = TrainingSetup(recipe, upstream), Run(tmp_path / "parts", recipe)
    halfway.stamp("cpu")
    plain, saves = halfway.save, []

    def save(*arguments: Any) -> None:
        plain(*arguments)
        saves.append(1)
        if len(saves) == 2:
            raise Stopped

    halfway.save = save  # type: ignore[method-assign]
    with pytest.raises(Stopped):
        fit(second, halfway)
    fit(third := TrainingSetup(recipe, upstream), Run(tmp_path / "parts", recipe))
    ends = (setup.learner.model.state_dict(), third.learner.model.state_dict())
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    texts = [
        generate_captions(load_captioner(str(tmp_path / name)), visual_of(setup), Decoding())
        for name in ("whole", "parts")
    ]
    assert texts[0] == texts[1]


def visual_of(setup: TrainingSetup) -> Any:
    return np.asarray(setup.visual(setup.validation_items))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["mle", "smile"])
def test_the_loss_falls(tiny_scorer: Path, tmp_path: Path, kind: str) -> None:
    """Behind the vision tower of a scorer this time."""
    recipe = recipe_of(tiny_scorer, tiny_scorer, {"kind": kind})
    training = recipe.training.model_copy(update={"steps": 30})
    run = train(recipe.model_copy(update={"training": training}), tmp_path / "run", evaluate=False)
    losses = [json.loads(line)["loss"] for line in run.log_path.read_text().splitlines() if '"event"' not in line]
    assert np.mean(losses[-3:]) < 0.8 * np.mean(losses[:3])


def test_what_cannot_be_meant_is_one_line(tiny_scorer: Path) -> None:
    for captioner, told in (
        (
            {"new": {"kind": "recurrent"}},
            "captioner: kind = 'recurrent' requires either new.vision = 'MODEL' or features =",
        ),
        (
            {"new": {"kind": "recurrent", "vision": "x"}, "features": "y"},
            "captioner: kind = 'recurrent' requires either",
        ),
        ({"new": {"vision": "x"}, "features": "y"}, "captioner: features requires captioner.name or a new"),
        ({"new": {"kind": "lstm"}}, "unknown captioner.new 'lstm'; known: clipcap, recurrent"),
        ({"new": {"kind": "recurrent", "vison": "x"}}, "unknown key 'captioner.new.vison'; did you mean 'vision'?"),
    ):
        with pytest.raises(UsageError) as caught:
            recipe_of(tiny_scorer, tiny_scorer, {"kind": "mle"}, **captioner)
        assert str(caught.value).startswith(f"test: {told}")


def test_the_model_type_is_known_to_transformers(tmp_path: Path) -> None:
    made(True).save(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).attention is True
