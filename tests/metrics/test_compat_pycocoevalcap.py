"""The shim against pycocoevalcap itself: the same calls, shapes and values, with Java on their side alone."""

from __future__ import annotations

import importlib
import json
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from coco_tools import needs_tools
from real_data import DATA

import tellapart.compat.pycocoevalcap as shim
from tellapart.errors import UsageError

GTS = {
    "b": [{"caption": "A dog runs (fast) on the grass."}, {"caption": "Two dogs, running!"}],
    "a": [{"caption": "A man's hat"}, {"caption": "the man is wearing  a hat"}],
    7: [{"caption": "something"}],
}
RES = {
    "b": [{"caption": "A dog is running\non grass"}],
    "a": [{"caption": "A man in a hat."}],
    7: [{"caption": "..."}],
}
RAW = (
    {1: ["A Dog,  runs.", "two\tdogs"], 2: ["the cat. Sat"], 3: ["a b c d e"]},
    {1: ["A Dog, runs."], 2: ["the cat ||| sat"], 3: ["a b c d"]},
)
NAMES = {"Bleu": "bleu.bleu", "Meteor": "meteor.meteor", "Rouge": "rouge.rouge", "Cider": "cider.cider"}


def both(name: str, module: str) -> tuple[Any, Any]:
    """A class of the tool and ours by the same path."""
    return tuple(
        getattr(importlib.import_module(f"{package}.{module}"), name)
        for package in ("pycocoevalcap", "tellapart.compat.pycocoevalcap")
    )  # type: ignore[return-value]


def shape(value: Any) -> Any:
    """The types of a result, and how many values it has."""
    if isinstance(value, list | tuple | np.ndarray):
        kind = tuple if isinstance(value, tuple) else list if isinstance(value, list) else np.ndarray
        return kind, [shape(inner) for inner in value]
    return isinstance(value, float)


@needs_tools
@pytest.mark.oracle
@pytest.mark.parametrize("raw", [False, True], ids=["tokenised", "raw"])
@pytest.mark.parametrize("name", NAMES)
def test_scores_are_those_of_the_tool(name: str, raw: bool, capsys: pytest.CaptureFixture[str]) -> None:
    theirs, ours = both(name, NAMES[name])
    tokenizer = shim.PTBTokenizer()
    gts, res = RAW if raw else (tokenizer.tokenize(GTS), tokenizer.tokenize(RES))
    expected = theirs().compute_score(gts, res)
    printed = capsys.readouterr().out
    found = ours().compute_score(gts, res)
    assert shape(found) == shape(expected)
    assert capsys.readouterr().out == printed
    np.testing.assert_allclose(found[0], expected[0], atol=1e-9)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-9)
    assert ours().method() == theirs().method()


@needs_tools
@pytest.mark.oracle
def test_the_tokenizer_is_that_of_the_tool() -> None:
    theirs, ours = both("PTBTokenizer", "tokenizer.ptbtokenizer")
    assert ours().tokenize(GTS) == theirs().tokenize(GTS)
    assert list(ours().tokenize(GTS)) == ["b", "a", 7]


@needs_tools
@pytest.mark.oracle
@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason="needs the sample data")
def test_a_coco_results_file(capsys: pytest.CaptureFixture[str]) -> None:
    """What a script of the COCO tools does, on 300 pictures; scorers one by one, for SPICE has no Java 8 here."""
    coco = pytest.importorskip("pycocotools.coco")
    known = {entry["id"]: entry for entry in karpathy()["images"]}
    results = [
        {"image_id": number, "caption": text}
        for number, text in zip(known, published("clipcap_coco_on_coco"), strict=True)
    ][:300]
    truth = coco.COCO()
    truth.dataset = karpathy()
    truth.createIndex()
    told = truth.loadRes([dict(row) for row in results])
    ours = shim.COCOEvalCap(truth, told)
    ours.params["image_id"] = told.getImgIds()
    ours.evaluate()
    gts, res = ({key: side.imgToAnns[key] for key in told.getImgIds()} for side in (truth, told))
    tokenizer = both("PTBTokenizer", "tokenizer.ptbtokenizer")[0]()
    gts, res = tokenizer.tokenize(gts), tokenizer.tokenize(res)
    for name, module in NAMES.items():
        corpus, values = both(name, module)[0]().compute_score(gts, res)
        if name == "Bleu":
            assert [ours.eval[f"Bleu_{n}"] for n in range(1, 5)] == pytest.approx(corpus)
        else:
            key = {"Meteor": "METEOR", "Rouge": "ROUGE_L", "Cider": "CIDEr"}[name]
            assert ours.eval[key] == pytest.approx(corpus, abs=1e-9)
            assert [ours.imgToEval[number][key] for number in gts] == pytest.approx(list(values), abs=1e-9)
    assert [entry["image_id"] for entry in ours.evalImgs] == list(gts)
    printed = capsys.readouterr()
    assert "CIDEr: " in printed.out and "SPICE" not in printed.out
    assert "SPICE is omitted:" in printed.err or "SPICE" in ours.eval


def karpathy() -> dict[str, Any]:
    """COCO's Karpathy test split in COCO's layout."""
    found: dict[str, Any] = json.loads((DATA / "annotations" / "coco_karpathy_test.json").read_text("utf-8"))
    return found


def published(name: str) -> list[str]:
    return (DATA / "published" / f"{name}.txt").read_text("utf-8").splitlines()


class Index:
    """The part of `pycocotools.coco.COCO` that an evaluation's own aggregation uses."""

    def __init__(self) -> None:
        self.dataset: dict[str, list[dict[str, Any]]] = {}

    def createIndex(self) -> None:
        self.imgToAnns = defaultdict(list)
        for annotation in self.dataset["annotations"]:
            self.imgToAnns[annotation["image_id"]].append(annotation)

    def getImgIds(self) -> list[Any]:
        return [image["id"] for image in self.dataset["images"]]

    def loadRes(self, results: list[dict[str, Any]]) -> Index:
        told = Index()
        told.dataset = {"images": self.dataset["images"], "annotations": results}
        told.createIndex()
        return told


def test_the_calls_of_a_benchmark_suite() -> None:
    """lmms-eval's COCO task aggregates so: names of ``eval``, an index made by hand, one metric at a time."""
    scope: dict[str, Any] = {}
    exec(
        "from tellapart.compat.pycocoevalcap.eval import COCOEvalCap, Bleu, Meteor, Rouge, Cider, Spice\n"
        "from tellapart.compat.pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer\n",
        scope,
    )
    truth = Index()
    truth.dataset = {
        "annotations": [
            {"image_id": 1, "caption": "A dog runs.", "id": 0},
            {"image_id": 1, "caption": "The dog is running.", "id": 1},
            {"image_id": 2, "caption": "Two cats.", "id": 2},
        ],
        "images": [{"id": 1}, {"id": 2}],
    }
    truth.createIndex()
    told = truth.loadRes([{"image_id": 1, "caption": "A dog runs"}, {"image_id": 2, "caption": "a cat"}])
    cap = scope["COCOEvalCap"](truth, told)
    tokenizer = scope["PTBTokenizer"]()
    gts = tokenizer.tokenize({key: cap.coco.imgToAnns[key] for key in cap.params["image_id"]})
    res = tokenizer.tokenize({key: cap.cocoRes.imgToAnns[key] for key in cap.params["image_id"]})
    score, _ = scope["Bleu"](4).compute_score(gts, res)
    assert type(score) is list and score[0] == pytest.approx(3 / 5)  # of five words "a dog runs"
    assert type(scope["Rouge"]().compute_score(gts, res)[0]) is float
    assert scope["Cider"]().compute_score(gts, res)[0] > 1


def test_what_does_not_fit_is_one_line() -> None:
    with pytest.raises(UsageError, match="picture 2 has no captions"):
        shim.Rouge().compute_score({1: ["a"], 2: ["b"]}, {1: ["a"]})
    with pytest.raises(UsageError, match="expected a list with one caption"):
        shim.Cider().compute_score({1: ["a"]}, {1: ["a", "b"]})
    with pytest.raises(UsageError, match="expected a list of references"):
        shim.Bleu().compute_score({1: []}, {1: ["a"]})
    with pytest.raises(UsageError, match="sigma=6"):
        shim.Cider(sigma=3.0)


def test_spice_has_no_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TELLAPART_SPICE", "/nowhere")
    with pytest.raises(UsageError, match=r"spice-1\.0\.jar.*graph_f, which is not SPICE"):
        shim.Spice()
