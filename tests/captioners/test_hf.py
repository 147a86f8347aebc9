"""The generic adapter: every family, tiny, from its own files, through the path that a user takes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from families import FAMILIES, WITH_TORCHVISION
from PIL import Image

from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.families import INSTRUCTION
from tellapart.captioners.lora import add_lora, is_lora_weight
from tellapart.captioners.transformers import Hf
from tellapart.data import open_data
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.features.store import FeatureStore
from tellapart.features.views import EncodedView, make_view
from tellapart.models.decoding import Decoding
from tellapart.objectives.caption_log_probs import token_log_probs
from tellapart.objectives.self_distillation import Describer, SelfDistillation
from tellapart.recipe.reading import check_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.objective import objective_of
from tellapart.training.optimizer import make_optimizer, make_scheduler
from tellapart.training.runs import upstream
from tellapart.training.step import train_step
from tellapart.training.trainable import TrainableParts
from tellapart.types import Batch, Item

DRAWS = ("model.vqmodel.", "model.generation_")  # Janus' networks that make pictures; captions do not pass through them
QUICK = ("blip2", "git", "paligemma", "llava_next", "qwen2_5_vl", "smolvlm", "florence2")


SHAPED = ["smolvlm", "idefics3", "llava_next", "llava_onevision", "internvl", "florence2"]
SHAPED += ["aya_vision", "ovis2", "deepseek_vl", "janus", "gemma4"]
LOADED = FAMILIES | (WITH_TORCHVISION if find_spec("torchvision") else {})


@pytest.fixture(scope="module", params=[x if x in QUICK else pytest.param(x, marks=pytest.mark.long) for x in LOADED])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return LOADED[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed")
@pytest.mark.parametrize("family", WITH_TORCHVISION)
def test_a_family_that_needs_torchvision_says_so_in_one_line(family: str, tmp_path: Path) -> None:
    with pytest.raises(
        TellapartError, match=": transformers needs torchvision to process this model's pictures, but it"
    ):
        load_captioner(str(WITH_TORCHVISION[family](tmp_path)))


@pytest.fixture
def captioner(folder: Path) -> Hf:
    found = load_captioner(str(folder))
    assert isinstance(found, Hf)
    return found


def pictures() -> list[Image.Image]:
    """Of several shapes, none of one colour."""
    shapes, made = [(40, 30), (30, 64), (33, 33)], []
    for number, (width, height) in enumerate(shapes):
        noise = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(number))
        made.append(Image.fromarray(noise.to(torch.uint8).numpy()))
    return made


DECODINGS = [
    Decoding(max_tokens=7),
    Decoding(kind="sample", samples=3, max_tokens=7),
    Decoding(kind="beam", beams=3, samples=2, max_tokens=7),
]


@pytest.mark.long
@pytest.mark.parametrize("decoding", DECODINGS, ids=lambda decoding: decoding.kind)
def test_what_is_generated_is_what_teacher_forcing_scores(captioner: Hf, decoding: Decoding) -> None:
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    torch.manual_seed(0)
    told = captioner.generate(visual, decoding)
    assert len(told.texts) == len(told.tokens_RT) == 3 * decoding.samples and len(set(told.texts)) > 1
    logits_RTV = captioner.logits(visual, told.tokens_RT, told.valid_RT).detach()
    assert not torch.isin(told.tokens_RT, torch.tensor(captioner.places)).any()
    written = scores_as_written(captioner, visual, told)
    log_p_RT = token_log_probs(logits_RTV, told.tokens_RT)
    assert torch.allclose(log_p_RT[told.valid_RT], written[told.valid_RT], atol=1e-4)
    if decoding.kind == "greedy":
        logits_RTV[..., captioner.places] = -torch.inf
        assert torch.equal(logits_RTV.argmax(-1)[told.valid_RT], told.tokens_RT[told.valid_RT])


def scores_as_written(captioner: Hf, visual: torch.Tensor, told: Any) -> torch.Tensor:
    """log p of each token, the next word asked for one word at a time, each picture alone: no padding at all."""
    rows = []
    for row in range(len(told.tokens_RT)):
        own, count = visual[row // told.samples][None], int(told.valid_RT[row].sum())
        log_p_T = torch.zeros(told.tokens_RT.shape[1])
        for t in range(count):
            read = told.tokens_RT[row : row + 1, : t + 1]
            log_p_T[t] = token_log_probs(captioner.logits(own, read, torch.ones_like(read).bool()), read)[0, t]
        rows.append(log_p_T.detach())
    return torch.stack(rows)


def test_it_captions_as_transformers_does(captioner: Hf) -> None:
    """From the pixels, by the model's own ``generate``, one picture at a time."""
    image = pictures()[0]
    ours = captioner.generate(captioner.encode(captioner.pixels([image])), Decoding(max_tokens=7)).tokens_RT[0]
    read = captioner.processor(images=[image], return_tensors="pt")
    told = dict(captioner.before.of_blank)
    if captioner.packed is not None and captioner.packed.grids:
        picture = [captioner.places[0]] * (int(read["image_grid_thw"].prod()) // 4)
        ids = torch.tensor([captioner.before.with_picture(picture)])
        told = {"input_ids": ids, "mm_token_type_ids": (ids == captioner.places[0]).int()}
    elif captioner.packed is not None:
        told, read = as_transformers_reads(captioner, image), {}
    read = {name: x for name, x in read.items() if name in captioner.accepted}
    told = {name: x for name, x in told.items() if name in captioner.accepted}
    settings = {"max_new_tokens": 7, "do_sample": False, "suppress_tokens": captioner.places or None}
    ends = {"eos_token_id": captioner.ends, "pad_token_id": captioner.tokenizer.pad_token_id}
    theirs = captioner.model.generate(**told, **read, **settings, **ends)[0]
    if captioner.is_encoder_decoder:  # where the decoder starts, and BART's first token of every caption
        before = 2 if captioner.model.config.model_type == "florence2" else 1
    else:
        before = told["input_ids"].shape[1]
    written = theirs[before:]
    assert written.tolist() == ours[: len(written)].tolist() and len(written) > 0


def as_transformers_reads(captioner: Hf, image: Image.Image) -> dict[str, torch.Tensor]:
    """The inputs of a model, as the documentation of transformers has them made."""
    if not captioner.whole.chat_template:
        return dict(captioner.whole(images=[image], text=[captioner.before.written], return_tensors="pt"))
    asked = [{"type": "image", "image": image}, {"type": "text", "text": INSTRUCTION}]
    turns = [{"role": "user", "content": asked}]
    settings = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
    return dict(captioner.whole.apply_chat_template(turns, **settings))


@pytest.mark.long
@pytest.mark.parametrize("family", SHAPED)
def test_photos_of_different_shapes_in_one_batch_are_captioned_as_transformers_does(
    family: str, tmp_path: Path
) -> None:
    """As published, with its tiles: photos of 3:2, 1:2, 5:1 and a square together, and each alone by transformers."""
    captioner: Any = load_captioner(str(FAMILIES[family](tmp_path)))
    sizes = [(150, 100), (60, 120), (250, 50), (100, 100)]
    noise = [torch.randint(0, 256, (h, w, 3), generator=torch.Generator().manual_seed(w)) for w, h in sizes]
    photos = [Image.fromarray(each.to(torch.uint8).numpy()) for each in noise]
    visual = captioner.encode(captioner.pixels(photos))
    told = captioner.generate(visual, Decoding(max_tokens=12))
    if captioner.packed is not None:
        tensors = captioner.packed.unpack(captioner.pixels(photos))
        if family == "gemma4":  # pads its patches to one number
            assert len({own["input_ids"].numel() for own in tensors}) > 1, "the test needs several numbers of tokens"
        else:
            assert len({own["pixel_values"].shape for own in tensors}) > 1, "the test needs several numbers of tiles"
    for row, photo in enumerate(photos):
        read = {name: x for name, x in as_transformers_reads(captioner, photo).items() if name in captioner.accepted}
        settings = {"suppress_tokens": captioner.places, "pad_token_id": captioner.tokenizer.pad_token_id}
        settings |= {"max_new_tokens": 12 + captioner.is_encoder_decoder, "eos_token_id": captioner.ends}
        theirs = captioner.model.generate(**read, do_sample=False, **settings)[0]
        begun = theirs[2:] if captioner.is_encoder_decoder else theirs[read["input_ids"].shape[1] :]
        assert captioner.tokenizer.decode(begun, skip_special_tokens=True) == told.texts[row]


def test_the_tested_families_are_those_of_the_docs(tmp_path: Path) -> None:
    """Prints the table of docs/captioners.md from what was loaded."""
    rows = {}
    for family, made in LOADED.items():
        one: Any = load_captioner(str(made(tmp_path / family)))
        lengths = one.input_lengths(one.encode(one.pixels(pictures()))) or [0]
        shapes = "of their own shape" if len(set(lengths)) > 1 else "of one shape"
        if one.packed is not None and one.packed.most_units > 1 and not one.packed.grids:
            shapes = "whole and in tiles"
        runs = "once per image" if one.tower is not None else "in every step"
        asked = f"`{one.layout.prompt}`" if one.layout.prompt else "nothing"
        rows[one.model.config.model_type] = f"| `{one.model.config.model_type}` | {shapes} | {runs} | {asked} |"
    found = Path("docs/captioners.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in found if line in rows.values()] == list(rows.values()), "\n".join(rows.values())


@pytest.mark.long
def test_saved_and_loaded_it_writes_the_same(folder: Path, tmp_path: Path) -> None:
    prompted = "" if folder.name.startswith("vit_gpt2") else "?prompt=a red"
    captioner = load_captioner(f"{folder}{prompted}")
    plain, decoding = load_captioner(str(folder)), Decoding(kind="beam", beams=2, max_tokens=6)
    told = [generate_captions(one, one.encode(one.pixels(pictures())), decoding) for one in (captioner, plain)]
    captioner.save(tmp_path)
    again = load_captioner(str(tmp_path))
    assert generate_captions(again, again.encode(again.pixels(pictures())), decoding) == told[0]
    assert (told[0] != told[1]) == bool(prompted), "the prompt matters"


def test_its_parts_are_all_of_it(captioner: Hf) -> None:
    parts = captioner.parts()
    assert {"vision", "language_model"} <= set(parts)
    held = {id(parameter) for part in parts.values() for parameter in part.parameters()}
    read = [pair for pair in captioner.model.named_parameters() if not pair[0].startswith(DRAWS)]
    missing = [name for name, parameter in read if id(parameter) not in held]
    assert missing == []


@pytest.mark.long
def test_lora_learns_and_is_merged_when_saved(folder: Path, tmp_path: Path) -> None:
    captioner = load_captioner(str(folder))
    modules = {"git": ["query", "value"], "blip2_t5": ["q", "v"], "vit_gpt2": ["c_attn"]}
    chosen = next((m for name, m in modules.items() if folder.name.startswith(f"{name}0")), ["q_proj", "v_proj"])
    add_lora(captioner, ["language_model"], rank=2, modules=chosen)
    trainable = TrainableParts(captioner, ("language_model",))
    assert trainable.parameters and len(trainable.parameters) == sum(
        is_lora_weight(name) for name, _ in captioner.model.named_parameters()
    )
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    tokens, valid = captioner.pad(captioner.tokenize(["a red dog", "cat near blue house", "a"]))
    before = captioner.logits(visual, tokens, valid).detach()
    with torch.no_grad():
        for name, parameter in captioner.model.named_parameters():
            if ".lora_B" in name:
                parameter.normal_(std=0.3)
    adapted = captioner.logits(visual, tokens, valid).detach()
    captioner.save(tmp_path)
    again = load_captioner(str(tmp_path)).logits(visual, tokens, valid).detach()
    # Rounding errors grow in their tiny encoders; by how much depends on the CPU (1.4e-4 with AVX-512 for llava_next).
    near = 5e-3 if folder.name.startswith("florence2") else 5e-4 if folder.name.startswith("llava_next") else 1e-4
    assert not torch.allclose(adapted, before, atol=1e-2) and torch.allclose(adapted, again, atol=near)


def test_lora_may_stand_beside_the_output_layer(tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(FAMILIES["llava"](tmp_path)))
    visual, tokens = captioner.encode(captioner.pixels(pictures())).detach(), torch.tensor([[5, 6, 7]] * 3)
    add_lora(captioner, ["language_model"], rank=2, modules=["lm_head"])
    before = captioner.logits(visual, tokens, tokens > 0).detach()
    with torch.no_grad():
        captioner.model.lm_head.lora_B["default"].weight.normal_()
    assert not torch.allclose(captioner.logits(visual, tokens, tokens > 0), before, atol=1e-2)


@pytest.mark.parametrize("family", ["blip2", "qwen2_vl", "vit_gpt2"])
def test_a_checkpoints_own_settings_of_generation_are_left_out(family: str, tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(FAMILIES[family](tmp_path)))
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    before = captioner.generate(visual, Decoding(max_tokens=7)).texts
    for owner in (captioner.model, getattr(captioner.model, "language_model", captioner.model)):
        if hasattr(owner, "generation_config"):
            owner.generation_config.repetition_penalty = 9.0
            owner.generation_config.min_new_tokens = 7
    assert captioner.generate(visual, Decoding(max_tokens=7)).texts == before
    assert captioner.model.generation_config.repetition_penalty == 9.0, "and they are saved as they were"


OBJECTIVES = {
    "mle": {"kind": "mle"},
    "smile": {"kind": "smile"},
    "reinforce": {"kind": "reinforce", "decoding": {"kind": "sample", "max_tokens": 5}},
}


@pytest.mark.long
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_step_moves_what_learns_and_nothing_else(folder: Path, objective: str, tiny_recipe: dict[str, Any]) -> None:
    small = {part: f"scenes:plain?n=6&split={part}" for part in ("train", "validation")}
    captioner = {"name": str(folder)}
    training = {**tiny_recipe["training"], "batch_size": 3, "learning_rate": 0.01}
    changes = {"data": small, "captioner": captioner, "objective": OBJECTIVES[objective], "training": training}
    setup = TrainingSetup(check_recipe({**tiny_recipe, **changes}, "test"), upstream)
    data, made = setup.training_set(), objective_of(setup)
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    optimizer = make_optimizer(trainable, setup.recipe.training)
    before = {name: tensor.clone() for name, tensor in setup.learner.model.state_dict().items()}
    setup.learner.model.train()
    scheduler = make_scheduler(optimizer, setup.recipe.training)
    logs = train_step(setup, data, made, trainable, optimizer, scheduler, 0)
    moved = {n for n, tensor in setup.learner.model.state_dict().items() if not torch.equal(tensor, before[n])}
    assert torch.isfinite(torch.tensor(logs["loss"])) and logs["gradient_norm"] > 0
    vision = setup.learner.layout.vision + "."
    assert moved and not any(name.startswith(vision) for name in moved)
    if "mapper" in setup.learner.parts():
        mapper = {id(p) for p in setup.learner.parts()["mapper"].parameters()}
        names = {name for name, p in setup.learner.model.named_parameters() if id(p) in mapper}
        assert moved & names, "the mapper learns though encoding pictures once"


@pytest.mark.long
@pytest.mark.parametrize("family", ["blip2", "git", "llava", "llava_next", "qwen2_5_vl", "vit_gpt2"])
def test_the_vision_tower_learns_from_pixels(family: str, tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    small = {part: f"scenes:plain?n=6&split={part}" for part in ("train", "validation")}
    captioner = {"name": str(FAMILIES[family](tmp_path)), "train": ["vision", "language_model"]}
    training = {**tiny_recipe["training"], "batch_size": 3, "learning_rate": 0.01}
    changes = {"data": small, "captioner": captioner, "objective": OBJECTIVES["reinforce"], "training": training}
    setup = TrainingSetup(check_recipe({**tiny_recipe, **changes}, "test"), upstream)
    data, made = setup.training_set(), objective_of(setup)
    trainable = TrainableParts(setup.learner, setup.trained_parts)
    optimizer = make_optimizer(trainable, setup.recipe.training)
    before = {name: p.clone() for name, p in setup.learner.parts()["vision"].named_parameters()}
    setup.learner.model.train()
    logs = train_step(setup, data, made, trainable, optimizer, make_scheduler(optimizer, setup.recipe.training), 0)
    moved = {n for n, p in setup.learner.parts()["vision"].named_parameters() if not torch.equal(p, before[n])}
    assert logs["gradient_norm"] > 0 and len(moved) > len(before) / 2


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl"])
def test_pictures_keep_their_shapes(family: str, tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(FAMILIES[family](tmp_path)))
    rows = captioner.pixels(pictures())
    tensors = captioner.packed.unpack(rows)
    grids, cells = ([own[name] for own in tensors] for name in ("image_grid_thw", "pixel_values"))
    assert len({tuple(grid[0].tolist()) for grid in grids}) > 1, "the test needs pictures of several shapes"
    assert torch.equal(torch.cat(cells), captioner.processor(images=pictures(), return_tensors="pt")["pixel_values"])
    together = captioner.encode(rows)
    for place, image in enumerate(pictures()):
        assert torch.allclose(captioner.encode(captioner.pixels([image]))[0], together[place], atol=1e-5)


@pytest.mark.long
def test_another_prompt_with_the_same_weights(captioner: Hf, folder: Path) -> None:
    if captioner.model.config.model_type == "vision-encoder-decoder":
        with pytest.raises(UsageError, match="does not accept a prompt; remove prompt"):
            captioner.with_prompt("describe this")
        return
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    before, own = captioner.generate(visual, DECODINGS[0]).texts, captioner.before.written
    asked = captioner.with_prompt("describe this")
    assert asked.model is captioner.model and captioner.with_prompt("") is captioner
    alone = load_captioner(f"{folder}?prompt=describe this").generate(visual, DECODINGS[0])
    assert asked.generate(visual, DECODINGS[0]).texts == alone.texts
    assert asked.output_layer is captioner.output_layer and asked.tower is captioner.tower
    assert captioner.generate(visual, DECODINGS[0]).texts == before and captioner.before.written == own


def test_descriptions_of_pictures_of_several_shapes(captioner: Hf) -> None:
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    cfg = SelfDistillation.Config(
        kind="self_distillation", decoding=Decoding(max_tokens=7), confidence=1e-9, evidence=-99.0
    )
    describer = Describer(captioner, captioner, cfg)
    batch = Batch([Item(str(n), None, ()) for n in range(3)], torch.arange(3), visual)
    beliefs = describer(visual, batch)
    assert len(beliefs) == 3 and all(len(one.words) == len(one.description.words) for one in beliefs)


def test_the_most_tokens_of_a_picture_can_be_set(tmp_path: Path) -> None:
    folder = FAMILIES["qwen2_vl"](tmp_path)
    few: Any = load_captioner(f"{folder}?visual_tokens=4")
    assert few.packed.most_tokens == 4 and max(few.input_lengths(few.pixels(pictures()))) <= 4
    assert few.encoder.fingerprint != load_captioner(str(folder)).encoder.fingerprint


def test_the_words_for_a_picture_in_a_caption_are_no_picture(tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(FAMILIES["llava"](tmp_path)))
    assert captioner.tokenize(["a <image> dog"]) == captioner.tokenize(["a dog"])


@pytest.mark.parametrize("family", ["qwen2_vl"])
def test_a_picture_of_an_impossible_shape_is_one_that_cannot_be_read(family: str, tmp_path: Path) -> None:
    captioner: Any = load_captioner(str(FAMILIES[family](tmp_path)))
    with pytest.raises(PictureError, match="a picture of 1200×4: "):
        captioner.pixels([Image.new("RGB", (1200, 4))])


def test_more_visual_tokens_than_a_saved_model_makes_are_refused(tmp_path: Path) -> None:
    folder = FAMILIES["qwen2_vl"](tmp_path)
    load_captioner(f"{folder}?visual_tokens=12").save(tmp_path / "saved")
    assert load_captioner(f"{tmp_path / 'saved'}?visual_tokens=8").packed.most_tokens == 8  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match=": visual_tokens is 64, but its saved processor returns at most 12; load the"):
        load_captioner(f"{tmp_path / 'saved'}?visual_tokens=64")


@pytest.mark.parametrize("name", ["qwen3_vl", "qwen2_5_vl"])
def test_a_tower_of_several_outputs_keeps_nothing_that_is_only_its_input(name: str, tmp_path: Path) -> None:
    """Rows of pixels, padded to the largest picture, are a hundred times the photos."""
    captioner, store = load_captioner(str(FAMILIES[name](tmp_path / "model"))), FeatureStore(tmp_path / "cache")
    (tmp_path / "photos").mkdir()
    for number in range(5):
        Image.new("RGB", (30, 20), (number * 40, 9, 9)).save(tmp_path / "photos" / f"{number}.png")
    items = open_data(str(tmp_path / "photos"))
    view = make_view(captioner, store, progress=False)
    kept = EncodedView(lambda: captioner.encoder, FeatureStore(tmp_path / "b"))
    assert len(view.readable(items)) == 5
    assert np.array_equal(np.asarray(view.rows(items)[:]), np.asarray(kept.rows(items)))
    used = sum(use.bytes for use in store.usage())
    assert used == 5 if name == "qwen3_vl" else used > 5_000
