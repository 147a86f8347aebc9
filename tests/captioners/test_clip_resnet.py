"""CLIP's ResNet from its own weights, against the release's arithmetic; and a ClipCap that looks through it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from command_line import Cli
from safetensors.torch import save_file
from test_official import OfficialMlp, pictures, published, save_language
from torch import nn

from tellapart.captioners import load_captioner
from tellapart.captioners.vision_encoders import load_vision
from tellapart.errors import TellapartError, UsageError
from tellapart.models.clip_resnet import ClipResNet, ClipResNetConfig, clip_resnet_from_state

WIDTH, OUT, SIDE = 8, 24, 64  # 256 channels, four heads, a grid of 2 × 2


class OfficialBlock(nn.Module):
    """A stride is `AvgPool2d` before the third convolution and before the shortcut's."""

    def __init__(self, before: int, narrow: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(before, narrow, 1, bias=False), nn.BatchNorm2d(narrow)
        self.conv2, self.bn2 = nn.Conv2d(narrow, narrow, 3, padding=1, bias=False), nn.BatchNorm2d(narrow)
        self.avgpool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv3, self.bn3 = nn.Conv2d(narrow, 4 * narrow, 1, bias=False), nn.BatchNorm2d(4 * narrow)
        self.downsample: Any = None
        if stride > 1 or before != 4 * narrow:
            layers = [nn.AvgPool2d(stride), nn.Conv2d(before, 4 * narrow, 1, bias=False), nn.BatchNorm2d(4 * narrow)]
            self.downsample = nn.Sequential(OrderedDict(zip(("-1", "0", "1"), layers, strict=True)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        new = self.bn1(self.conv1(x)).relu()
        new = self.avgpool(self.bn2(self.conv2(new)).relu())
        return (self.bn3(self.conv3(new)) + (x if self.downsample is None else self.downsample(x))).relu()


class OfficialPool(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        size = 32 * WIDTH
        self.positional_embedding = nn.Parameter(torch.randn((SIDE // 32) ** 2 + 1, size))
        self.k_proj, self.q_proj, self.v_proj = (nn.Linear(size, size) for _ in range(3))
        self.c_proj = nn.Linear(size, OUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(2).permute(2, 0, 1)
        x = torch.cat([x.mean(0, keepdim=True), x]) + self.positional_embedding[:, None]
        bias = torch.cat([self.q_proj.bias, self.k_proj.bias, self.v_proj.bias])
        found, _ = F.multi_head_attention_forward(
            x[:1], x, x, x.shape[-1], x.shape[-1] // 64, None, bias, None, None, False, 0.0,
            self.c_proj.weight, self.c_proj.bias, training=False, need_weights=False, use_separate_proj_weight=True,
            q_proj_weight=self.q_proj.weight, k_proj_weight=self.k_proj.weight, v_proj_weight=self.v_proj.weight,
        )  # fmt: skip
        return found[0]


class OfficialResNet(nn.Module):
    """The program of Radford et al. 2021, with (1, 2, 1, 1) blocks."""

    def __init__(self) -> None:
        super().__init__()
        half = WIDTH // 2
        self.conv1, self.bn1 = nn.Conv2d(3, half, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(half)
        self.conv2, self.bn2 = nn.Conv2d(half, half, 3, padding=1, bias=False), nn.BatchNorm2d(half)
        self.conv3, self.bn3 = nn.Conv2d(half, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH)
        self.layer1 = nn.Sequential(OfficialBlock(WIDTH, WIDTH, 1))
        self.layer2 = nn.Sequential(OfficialBlock(4 * WIDTH, 2 * WIDTH, 2), OfficialBlock(8 * WIDTH, 2 * WIDTH, 1))
        self.layer3 = nn.Sequential(OfficialBlock(8 * WIDTH, 4 * WIDTH, 2))
        self.layer4 = nn.Sequential(OfficialBlock(16 * WIDTH, 8 * WIDTH, 2))
        self.attnpool = OfficialPool()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for conv, norm in ((self.conv1, self.bn1), (self.conv2, self.bn2), (self.conv3, self.bn3)):
            x = norm(conv(x)).relu()
        x = F.avg_pool2d(x, 2)
        return self.attnpool(self.layer4(self.layer3(self.layer2(self.layer1(x)))))


class Clip(nn.Module):
    """The picture's half below ``visual``, and a weight of the other one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.visual, self.logit_scale = OfficialResNet(), nn.Parameter(torch.tensor(4.6))
        for name, buffer in self.named_buffers():
            if "running" in name:
                buffer.uniform_(0.5, 1.5)


@pytest.fixture(scope="module")
def theirs() -> OfficialResNet:
    return Clip().eval().visual


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_language(tmp_path_factory.mktemp("gpt2"))


def test_the_pooled_vector_is_the_releases(theirs: OfficialResNet) -> None:
    """timm 1.0.31's resnet50x4_clip, with these names as its own filter reads them, gives the same at full size (288
    pixels, random weights) to 5e-6: compared on 26 November 2026."""
    model = clip_resnet_from_state(Clip().state_dict())
    assert (model.config.width, model.config.image_size, model.config.hidden_size) == (WIDTH, SIDE, OUT)
    pixels = torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(6))
    with torch.no_grad():
        found = model(pixel_values=pixels)
        assert torch.allclose(found.pooler_output, theirs(pixels), atol=1e-5)
    assert found.last_hidden_state.shape == (3, 4, OUT)


def test_its_defaults_are_rn50x4s() -> None:
    with torch.device("meta"):
        model = ClipResNet(ClipResNetConfig())
    assert sum(each.numel() for each in model.parameters()) == 87_137_080  # timm's count
    assert model.attnpool.c_proj.weight.shape == (640, 2560)
    assert model.attnpool.positional_embedding.shape == (82, 2560)


@pytest.mark.long
@pytest.mark.parametrize("layout", ["weights.pt", "half.pt", "open_clip_model.safetensors", "folder"])
def test_a_clipcap_looks_through_clips_own_resnet(
    layout: str, theirs: OfficialResNet, gpt2: Path, tmp_path: Path, cli: Cli
) -> None:
    whole = published(OfficialMlp(OUT), gpt2, tmp_path / "clipcap.pt")
    state = {key: value.clone() for key, value in Clip().state_dict().items()}
    (tmp_path / "RN").mkdir()
    weights = tmp_path / "RN" / ("open_clip_model.safetensors" if layout == "folder" else layout)
    if weights.suffix == ".pt":
        torch.save({key: value.half() for key, value in state.items()} if layout == "half.pt" else state, weights)
    else:
        save_file(state, weights)
    name = f"{tmp_path}/clipcap.pt?vision={weights.parent if layout == 'folder' else weights}&language_model={gpt2}"
    captioner: Any = load_captioner(name)
    pixels = captioner.pixels(pictures())
    assert pixels.shape == (2, 3, SIDE, SIDE)
    with torch.no_grad():
        features = theirs(pixels)
        assert torch.allclose(captioner.encode(pixels), features, atol=2e-2 if layout == "half.pt" else 1e-5)
        tokens = torch.tensor([[5, 6, 7, 2], [8, 4, 2, 2]])
        expected = whole(features, tokens)[:, 2:-1]
        found = captioner.logits(captioner.encode(pixels), tokens, tokens > 0)
        assert torch.allclose(found, expected, atol=5e-2 if layout == "half.pt" else 1e-4)
    captioner.save(tmp_path / "saved")
    (tmp_path / "photos").mkdir()
    for number, picture in enumerate(pictures()):
        picture.save(tmp_path / "photos" / f"{number}.png")
    told = []
    for which in (name, tmp_path / "saved"):
        done = cli("caption", which, tmp_path / "photos", "-o", tmp_path / "own.jsonl", "--beams", "1", "--overwrite")
        assert done.status == 0, done.err
        told.append([json.loads(line)["caption"] for line in (tmp_path / "own.jsonl").read_text().splitlines()])
    assert told[0] == told[1] and len(told[0]) == 2


def test_a_file_of_something_else_is_told(tmp_path: Path, gpt2: Path) -> None:
    path = tmp_path / "none.pt"
    torch.save({"visual.proj": torch.zeros(2, 2)}, path)
    with pytest.raises(
        TellapartError, match=r"none.pt does not contain a CLIP ResNet .*expected weights under OpenAI's names"
    ):
        load_vision(str(path))
    state = Clip().state_dict()
    del state["visual.layer2.1.conv2.weight"]
    torch.save(state, path)
    with pytest.raises(TellapartError, match=r"\); expected weights under OpenAI's names"):
        load_vision(str(path))
    torch.save(Clip().state_dict(), path)
    assert load_vision(str(path))[1].crop_size["height"] == SIDE
    with pytest.raises(UsageError, match=": CLIP's ResNet requires pictures of one"):
        load_vision(f"{path}?pixels=96")


@pytest.mark.long
def test_openais_file_is_a_program_and_is_refused_with_what_to_type(tmp_path: Path) -> None:
    clip = Clip().eval()
    program = torch.jit.trace_module(clip.visual, {"forward": torch.zeros(1, 3, SIDE, SIDE)})
    path = tmp_path / "RN50x4.pt"
    torch.jit.save(program, path)
    with pytest.raises(TellapartError, match="is a TorchScript program") as error:
        load_vision(str(path))
    typed = re.search(r'run: python -c "(.*)"$', str(error.value))
    assert typed
    subprocess.run([sys.executable, "-c", typed[1]], cwd=tmp_path, check=True)
    state = {f"visual.{key}": value for key, value in torch.load(tmp_path / "RN50x4-weights.pt").items()}
    assert torch.equal(state["visual.conv1.weight"], clip.visual.conv1.weight)
    torch.save(state, tmp_path / "RN50x4-weights.pt")  # OpenAI's program is the whole CLIP, with "visual." in its names
    assert load_vision(str(tmp_path / "RN50x4-weights.pt"))[0].config.hidden_size == OUT
