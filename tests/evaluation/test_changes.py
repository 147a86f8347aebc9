"""Pictures where CIDEr falls, and captions that only the later system gets right: ``tellapart report changes``."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from tellapart.cli.whole_app import whole_app
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.evaluation.changes import count_claims, find_falls, find_only_right
from tellapart.metrics.cider import cider_d


def test_falls_are_sorted_by_the_truth_of_scenes() -> None:
    """Full descriptions are correct and cost CIDEr; those of another picture are false."""
    items = list(open_data("scenes:plain?n=60&split=test"))
    full = [item.references[0] for item in open_data("scenes:plain?n=60&split=test&full=true")]
    before = [item.references[0] for item in items]
    after = full[:30] + full[31:] + full[30:31]  # the second half describes the next picture
    references = [list(item.references[1:]) for item in items]
    falls, counts = find_falls(items, references, before, after, 60)
    values = [100 * cider_d(texts, references)[1] for texts in (before, after)]
    assert sum(counts.values()) == len(falls) == int(np.count_nonzero(values[1] < values[0])) > 30
    sizes = [fall.cider[1] - fall.cider[0] for fall in falls]
    assert sizes == sorted(sizes) and sizes[-1] < 0
    rows = {item.id: n for n, item in enumerate(items)}
    for fall in falls:
        if rows[fall.id] < 30:
            assert fall.kind in ("better", "equal") and fall.false == (0, 0) and fall.correct[1] >= fall.correct[0]
        elif fall.false[1]:
            assert fall.kind == "hallucinated"
    kinds = [fall.kind for fall in falls]
    assert kinds.count("better") > 10 and kinds.count("hallucinated") > 10
    few, same = find_falls(items, references, before, after, 2)
    assert same == counts and [fall.kind for fall in few].count("better") == 2
    assert few == [fall for fall in falls if fall in [one for one in falls if one.kind == fall.kind][:2]]
    assert find_falls(items, references, before, before, 60) == ([], {"better": 0, "equal": 0, "hallucinated": 0})


def test_without_a_truth_a_claim_is_correct_where_a_reference_makes_it() -> None:
    pytest.importorskip("HanTa")
    item = next(iter(open_data("scenes:plain?n=1&split=test")))
    photo = type(item)("7", item.picture)
    references = ["A woman serving a hot dog to a man", "two people standing in front of a food truck"]
    assert count_claims("a woman", photo, references) == (1, 0)
    correct, false = count_claims("a woman and a horse", photo, references)
    assert correct == 1 and false >= 1


def test_only_right_counts_who_picks_what() -> None:
    image_ND = np.eye(4)
    right, wrong = image_ND, np.roll(image_ND, 1, axis=0)
    text_ND = np.stack([right[0], wrong[1], right[2], wrong[3]])
    more_ND = np.stack([right[0], right[1], wrong[2], wrong[3]])
    texts = list("abcd")
    counts, only = find_only_right(texts, texts, texts, (text_ND, more_ND, image_ND))
    assert counts == {"both": 1, "only_before": 1, "only_after": 1, "neither": 1} and [one.id for one in only] == ["b"]


def test_the_command_reads_photos_and_files(tmp_path: Path, tiny_scorer: Path) -> None:
    pytest.importorskip("HanTa")
    (tmp_path / "photos").mkdir()
    said = {"1": ("a dog on grass", "a brown dog on grass"), "2": ("a cat", "a brown horse"), "3": ("a bus", "a bus")}
    for name in said:
        Image.new("RGB", (60, 40), (40 * int(name), 90, 20)).save(tmp_path / "photos" / f"{name}.jpg")
    for n, name in enumerate(("before", "after")):
        records = [{"image": f"{id_}.jpg", "caption": texts[n]} for id_, texts in said.items()]
        (tmp_path / f"{name}.json").write_text(json.dumps(records))
    references = [{"image": "1.jpg", "references": ["a brown dog on grass", "a dog on grass"]},
                  {"image": "2.jpg", "references": ["a cat"]}, {"image": "3.jpg", "references": ["a bus"]}]  # fmt: skip
    (tmp_path / "references.json").write_text(json.dumps(references))
    arguments = ["report", "changes", str(tmp_path / "before.json"), str(tmp_path / "after.json")]
    arguments += ["--data", f"folder:{tmp_path / 'photos'}"]
    error = CliRunner().invoke(whole_app(), arguments).exception
    assert isinstance(error, UsageError) and "CIDEr requires references, but some pictures have none; add" in str(error)
    arguments += ["--references", str(tmp_path / "references.json"), "--scorer", str(tiny_scorer)]
    done = CliRunner().invoke(whole_app(), [*arguments, "--json"])
    found = json.loads(done.stdout)
    assert [(fall["before"], fall["kind"]) for fall in found["falls"]] == [("a cat", "hallucinated")]
    assert found["kinds"] == {"better": 0, "equal": 0, "hallucinated": 1} and sum(found["retrieval"].values()) == 3
    shown = CliRunner().invoke(whole_app(), arguments).stdout
    assert "CIDEr decreases on 1 of 3 pictures" in shown and "a brown horse" in shown
    (tmp_path / "after.json").write_text(json.dumps(records[:2]))
    arguments = arguments[: arguments.index("--scorer")]
    error = CliRunner().invoke(whole_app(), arguments).exception
    assert isinstance(error, UsageError) and "fix the files, or pass --allow-missing to score the rest" in str(error)
    assert "of 2 pictures" in CliRunner().invoke(whole_app(), [*arguments, "--allow-missing"]).stdout
