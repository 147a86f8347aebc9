"""What a user may get wrong about a captioner: one clear line each."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from families import FAMILIES, LLAMA, decoder, tokenizer
from safetensors.torch import load_file, save_file
from test_official import save_clip
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.captioners.load import parse_options, quoted
from tellapart.errors import TellapartError, UsageError


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return FAMILIES["llava"](tmp_path_factory.mktemp("llava"))


@pytest.fixture
def copy(llava: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(llava, tmp_path / "model"))


def told(name: str, kind: type[Exception] = TellapartError) -> str:
    with pytest.raises(kind) as caught:
        load_captioner(name)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500
    return str(caught.value)


def settings(path: Path, change: dict[str, Any]) -> None:
    """Change a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | change))


def test_a_model_that_is_no_captioner(tmp_path: Path) -> None:
    assert "is a clip model, which is not a supported captioner" in told(str(save_clip(tmp_path)))


def test_a_saved_captioner_of_its_own_takes_no_options(copy: Path) -> None:
    (copy / "tellapart.json").write_text(json.dumps({"made_by": "mine:captioner"}))
    assert "leave '?prompt=a' out" in told(f"{copy}?prompt=a", UsageError)


def test_a_prompt_may_have_any_sign() -> None:
    prompt = "cats & dogs, 100% true, %26?"
    assert parse_options(f"prompt={quoted(prompt)}&frames=3", {"prompt": str, "frames": int}, "x") == {
        "prompt": prompt, "frames": 3,
    }  # fmt: skip


def test_a_model_type_that_transformers_does_not_know(copy: Path) -> None:
    settings(copy / "config.json", {"model_type": "lavla"})
    assert "lavla" in told(str(copy))


def test_weights_that_are_not_there(copy: Path) -> None:
    (copy / "model.safetensors").unlink()
    assert "model.safetensors" in told(str(copy))


def test_weights_that_are_cut(copy: Path) -> None:
    whole = (copy / "model.safetensors").read_bytes()
    (copy / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    assert "expected a captioner" in told(str(copy))


def test_a_hub_name_while_offline() -> None:
    line = told("somebody/llava-of-mine?prompt=hello")
    assert "HF_HUB_OFFLINE is set" in line and "somebody/llava-of-mine" in line


def test_no_processor(copy: Path) -> None:
    for file in (*copy.glob("*processor*.json"),):
        file.unlink()
    assert "expected a captioner" in told(str(copy))


def test_a_processor_of_pictures_of_another_size(copy: Path) -> None:
    file = copy / "processor_config.json"
    whole = json.loads(file.read_text())
    whole["image_processor"] |= {"size": {"shortest_edge": 48}, "crop_size": {"height": 48, "width": 48}}
    file.write_text(json.dumps(whole))
    assert "makes pictures of 48×48 pixels, and its vision encoder reads 32×32" in told(str(copy))


def test_a_processor_that_counts_other_places_for_a_picture(copy: Path) -> None:
    settings(copy / "processor_config.json", {"num_additional_image_tokens": 3})
    captioner = load_captioner(str(copy))
    from PIL import Image

    from tellapart.models.decoding import Decoding

    visual = captioner.encode(captioner.pixels([Image.new("RGB", (32, 32))]))
    for attempt in (
        lambda: captioner.generate(visual.detach(), Decoding(max_tokens=3)),
        lambda: captioner.logits(visual, *captioner.pad([[5, 6]])),
    ):
        with pytest.raises(TellapartError, match="its processor does not fit the model: Image features and image tok"):
            attempt()


def test_a_tokenizer_of_another_model(copy: Path) -> None:
    extra = tuple(f"<word{n}>" for n in range(9))
    tokenizer(LLAMA, extra=("<image>", *extra), before="<s>").save_pretrained(copy)
    assert "its tokenizer has" in told(str(copy))


def test_options_that_it_does_not_have(llava: Path, tiny_captioner: Path) -> None:
    assert "no option 'promt=hi'; did you mean 'prompt'?" in told(f"{llava}?promt=hi", UsageError)
    assert "no option 'prompt'; did you mean 'prompt'?" in told(f"{llava}?prompt", UsageError)
    assert "visual_tokens is a number; found 'many'" in told(f"{llava}?visual_tokens=many", UsageError)
    assert "visual_tokens is 9; its pictures have one shape" in told(f"{llava}?visual_tokens=9", UsageError)
    assert "no option 'promt=hi'; did you mean 'prompt'?" in told(f"{tiny_captioner}?promt=hi", UsageError)


def test_options_without_a_place(tmp_path: Path) -> None:
    folders = [FAMILIES[family](tmp_path / family) for family in ("vit_gpt2", "qwen2_vl")]
    assert "this model reads pictures alone; leave prompt out" in told(f"{folders[0]}?prompt=hi", UsageError)
    assert "visual_tokens is 1; expected at least 4" in told(f"{folders[1]}?visual_tokens=1", UsageError)


def test_a_causal_language_model_is_not_taken_for_a_captioner_of_pictures(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    words = tokenizer(LLAMA)
    made = decoder("llama", words)
    AutoModelForCausalLM.from_config(AutoConfig.for_model(made.pop("model_type"), **made)).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    captioner = load_captioner(str(tmp_path))
    with pytest.raises(UsageError, match="is a language model without pictures"):
        _ = captioner.encoder


@pytest.mark.parametrize("family", ["blip", "llava", "qwen2_vl"])
def test_a_captioner_that_lacks_weights_is_refused(family: str, tmp_path: Path) -> None:
    """Transformers makes them at random, and the captions are noise."""
    folder = Path(save_blip(tmp_path, ["a", "dog"]) if family == "blip" else FAMILIES[family](tmp_path))
    (file,) = folder.glob("*.safetensors")
    weights = load_file(file)
    kept = {name: weight for name, weight in weights.items() if "vision" not in name and "visual" not in name}
    assert 0 < len(kept) < len(weights)
    save_file(kept, file, {"format": "pt"})
    assert re.search(r"lacks \d+ weights of a \w+ \(.*vis.*, …\); expected a whole captioner", told(str(folder)))
