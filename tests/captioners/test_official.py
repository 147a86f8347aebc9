"""Checkpoints in the layouts of their authors, against plain modules written from the papers and the releases."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from command_line import Cli
from families import LLAMA, SMALL, VISION, decoder, tokenizer
from PIL import Image
from tiny_blip import official_blip, write_blip
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    BertTokenizer,
    BlipConfig,
    BlipForConditionalGeneration,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    GPT2Config,
    GPT2LMHeadModel,
    SiglipConfig,
    SiglipImageProcessorPil,
    SiglipModel,
)

from tellapart.captioners import generate_captions, load_captioner
from tellapart.captioners.clipcap import ClipCapConfig, ClipCapModel
from tellapart.captioners.official_blip import BLIP_NAMES, blip_config
from tellapart.captioners.official_clipcap import NAMES, mapper_settings
from tellapart.captioners.published_weights import read_state
from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import Decoding
from tellapart.models.renamed_weights import renamed
from tellapart.objectives.caption_log_probs import token_log_probs

WIDTH, PREFIX, CONSTANTS, LAYERS = 16, 3, 4, 2


# --- ClipCap: the two models that it is made of


def save_clip(folder: Path, kind: str = "clip") -> Path:
    torch.manual_seed(1)
    if kind == "clip":
        config: Any = CLIPConfig(text_config={**SMALL, "vocab_size": 30}, vision_config=VISION, projection_dim=8)
        model: Any = CLIPModel(config)
        pictures: Any = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    else:
        model = SiglipModel(SiglipConfig(text_config={**SMALL, "vocab_size": 30}, vision_config=VISION))
        pictures = SiglipImageProcessorPil(size={"height": 32, "width": 32})
    model.save_pretrained(folder)
    pictures.save_pretrained(folder)
    return folder


def save_language(folder: Path, kind: str = "gpt2") -> Path:
    torch.manual_seed(2)
    if kind == "gpt2":
        words = tokenizer({"unk_token": "<unk>", "bos_token": "<|end|>", "eos_token": "<|end|>"})
        config: Any = GPT2Config(
            vocab_size=len(words), n_positions=64, n_embd=WIDTH, n_layer=LAYERS, n_head=2,
            bos_token_id=words.bos_token_id, eos_token_id=words.eos_token_id,
        )  # fmt: skip
        model: Any = GPT2LMHeadModel(config)
    else:
        words = tokenizer(LLAMA, before="<s>")
        more = {"ffn_dim": 32, "word_embed_proj_dim": WIDTH} if kind == "opt" else {}
        settings = decoder(kind, words, **more)
        from transformers import AutoConfig

        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(settings.pop("model_type"), **settings))
    model.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_language(tmp_path_factory.mktemp("gpt2"))


class OfficialMlp(nn.Module):
    """ClipCap's release: linear, tanh, linear."""

    def __init__(self, reads: int = 8) -> None:
        super().__init__()
        wide = WIDTH * PREFIX
        self.model = nn.Sequential(nn.Linear(reads, wide // 2), nn.Tanh(), nn.Linear(wide // 2, wide))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x).view(-1, PREFIX, WIDTH)


class OfficialAttention(nn.Module):
    """Eight heads; queries without bias; one matrix for keys and values; softmax over the keys."""

    def __init__(self) -> None:
        super().__init__()
        self.to_queries = nn.Linear(WIDTH, WIDTH, bias=False)
        self.to_keys_values = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.project = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        queries = self.to_queries(x).reshape(b, n, 8, c // 8)
        keys_values = self.to_keys_values(x).reshape(b, n, 2, 8, c // 8)
        keys, values = keys_values[:, :, 0], keys_values[:, :, 1]
        attention = torch.einsum("bnhd,bmhd->bnmh", queries, keys) * (c // 8) ** -0.5
        out = torch.einsum("bnmh,bmhd->bnhd", attention.softmax(dim=2), values).reshape(b, n, c)
        return self.project(out)


class OfficialFeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.relu(self.fc1(x)))


class OfficialLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(WIDTH), OfficialAttention()
        self.norm2, self.mlp = nn.LayerNorm(WIDTH), OfficialFeedForward()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class OfficialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([OfficialLayer() for _ in range(LAYERS)])


class OfficialTransformerMapper(nn.Module):
    def __init__(self, reads: int = 8) -> None:
        super().__init__()
        self.linear = nn.Linear(reads, CONSTANTS * WIDTH)
        self.prefix_const = nn.Parameter(torch.randn(PREFIX, WIDTH))
        self.transformer = OfficialTransformer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.linear(x).view(len(x), CONSTANTS, -1), self.prefix_const.expand(len(x), -1, -1)], dim=1)
        for layer in self.transformer.layers:
            x = layer(x)
        return x[:, CONSTANTS:]


class OfficialClipCap(nn.Module):
    """A mapper before transformers' own GPT-2."""

    def __init__(self, mapper: nn.Module, gpt2: Path) -> None:
        super().__init__()
        self.clip_project, self.gpt = mapper, GPT2LMHeadModel.from_pretrained(gpt2)

    def forward(self, features: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        words = self.gpt.transformer.wte(tokens)
        return self.gpt(inputs_embeds=torch.cat([self.clip_project(features), words], dim=1)).logits


def published(mapper: nn.Module, gpt2: Path, path: Path) -> OfficialClipCap:
    """The model, and its checkpoint with the buffers that GPT-2 had when ClipCap was released."""
    torch.manual_seed(3)
    for parameter in mapper.parameters():
        nn.init.normal_(parameter, std=0.3)
    model = OfficialClipCap(mapper, gpt2).eval()
    state = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    for layer in range(LAYERS):
        state[f"gpt.transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 64, 64).tril()
        state[f"gpt.transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    torch.save(state, path)
    return model


MAPPERS = {"mlp": OfficialMlp, "transformer": OfficialTransformerMapper}


def pictures() -> list[Image.Image]:
    return [Image.new("RGB", (40, 30), colour) for colour in ("red", "green")]


@pytest.mark.parametrize("mapper", MAPPERS)
def test_clipcaps_own_checkpoint_gives_its_own_scores(
    mapper: str, clip: Path, gpt2: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = published(MAPPERS[mapper](), gpt2, tmp_path / "weights.pt")
    captioner: Any = load_captioner(f"{tmp_path}/weights.pt?vision={clip}&language_model={gpt2}")
    said = capsys.readouterr().err
    assert re.search(r"weights\.pt: ignored 4 entries .*first: .*h\.0\.attn\.bias", said)
    assert "UNEXPECTED" not in said, "CLIP's text tower is not needed, which is no news"
    assert captioner.model.config.mapper == mapper and captioner.model.config.prefix_length == PREFIX
    pixels = captioner.pixels(pictures())
    features = CLIPModel.from_pretrained(clip).get_image_features(pixels).pooler_output.detach()
    assert torch.allclose(captioner.encode(pixels), features, atol=1e-6)
    tokens = torch.tensor([[5, 6, 7, 2], [8, 4, 2, 2]])
    expected = theirs(features, tokens)[:, PREFIX - 1 : -1]
    assert torch.allclose(captioner.logits(features, tokens, tokens > 0), expected, atol=1e-5)


def official_clipcap(mapper: str) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the published checkpoints: GPT-2 small as transformers 4 saved it, and either mapper.

    The MLP's prefix is of 10 positions behind ViT-B/32 (512), the transformer's of 40 behind 40 constants.
    """
    H, V = 768, 50257
    shapes: dict[str, tuple[int, ...]] = {
        "gpt.transformer.wte.weight": (V, H), "gpt.transformer.wpe.weight": (1024, H), "gpt.lm_head.weight": (V, H),
        "gpt.transformer.ln_f.weight": (H,), "gpt.transformer.ln_f.bias": (H,),
    }  # fmt: skip
    for n in range(12):
        block = f"gpt.transformer.h.{n}"
        shapes |= {f"{block}.{norm}.{part}": (H,) for norm in ("ln_1", "ln_2") for part in ("weight", "bias")}
        for layer, i, o in (
            ("attn.c_attn", H, 3 * H), ("attn.c_proj", H, H), ("mlp.c_fc", H, 4 * H), ("mlp.c_proj", 4 * H, H),
        ):  # fmt: skip
            shapes |= {f"{block}.{layer}.weight": (i, o), f"{block}.{layer}.bias": (o,)}
        shapes |= {f"{block}.attn.bias": (1, 1, 1024, 1024), f"{block}.attn.masked_bias": ()}
    if mapper == "mlp":
        sizes = {"0": (5 * H, 512), "2": (10 * H, 5 * H)}
        return shapes | {
            f"clip_project.model.{n}.{part}": size if part == "weight" else size[:1]
            for n, size in sizes.items()
            for part in ("weight", "bias")
        }
    shapes |= {"clip_project.linear.weight": (40 * H, 512), "clip_project.linear.bias": (40 * H,)}
    shapes |= {"clip_project.prefix_const": (40, H)}
    for n in range(8):
        layer = f"clip_project.transformer.layers.{n}"
        shapes |= {f"{layer}.{norm}.{part}": (H,) for norm in ("norm1", "norm2") for part in ("weight", "bias")}
        shapes |= {f"{layer}.attn.to_queries.weight": (H, H), f"{layer}.attn.to_keys_values.weight": (2 * H, H)}
        shapes |= {f"{layer}.attn.project.weight": (H, H), f"{layer}.attn.project.bias": (H,)}
        shapes |= {f"{layer}.mlp.fc1.weight": (2 * H, H), f"{layer}.mlp.fc1.bias": (2 * H,)}
        shapes |= {f"{layer}.mlp.fc2.weight": (H, 2 * H), f"{layer}.mlp.fc2.bias": (H,)}
    return shapes


@pytest.mark.parametrize("mapper", ["mlp", "transformer"])
def test_every_key_of_clipcaps_full_size_layout_has_its_place(mapper: str) -> None:
    """Nothing is missing, and nothing is left but GPT-2's old masks, which are named."""
    with torch.device("meta"):
        state = {key: torch.empty(shape) for key, shape in official_clipcap(mapper).items()}
        sizes = mapper_settings(state, Path("weights.pt"))
        text = GPT2Config(tie_word_embeddings=False)  # so that the output layer is counted too
        model = ClipCapModel(ClipCapConfig(text_config=text, **sizes))
    assert sizes["mapper"] == mapper and sizes["prefix_length"] == (10 if mapper == "mlp" else 40)
    wanted = {key: tuple(t.shape) for key, t in model.state_dict().items() if not key.startswith("vision.")}
    given = {new: tuple(tensor.shape) for new, tensor in renamed(state, NAMES).items()}
    left = {key for key in given if key not in wanted}
    assert left == {
        f"language_model.transformer.h.{n}.attn.{mask}" for n in range(12) for mask in ("bias", "masked_bias")
    }
    assert {key: shape for key, shape in given.items() if key in wanted} == wanted


def test_clipcaps_checkpoint_saved_as_a_folder_writes_the_same(clip: Path, gpt2: Path, tmp_path: Path) -> None:
    published(OfficialMlp(), gpt2, tmp_path / "weights.pt")
    captioner = load_captioner(f"{tmp_path}/weights.pt?vision={clip}&language_model={gpt2}")
    captioner.save(tmp_path / "saved")
    again, decoding = load_captioner(str(tmp_path / "saved")), Decoding(kind="beam", beams=3, max_tokens=6)
    told = [generate_captions(one, one.encode(one.pixels(pictures())), decoding) for one in (captioner, again)]
    assert told[0] == told[1] and any(told[0])


def with_features(name: Any, path: Path) -> str:
    """A captioner's name with files of features."""
    return f"{name}{'&' if '?' in str(name) else '?'}features={path}"


@pytest.mark.parametrize("mapper", MAPPERS)
def test_clipcap_reads_rn50x4s_features_from_files(mapper: str, gpt2: Path, tmp_path: Path, cli: Cli) -> None:
    """640 numbers a picture, which another program wrote; no encoder is loaded."""
    theirs = published(MAPPERS[mapper](640), gpt2, tmp_path / "weights.pt")  # type: ignore[call-arg]
    features = torch.randn(2, 640, generator=torch.Generator().manual_seed(4))
    for folder in ("photos", "rn50x4"):
        (tmp_path / folder).mkdir()
    for picture, name, row in zip(pictures(), ("red", "green"), features, strict=True):
        picture.save(tmp_path / "photos" / f"{name}.png")
        np.save(tmp_path / "rn50x4" / f"{name}.npy", row.half().numpy())
    name = f"{tmp_path}/weights.pt?vision=none&language_model={gpt2}"
    captioner: Any = load_captioner(name)
    tokens = torch.tensor([[5, 6, 7, 2], [8, 4, 2, 2]])
    expected = theirs(features, tokens)[:, PREFIX - 1 : -1]
    assert torch.allclose(captioner.logits(features, tokens, tokens > 0), expected, atol=1e-5)
    captioner.save(tmp_path / "saved")
    told = []
    for which in (name, tmp_path / "saved"):
        out = tmp_path / f"{len(told)}.jsonl"
        done = cli("caption", with_features(which, tmp_path / "rn50x4"), tmp_path / "photos", "-o", out, "--beams", "1")
        assert done.status == 0, done.err
        told.append([json.loads(line)["caption"] for line in out.read_text().splitlines()])
    ordered = features.half().float()[[1, 0]]  # by name: green, red
    assert told[0] == told[1] == captioner.generate(ordered, Decoding(max_tokens=30)).texts
    rest = (tmp_path / "photos", "-o", tmp_path / "none.jsonl")
    without = cli("caption", name, *rest)
    assert without.status == 2 and "has no vision encoder and reads features from files; in a" in without.err
    new = cli(
        "caption", f"clipcap?vision=none&language_model={gpt2}", tmp_path / "photos", "-o", tmp_path / "none.jsonl"
    )
    assert new.status == 2 and "a new ClipCap requires a vision encoder," in new.err


@pytest.mark.long
def test_clipcaps_pickle_of_features_is_refused_with_the_conversion_to_type(
    gpt2: Path, tmp_path: Path, cli: Cli
) -> None:
    published(OfficialMlp(640), gpt2, tmp_path / "weights.pt")
    (tmp_path / "photos").mkdir()
    pictures()[0].save(tmp_path / "photos" / "7.png")
    pickled = tmp_path / "oscar_split_RN50x4_train.pkl"
    rows = {"clip_embedding": torch.randn(1, 640), "captions": [{"image_id": "7", "caption": "a", "clip_embedding": 0}]}
    pickled.write_bytes(pickle.dumps(rows))
    name, photo = f"{tmp_path}/weights.pt?vision=none&language_model={gpt2}", tmp_path / "photos" / "7.png"
    done = cli("caption", with_features(name, pickled), photo)
    assert done.status == 2 and "is a pickle, which can execute code" in done.err
    typed = re.search(r"run: (mkdir .*); then", done.err)
    assert typed and not (tmp_path / "clip-features").exists()
    subprocess.run(typed[1].replace("python ", f"{sys.executable} ", 1), shell=True, check=True, cwd=tmp_path)
    assert cli("caption", with_features(name, tmp_path / "clip-features"), photo).status == 0


def test_weights_that_do_not_fit_what_was_named_are_one_line(clip: Path, gpt2: Path, tmp_path: Path) -> None:
    model = published(OfficialMlp(), gpt2, tmp_path / "weights.pt")
    pair = f"vision={clip}&language_model={gpt2}"

    def refused(state: Any, match: str, options: str = pair) -> None:
        torch.save(state, tmp_path / "bad.pt")
        with pytest.raises(TellapartError, match=match) as caught:
            load_captioner(f"{tmp_path}/bad.pt?{options}")
        assert "\n" not in str(caught.value)

    state = model.state_dict()
    refused({k: v for k, v in state.items() if "h.1.mlp" not in k}, r"lacks 4 weights, such as .*h\.1\.mlp")
    refused({**state, "gpt.extra": torch.ones(1)}, r"also has 1 weights, such as language_model\.extra")
    wider = {**state, "clip_project.model.0.weight": torch.ones(24, 9)}
    refused(wider, r"does not fit vision=.*: mapper\.model\.0\.weight is \(24, 9\), expected \(24, 8\)")
    refused({"some.weight": torch.ones(2)}, "is not a captioner's checkpoint: its weights are some.weight;")
    refused([1, 2], "does not contain named weights; expected a")
    refused({"clip_project.model.0.weight": torch.ones(2, 2)}, "contains no language model")
    with pytest.raises(UsageError, match=r"does not exist; expected a .pt, .pth or"):
        load_captioner(f"{tmp_path}/nowhere.pt")
    with pytest.raises(UsageError, match="unknown option 'visoin=x'; did you mean 'vision'"):
        load_captioner(f"{tmp_path}/weights.pt?visoin=x")


class Mischief:
    def __reduce__(self) -> Any:
        return (exec, ("print('unpickled!')",))  # Ray, where another test began it, has a print of its own


def test_a_checkpoint_that_holds_more_than_tensors_is_not_unpickled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"clip_project.x": Mischief()}, tmp_path / "bad.pt")
    with pytest.raises(TellapartError, match="; expected a checkpoint that contains only tensors"):
        load_captioner(f"{tmp_path}/bad.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "bad.pt").read_bytes()[:100])
    with pytest.raises(TellapartError, match="cannot load"):
        load_captioner(f"{tmp_path}/cut.pt")
    assert "unpickled" not in capsys.readouterr().out


# --- any encoder before any language model


@pytest.mark.long
@pytest.mark.parametrize("vision", ["clip", "siglip"])
@pytest.mark.parametrize("language", ["gpt2", "opt", "llama"])
def test_any_encoder_goes_before_any_language_model(vision: str, language: str, tmp_path: Path) -> None:
    eyes, mouth = save_clip(tmp_path / "eyes", vision), save_language(tmp_path / "mouth", language)
    captioner: Any = load_captioner(f"clipcap?vision={eyes}&language_model={mouth}&prefix_length=2&mapper=mlp")
    own = AutoModelForCausalLM.from_pretrained(mouth).state_dict()
    assert all(torch.equal(own[key], x) for key, x in captioner.model.language_model.state_dict().items())
    with torch.no_grad():
        for parameter in captioner.model.parameters():
            parameter.mul_(3.0)
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    for decoding in (Decoding(max_tokens=6), Decoding(kind="sample", samples=2, max_tokens=6)):
        told = captioner.generate(visual, decoding)
        scores_RTV = captioner.logits(visual, told.tokens_RT, told.valid_RT).detach()
        prefix = captioner.model.mapper(visual).repeat_interleave(decoding.samples, 0)
        words = captioner.model.language_model.get_input_embeddings()(told.tokens_RT)
        whole = captioner.model.language_model(inputs_embeds=torch.cat([prefix, words], 1)).logits[:, 1:-1].detach()
        assert torch.allclose(scores_RTV[told.valid_RT], whole[told.valid_RT], atol=1e-4)
        if decoding.kind == "greedy":
            assert torch.equal(scores_RTV.argmax(-1)[told.valid_RT], told.tokens_RT[told.valid_RT])
        assert (token_log_probs(scores_RTV, told.tokens_RT)[told.valid_RT] <= 0).all()
    captioner.save(tmp_path / "saved")
    again = load_captioner(str(tmp_path / "saved"))
    assert generate_captions(again, visual, Decoding(max_tokens=6)) == generate_captions(
        captioner, visual, Decoding(max_tokens=6)
    )


def test_an_unknown_mapper_is_one_line() -> None:
    with pytest.raises(UsageError, match="clipcap: mapper must be 'mlp' or 'transformer'; got"):
        load_captioner("clipcap?mapper=linear")


# --- BLIP


@pytest.mark.parametrize(("width", "layers"), [(768, 12), (1024, 24)], ids=["base", "large"])
def test_every_key_of_the_full_size_layout_has_its_place(width: int, layers: int) -> None:
    """BLIP with ViT-B and ViT-L at 384 pixels; nothing is missing, nothing is left but what is named."""
    shapes = official_blip(width, layers, 576)
    with torch.device("meta"):
        state = {key: torch.empty(shape) for key, shape in shapes.items()}
        config = blip_config(state)
        model = BlipForConditionalGeneration(config)
    assert config.vision_config.image_size == 384 and config.vision_config.num_attention_heads == width // 64
    wanted = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    given = {key: tuple(tensor.shape) for key, tensor in renamed(state, BLIP_NAMES).items()}
    assert given.pop("text_decoder.bert.embeddings.position_ids") == (1, 512)
    assert given == wanted


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """BERT's tokenizer, as it is before BLIP adds its two tokens."""
    folder = tmp_path_factory.mktemp("bert")
    words = ["a", "picture", "of", "red", "dog", "on", "grass", "cat", "the", "green"]
    (folder / "vocab.txt").write_text("\n".join([*SPECIAL, *words]))
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    return folder


def transformers_own(state: dict[str, torch.Tensor]) -> BlipForConditionalGeneration:
    """transformers' module with the same weights, put there by hand."""
    small = {"hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**small, "vocab_size": 17, "encoder_hidden_size": 128, "max_position_embeddings": 512, "bos_token_id": 15}
    vision = {**small, "image_size": 32, "patch_size": 16, "layer_norm_eps": 1e-6}
    model = BlipForConditionalGeneration(BlipConfig(text_config=text, vision_config=vision)).eval()
    names = {
        "cls_token": "embeddings.class_embedding", "pos_embed": "embeddings.position_embedding",
        "patch_embed.proj": "embeddings.patch_embedding", "blocks": "encoder.layers", "norm1": "layer_norm1",
        "norm2": "layer_norm2", "attn.qkv": "self_attn.qkv", "attn.proj": "self_attn.projection",
    }  # fmt: skip
    with torch.no_grad():
        for key, parameter in {**dict(model.named_parameters(remove_duplicate=False))}.items():
            if key.startswith("vision_model."):
                key = key.replace("post_layernorm", "norm")
                for old, new in names.items():
                    key = key.replace(new, old)
                key = key.replace("vision_model.", "visual_encoder.")
            parameter.copy_(state[key])
    return model


def test_blips_own_checkpoint_gives_transformers_scores(
    bert: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = transformers_own(write_blip(tmp_path / "blip.pth", temp=torch.tensor(0.07)))
    captioner: Any = load_captioner(f"{tmp_path}/blip.pth?tokenizer={bert}")
    assert re.search(r"blip\.pth: ignored 2 entries .*first: temp", capsys.readouterr().err)
    assert captioner.start == [15, 5, 6, 7], "[DEC] a picture of"
    pixels = captioner.pixels(pictures())
    assert pixels.shape[2:] == (32, 32)
    tokens, valid = captioner.pad(captioner.tokenize(["red dog on grass", "the cat"]))
    ids = torch.cat([torch.tensor([captioner.start] * 2), tokens], dim=1)
    expected = theirs(pixel_values=pixels, input_ids=ids).logits[:, len(captioner.start) - 1 : -1]
    assert torch.allclose(captioner.logits(captioner.encode(pixels), tokens, valid), expected, atol=1e-5)


def test_another_prompt_and_picture_size_and_the_folder_it_is_saved_to(bert: Path, tmp_path: Path) -> None:
    state = write_blip(tmp_path / "blip.pth")
    captioner: Any = load_captioner(f"{tmp_path}/blip.pth?tokenizer={bert}&image_size=64&prompt=the red")
    assert captioner.start == [15, 13, 8] and captioner.pixels(pictures()).shape[2:] == (64, 64)
    places = captioner.model.vision_model.embeddings.position_embedding
    old = state["visual_encoder.pos_embed"]
    assert torch.equal(places[:, :1], old[:, :1]) and places.shape == (1, 17, 128)
    grid = old[:, 1:].reshape(-1, 2, 2, 128).permute(0, 3, 1, 2)  # BLIP's own interpolate_pos_embed
    grid = F.interpolate(grid, size=(4, 4), mode="bicubic", align_corners=False).permute(0, 2, 3, 1).flatten(1, 2)
    assert torch.allclose(places[:, 1:], grid, atol=1e-6)
    captioner.save(tmp_path / "saved")
    again: Any = load_captioner(str(tmp_path / "saved"))
    assert again.start == captioner.start
    decoding = Decoding(kind="beam", beams=3, max_tokens=6)
    told = [generate_captions(one, one.encode(one.pixels(pictures())), decoding) for one in (captioner, again)]
    assert told[0] == told[1] and any(told[0])


def test_a_blip_checkpoint_with_another_tokenizer_or_half_its_weights_is_one_line(
    bert: Path, gpt2: Path, tmp_path: Path
) -> None:
    state = write_blip(tmp_path / "blip.pth")
    with pytest.raises(TellapartError, match=r"has 17 tokens, but .* has 2\d; name the tokenizer that"):
        load_captioner(f"{tmp_path}/blip.pth?tokenizer={gpt2}")
    torch.save({"model": {k: v for k, v in state.items() if "visual" not in k}}, tmp_path / "half.pth")
    with pytest.raises(TellapartError, match=r"half\.pth lacks visual_encoder\.patch_embed"):
        load_captioner(f"{tmp_path}/half.pth?tokenizer={bert}")
    with pytest.raises(UsageError, match=": image_size must be a number; got 'big'"):
        load_captioner(f"{tmp_path}/blip.pth?image_size=big")


class EggCheckpoint(NamedTuple):
    """Pickled under the name of EGG's own class, which is not installed."""

    epoch: int
    model_state_dict: dict[str, torch.Tensor]
    optimizer_state_dict: dict[str, Any]
    optimizer_scheduler_state_dict: dict[str, Any] | None


EggCheckpoint.__module__, EggCheckpoint.__qualname__ = "egg.core.callbacks", "Checkpoint"


def save_as_egg(content: dict[str, torch.Tensor], path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ``.tar`` as EGG's trainer writes it, with the optimizer's state beside the game's."""
    module: Any = ModuleType("egg.core.callbacks")
    module.Checkpoint = EggCheckpoint
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))], lr=1e-7)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
    with monkeypatch.context() as patched:
        for name, installed in (("egg", None), ("egg.core", None), ("egg.core.callbacks", module)):
            patched.setitem(sys.modules, name, installed or ModuleType(name))
        torch.save(EggCheckpoint(3, content, optimizer.state_dict(), schedule.state_dict()), path)
    assert "egg" not in sys.modules


@pytest.mark.parametrize("layout", ["EGG's tuple", "clipcap.*", "sender.clipcap.* under model_state_dict"])
def test_checkpoints_of_paper_twos_and_threes_programs_write_what_clipcaps_own_writes(
    layout: str, clip: Path, gpt2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    state = published(OfficialMlp(), gpt2, tmp_path / "weights.pt").state_dict()
    game = {f"sender.clipcap.{key}": tensor for key, tensor in state.items()}
    game |= {"sender.clip.visual.proj": torch.ones(2, 2), "receiver.clip.logit_scale": torch.tensor(4.6)}
    path = tmp_path / ("final.tar" if layout == "EGG's tuple" else "best.pt")
    if layout == "EGG's tuple":
        save_as_egg(game, path, monkeypatch)
    elif layout == "clipcap.*":
        torch.save({f"clipcap.{key}": tensor for key, tensor in state.items()}, path)
    else:
        torch.save({"model_state_dict": game, "epoch": 3}, path)
    pictures()[0].save(tmp_path / "red.png")
    pair = f"?vision={clip}&language_model={gpt2}"
    told = [cli("caption", f"{file}{pair}", tmp_path / "red.png") for file in (tmp_path / "weights.pt", path)]
    assert [done.status for done in told] == [0, 0], told[1].err
    assert told[0].out == told[1].out and told[0].out.strip()
    beside = "first: receiver.clip.logit_scale" in told[1].err
    assert beside == (layout != "clipcap.*"), "what a game holds beside its captioner is named"


def test_an_error_of_a_wrong_file_is_plain(tmp_path: Path, clip: Path, gpt2: Path) -> None:
    """torch's own message has escape codes, and advice to trust the file."""
    torch.save({"clip_project.x": Mischief()}, tmp_path / "bad.pt")
    with pytest.raises(TellapartError) as caught:
        load_captioner(f"{tmp_path}/bad.pt")
    assert str(caught.value).endswith("bad.pt: it contains exec; expected a checkpoint that contains only tensors")
    torch.save({"clipcap.gpt.h.0.attn.c_attn.lora_A.default.weight": torch.ones(2, 2)}, tmp_path / "lora.pt")
    with pytest.raises(TellapartError, match=r"lora\.pt contains LoRA matrices .* or the folder of a PEFT adapter"):
        load_captioner(f"{tmp_path}/lora.pt?vision={clip}&language_model={gpt2}")


def test_a_checkpoint_of_discritunes_program(tmp_path: Path) -> None:
    """Its weights lie under ``model_state_dict``, beside what its trainer needs."""
    state = {"clip_project.model.0.weight": torch.ones(2, 2)}
    torch.save({"model_state_dict": state, "epoch": 3, "optimizer_state_dict": {"state": {}}}, tmp_path / "a.pt")
    assert read_state(tmp_path / "a.pt").keys() == state.keys()
