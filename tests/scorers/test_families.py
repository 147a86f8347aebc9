"""Every family of dual encoders through `load_scorer`: its features are transformers' own; and a user's own scorer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

from tellapart.errors import UsageError
from tellapart.models.word_tokenizer import word_tokenizer
from tellapart.recipe.reading import check_recipe
from tellapart.scorers import Scorer, load_scorer
from tellapart.training.build import TrainingSetup
from tellapart.training.runs import train, truncation_lines, upstream
from tellapart.utils.allowed_code import allow_code

TEXTS = ["a red circle", "two shapes in the sky", "A Red circle", "a large blue star above a small green tree"]
LONG = "a red circle above two shapes in the sky and a large blue star " * 2
FAMILIES = ["clip", "long-clip", "siglip", "siglip2-naflex", "alt-clip"]


def save(family: str, folder: Path) -> Path:
    """A tiny model of a family with random weights, as transformers saves it."""
    import transformers as t

    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = {**small, "image_size": 32, "patch_size": 16}
    positions = 40 if family == "long-clip" else 16
    ends = {"bos_token_id": 1, "eos_token_id": 3, "pad_token_id": 0}
    text = {**small, "vocab_size": 60, "max_position_embeddings": positions, **ends}
    tokenizer: Any = word_tokenizer([*TEXTS, LONG], max_length=16)
    processor: Any = t.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    torch.manual_seed(0)
    model: Any
    if "clip" in family and family != "alt-clip":
        model = t.CLIPModel(t.CLIPConfig(vision_config=vision, text_config=text, projection_dim=8))
    elif family == "alt-clip":  # a RoBERTa reads the text: two of its positions are not for tokens
        text = {**text, "max_position_embeddings": 17, "project_dim": 8, "type_vocab_size": 1}
        model = t.AltCLIPModel(t.AltCLIPConfig(vision_config=vision, text_config=text, projection_dim=8))
    elif family == "siglip":
        model = t.SiglipModel(t.SiglipConfig(vision_config=vision, text_config=text))
        processor = t.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    else:
        vision = {**small, "patch_size": 8, "num_patches": 16}
        model = t.Siglip2Model(t.Siglip2Config(vision_config=vision, text_config=text))
        processor = t.Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16)
        letters = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "▁", *"abcdefghijklmnopqrstuvwxyz"]
        tokenizer = t.Siglip2Tokenizer(vocab={letter: n for n, letter in enumerate(letters)}, model_max_length=16)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(5 if parameter.ndim > 1 else 1)
    for part in (model, tokenizer, processor):
        part.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("family", FAMILIES)
def test_features_are_what_transformers_own_calls_give(family: str, tmp_path: Path) -> None:
    """As the model cards do it: SigLIP reads texts padded to its window and no mask, the others the reverse."""
    scorer = load_scorer(str(save(family, tmp_path)))
    model = AutoModel.from_pretrained(tmp_path).eval()
    tokenizer, processor = (
        AutoTokenizer.from_pretrained(tmp_path),
        AutoImageProcessor.from_pretrained(tmp_path, backend="pil"),
    )
    images = [Image.new("RGB", (50, 30), "red"), Image.effect_noise((20, 44), 80).convert("RGB")]
    texts = [text[:15] for text in TEXTS] if "naflex" in family else TEXTS
    siglip = family.startswith("siglip")
    padding: Any = {"padding": "max_length", "max_length": 16} if siglip else {"padding": True}
    read = tokenizer(texts, return_tensors="pt", **padding)
    told = {"input_ids": read["input_ids"]} if siglip else {k: read[k] for k in ("input_ids", "attention_mask")}
    with torch.no_grad():
        text = F.normalize(model.get_text_features(**told).pooler_output, dim=-1)
        image = F.normalize(
            model.get_image_features(**processor(images=images, return_tensors="pt")).pooler_output, dim=-1
        )
    assert torch.allclose(scorer.text_features(texts), text, atol=1e-5)
    assert torch.allclose(scorer.encoder.encode(scorer.encoder.pixels(images)), image, atol=1e-5)
    assert not torch.allclose(text[0], text[1], atol=1e-3) and not torch.allclose(image[0], image[1], atol=1e-3)
    assert torch.equal(text[0], text[2]), "capitals are made small, by each tokenizer itself"
    assert scorer.scale == pytest.approx(float(model.logit_scale.detach().exp()))


@pytest.mark.parametrize(("family", "window"), [("clip", 16), ("long-clip", 40), ("siglip", 16), ("alt-clip", 16)])
def test_the_window_is_the_models(family: str, window: int, tmp_path: Path) -> None:
    """Tokenizers of long-text CLIPs still say 77 (here 16): what the model reads is what counts."""
    scorer = load_scorer(str(save(family, tmp_path)))
    assert scorer.window == window
    assert torch.isfinite(scorer.text_features([LONG, "a red circle"])).all()
    assert scorer.cut_texts == (window == 16)


def test_padding_goes_to_the_side_that_the_tokenizer_says(tmp_path: Path) -> None:
    """SigLIP's feature is that of the last place, so the side decides what it is."""
    scorer = load_scorer(str(save("siglip", tmp_path)))
    assert scorer.tokenizer.padding_side == "right"
    right, _ = scorer.pad([[1, 5, 6, 3], [1, 7, 3]])
    scorer.tokenizer.padding_side = "left"
    left, valid = scorer.pad([[1, 5, 6, 3], [1, 7, 3]])
    assert right[1].tolist() == [1, 7, 3] + [0] * 13 and left[1].tolist() == [0] * 13 + [1, 7, 3]
    assert left[0, -4:].tolist() == [1, 5, 6, 3] and valid.sum(1).tolist() == [4, 3] and valid[1, -3:].all()
    full, _ = scorer.pad([list(range(1, 17)), [1, 7, 3]])  # the window is 16 tokens
    assert full[0].tolist() == list(range(1, 17)) and full[1].tolist() == left[1].tolist()


@pytest.mark.long
def test_several_scorers_of_different_families_reward_together(
    tiny_recipe: dict[str, Any], tiny_scorer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An average of two, or one after the other; what was longer than a window is said at the end."""
    clip = save("siglip", tmp_path / "siglip")
    decoding = {"kind": "sample", "max_tokens": 20}
    for combine in ("average", "alternate"):
        reward = {"kind": "self_retrieval", "scorers": [str(tiny_scorer), str(clip)], "combine": combine}
        objective = {"kind": "reinforce", "rewards": [reward], "decoding": decoding}
        training = {**tiny_recipe["training"], "steps": 2}
        recipe = check_recipe({**tiny_recipe, "objective": objective, "training": training}, "test")
        run = train(recipe, tmp_path / combine, evaluate=False)
        assert run.trained
        assert f"captions exceed the context window of {clip} (16 tokens) and were truncated" in capsys.readouterr().err


def test_a_users_own_scorer_by_dotted_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_scorer: Path) -> None:
    (tmp_path / "users_scorers.py").write_text(
        "from tellapart.scorers import Scorer, load_scorer\n"
        "class Doubled(Scorer):\n"
        "    @property\n"
        "    def scale(self):\n"
        "        return 2 * super().scale\n"
        "def doubled(device):\n"
        f"    made = load_scorer({str(tiny_scorer)!r}, device)\n"
        "    return Doubled(made.model, made.tokenizer, made.processor, 'doubled')\n"
        "def wrong(device):\n"
        "    return 3\n"
        "def broken(device):\n"
        "    raise KeyError('no such thing')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    allow_code(*(f"users_scorers:{name}" for name in ("doubled", "wrong", "broken", "nobody")), "nowhere_at_all:x")
    made = load_scorer("users_scorers:doubled")
    assert isinstance(made, Scorer) and made.scale == pytest.approx(2 * load_scorer(str(tiny_scorer)).scale)
    for name, told in (
        ("users_scorers:wrong", "scorer 'users_scorers:wrong' returned a int; expected a tellapart.scorers.Scorer"),
        ("users_scorers:broken", "the call (device='cpu') failed: KeyError: 'no such thing'"),
        ("users_scorers:nobody", "scorer 'users_scorers:nobody': module users_scorers has no attribute 'nobody'"),
        ("nowhere_at_all:x", "scorer 'nowhere_at_all:x': no module named 'nowhere_at_all'"),
    ):
        with pytest.raises(UsageError) as caught:
            load_scorer(name)
        assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_takes_a_users_own_scorer(
    tiny_recipe: dict[str, Any], tiny_scorer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run_scorers.py").write_text(
        "from tellapart.scorers import load_scorer\n"
        f"def mine(device):\n    return load_scorer({str(tiny_scorer)!r}, device)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    allow_code("run_scorers:mine")
    setup = TrainingSetup(check_recipe({**tiny_recipe, "scorer": {"name": "run_scorers:mine"}}, "test"), upstream)
    assert setup.scorer is not None
    setup.scorer.text_features(["red " * 200, "a circle"])
    (line,) = truncation_lines(setup.frozen_scorers)
    assert line.startswith("1 captions exceed the context window of")
