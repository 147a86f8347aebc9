"""A captioner of the user's own: the example of the docs, run as it stands there."""

from __future__ import annotations

import itertools
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertTokenizer

from tellapart.captioners import Captioner, generate_captions, load_captioner
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe
from tellapart.training.build import TrainingSetup
from tellapart.training.loop import fit
from tellapart.training.run_folder import Run
from tellapart.training.runs import upstream
from tellapart.utils.allowed_code import allow_code

DOCS = Path(__file__).parent.parent.parent / "docs" / "howto" / "own-captioner.md"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "circle", "blue", "square", "left", "of", "the"]


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a user would type, with the docs' file beside it."""
    code = re.search(r"```python\n(\"\"\"my_captioner\.py.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None and len(code[1].splitlines()) < 75
    (tmp_path / "my_captioner.py").write_text(code[1], encoding="utf-8")
    (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
    BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path / "words")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_captioner", raising=False)
    torch.manual_seed(0)
    allow_code("my_captioner:make", "my_captioner:build", "no_such_module:make", "collections:OrderedDict")
    return f"my_captioner:make?tokenizer={tmp_path}/words&width=16"


OBJECTIVES: list[dict[str, Any]] = [
    {"kind": "mle"},
    {"kind": "smile"},
    {"kind": "reinforce", "decoding": {"kind": "sample", "max_tokens": 4}},
]


@pytest.mark.long
@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda objective: objective["kind"])
def test_the_docs_example_trains_saves_and_loads(
    name: str, objective: dict[str, Any], tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    small = {part: f"scenes:plain?n=8&split={part}" for part in ("train", "validation")}
    training = {**tiny_recipe["training"], "steps": 2, "batch_size": 4}
    validation = {"every": 2, "decoding": {"max_tokens": 4}}
    changes = {"data": small, "captioner": {"name": name}, "objective": objective, "training": training}
    recipe = check_recipe({**tiny_recipe, **changes, "validation": validation}, "test")
    setup, run = TrainingSetup(recipe, upstream), Run(tmp_path / "run", recipe)
    run.stamp("cpu")
    fit(setup, run)
    lines = [json.loads(line) for line in run.log_path.read_text().splitlines()]
    assert len([line for line in lines if "event" not in line]) == 2
    visual = setup.learner.encode(setup.learner.pixels([item.picture.image() for item in setup.validation_items[:3]]))
    setup.learner.save(tmp_path / "saved")
    again, decoding = load_captioner(str(tmp_path / "saved")), Decoding(kind="beam", beams=2, max_tokens=4)
    told = [generate_captions(one, visual.detach(), decoding) for one in (setup.learner, again)]
    assert told[0] == told[1]
    assert len(generate_captions(load_captioner(str(run.folder / "model")), visual.detach(), decoding)) == 3


def made(name: str) -> Captioner:
    captioner = load_captioner(name)
    with torch.no_grad():
        for parameter in captioner.model.parameters():
            parameter.mul_(2.0)
    return captioner


@pytest.mark.long
def test_beam_search_by_steps_finds_what_trying_everything_finds(name: str) -> None:
    captioner = load_captioner(name)
    T, V, end = 2, len(WORDS), captioner.end
    visual = torch.randn(12, 4, 16, generator=torch.Generator().manual_seed(1))
    told = captioner.generate(visual, Decoding(kind="beam", beams=V, max_tokens=T))
    rows = [(end,), *((a, b) for a, b in itertools.product(range(V), repeat=T) if a != end)]
    by_sum = 0
    for picture in range(len(visual)):
        sums = []
        for row in rows:
            tokens = torch.tensor([row])
            log_p = captioner.logits(visual[picture : picture + 1], tokens, tokens >= 0).log_softmax(-1)
            sums.append(float(log_p.gather(-1, tokens[..., None]).sum().detach()))
        best = max(range(len(rows)), key=lambda n: sums[n] / len(rows[n]))
        assert told.tokens_RT[picture][told.valid_RT[picture]].tolist() == list(rows[best])
        by_sum += sums.index(max(sums)) != best
    assert by_sum, "the test needs a picture whose likeliest caption has not the likeliest words"


def test_a_folder_to_save_to_may_be_a_string(name: str, tmp_path: Path) -> None:
    load_captioner(name).save(str(tmp_path / "saved"))
    assert type(load_captioner(str(tmp_path / "saved"))).__name__ == "MyCaptioner"


def test_greedy_and_samples_by_steps(name: str) -> None:
    captioner = made(name)
    visual = torch.randn(3, 4, 16, generator=torch.Generator().manual_seed(1))
    greedy = captioner.generate(visual, Decoding(max_tokens=5))
    logits_RTV = captioner.logits(visual, greedy.tokens_RT, greedy.valid_RT).detach()
    assert torch.equal(logits_RTV.argmax(-1)[greedy.valid_RT], greedy.tokens_RT[greedy.valid_RT])
    one = captioner.generate(visual, Decoding(kind="beam", beams=1, max_tokens=5))
    assert one.texts == greedy.texts
    torch.manual_seed(0)
    sampled = captioner.generate(visual[:1], Decoding(kind="sample", samples=3000, max_tokens=1, temperature=2.0))
    share = torch.bincount(sampled.tokens_RT[:, 0], minlength=len(WORDS)) / 3000
    tokens = torch.tensor([[captioner.end]])
    expected = (captioner.logits(visual[:1], tokens, tokens > 0)[0, 0] / 2).softmax(-1).detach()
    assert float((share - expected).abs().max()) < 0.04


def test_what_makes_no_captioner_is_one_line(name: str, tmp_path: Path) -> None:
    code = (tmp_path / "my_captioner.py").read_text(encoding="utf-8")
    (tmp_path / "my_captioner.py").write_text(code.replace("def encode", "def look"), encoding="utf-8")
    for bad, told in (
        ("collections:OrderedDict", "returned a OrderedDict; expected a tellapart"),
        ("my_captioner:build", "module my_captioner has no attribute 'build'"),
        ("no_such_module:make", "no module named 'no_such_module'"),
        (f"{name}&depth=3", "unexpected keyword argument 'depth'"),
        (name, "Can't instantiate abstract class MyCaptioner with abstract method encode"),
    ):
        with pytest.raises(UsageError, match=told) as caught:
            load_captioner(bad)
        assert "\n" not in str(caught.value)
