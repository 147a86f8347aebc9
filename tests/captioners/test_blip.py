"""BLIP, tiny, saved in its real layout and loaded as a user's would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tiny_blip import save_blip

from tellapart.captioners import load_captioner
from tellapart.captioners.blip import Blip
from tellapart.captioners.blip_attention import attention
from tellapart.models.decoding import Decoding
from tellapart.objectives.caption_log_probs import token_log_probs

WORDS = ["a", "picture", "of", "red", "dog", "on", "grass", "cat"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_blip(tmp_path_factory.mktemp("blip"), WORDS, layers=2)


def pictures() -> list[Image.Image]:
    return [Image.new("RGB", (40, 30), colour) for colour in ("red", "green")]


def test_it_loads_and_captions_as_transformers_does(folder: Path) -> None:
    captioner: Any = load_captioner(str(folder))
    assert isinstance(captioner, Blip)
    pixels = captioner.pixels(pictures())
    told = captioner.generate(captioner.encode(pixels), Decoding(max_tokens=6))
    theirs = captioner.model.generate(pixel_values=pixels, max_new_tokens=6, do_sample=False, num_beams=1)
    decoded = captioner.tokenizer.batch_decode(theirs[:, 1:], skip_special_tokens=True)  # without the start token
    assert told.texts == [text.strip() for text in decoded]


@pytest.mark.parametrize("prompt", ["", "a picture of "])
def test_teacher_forcing_scores_what_transformers_scores(folder: Path, prompt: str) -> None:
    captioner: Any = load_captioner(str(folder))
    captioner = Blip(captioner.model, captioner.tokenizer, captioner.processor, "tiny", prompt)
    visual = captioner.encode(captioner.pixels(pictures()))
    tokens, valid = captioner.pad(captioner.tokenize(["red dog on grass", "a cat"]))
    assert tokens[0].tolist()[-1] == captioner.end
    ours = captioner.logits(visual, tokens, valid)
    start = torch.tensor([captioner.start] * 2)
    theirs = captioner.model.text_decoder(
        input_ids=torch.cat([start, tokens], 1), encoder_hidden_states=visual, is_decoder=True
    ).logits[:, len(captioner.start) - 1 : -1]
    assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("decoding", [Decoding(max_tokens=6), Decoding(kind="sample", samples=3, max_tokens=6)])
def test_what_was_generated_and_what_is_scored_agree(folder: Path, decoding: Decoding) -> None:
    captioner: Any = load_captioner(str(folder))
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    told = captioner.generate(visual, decoding)
    assert len(told.texts) == 2 * decoding.samples
    logits = captioner.logits(visual, told.tokens_RT, told.valid_RT)
    if decoding.kind == "greedy":
        likeliest = logits.argmax(-1)
        assert torch.equal(likeliest[told.valid_RT], told.tokens_RT[told.valid_RT])
    assert (token_log_probs(logits, told.tokens_RT)[told.valid_RT] <= 0).all()


def test_its_parts(folder: Path) -> None:
    assert set(load_captioner(str(folder)).parts()) == {"vision", "language_model"}


@pytest.mark.parametrize(("queries", "keys"), [(577, 577), (1, 577), (5, 577), (40, 40)])
def test_attention_in_bf16_is_that_of_fp32_but_for_rounding(queries: int, keys: int) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(3, 4, count, 64).bfloat16() for count in (queries, keys, keys))
    exact = torch.nn.functional.scaled_dot_product_attention(query.float(), key.float(), value.float())
    with torch.no_grad():
        found = attention(query, key, value)
        strided = attention(*(x.transpose(1, 2).contiguous().transpose(1, 2) for x in (query, key, value)))
    assert found.dtype == torch.bfloat16 and (found - exact).abs().max() < 0.01
    assert (found - strided).abs().max() < 0.01


def test_the_vision_tower_gives_what_that_of_transformers_gives_in_bf16(folder: Path) -> None:
    captioner: Any = load_captioner(str(folder), precision="bf16")
    pixels = captioner.inputs(captioner.pixels(pictures()))
    with torch.no_grad():
        ours, theirs = captioner.encode(pixels), captioner.model.vision_model(pixel_values=pixels).last_hidden_state
    assert ours.dtype == torch.bfloat16 and (ours - theirs).abs().max() < 0.05


@pytest.mark.parametrize("prompt", ["", "a picture of "])
def test_one_pass_over_captions_that_share_patches_equals_repeated_pictures(folder: Path, prompt: str) -> None:
    captioner: Any = load_captioner(str(folder))
    captioner = Blip(captioner.model, captioner.tokenizer, captioner.processor, "tiny", prompt)
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    tokens, valid = captioner.pad(captioner.tokenize(["red dog on grass", "a cat", "grass", "a red cat on a dog"]))
    captioner.model.eval()
    gradients = []
    for way in (captioner.hidden_uncached(visual, tokens, valid), captioner.hidden_in_one_pass(visual, tokens)):
        captioner.model.zero_grad()
        (way * valid[..., None]).pow(2).sum().backward()
        named = captioner.model.text_decoder.bert.named_parameters()
        gradients.append(
            (way, {name: parameter.grad.clone() for name, parameter in named if parameter.grad is not None})
        )
    (theirs, their_gradients), (ours, our_gradients) = gradients
    assert torch.allclose(ours, theirs, atol=1e-5)
    assert our_gradients.keys() == their_gradients.keys() and len(our_gradients) > 20
    for name, gradient in their_gradients.items():
        assert torch.allclose(our_gradients[name], gradient, rtol=1e-3, atol=1e-4), name
