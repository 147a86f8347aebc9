"""BERTScore: by hand on features, and against a plain loop over a tiny BERT and a tiny RoBERTa."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command_line import Cli
from tiny_blip import save_blip

from tellapart.errors import TellapartError, UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval
from tellapart.evaluation.text_encoder import TextEncoder, load_text_encoder
from tellapart.metrics import bertscore
from tellapart.metrics.bert_score import TokenFeatures

CAPTIONS = ["a red circle", "a dog on the grass", "two blue squares left of a star", "snow"]
REFERENCES = [["the red circle", "a circle"], ["a dog runs"], ["two squares", "a blue star"], ["a big snow field"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("tiny-bert")
    words = sorted({word for text in itertools.chain(CAPTIONS, *REFERENCES) for word in text.split()} - {"squares"})
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, "square", "##s"]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    tokenizer = BertTokenizerFast(vocab={word: number for number, word in enumerate(vocabulary)}, model_max_length=24)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=24,
    )  # fmt: skip
    model = BertModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def plain(model: TextEncoder, caption: str, reference: str) -> tuple[float, float, float]:
    """The formula token by token, one text at a time (Zhang et al. 2020, section 3)."""

    def states(text: str) -> tuple[list[Any], list[int]]:
        encoded = model.tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            hidden = model.model(**encoded, output_hidden_states=True).hidden_states[model.layer][0]
        inner = range(1, len(hidden) - 1)  # special tokens can be matched, and do not count
        return [state / state.norm() for state in hidden], list(inner)

    said, said_inner = states(caption)
    told, told_inner = states(reference)
    precision = sum(max(float(said[i] @ other) for other in told) for i in said_inner) / len(said_inner)
    recall = sum(max(float(told[i] @ other) for other in said) for i in told_inner) / len(told_inner)
    return precision, recall, 2 * precision * recall / (precision + recall)


class Fixed:
    """Features by hand: a special token (weight 0), then one per word."""

    table = {"x": [1.0, 0.0], "y": [0.0, 1.0], "z": [0.6, 0.8]}  # noqa: RUF012

    def token_features(self, texts: Any) -> list[TokenFeatures]:
        return [
            TokenFeatures(
                np.array([[0.8, 0.6], *(self.table[word] for word in text.split())]),
                np.array([0.0, *([1.0] * len(text.split()))]),
            )
            for text in texts
        ]


def test_the_formula_by_hand() -> None:
    found = bertscore(["x z"], [["y"]], encode=Fixed().token_features)
    # x: the special token at 0.8; z: the special token at 0.96 (0.8 with y). y: z at 0.8.
    assert found.precision[0] == pytest.approx((0.8 + 0.96) / 2) and found.recall[0] == pytest.approx(0.8)
    assert found.f[0] == pytest.approx(2 * 0.88 * 0.8 / 1.68)
    # Each number takes its own best reference.
    several = bertscore(["x z", "x", ""], [["y", "x x x"], ["x"], ["x"]], encode=Fixed().token_features)
    assert several.precision[1].tolist() == pytest.approx([0.98, 1, 0]) and several.recall[1][0] == pytest.approx(1)
    assert several.f[0] == pytest.approx(np.mean(several.f[1])) and several.f[1][2] == 0
    with pytest.raises(UsageError, match=r"references\[0\]: expected a list"):
        bertscore(["x"], [[]], encode=Fixed().token_features)


def test_a_tiny_bert_agrees_with_a_plain_loop(folder: Path) -> None:
    model = load_text_encoder(str(folder))
    assert model.layer == 3 and load_text_encoder(str(folder), layer=1).layer == 1
    found = bertscore(CAPTIONS, REFERENCES, encode=model.token_features)
    expected = np.array(
        [
            np.max([plain(model, caption, text) for text in held], axis=0)
            for caption, held in zip(CAPTIONS, REFERENCES, strict=True)
        ]
    )
    np.testing.assert_allclose(np.array([part[1] for part in found]).T, expected, atol=1e-5)
    same = bertscore(["a dog"], [["a dog"]], encode=model.token_features)
    assert expected.std() > 0.01 and same.f[0] == pytest.approx(1, abs=1e-5)


def test_a_roberta_sees_a_blank_before_the_first_word(tmp_path: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaModel, RobertaTokenizerFast

    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(
        CAPTIONS * 5, vocab_size=300, special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    )
    learned.save_model(str(tmp_path))
    merges = [tuple(line.split()) for line in (tmp_path / "merges.txt").read_text().split("\n")[1:] if line]
    tokenizer = RobertaTokenizerFast(vocab=json.loads((tmp_path / "vocab.json").read_text()), merges=merges)
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=20, pad_token_id=1,
    )  # fmt: skip
    model = TextEncoder(RobertaModel(config), tokenizer, "tiny")
    assert model.window == 18
    (one,), (two,) = model.token_features(["dog"]), model.token_features(["  dog "])
    assert model._rows(["dog"]) == [tokenizer(" dog")["input_ids"]] and (one.feature_TD == two.feature_TD).all()
    assert one.weight_T[0] == one.weight_T[-1] == 0 and len(model.token_features(["a dog " * 40])[0].weight_T) == 18
    assert model.cut_texts == 1


def test_in_an_evaluation(folder: Path, tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "own.txt").write_text("\n".join(CAPTIONS))
    (tmp_path / "told.txt").write_text("\n".join("\t".join(held) for held in REFERENCES))
    model = load_text_encoder(str(folder))
    found = bertscore(CAPTIONS, REFERENCES, encode=model.token_features)
    results = evaluate(
        {"own": dict(enumerate_(CAPTIONS))}, references=dict(enumerate_(REFERENCES)), text_encoder=model,
        metrics=["BERTScore"], resamples=20,
    )  # fmt: skip
    assert list(results.systems["own"]) == ["bertscore_p", "bertscore_r", "bertscore_f"]
    assert results.systems["own"]["bertscore_f"].value == pytest.approx(100 * found.f[0])
    assert results.signatures["bertscore_f"].startswith(
        f"bertscore_f|best-reference|layer:3|idf:none|rescaled:no|model:{folder.name}@"
    )
    command = ["eval", "--captions", str(tmp_path / "own.txt"), "--references", str(tmp_path / "told.txt")]
    out = cli(*command, "--set", f"bertscore={folder}", "--metrics", "bertscore_f", "--json").out
    assert json.loads(out)["systems"]["own"]["bertscore_f"]["value"] == pytest.approx(100 * found.f[0], abs=1e-3)
    with pytest.raises(UsageError, match="'bertscore_f' requires a text encoder; add --set bertscore=roberta-large"):
        run_eval(EvalOptions([tmp_path / "own.txt"], [tmp_path / "told.txt"], metrics=["bertscore_f"]))
    with pytest.raises(TellapartError, match="does not exist"):
        load_text_encoder("./nowhere")


def test_a_model_of_pictures_is_no_text_encoder(tmp_path: Path) -> None:
    save_blip(tmp_path, ["a", "dog"])
    with pytest.raises(UsageError, match="is a blip model; BERTScore requires a text encoder; add"):
        load_text_encoder(str(tmp_path))


def enumerate_(values: list[Any]) -> list[tuple[str, Any]]:
    return [(str(number), value) for number, value in enumerate(values)]
