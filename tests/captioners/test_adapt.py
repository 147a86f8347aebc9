"""LoRA: where it goes, how it starts, what learns, and that the saved model has it merged in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import LoraLayer
from safetensors.torch import load_file
from tiny_blip import save_blip
from transformers import CLIPVisionConfig, GPT2Config

from tellapart.captioners import load_captioner
from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.lora import add_lora, is_lora_weight
from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.trainable import TrainableParts


@pytest.fixture
def captioner(tiny_captioner: Path) -> ClipCap:
    """CLIP's vision before GPT-2, both tiny, with the tokenizer of another tiny captioner."""
    other: Any = load_captioner(str(tiny_captioner))
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=16,
        projection_dim=8,
    )  # fmt: skip
    text = GPT2Config(
        vocab_size=len(other.tokenizer), n_positions=40, n_embd=16, n_layer=2, n_head=2,
        bos_token_id=other.tokenizer.bos_token_id, eos_token_id=other.tokenizer.eos_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = ClipCapModel(ClipCapConfig(vision_config=vision, text_config=text, prefix_length=2)).eval()
    return ClipCap(model, other.tokenizer, other.processor, "tiny")


def shapes(captioner: ClipCap) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in captioner.model.named_parameters() if is_lora_weight(name)}


def scores(captioner: ClipCap) -> torch.Tensor:
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    tokens = torch.tensor([[5, 6, 3], [7, 3, 0]])
    with torch.no_grad():
        return captioner.logits(captioner.encode(pixels), tokens, tokens > 0)


def stir(captioner: ClipCap) -> None:
    """What learning does: B is no longer 0."""
    with torch.no_grad():
        for name, parameter in captioner.model.named_parameters():
            if ".lora_B" in name:
                parameter.normal_(std=0.1)


def test_it_stands_at_the_layers_of_paper_two(captioner: ClipCap) -> None:
    add_lora(captioner, ["vision", "language_model"], rank=4, alpha=2)
    where = {name.split(".lora_")[0] for name in shapes(captioner)}
    language = {f"language_model.transformer.h.{n}.attn.{name}" for n in (0, 1) for name in ("c_attn", "c_proj")}
    assert {name for name in where if name.startswith("language_model")} == language, "not the c_proj of the MLP"
    vision = {name.rpartition(".")[2] for name in where if name.startswith("vision")}
    assert vision == {"q_proj", "k_proj", "v_proj", "fc1", "fc2"}
    assert shapes(captioner)["language_model.transformer.h.0.attn.c_attn.lora_A.default.weight"] == (4, 16)


def test_a_is_standard_normal_b_is_zero_and_nothing_changes_yet(captioner: ClipCap) -> None:
    before = scores(captioner)
    torch.manual_seed(0)
    add_lora(captioner, ["vision", "language_model"], rank=8)
    named = dict(captioner.model.named_parameters())
    a = torch.cat([p.detach().flatten() for name, p in named.items() if ".lora_A" in name])
    assert len(a) > 1000 and abs(float(a.std()) - 1) < 0.05 and abs(float(a.mean())) < 0.05
    assert all(float(p.detach().abs().sum()) == 0 for name, p in named.items() if ".lora_B" in name)
    adapted = scores(captioner)
    for layer in captioner.model.modules():
        if isinstance(layer, LoraLayer):
            layer.enable_adapters(False)
    assert torch.equal(adapted, scores(captioner))
    # On an AMD machine peft's wrapping alone, its adapters disabled, moves the last bit (6e-8).
    torch.testing.assert_close(adapted, before, rtol=0, atol=1e-6)


def test_the_step_is_alpha_over_rank_times_b_a(captioner: ClipCap) -> None:
    add_lora(captioner, ["vision"], rank=4, alpha=2, modules=["fc1"])
    stir(captioner)
    layer = captioner.model.vision.vision_model.encoder.layers[0].mlp.fc1
    x = torch.randn(3, 16)
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    expected = layer.base_layer(x) + 2 / 4 * x @ a.T @ b.T
    assert torch.allclose(layer(x), expected, atol=1e-6)


def test_the_saved_model_has_it_merged_and_the_one_in_training_has_not(captioner: ClipCap, tmp_path: Path) -> None:
    plain = scores(captioner)
    add_lora(captioner, ["vision", "language_model"], rank=4)
    stir(captioner)
    adapted, state = scores(captioner), {k: v.clone() for k, v in captioner.model.state_dict().items()}
    captioner.save(tmp_path)
    assert not torch.allclose(adapted, plain, atol=1e-2)
    assert not any(is_lora_weight(name) or "base_layer" in name for name in load_file(tmp_path / "model.safetensors"))
    again: Any = load_captioner(str(tmp_path))
    assert torch.allclose(scores(again), adapted, atol=1e-5)
    assert all(torch.equal(state[k], v) for k, v in captioner.model.state_dict().items())


def test_with_lora_a_part_learns_in_it_alone_and_the_mapper_in_full(captioner: ClipCap) -> None:
    add_lora(captioner, ["language_model"], rank=4)
    trainable = TrainableParts(captioner, ("mapper", "language_model"))
    learns = {name for name, p in captioner.model.named_parameters() if p.requires_grad}
    mapper = {name for name, _ in captioner.model.named_parameters() if name.startswith("mapper")}
    assert learns == mapper | set(shapes(captioner))
    kept = set(trainable.tensors())
    assert {name for name in kept if not name.startswith("mapper")} == set(shapes(captioner))
    assert len(trainable.parameters) == len(learns)


def test_names_that_no_layer_has_are_one_line(captioner: ClipCap) -> None:
    with pytest.raises(
        UsageError, match=r"captioner.lora.modules: no layer in vision of tiny is named query; .* end in"
    ):
        add_lora(captioner, ["vision"], modules=["query"])


def test_checkpointed_states_give_the_same_gradient(
    tiny_recipe: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the blocks do run again in the backward pass."""
    gradients, runs = [], []
    for checkpointing in (False, True):
        training = {**tiny_recipe["training"], "gradient_checkpointing": checkpointing}
        recipe = check_recipe({**tiny_recipe, "objective": {"kind": "mle"}, "training": training}, "test")
        captioner = TrainingSetup(recipe, lambda name: name).learner
        captioner.model.train()
        for module in captioner.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        count = [0]
        block = captioner.model.language_model.transformer.h[0].ln_1
        block.register_forward_hook(lambda *a, count=count: count.__setitem__(0, count[0] + 1))
        visual = captioner._encode_frozen(torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
        tokens_RT, valid_RT = captioner.pad(captioner.tokenize(["a red circle", "a blue square"]))
        captioner.logits(visual, tokens_RT, valid_RT).square().mean().backward()
        named = captioner.model.language_model.named_parameters()
        gradients.append({name: p.grad for name, p in named if p.grad is not None})
        runs.append(count[0])
    assert runs == [1, 2] and gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient)


def test_checkpointing_where_it_cannot_be_is_told(tiny_recipe: dict[str, Any]) -> None:
    training = {**tiny_recipe["training"], "gradient_checkpointing": True}
    with pytest.raises(UsageError, match=r"training.gradient_checkpointing disables the"):
        check_recipe({**tiny_recipe, "training": training}, "test")


def test_dropout_of_a_blip_is_what_the_recipe_says(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    """LAVIS trains BLIP with 0.1, transformers' configuration says 0: greedy captions never differ then."""
    captioner = {"name": str(save_blip(tmp_path, ["a", "red", "dog", "on", "grass"])), "train": ["language_model"]}
    layers = {}
    for dropout, part in ((None, "language_model"), (0.1, "language_model"), (0.2, "vision")):
        table = {**captioner, "dropout": dropout, "train": [part]}  # a frozen language model drops out in training, too
        setup = TrainingSetup(check_recipe({**tiny_recipe, "captioner": table}, "test"), str)
        model = setup.learner.model.train()
        layers[dropout] = {m.p for m in model.text_decoder.modules() if isinstance(m, torch.nn.Dropout)}
        assert {m.p for m in model.vision_model.modules() if isinstance(m, torch.nn.Dropout)} <= {0.0}
        assert model.config.text_config.hidden_dropout_prob == 0.0, "what is published says what it said before"
    assert layers == {None: {0.0}, 0.1: {0.1}, 0.2: {0.2}}
    with pytest.raises(UsageError, match=r"dropout requires captioner.name; for a new"):
        check_recipe({**tiny_recipe, "captioner": {"new": {"vision": "scenes"}, "dropout": 0.1}}, "test")
