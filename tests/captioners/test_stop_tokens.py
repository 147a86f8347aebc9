"""A ClipCap as its authors published it: taught captions without an end token, and stopped at any token with a "."."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_official import LAYERS, WIDTH, OfficialClipCap, OfficialMlp, pictures, save_clip
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import CLIPModel, GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tellapart.captioners import load_captioner
from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import Decoding
from tellapart.objectives.caption_log_probs import token_log_probs

CAPTIONS = (
    "a red picture .",
    "the green one on grass.",
)  # ".", and a word with one in it, as GPT-2 has "..." and ".com"
GREEDY, BEAM = Decoding(max_tokens=12), Decoding(kind="beam", beams=3, max_tokens=12)


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The name of the checkpoint, which is taught the two captions and nothing after them."""
    folder = tmp_path_factory.mktemp("official")
    words = ["<unk>", "<|end|>", *dict.fromkeys(" ".join(CAPTIONS).split()), "dog"]
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"unk_token": "<unk>", "bos_token": "<|end|>", "eos_token": "<|end|>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, **special, clean_up_tokenization_spaces=False)
    torch.manual_seed(2)
    config = GPT2Config(
        vocab_size=len(words), n_positions=64, n_embd=WIDTH, n_layer=LAYERS, n_head=2, bos_token_id=1, eos_token_id=1,
        embd_pdrop=0, attn_pdrop=0, resid_pdrop=0,
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder / "gpt2")
    tokenizer.save_pretrained(folder / "gpt2")
    clip = save_clip(folder / "clip")
    captioner = load_captioner(f"clipcap?vision={clip}&language_model={folder / 'gpt2'}&prefix_length=3")
    pixels = captioner.pixels(pictures())
    features = CLIPModel.from_pretrained(clip).get_image_features(pixels).pooler_output.detach()
    model = OfficialClipCap(OfficialMlp(), folder / "gpt2").train()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    rows = [torch.tensor([row]) for row in tokenizer(list(CAPTIONS))["input_ids"]]
    for _ in range(120):
        loss = torch.stack([
            torch.nn.functional.cross_entropy(model(features[n : n + 1], row)[0, 2:-1], row[0])
            for n, row in enumerate(rows)
        ]).sum()  # fmt: skip
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.1
    torch.save(model.state_dict(), folder / "weights.pt")
    return f"{folder / 'weights.pt'}?vision={clip}&language_model={folder / 'gpt2'}"


@pytest.mark.parametrize("decoding", [GREEDY, BEAM, Decoding(kind="sample", temperature=0.1, max_tokens=12)])
def test_a_caption_ends_with_any_token_that_has_a_full_stop(published: str, decoding: Decoding, tmp_path: Path) -> None:
    captioner = load_captioner(published)
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    rollout = captioner.generate(visual, decoding)
    assert rollout.texts == list(CAPTIONS)
    assert rollout.valid_RT.sum(1).tolist() == [4, 5], "the stop token is part of the caption"
    assert (captioner.generated, captioner.cut_captions) == (2, 0)
    captioner.save(tmp_path)
    assert load_captioner(str(tmp_path)).generate(visual, decoding).texts == list(CAPTIONS)


@pytest.mark.parametrize("decoding", [GREEDY, BEAM])
def test_without_the_stop_it_writes_to_the_limit(published: str, decoding: Decoding) -> None:
    """What the weights were taught: nothing ever ends, and that is counted."""
    captioner = load_captioner(f"{published}&stop=")
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    rollout = captioner.generate(visual, decoding)
    assert rollout.valid_RT.all() and rollout.tokens_RT.shape[1] == 12
    assert (captioner.generated, captioner.cut_captions) == (2, 2)
    assert all(text.startswith(own) and text != own for text, own in zip(rollout.texts, CAPTIONS, strict=True))


def test_references_end_as_the_model_was_taught(published: str) -> None:
    """No end token; a reference without a full stop gets one. Log-probabilities of captions count it."""
    captioner = load_captioner(published)
    id_of = captioner.tokenizer.convert_tokens_to_ids
    assert captioner.stop_tokens == [captioner.end, id_of("."), id_of("grass.")]
    assert captioner.tokenize(["a dog .", "a grass.", "a dog", ""]) == [
        [id_of("a"), id_of("dog"), id_of(".")],
        [id_of("a"), id_of("grass.")],
        [id_of("a"), id_of("dog"), id_of(".")],
        [id_of(".")],
    ]
    tokens_RT, valid_RT = captioner.pad(captioner.tokenize(CAPTIONS))
    visual = captioner.encode(captioner.pixels(pictures())).detach()
    log_p_RT = token_log_probs(captioner.logits(visual, tokens_RT, valid_RT), tokens_RT)
    assert valid_RT.sum() == 9 and float(log_p_RT[valid_RT].min()) > -0.1
    rollout = captioner.generate(visual, GREEDY)
    assert torch.equal(rollout.tokens_RT[rollout.valid_RT], tokens_RT[valid_RT])


def test_any_captioner_takes_a_stop(tiny_captioner: Path) -> None:
    word = "red"
    captioner: Any = load_captioner(f"{tiny_captioner}?stop={word}")
    assert captioner.tokenizer.convert_tokens_to_ids(word) in captioner.stop_tokens[1:]
    with pytest.raises(UsageError, match=": none of its tokens contains 'no such word'; remove stop or use"):
        load_captioner(f"{tiny_captioner}?stop=no such word")


@pytest.mark.parametrize("decoding", [GREEDY, BEAM])
def test_weights_that_are_no_numbers_write_no_captions(tiny_captioner: Path, decoding: Decoding) -> None:
    captioner: Any = load_captioner(str(tiny_captioner))
    visual = torch.randn(2, captioner.model.config.visual_size)
    with torch.no_grad():
        captioner.model.mapper.model[0].weight[0] = torch.nan
    with pytest.raises(TellapartError, match=": its logits are NaN, so it cannot generate captions;") as caught:
        captioner.generate(visual, decoding)
    assert "\n" not in str(caught.value)
