"""A language model without pictures: prompts for pictures, answers for captions, and the same loop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from benchmarks.transformers_generate import generation_config
from tellapart.captioners import load_captioner
from tellapart.captioners.text_only import NONE, TextOnly
from tellapart.data import open_data
from tellapart.data.readers.instructions import WITH_INPUT, WITHOUT_INPUT
from tellapart.errors import UsageError
from tellapart.inference.caption import caption_pictures
from tellapart.models.decoding import Decoding
from tellapart.models.word_tokenizer import word_tokenizer
from tellapart.objectives import Smile
from tellapart.recipe.reading import check_recipe
from tellapart.training.runs import train
from tellapart.types import Batch

COLOURS = ["red", "blue", "green", "yellow"]
ENTRIES = [
    {
        "instruction": f"Name the colour of the {thing}",
        "input": colour if n % 2 else "",
        "output": f"the {thing} is {colour}",
    }
    for n, (thing, colour) in enumerate((thing, colour) for thing in ("ball", "house", "cat") for colour in COLOURS)
]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "alpaca.json"
    path.write_text(json.dumps(ENTRIES))
    return path


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a language model with large random weights, as transformers saves it."""
    texts = [text for entry in ENTRIES for text in (*entry.values(), WITH_INPUT, WITHOUT_INPUT)]
    tokenizer = word_tokenizer(texts, max_length=128)
    ends = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    torch.manual_seed(0)
    made: Any
    if request.param == "gpt2":
        made = GPT2LMHeadModel(
            GPT2Config(vocab_size=len(tokenizer), n_positions=128, n_embd=16, n_layer=1, n_head=2, **ends)
        )
    else:
        size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        made = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), max_position_embeddings=128, **size, **ends))
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(8 if parameter.ndim > 1 else 1)
    folder = tmp_path_factory.mktemp(request.param)
    made.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def loaded(model: Path) -> TextOnly:
    captioner = load_captioner(str(model))
    assert isinstance(captioner, TextOnly)
    return captioner


def prompts_of(captioner: TextOnly, data: Path) -> torch.Tensor:
    items = list(open_data(f"instructions:{data}"))
    return torch.from_numpy(captioner.prompt_rows([(item.id, item.picture.text) for item in items]))  # type: ignore[attr-defined]


def test_prompts_are_alpacas_and_lie_at_the_right(model: Path, data: Path) -> None:
    captioner = loaded(model)
    visual, items = prompts_of(captioner, data), list(open_data(f"instructions:{data}"))
    lengths = (visual != NONE).sum(1)
    assert len(set(lengths.tolist())) > 1 and (visual[:, -1] != NONE).all()
    assert items[0].picture.text == WITHOUT_INPUT.format(instruction="Name the colour of the ball")  # type: ignore[attr-defined]
    assert items[1].picture.text.endswith("### Input:\nblue\n\n### Response:")  # type: ignore[attr-defined]
    assert captioner.end not in visual and items[0].references == ("the ball is red",)


def test_prompts_of_unequal_length_do_not_touch_one_another(model: Path, data: Path) -> None:
    """Scores of a batch are those that the plain model gives each prompt and answer alone, unpadded."""
    captioner = loaded(model)
    visual = prompts_of(captioner, data)[:4]
    rows = captioner.tokenize(["the ball is red", "blue", "the cat", "green ball is the house"])
    tokens_RT, valid_RT = captioner.pad(rows)
    with torch.no_grad():
        together = captioner.logits(visual, tokens_RT, valid_RT)
        for n, row in enumerate(rows):
            prompt = [token for token in visual[n].tolist() if token != NONE]
            plain = captioner.model(input_ids=torch.tensor([prompt + row[:-1]])).logits[0, len(prompt) - 1 :]
            assert torch.allclose(together[n, : len(row)], plain, atol=1e-4)


def test_what_is_generated_is_what_teacher_forcing_scores(model: Path, data: Path) -> None:
    captioner = loaded(model)
    visual = prompts_of(captioner, data)[:5]
    for samples, decoding in ((1, Decoding(max_tokens=8)), (3, Decoding(kind="sample", samples=3, max_tokens=8))):
        told = captioner.generate(visual, decoding)
        assert len(told.texts) == 5 * samples and told.samples == samples
    told = captioner.generate(visual, Decoding(max_tokens=8))
    logits = captioner.logits(visual, told.tokens_RT, told.valid_RT)
    assert (logits.argmax(-1) == told.tokens_RT)[told.valid_RT].all() and len(set(told.texts)) > 1


def test_a_model_that_squeezes_its_scores_has_no_linear_head(model: Path, data: Path) -> None:
    captioner = loaded(model)
    assert captioner.head() is not None
    visual, (tokens_RT, valid_RT) = prompts_of(captioner, data)[:1], captioner.pad(captioner.tokenize(["red"]))
    plain = captioner.model.forward

    def squeezed(*inputs: Any, **told: Any) -> Any:
        output = plain(*inputs, **told)
        output.logits = 2 * (output.logits / 2).tanh()
        return output

    captioner.model.forward = squeezed
    vars(captioner).pop("plain")
    assert captioner.head() is None
    assert captioner.logits(visual, tokens_RT, valid_RT).abs().max() <= 2


def test_smiles_subset_is_the_answers_own_words(model: Path, data: Path) -> None:
    """The loss is a softmax over the words of the answer alone: no word of the prompt, no padding."""
    captioner = loaded(model)
    visual = prompts_of(captioner, data)[:2]
    rows = captioner.tokenize(["the ball is red", "the ball is blue"])
    tokens_RT, valid_RT = captioner.pad(rows)
    batch = Batch([], torch.arange(2), visual, tokens_RT, valid_RT)
    with torch.no_grad():
        found = float(Smile(Smile.Config(kind="smile", subset="own", first_token="mle"))(captioner, batch).value)
        scores = captioner.logits(visual, tokens_RT, valid_RT)
    expected = []
    for n, row in enumerate(rows):
        for t, label in enumerate(row):
            words = list(range(scores.shape[-1])) if t == 0 else sorted(set(row))
            expected.append(float(scores[n, t, words].logsumexp(0) - scores[n, t, label]))
    assert found == pytest.approx(np.mean(expected), rel=1e-4)


def table_of(model: Path, data: Path, objective: dict[str, Any], **captioner: Any) -> dict[str, Any]:
    spec = f"instructions:{data}"
    return {
        "name": "text",
        "data": {"train": spec, "validation": spec, "test": f"{spec}?limit=4"},
        "captioner": {"name": str(model), **captioner},
        "objective": objective,
        "training": {"steps": 30, "batch_size": 6, "learning_rate": 1e-2, "log_every": 1, "checkpoint_every": 30},
        "validation": {"every": 30, "select": "loss", "decoding": {"max_tokens": 6}},
        "evaluation": {"decoding": {"max_tokens": 6}},
    }


REINFORCE = {"kind": "reinforce", "rewards": [{"kind": "cider"}], "baseline": "leave_one_out",
             "decoding": {"kind": "sample", "samples": 3, "max_tokens": 6}}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("objective", [{"kind": "mle"}, {"kind": "smile"}, REINFORCE], ids=lambda o: o["kind"])
def test_it_trains_in_the_one_loop_and_plain_transformers_loads_it(
    model: Path, data: Path, tmp_path: Path, objective: dict[str, Any]
) -> None:
    measured = objective["kind"] == "mle"
    run = train(check_recipe(table_of(model, data, objective), "test"), tmp_path / "run", evaluate=measured)
    steps = [json.loads(line) for line in run.log_path.read_text().splitlines()]
    losses = [line["loss"] for line in steps if "event" not in line]
    if objective["kind"] != "reinforce":
        assert np.mean(losses[-3:]) < 0.7 * np.mean(losses[:3])
    if measured:
        assert {path.name for path in (run.folder / "captions").iterdir()} == {"before.jsonl", "after.jsonl"}
        assert "cider" in json.loads((run.folder / "results.json").read_text())["systems"]["after"]
    plain = AutoModelForCausalLM.from_pretrained(run.folder / "model")
    tokenizer, trained = AutoTokenizer.from_pretrained(run.folder / "model"), loaded(run.folder)
    prompt = prompts_of(trained, data)[:1]
    ids = torch.tensor([[token for token in prompt[0].tolist() if token != NONE]])
    config = generation_config(Decoding(max_tokens=6), tokenizer, [trained.end])
    new = plain.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)[:, ids.shape[1] :]
    text = tokenizer.batch_decode(new, skip_special_tokens=True)[0].strip()
    assert trained.generate(prompt, Decoding(max_tokens=6)).texts == [text]
    out = tmp_path / "answers.jsonl"
    told = caption_pictures(
        trained, open_data(f"instructions:{data}"), out, decoding=Decoding(max_tokens=6), progress=False
    )
    assert told.written == len(ENTRIES)
    answers = [json.loads(line) for line in out.read_text().splitlines() if '"caption"' in line]
    assert next(line["caption"] for line in answers if line.get("id") == "1") == " ".join(text.split())


def test_lora_is_merged(model: Path, data: Path, tmp_path: Path) -> None:
    modules = ["c_attn"] if "gpt2" in model.name else ["q_proj", "v_proj"]
    table = table_of(model, data, {"kind": "smile"}, lora={"rank": 2, "modules": modules})
    run = train(check_recipe(table, "test"), tmp_path / "run", evaluate=False)
    before, after = (AutoModelForCausalLM.from_pretrained(x).state_dict() for x in (model, run.folder / "model"))
    moved = {name for name in after if not torch.equal(before[name], after[name])}
    assert set(before) == set(after) and moved and all(any(m in name for m in modules) for name in moved)


def test_what_does_not_fit_together_is_one_line(model: Path, data: Path, tmp_path: Path) -> None:
    captioner = loaded(model)
    with pytest.raises(UsageError, match=r"the prompt of long has \d+ tokens, but .* has 128 positions, up to 64 of"):
        captioner.prompt_rows([("long", "red " * 200)])
    table = table_of(model, data, {"kind": "mle"})
    with pytest.raises(UsageError, match=r"is a language model without vision, but .* is a picture; use data such as"):
        train(
            check_recipe({**table, "data": dict.fromkeys(("train", "validation"), "scenes:plain?n=8")}, "t"),
            tmp_path / "r",
        )
    lines = tmp_path / "bad.jsonl"
    for entry, told in (
        ({"instruct": "a"}, 'line 1: missing "instruction" or "prompt"; did you mean \'instruct\''),
        ({"instruction": "a", "prompt": "b"}, 'line 1: both "prompt" and "instruction"'),
        ({"instruction": "a", "output": 3}, 'line 1: expected "output" to be a string or a list of strings'),
        ({"instruction": 3}, 'line 1: expected "instruction" to be a string, got 3'),
    ):
        lines.write_text(json.dumps(entry))
        with pytest.raises(UsageError, match=told):
            open_data(f"instructions:{lines}")
    lines.write_text('{"prompt": "say it", "output": ["a", "b"], "id": "x", "split": "dev"}\n\n')
    (item,) = open_data(f"instructions:{lines}?split=val")
    assert (item.id, item.references, item.picture.text) == ("x", ("a", "b"), "say it")  # type: ignore[attr-defined]


def test_long_answers_are_cut_and_counted(model: Path) -> None:
    captioner = loaded(model)
    rows = captioner.tokenize(["red " * 100, "blue"])
    assert len(rows[0]) == captioner.max_caption_tokens == 64 and captioner.end not in rows[0]
    assert rows[1][-1] == captioner.end and captioner.cut_texts == 1
