"""Perplexity under a small GPT-2, built here and saved in the real layout, against a plain loop."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from tellapart.cli.whole_app import whole_app
from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.language_model import LanguageModel, load_language_model
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval
from tellapart.metrics import ppl
from tellapart.metrics.perplexity import caption_losses

CAPTIONS = [
    "a red circle on the sand",
    "two dogs",
    "a large blue star above a small green tree beside a very long wall",
    "two dogs",
    "red",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import GPT2Config, GPT2LMHeadModel, GPT2TokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("gpt2")
    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(CAPTIONS * 3, vocab_size=300, special_tokens=["<|endoftext|>"])
    tokenizer = GPT2TokenizerFast(tokenizer_object=learned._tokenizer, bos_token="<|endoftext|>")
    model = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(tokenizer), n_positions=32, n_embd=16, n_layer=2, n_head=2,
            bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.bos_token_id,
        )
    )  # fmt: skip
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))  # far from the even guess that a new model makes
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def plain(model: LanguageModel, caption: str, start: bool) -> tuple[float, int]:
    """One caption alone, token by token."""
    ids = model.tokenizer(caption)["input_ids"]
    row = [model.tokenizer.bos_token_id, *ids] if start else ids
    total = 0.0
    for place in range(1, len(row)):
        with torch.no_grad():
            logits_V = model.model(torch.tensor([row[:place]])).logits[0, -1]
        total -= float(torch.log_softmax(logits_V, 0)[row[place]])
    return total, len(row) - 1


@pytest.mark.parametrize("start", [True, False])
def test_batches_agree_with_a_plain_loop(folder: Path, start: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tellapart.metrics.perplexity._TOKENS_AT_ONCE", 24)
    model = load_language_model(str(folder), start=start)
    expected = [plain(model, caption, start) for caption in CAPTIONS]
    np.testing.assert_allclose(caption_losses(CAPTIONS, model), expected, rtol=1e-4)
    corpus, value_N = ppl(CAPTIONS, model=model)
    each = [math.exp(loss / count) if count else math.nan for loss, count in expected]
    np.testing.assert_allclose(value_N, each, rtol=1e-4)
    assert corpus == pytest.approx(np.nanmean(each), rel=1e-4)
    assert min(value_N[~np.isnan(value_N)]) > 1 and np.ptp(value_N[~np.isnan(value_N)]) > 1


def test_a_caption_without_a_scored_token_abstains(folder: Path) -> None:
    assert np.isnan(ppl(["", "a"], model=load_language_model(str(folder)))[1]).tolist() == [True, False]
    unstarted = load_language_model(str(folder), start=False)
    assert len(unstarted.tokenizer("a")["input_ids"]) == 1 and np.isnan(ppl(["a"], model=unstarted)[0])


def test_captions_beyond_the_window_are_cut_and_counted(folder: Path) -> None:
    model = load_language_model(str(folder))
    rows = model.rows(["red " * 60, "red"])
    assert model.window == 32 and [len(row) <= 32 for row in rows] == [True, True] and model.cut_texts == 1
    results = evaluate({"s": {"1": "red " * 60, "2": "red"}}, language_model=model, metrics=["ppl"], resamples=5)
    assert any("(32 tokens)" in note for note in results.notes)


def test_in_an_evaluation(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "before.txt").write_text("\n".join(CAPTIONS))
    (tmp_path / "after.txt").write_text("\n".join(reversed(CAPTIONS[:4])) + "\na blue star")
    results = run_eval(
        EvalOptions([tmp_path / "before.txt", tmp_path / "after.txt"], language_model=str(folder), resamples=50)
    )
    model = load_language_model(str(folder))
    expected = np.array([plain(model, caption, True) for caption in CAPTIONS])
    found = results.systems["before"]
    assert found["ppl"].value == pytest.approx(np.exp(expected[:, 0] / expected[:, 1]).mean(), rel=1e-4)
    assert found["ppl_corpus"].value == pytest.approx(math.exp(expected[:, 0].sum() / expected[:, 1].sum()), rel=1e-4)
    assert found["ppl_corpus"].low < found["ppl_corpus"].value < found["ppl_corpus"].high
    assert {(pair.a, pair.b) for pair in results.pairs if pair.metric == "ppl"} == {("before", "after")}
    signature = results.signatures["ppl"]
    assert signature.startswith("ppl|mean(exp(nll/tokens))|start:<|endoftext|>|end:unscored|model:gpt2")
    assert "ppl" not in run_eval(EvalOptions([tmp_path / "before.txt"], resamples=5)).signatures


def test_other_weights_or_no_start_have_another_signature(folder: Path) -> None:
    model, again = load_language_model(str(folder)), load_language_model(str(folder))
    assert model.signature == again.signature
    with torch.no_grad():
        next(again.model.parameters()).mul_(1.01)
    changed = LanguageModel(again.model, again.tokenizer, again.name)
    assert changed.signature != model.signature
    assert "start:none" in load_language_model(str(folder), start=False).signature


def test_wrong_models_are_told_in_one_line(folder: Path, tiny_scorer: Path, tmp_path: Path) -> None:
    (tmp_path / "c.txt").write_text("a\nb\n")
    with pytest.raises(UsageError, match="'ppl' requires a language model; add --set language_model=gpt2"):
        run_eval(EvalOptions([tmp_path / "c.txt"], metrics=["ppl"]))
    with pytest.raises(UsageError, match=r"perplexity requires a language model.*--set language_model=gpt2"):
        load_language_model("scenes")
    with pytest.raises(TellapartError, match="expected a causal language model such as gpt2"):
        load_language_model(str(tiny_scorer))
    with pytest.raises(UsageError, match="does not exist"):
        load_language_model("./nowhere")


def test_the_command(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "said.txt").write_text("\n".join(CAPTIONS))
    command = ["eval", "--captions", str(tmp_path / "said.txt"), "--set", f"language_model={folder}", "--json"]
    found = json.loads(
        CliRunner().invoke(whole_app(), [*command, "--metrics", "ppl,ppl_corpus", "--resamples", "5"]).stdout
    )
    assert found["systems"]["said"]["ppl"]["n"] == 5 and found["systems"]["said"]["ppl_corpus"]["value"] > 1


def test_importing_the_metric_does_not_load_torch() -> None:
    code = "import sys; from tellapart.metrics import ppl, clipscore, div1, mbleu; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
