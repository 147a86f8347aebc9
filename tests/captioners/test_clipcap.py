"""ClipCap as an ordinary model of transformers: saved, loaded, and what it gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModel, CLIPVisionConfig, GPT2Config

from benchmarks import transformers_generate
from tellapart.captioners import decoding as decoding_module
from tellapart.captioners import generate_captions, load_captioner, teacher_forcing
from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel
from tellapart.captioners.decoding import to_rollout
from tellapart.captioners.generated_captions import without_gaps
from tellapart.captioners.kv_cache import no_cache_reason
from tellapart.captioners.teacher_forcing import length_groups
from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import Decoding
from tellapart.models.digests import settings_of
from tellapart.models.grid_resnet import grid_resnet_config


def config(visual: str = "projected", mapper: str = "mlp", **more: Any) -> ClipCapConfig:
    vision: Any = grid_resnet_config(4) if visual == "cells" else tiny_clip()
    text = GPT2Config(vocab_size=50, n_positions=40, n_embd=16, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2)
    return ClipCapConfig(
        vision_config=vision, text_config=text, visual=visual, mapper=mapper, prefix_length=3, mapper_layers=2,
        mapper_heads=2, mapper_constants=2, **more,
    )  # fmt: skip


def tiny_clip() -> CLIPVisionConfig:
    return CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=16,
        projection_dim=8,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("visual", "mapper"),
    [("projected", "mlp"), ("pooled", "transformer"), ("projected", "transformer"), ("cells", "linear")],
)
def test_saved_and_loaded_it_gives_the_same_scores(visual: str, mapper: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ClipCapModel(config(visual, mapper)).eval()
    model.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert type(again) is ClipCapModel and (tmp_path / "model.safetensors").is_file()
    pixels, tokens = torch.rand(2, 3, 32, 32), torch.tensor([[5, 6, 2], [7, 2, 0]])
    assert torch.equal(model(pixels, tokens), again(pixels, tokens))
    assert model(pixels, tokens).shape == (2, 3, 50)
    assert settings_of(model) == settings_of(again)
    assert "feature_size" not in settings_of(model)  # it was not written before, and captions started then go on


def test_the_mapper_has_the_sizes_of_paper_three() -> None:
    """512 → 3840 → 7680 for CLIP ViT-B/32, GPT-2 and a prefix of ten."""
    from tellapart.captioners.clipcap import MlpMapper

    full = ClipCapConfig(vision_config=CLIPVisionConfig(projection_dim=512), text_config=GPT2Config())
    shapes = [tuple(layer.weight.shape) for layer in MlpMapper(full).model if hasattr(layer, "weight")]
    assert shapes == [(3840, 512), (7680, 3840)]


def test_a_position_scores_its_token_from_the_picture_and_the_words_before_only() -> None:
    torch.manual_seed(0)
    model = ClipCapModel(config()).eval()
    pixels, tokens = torch.rand(1, 3, 32, 32), torch.tensor([[5, 6, 7, 8]])
    changed = torch.tensor([[5, 6, 9, 8]])
    a, b = model(pixels, tokens), model(pixels, changed)
    assert torch.allclose(a[:, :3], b[:, :3], atol=1e-6) and not torch.allclose(a[:, 3], b[:, 3], atol=1e-4)
    assert not torch.allclose(model(pixels * 0, tokens)[:, 0], a[:, 0], atol=1e-6)


def test_the_samples_of_a_picture_lie_side_by_side(tiny_captioner: Path) -> None:
    """Rows are picture by picture: with R = B·S the scores of row b·S + s are those of picture b."""
    captioner: Any = load_captioner(str(tiny_captioner))
    visual = torch.randn(3, captioner.model.config.visual_size)
    tokens = torch.tensor([[5, 6, 3]] * 6)
    together = captioner.logits(visual, tokens, tokens > 0)
    alone = captioner.logits(visual[1:2], tokens[:1], tokens[:1] > 0)
    assert torch.allclose(together[2:4], alone.expand(2, -1, -1), atol=1e-5)


@pytest.mark.parametrize("text", ["gpt2", "opt", "llama", "mamba"])
def test_a_prefix_read_once_for_several_captions_changes_nothing(text: str) -> None:
    """Scores, gradients and what is sampled are those of every row with a prefix of its own."""
    captioner, visual, tokens = of_language_model(text)
    assert (no_cache_reason(captioner.model.language_model) is None) == (text != "mamba")
    valid = torch.ones_like(tokens, dtype=torch.bool)

    def scores(visual: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        logits = captioner.logits(visual, tokens, valid)
        return logits, list(torch.autograd.grad(logits.square().mean(), captioner.model.mapper.parameters()))

    def sampled(visual: torch.Tensor, samples: int) -> torch.Tensor:
        torch.manual_seed(3)
        return captioner.generate(visual, Decoding(kind="sample", samples=samples, max_tokens=5)).tokens_RT

    (once, once_gradients), (plain, plain_gradients) = scores(visual), scores(visual.repeat_interleave(3, dim=0))
    torch.testing.assert_close(once, plain, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(once_gradients, plain_gradients, atol=1e-6, rtol=1e-3)
    assert torch.equal(sampled(visual, 3), sampled(visual.repeat_interleave(3, dim=0), 1))


@pytest.mark.parametrize("text", ["gpt2", "opt", "llama"])
def test_captions_of_like_length_read_together_change_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores where there are words, and gradients, are those of one pass over all rows with their padding."""
    captioner, visual, tokens = of_language_model(text)
    valid = torch.arange(5) < torch.tensor([5, 1, 2, 4, 1, 3])[:, None]
    embeddings = captioner.model.language_model.get_input_embeddings()

    def scores() -> tuple[torch.Tensor, list[torch.Tensor]]:
        logits = captioner.logits(visual, tokens, valid)[valid]
        learned = [*captioner.model.mapper.parameters(), embeddings.weight]
        return logits, list(torch.autograd.grad(logits.square().mean(), learned))

    plain, plain_gradients = scores()
    monkeypatch.setattr(teacher_forcing, "AT_LEAST", 2)
    assert [len(group) for group in length_groups(valid.sum(1))] == [2, 2, 2]
    grouped, grouped_gradients = scores()
    torch.testing.assert_close(grouped, plain, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(grouped_gradients, plain_gradients, atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("text", ["gpt2", "opt", "llama"])
def test_what_is_written_is_what_transformers_writes(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Greedy with rows left out as they end; sampled where none is left out, so that all draw as in ``generate``."""
    captioner, _, _ = of_language_model(text)
    visual = torch.randn(40, captioner.model.config.visual_size)
    head = captioner.model.language_model.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.randn(50, 16))
    # A word that comes early in some captions and late in others is what ends them.
    captioner.tokenizer.eos_token_id = 50  # no word
    captioner.tokenizer.eos_token_id = int(captioner.generate(visual, Decoding(max_tokens=12)).tokens_RT[0, 8])

    def both(decoding: Decoding) -> list[Any]:
        told = []
        for plain in (False, True):
            torch.manual_seed(5)
            if not plain:
                told.append(captioner.generate(visual, decoding))
                continue
            uniform_RT = decoding.uniform(len(visual), visual.device)
            tokens_RT = transformers_generate.generate(captioner, visual, decoding, uniform_RT)
            told.append(to_rollout(tokens_RT, captioner.tokenizer, captioner.stop_tokens, decoding.samples))
        return told

    ours, theirs = both(Decoding(max_tokens=12))
    assert ours.texts == theirs.texts and len(set(ours.valid_RT.sum(1).tolist())) > 1
    monkeypatch.setattr(decoding_module, "GOING", -1.0)
    ours, theirs = both(Decoding(kind="sample", samples=4, temperature=0.7, max_tokens=12))
    assert torch.equal(ours.tokens_RT, theirs.tokens_RT) and torch.equal(ours.valid_RT, theirs.valid_RT)
    assert len(set(ours.valid_RT.sum(1).tolist())) > 3


def of_language_model(name: str) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """A tiny ClipCap around such a language model, features of two pictures, and three captions of each."""
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "bos_token_id": 1, "eos_token_id": 2}
    heads = {"num_attention_heads": 2, "max_position_embeddings": 40}
    texts = {
        "gpt2": {**sizes, **heads},
        "opt": {**sizes, **heads, "ffn_dim": 32, "word_embed_proj_dim": 16},
        "llama": {**sizes, **heads, "intermediate_size": 32},
        "mamba": {**sizes, "state_size": 4},
    }
    torch.manual_seed(0)
    settings = ClipCapConfig(vision_config=tiny_clip(), text_config={"model_type": name, **texts[name]})
    model = ClipCapModel(settings).eval()
    captioner = ClipCap(model, Words(), None, name)
    return captioner, torch.randn(2, settings.visual_size), torch.randint(3, 50, (6, 5))


class Words:
    """Of a tokenizer what generation asks for."""

    bos_token_id, eos_token_id, pad_token_id = 1, 2, 0

    def batch_decode(self, rows: list[list[int]], skip_special_tokens: bool) -> list[str]:
        return [" ".join(map(str, row)) for row in rows]


def test_decodings_give_what_they_promise(tiny_captioner: Path) -> None:
    captioner: Any = load_captioner(str(tiny_captioner))
    visual = torch.randn(2, captioner.model.config.visual_size)
    for decoding, rows in (
        (Decoding(max_tokens=5), 2),
        (Decoding(kind="beam", beams=3, max_tokens=5), 2),
        (Decoding(kind="beam", beams=3, samples=3, max_tokens=5), 6),
        (Decoding(kind="sample", samples=4, temperature=0.3, max_tokens=5), 8),
    ):
        told = captioner.generate(visual, decoding)
        assert len(told.texts) == len(told.tokens_RT) == rows and told.tokens_RT.shape[1] <= 5
        ends = (told.tokens_RT == captioner.tokenizer.eos_token_id) & told.valid_RT
        assert (ends.sum(1) <= 1).all(), "nothing is valid after the end"
    assert (
        generate_captions(captioner, visual, Decoding(max_tokens=5))
        == captioner.generate(visual, Decoding(max_tokens=5)).texts
    )


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(max_tokens=6),
        Decoding(kind="beam", beams=3, max_tokens=6),
        Decoding(kind="sample", samples=4, max_tokens=6),
    ],
    ids=lambda decoding: decoding.kind,
)
@pytest.mark.parametrize("cached", [True, False])
def test_a_caption_has_no_gap_and_a_rollout_may(
    decoding: Decoding, cached: bool, tiny_captioner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ClipCap whose likeliest token is always the unknown word."""
    captioner: Any = load_captioner(str(tiny_captioner))
    unknown, compute = captioner.tokenizer.unk_token_id, captioner.compute_logits
    likeliest_V = torch.nn.functional.one_hot(torch.tensor(unknown), len(captioner.tokenizer)) * 100.0
    monkeypatch.setattr(captioner, "compute_logits", lambda hidden: compute(hidden) + likeliest_V)
    monkeypatch.setattr(type(captioner), "caches", cached)
    visual = torch.randn(4, captioner.model.config.visual_size)
    assert generate_captions(captioner, visual, decoding) != [""] * len(visual) * decoding.samples
    with without_gaps(captioner):
        generate_captions(captioner, visual, decoding)
        assert unknown not in captioner.generate(visual, decoding).tokens_RT  # nor after captions within
    rollout = captioner.generate(visual, decoding)  # for an objective: all that the model can say
    assert (rollout.tokens_RT == unknown).all() and set(rollout.texts) == {""}


def test_greedy_and_beam_of_one_agree(tiny_captioner: Path) -> None:
    captioner: Any = load_captioner(str(tiny_captioner))
    visual = torch.randn(4, captioner.model.config.visual_size)
    greedy = captioner.generate(visual, Decoding(max_tokens=8)).texts
    assert captioner.generate(visual, Decoding(kind="beam", beams=1, max_tokens=8)).texts == greedy


def test_what_is_no_captioner_is_one_line(tiny_scorer: Path, tmp_path: Path) -> None:
    with pytest.raises(TellapartError, match="which is not a supported captioner; known: blip, clipcap"):
        load_captioner(str(tiny_scorer))
    with pytest.raises(UsageError, match=r"model folder \./nowhere"):
        load_captioner("./nowhere")
    with pytest.raises(UsageError, match=r"contains no config.json; expected a folder"):
        load_captioner(str(tmp_path))
    with pytest.raises(TellapartError, match="not in the hub's cache, and HF_HUB_OFFLINE disables downloads"):
        load_captioner("somebody/some-captioner")


def test_pickled_weights_are_not_loaded(tiny_captioner: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(tiny_captioner, tmp_path / "m")
    (tmp_path / "m" / "model.safetensors").rename(tmp_path / "m" / "pytorch_model.bin")
    with pytest.raises(TellapartError, match="safetensors"):
        load_captioner(str(tmp_path / "m"))


def test_a_prompt_stands_before_every_caption_and_is_no_part_of_it(tiny_captioner: Path, tmp_path: Path) -> None:
    """Teacher-forced after the prompt, a caption scores as the rest of a caption that begins with the prompt."""
    plain: Any = load_captioner(str(tiny_captioner))
    prompt = next(word for word in ("a", "the", "on") if word in plain.tokenizer.get_vocab())
    asked: Any = load_captioner(f"{tiny_captioner}?prompt={prompt}")
    visual = torch.randn(3, plain.model.config.visual_size)
    tokens = torch.tensor([[5, 6, 3]] * 6)
    whole = torch.cat([torch.full((6, 1), plain.tokenizer.convert_tokens_to_ids(prompt)), tokens], dim=1)
    rest = plain.logits(visual, whole, whole >= 0)[:, 1:]
    assert torch.allclose(asked.logits(visual, tokens, tokens >= 0), rest, atol=1e-5)
    greedy = Decoding(kind="greedy", max_tokens=4)
    first = asked.generate(visual, greedy).tokens_RT[:, 0]
    assert torch.equal(first, rest[::2, 0].argmax(-1))
    assert asked.max_caption_tokens == plain.max_caption_tokens - 1
    asked.save(tmp_path / "saved")
    assert load_captioner(str(tmp_path / "saved")).prompt_ids == asked.prompt_ids  # type: ignore[attr-defined]


def test_only_models_with_features_from_files_save_their_width() -> None:
    """Because hashes of the settings tell a resumed run whether its captioner is the same."""
    assert "feature_size" not in config().to_dict()
    assert ClipCapConfig(visual="files", feature_size=12).to_dict()["feature_size"] == 12
