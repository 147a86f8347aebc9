"""The bench of a whole training step: both ways do the same work, on small models of the full-size ones' kinds."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from transformers import (
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessorPil,
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    GPT2Config,
)

from benchmarks import run_bench, step_rows, training_step
from benchmarks.full_size import full_size_captioner, numbered_words
from benchmarks.rows import Row
from benchmarks.training_step import PARTS, STEP, ForcedLengths, TrainingStep, Work
from tellapart.captioners.blip import Blip
from tellapart.captioners.clipcap import ClipCap, ClipCapConfig, ClipCapModel
from tellapart.errors import TellapartError, UsageError
from tellapart.scorers.base import Scorer

SMALL: dict[str, Any] = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
VISION: dict[str, Any] = {**SMALL, "patch_size": 16, "image_size": 32, "projection_dim": 8}
CPU = torch.device("cpu")


def clipcap() -> ClipCap:
    text = GPT2Config(vocab_size=60, n_positions=40, n_embd=16, n_layer=2, n_head=2)
    vision = {"model_type": "clip_vision_model", **VISION}
    config = ClipCapConfig(vision_config=vision, text_config=text, prefix_length=3)
    return ClipCap(ClipCapModel(config), numbered_words(60), pictures(), "tiny")


def pictures() -> CLIPImageProcessorPil:
    return CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})


def blip() -> Blip:
    words = numbered_words(60)
    ends = {"bos_token_id": 0, "sep_token_id": words.eos_token_id, "eos_token_id": words.eos_token_id}
    text = {**SMALL, "vocab_size": 60, "encoder_hidden_size": 16, "max_position_embeddings": 40, **ends}
    config = BlipConfig(text_config={**text, "pad_token_id": 1}, vision_config={**SMALL, "image_size": 32})
    processor = BlipImageProcessorPil(size={"height": 32, "width": 32})
    return Blip(BlipForConditionalGeneration(config), words, processor, "tiny")


def scorer() -> Scorer:
    words = numbered_words(70, begin="<start>")
    text = {**SMALL, "vocab_size": 70, "eos_token_id": words.eos_token_id, "bos_token_id": words.bos_token_id}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=VISION, projection_dim=8))
    return Scorer(model.requires_grad_(False).eval(), words, pictures(), "tiny CLIP")


@pytest.fixture(params=[clipcap, blip], ids=["clipcap-gpt2", "blip-base"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    maker: Callable[[], Any] = request.param
    monkeypatch.setattr(training_step, "full_size_captioner", lambda name: maker())
    monkeypatch.setattr(training_step, "clip_scorer", scorer)
    here = ThreadPoolExecutor(1, initializer=step_rows.make_step, initargs=(maker.__name__, "cpu"))
    monkeypatch.setattr(step_rows, "worker", lambda name, device: nullcontext(here))
    return {clipcap: "clipcap-gpt2", blip: "blip-base"}[maker]


def test_both_ways_write_the_same_captions_of_the_lengths_that_were_set(small: str) -> None:
    step, work = TrainingStep(small, CPU), Work(samples=3, pictures=4, shortest=5, longest=8)
    prepared = step.prepare(work)
    step.captioner.model.eval()
    with torch.no_grad():
        ours = step.captioner.generate(prepared.visual, work.decoding, ForcedLengths(work, 7))
        theirs = step.plain_rollout(prepared.visual.repeat_interleave(3, dim=0), work, 7)
    assert ours.texts == theirs.texts and torch.equal(ours.valid_RT, theirs.valid_RT)
    lengths = ours.valid_RT.sum(1).tolist()
    assert min(lengths) >= 5 and max(lengths) <= 8 and len(set(lengths)) > 1
    assert (ours.tokens_RT[ours.valid_RT] == step.captioner.end).sum() == len(lengths)
    assert step.gap(prepared) < 1e-5


def test_a_row_for_the_step_and_each_of_its_parts(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.models.precision.multiplies_in_bf16", lambda device: True)
    monkeypatch.setattr(step_rows, "works", lambda name, device: [Work(4, 3, 4, 6)])
    rows = run_bench("rollout", 1, model=small)
    assert len(rows) == 3 * (1 + len(PARTS)) and all(row.unit == "ms" for row in rows)
    whole = [row for row in rows if row.work.endswith(STEP)]
    assert [row.goal for row in whole] == ([3.0, 6.0, 0.0] if small == "clipcap-gpt2" else [2.0, 0.0, 0.0])
    for row in whole:
        assert row.theirs is not None and row.ours > 0 < row.theirs
    parts = [row for row in rows if row.work.startswith("s=4, b=3, fp32")]
    assert sum(row.theirs or 0 for row in parts[1:]) == pytest.approx(parts[0].theirs, rel=0.2)
    assert sum(row.ours for row in parts[1:]) == pytest.approx(parts[0].ours, rel=1e-6)
    assert next(row for row in parts if row.work.endswith("vision")).ours == 0
    chosen: list[Row] = run_bench("rollout", 1, "fp32, both: generate", model=small)
    assert [row.work for row in chosen] == ["s=4, b=3, fp32, both: generate"]


def test_other_log_probabilities_are_not_timed(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = TrainingStep.plain_logits
    monkeypatch.setattr(step_rows, "works", lambda name, device: [Work(2, 2, 4, 6)])
    monkeypatch.setattr(TrainingStep, "plain_logits", lambda *args: 1.01 * plain(*args))
    with pytest.raises(TellapartError, match="compute different log-probabilities"):
        run_bench("rollout", 1, model=small)


def test_wrong_names() -> None:
    with pytest.raises(UsageError, match="unknown full-size model 'blip'"):
        full_size_captioner("blip")
    with pytest.raises(UsageError, match="smile has no option --model; remove it"):
        run_bench("smile", 1, model="blip-base")
    with pytest.raises(
        UsageError, match="no row contains 's=3'; rows are named, for example, s=1, b=16, fp32, both: step"
    ):
        run_bench("rollout", 1, "s=3", model="clipcap-gpt2")


@pytest.mark.gpu
@pytest.mark.xfail(reason="2.6 times on an H200: a step waits for its launches, docs/research/rollout.md")
def test_eight_samples_on_a_gpu_are_five_times_as_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.models.precision.multiplies_in_bf16", lambda device: True)
    rows = run_bench("rollout", 3, "s=8, b=4, bf16, both: step", model="clipcap-gpt2")
    assert len(rows) == 1 and rows[0].ratio is not None and rows[0].ratio >= 5
