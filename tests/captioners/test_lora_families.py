"""LoRA beside the language model and the vision encoder of every family of captioners, as `finetune --lora` asks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Cli
from families import tokenizer
from PIL import Image
from test_table import CAPTIONERS
from transformers import AutoConfig, AutoModelForCausalLM

from tellapart.captioners import load_captioner
from tellapart.captioners.lora import add_lora, is_lora_weight
from tellapart.errors import UsageError

WITH_LORA = [name for name in CAPTIONERS if name != "LSTM"]  # its layers are one LSTM cell and the output layer


def made(name: str, folder: Path) -> Any:
    return load_captioner(str(CAPTIONERS[name](folder)))


def scores(captioner: Any) -> torch.Tensor:
    with torch.no_grad():
        return scores_with_gradient(captioner)


def scores_with_gradient(captioner: Any) -> torch.Tensor:
    pictures = [Image.new("RGB", (48, 32), color) for color in ("red", "green")]
    tokens = torch.tensor([captioner.tokenize(["a red dog"])[0]] * 2)
    visual = captioner.encode(captioner.pixels(pictures))
    return captioner.logits(visual, tokens, torch.ones_like(tokens).bool())


def learn(captioner: Any) -> None:
    """What a step does: B is no longer 0."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, parameter in captioner.model.named_parameters():
            if ".lora_B" in name:
                parameter.normal_(std=0.02)


@pytest.mark.long
@pytest.mark.parametrize("name", WITH_LORA)
def test_every_part_of_every_family_is_adapted_and_saved_merged(name: str, tmp_path: Path) -> None:
    captioner = made(name, tmp_path)
    parts = [part for part in captioner.parts() if part != "mapper"]
    plain = scores(captioner)
    add_lora(captioner, parts, rank=2)
    torch.testing.assert_close(scores(captioner), plain, rtol=1e-5, atol=1e-5)
    adapted = [n for n, _ in captioner.model.named_parameters() if is_lora_weight(n)]
    for part, module in captioner.parts().items():
        assert any(is_lora_weight(n) for n, _ in module.named_parameters()) == (part in parts), part
    assert not any("lm_head" in n or "predictions.decoder" in n for n in adapted), "the output layer is not adapted"
    scores_with_gradient(captioner).square().mean().backward()
    for part in parts:
        up = [p.grad for n, p in captioner.parts()[part].named_parameters() if ".lora_B" in n]
        assert any(grad is not None and bool(grad.abs().sum() > 0) for grad in up), f"{part} learns nothing"
    learn(captioner)
    learned = scores(captioner)
    assert not torch.allclose(learned, plain, atol=1e-3)
    captioner.save(tmp_path / "saved")
    torch.testing.assert_close(scores(load_captioner(str(tmp_path / "saved"))), learned, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "part", "endings"),
    [
        ("BLIP", "language_model", {"query", "key", "value", "dense"}),
        ("BLIP", "vision", {"qkv", "projection", "fc1", "fc2"}),
        ("git", "language_model", {"query", "key", "value", "dense"}),
        ("blip2_t5", "language_model", {"q", "k", "v", "o", "wi", "wo"}),
        ("ClipCap, MLP", "language_model", {"c_attn", "c_proj"}),
        ("vit_gpt2", "language_model", {"c_attn", "c_proj"}),
        ("llava", "language_model", {"q_proj", "k_proj", "v_proj"}),
        ("qwen2_vl", "vision", {"qkv", "proj", "fc1", "fc2", "0", "2"}),
    ],
)
def test_which_layers(name: str, part: str, endings: set[str], tmp_path: Path) -> None:
    captioner = made(name, tmp_path)
    add_lora(captioner, [part], rank=2)
    adapted = [n.split(".lora_A")[0] for n, _ in captioner.parts()[part].named_parameters() if ".lora_A" in n]
    assert {n.rpartition(".")[2] for n in adapted} == endings


@pytest.mark.parametrize(("name", "layer"), [("ClipCap, MLP", "lm_head"), ("BLIP", "decoder")])
def test_lora_beside_an_output_layer_whose_weights_are_read_past_it_is_refused(
    name: str, layer: str, tmp_path: Path
) -> None:
    captioner = made(name, tmp_path)
    with pytest.raises(
        UsageError,
        match=rf"{layer} is the output layer of .*remove the layer from modules, or train the part without LoRA",
    ):
        add_lora(captioner, ["language_model"], rank=2, modules=("query", "c_attn", layer))


def test_all_linear_layers_of_gpt2_but_the_output_layer(tmp_path: Path) -> None:
    captioner = made("ClipCap, MLP", tmp_path)
    add_lora(captioner, ["language_model"], rank=2, modules="all-linear")
    adapted = {
        n.split(".lora_A")[0].rpartition(".")[2] for n, _ in captioner.model.named_parameters() if ".lora_A" in n
    }
    assert adapted == {"c_attn", "c_proj", "c_fc"}


@pytest.mark.parametrize(
    ("kind", "size", "endings"),
    [
        ("gpt2", {}, {"c_attn", "c_proj"}),
        ("gpt_bigcode", {}, {"c_attn", "c_proj"}),
        ("gpt_neo", {"attention_types": [[["global"], 2]]}, {"q_proj", "k_proj", "v_proj"}),
        ("gpt_neox", {"intermediate_size": 32}, {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}),
        ("bloom", {}, {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}),
    ],
)
def test_language_models_of_the_gpt2_kind(kind: str, size: dict[str, Any], endings: set[str], tmp_path: Path) -> None:
    words = tokenizer({"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"})
    shared = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64}
    ids = {"bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    AutoModelForCausalLM.from_config(
        AutoConfig.for_model(kind, vocab_size=len(words), **{**shared, **size, **ids})
    ).save_pretrained(tmp_path)
    words.save_pretrained(tmp_path)
    captioner = load_captioner(str(tmp_path))
    tokens, valid = captioner.pad(captioner.tokenize(["a red dog"]))
    prompt = torch.tensor([captioner.tokenize(["the house"])[0][:-1]])
    add_lora(captioner, ["language_model"], rank=2)
    adapted = {
        n.split(".lora_A")[0].rpartition(".")[2] for n, _ in captioner.model.named_parameters() if ".lora_A" in n
    }
    assert adapted == endings
    learn(captioner)
    captioner.save(tmp_path / "saved")
    again = load_captioner(str(tmp_path / "saved"))
    with torch.no_grad():
        told = [one.logits(prompt, tokens, valid) for one in (captioner, again)]
    torch.testing.assert_close(told[0], told[1], rtol=1e-3, atol=1e-4)


def test_a_language_model_without_linear_layers_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"language_model of .* has no linear layer .* remove .*--lora to train language_model without LoRA",
    ):
        add_lora(made("LSTM", tmp_path), ["language_model"])


def test_wrong_names_say_what_would_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no layer .* is named q_porj; .*query.*'all-linear'"):
        add_lora(made("BLIP", tmp_path), ["language_model"], modules=["q_porj"])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures of 3:2, upright and lying, with a caption file beside each."""
    folder = tmp_path_factory.mktemp("photos")
    for number in range(12):
        size = (60, 40) if number % 2 else (40, 60)
        Image.new("RGB", size, (number * 20, 255 - number * 20, 60)).save(folder / f"{number}.jpg")
        (folder / f"{number}.txt").write_text("a red dog on the green grass\n")
    return folder


NEWEST = ("aya_vision", "ovis2", "glm4v", "deepseek_vl", "janus", "qwen3_5", "gemma4")


@pytest.mark.long
@pytest.mark.parametrize(
    "family", ["BLIP", "git", "qwen2_vl", *(pytest.param(name, marks=pytest.mark.long) for name in NEWEST)]
)
def test_lora_from_the_command_for_real_layouts(
    family: str, cli: Cli, tmp_path: Path, photos: Path, tiny_scorer: Path
) -> None:
    model, out = CAPTIONERS[family](tmp_path), tmp_path / "out"
    options = ("--lora", "--epochs", 1, "--batch-size", 4, "--max-tokens", 6, "--set", "captioner.lora.rank=2")
    done = cli("finetune", model, photos, "--scorer", tiny_scorer, "-o", out, *options, "--json")
    assert done.status == 0, done.err
    assert set(json.loads(done.out)["systems"]) >= {"before", "after"}
    assert "rank = 2" in (out / "recipe.toml").read_text() and "steps = 2\n" in (out / "recipe.toml").read_text()
    written = cli("caption", out, photos, "-o", tmp_path / "c.jsonl", "--max-tokens", 6)
    assert written.status == 0, written.err
