"""The metric folder for Hugging Face's evaluate, loaded as its users load it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tellapart.integrations.caption_metrics import FOLDER
from tellapart.metrics import bleu, cider_d

CAPTIONS = ["a dog runs on the grass", "two cats sleep on a bed", "a man rides a red bike"]
REFERENCES = [["a dog is running on grass", "the dog runs"], ["cats sleep on a bed"], ["a man on a bike", "a cyclist"]]


def test_evaluate_loads_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluate = pytest.importorskip("evaluate", reason="pip install evaluate")
    metric = evaluate.load(FOLDER, cache_dir=str(tmp_path))
    found = metric.compute(predictions=CAPTIONS, references=REFERENCES, metrics=["bleu4", "cider", "length"])
    assert found["cider"] == pytest.approx(cider_d(CAPTIONS, REFERENCES)[0])
    assert found["bleu4"] == pytest.approx(bleu(CAPTIONS, REFERENCES)[0]) and found["length"] == 6
    for text, own in zip(CAPTIONS, REFERENCES, strict=True):
        metric.add(prediction=text, reference=own)
    assert set(metric.compute()) == {"bleu4", "rouge_l", "cider"}
    alone = metric.compute(predictions=["a dog"], references=["a dog"], metrics="rouge_l")
    assert alone == {"rouge_l": pytest.approx(1)}


def test_the_card_has_what_the_hub_reads() -> None:
    card = (Path(FOLDER) / "README.md").read_text(encoding="utf-8")
    assert re.match(r"---\ntitle: .+\ntags: \[.*\]\ndescription: .+\n---\n", card)
    assert (Path(FOLDER) / f"{Path(FOLDER).name}.py").is_file()  # the name that evaluate expects
