"""A picture read once for all its captions gives what the plain way gives, in every family, in float64.

The plain way: every caption reads the picture and its prompt again, in one padded pass; greedy captions come from
transformers' ``generate``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from test_table import CAPTIONERS

from benchmarks import transformers_generate
from tellapart.captioners import captioner as captioner_module
from tellapart.captioners import load_captioner, teacher_forcing
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.clipcap import ClipCap
from tellapart.captioners.modify import enable_gradient_checkpointing
from tellapart.captioners.recurrent import Recurrent
from tellapart.captioners.teacher_forcing import length_groups
from tellapart.captioners.transformers import Hf
from tellapart.models.decoding import Decoding

SAMPLES = 3
QUICK = (
    "ClipCap, MLP",
    "BLIP",
    "LSTM with attention",
    "blip2",
    "git",
    "paligemma",
    "llava_next",
    "qwen2_vl",
    "vit_gpt2",
)


@pytest.fixture(
    scope="module",
    params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in CAPTIONERS],
)
def captioner(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Captioner:
    folder = tmp_path_factory.mktemp("family")
    found = load_captioner(str(CAPTIONERS[request.param](folder)))
    for name in ("plain", "linear"):  # found out once, in the precision of the weights
        getattr(found, name, None)
    if isinstance(found, Recurrent):
        with torch.no_grad():
            for parameter in found.model.parameters():  # else its words are as likely to the last bit of float32
                parameter.mul_(3.0)
    found.model.double().eval()
    return found


@pytest.fixture(scope="module")
def visual(captioner: Captioner) -> torch.Tensor:
    """Of four photos, of 3:2 and other shapes."""
    pictures = []
    for number, (width, height) in enumerate([(60, 40), (40, 60), (64, 30), (33, 33)]):
        noise = torch.randint(0, 256, (height, width, 3), generator=torch.Generator().manual_seed(number))
        pictures.append(Image.fromarray(noise.to(torch.uint8).numpy()))
    with torch.no_grad():
        return captioner.encode(captioner.pixels(pictures).double())


def plain_hidden(captioner: Any, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
    """`Captioner.hidden` with every row reading its own picture."""
    visual_R = visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0)
    if isinstance(captioner, ClipCap):
        model, prefix_RPH = captioner.model.language_model, captioner.model.mapper(visual_R)
        embeds_RTH = model.get_input_embeddings()(tokens_RT[:, :-1])
        output = model.base_model(inputs_embeds=torch.cat([prefix_RPH, embeds_RTH], dim=1), use_cache=False)
        return output.last_hidden_state[:, prefix_RPH.shape[1] - 1 :]
    if isinstance(captioner, Recurrent):
        values_RPH, there_RP = captioner.model.look(visual_R)
        decoder = captioner.model.language_model
        start_R1 = torch.full_like(tokens_RT[:, :1], captioner.model.config.bos_token_id)
        read_RT = torch.cat([start_R1, tokens_RT[:, :-1]], dim=1)
        return decoder(read_RT, decoder.start(values_RPH, there_RP), values_RPH, there_RP)[0]
    return captioner.hidden_uncached(visual_R, tokens_RT, valid_RT)


def log_probs_and_gradients(
    captioner: Captioner, hidden_RTH: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """log p of the N valid tokens, and the gradient of a weighted sum of them for each parameter."""
    head = captioner.head()
    logits_RTV = hidden_RTH if head is None else torch.nn.functional.linear(hidden_RTH, *head)
    log_p_N = logits_RTV[valid_RT].log_softmax(-1).gather(1, tokens_RT[valid_RT][:, None]).squeeze(1)
    weight_N = torch.linspace(-1, 1, len(log_p_N), dtype=log_p_N.dtype)
    captioner.model.zero_grad()
    (weight_N * log_p_N).sum().backward()
    gradients = {name: p.grad.clone() for name, p in captioner.model.named_parameters() if p.grad is not None}
    captioner.model.zero_grad()
    return log_p_N.detach(), gradients


@pytest.mark.long
def test_log_probabilities_and_gradients_are_those_of_the_plain_way(
    captioner: Captioner, visual: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(teacher_forcing, "AT_LEAST", 3)  # groups of like length, though there are few rows
    R, T = SAMPLES * len(visual), 6
    special = {*captioner.tokenizer.all_special_ids, *getattr(captioner, "places", ())}
    words = torch.tensor([i for i in range(len(captioner.tokenizer)) if i not in special])
    generator = torch.Generator().manual_seed(1)
    tokens_RT = words[torch.randint(len(words), (R, T), generator=generator)]
    valid_RT = torch.arange(T) < torch.tensor([6, 1, 3, 2, 2, 5, 4, 6, 1, 3, 3, 5])[:, None]
    assert len(length_groups(valid_RT.sum(1))) > 2
    shared, shared_gradients = log_probs_and_gradients(
        captioner, captioner.hidden(visual, tokens_RT, valid_RT), tokens_RT, valid_RT
    )
    plain, plain_gradients = log_probs_and_gradients(
        captioner, plain_hidden(captioner, visual, tokens_RT, valid_RT), tokens_RT, valid_RT
    )
    torch.testing.assert_close(shared, plain, atol=1e-5, rtol=0)
    assert shared_gradients.keys() == plain_gradients.keys() and len(plain_gradients) > 3
    for name, gradient in plain_gradients.items():
        torch.testing.assert_close(
            shared_gradients[name], gradient, atol=1e-5, rtol=0, msg=lambda m, n=name: f"{n}: {m}"
        )
    assert max(float(gradient.abs().max()) for gradient in plain_gradients.values()) > 1e-3


def test_padding_does_not_reach_the_output_layer(
    captioner: Captioner, visual: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens_RT = torch.full((len(visual), 4), captioner.end)
    valid_RT = torch.arange(4) < torch.tensor([4, 1, 2, 3])[:, None]
    with torch.no_grad():
        whole_RTV = captioner.logits(visual, tokens_RT, valid_RT)
        monkeypatch.setattr(captioner_module, "MANY_SCORES", 1)
        some_RTV = captioner.logits(visual, tokens_RT, valid_RT)
    torch.testing.assert_close(some_RTV[valid_RT], whole_RTV[valid_RT], atol=1e-12, rtol=0)
    if captioner.head() is not None:
        assert not some_RTV[~valid_RT].any() and whole_RTV[~valid_RT].any()


def test_greedy_captions_are_those_of_transformers(captioner: Any, visual: torch.Tensor) -> None:
    """Token for token, with rows that end early: a token that comes up in the middle of a caption ends all."""
    greedy = Decoding(max_tokens=9)
    free = captioner.generate(visual, greedy)
    assert free.tokens_RT.shape[1] > 2
    ours = captioner.generate(visual, greedy)
    with torch.no_grad():
        theirs_RT = transformers_generate.generate(captioner, visual, greedy)
    for ours_T, valid_T, theirs_T in zip(ours.tokens_RT, ours.valid_RT, theirs_RT, strict=True):
        assert ours_T[valid_T].tolist() == theirs_T[: int(valid_T.sum())].tolist()


@pytest.mark.parametrize(("beams", "samples"), [(5, 1), (3, 3)])
def test_beams_are_those_of_transformers(captioner: Any, visual: torch.Tensor, beams: int, samples: int) -> None:
    """Token for token, all hypotheses that are returned."""
    decoding = Decoding(kind="beam", beams=beams, samples=samples, max_tokens=8)
    ours = captioner.generate(visual, decoding)
    with torch.no_grad():
        theirs_RT = transformers_generate.generate(captioner, visual, decoding)
    assert len(theirs_RT) == len(ours.tokens_RT) == samples * len(visual)
    for ours_T, valid_T, theirs_T in zip(ours.tokens_RT, ours.valid_RT, theirs_RT, strict=True):
        assert ours_T[valid_T].tolist() == theirs_T[: int(valid_T.sum())].tolist()


def keeps_no_cache(captioner: Any) -> bool:
    """Returns whether the model is one of linear attention, which is read again for every caption and says so."""
    if not getattr(captioner.model, "_is_stateful", False):
        return False
    assert captioner.model.config.model_type == "qwen3_5" and not captioner.caches
    return True


def test_the_picture_is_read_once_for_all_its_captions(
    captioner: Any, visual: torch.Tensor, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No plain pass runs, in neither way, and nothing is explained."""

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("the plain way")

    if keeps_no_cache(captioner):
        return
    monkeypatch.setattr(captioner, "hidden_uncached", refuse)
    if isinstance(captioner, Hf):
        monkeypatch.setattr(captioner, "cache_is_right", True)
    rollout = captioner.generate(visual, Decoding(kind="sample", samples=SAMPLES, max_tokens=5))
    assert len(rollout.texts) == SAMPLES * len(visual)
    captioner.hidden(visual, rollout.tokens_RT, rollout.valid_RT)
    assert "encoded again" not in capsys.readouterr().err


def test_unknown_families_are_tried(captioner: Any, visual: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(captioner, Hf) or keeps_no_cache(captioner):
        return
    monkeypatch.setattr(captioner, "blank_visual", lambda: visual[:1])
    vars(captioner).pop("cache_is_right", None)
    assert captioner.cache_is_right
    del captioner.cache_is_right
    with monkeypatch.context() as patch:
        patch.setattr(captioner, "decode", lambda state, tokens: state.hidden_N1H * 2)
        assert not captioner.cache_is_right
    del captioner.cache_is_right


def test_it_says_once_why_a_picture_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made: Any = load_captioner(str(CAPTIONERS["ClipCap, MLP"](tmp_path)))
    enable_gradient_checkpointing(made)
    made.model.train()
    visual = torch.randn(2, made.model.config.visual_size)
    for _ in range(2):
        made.generate(visual, Decoding(kind="sample", samples=2, max_tokens=3))
    lines = [line for line in capsys.readouterr().err.splitlines() if "encoded again" in line]
    assert len(lines) == 1 and "gradient checkpointing does not store keys and values" in lines[0]
