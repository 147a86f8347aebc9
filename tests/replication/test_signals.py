"""Signals of false words: the area under the ROC curve by hand, and the judged words of real captions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

from replication.signals import EYE, SIGNALS, area, judge_by_eye, judge_by_references, judge_scene, measure_words
from tellapart.captioners import load_captioner
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.types import Item


def test_area_is_the_share_of_pairs_in_which_the_false_word_has_less() -> None:
    signal_W, false_W = np.array([0.1, 0.4, 0.4, 0.9]), np.array([True, False, True, False])
    assert area(signal_W, false_W) == (1 + 0.5 + 1 + 1) / 4  # of four pairs one is a tie
    assert area(-signal_W, false_W) == pytest.approx(1 - 3.5 / 4)
    assert np.isnan(area(signal_W, np.zeros(4, bool)))


def test_words_of_scenes_are_judged_by_the_truth_and_their_probability_tells_false_ones() -> None:
    captioner, items = load_captioner("scenes", "cpu", "fp32"), list(open_data("scenes:plain?split=test&n=60"))
    captioner.set_prompt("in this picture")
    found = measure_words(captioner, items, judge_scene, samples=4)
    assert found.signal_WK.shape == (len(found.false_W), len(SIGNALS)) and 0 < found.false_W.mean() < 0.2
    agreement = found.signal_WK[:, SIGNALS.index("agreement")]
    assert ((agreement >= 0) & (agreement <= 1)).all()
    assert area(found.signal_WK[:, 0], found.false_W) > 0.8


@pytest.mark.oracle
def test_a_noun_is_supported_by_the_word_its_stem_or_a_synset_of_the_references() -> None:
    item = Item("a", picture=None, references=("Two dogs run beside a sofa.",))  # type: ignore[arg-type]
    verdicts = judge_by_references(item, "a brown dog and a couch near a horse")
    assert verdicts == [None, False, False, None, True]  # brown and near are no nouns


def test_words_that_were_looked_for_in_the_picture_are_judged_in_these_captions_only(tmp_path: Path) -> None:
    caption = "a dog and a dog on a couch near a red hat"
    file = tmp_path / "words.jsonl"
    nouns = [["dog", "there"], ["dog", "not there"], ["couch", "unclear"], ["hat", "there"]]
    file.write_text(json.dumps({"id": "a.jpg", "caption": caption, "nouns": nouns}) + "\n")
    judge, item = judge_by_eye(file), Item("a.jpg", picture=None, references=())  # type: ignore[arg-type]
    assert judge(item, caption) == [False, True, None, None, None, False]  # near and red are no nouns
    assert set(judge(item, "a dog and a dog")) == {None}
    for wrong in ("{}", json.dumps({"id": "a", "caption": "a dog", "nouns": [["dog", "ther"]]})):
        file.write_text(wrong + "\n")
        with pytest.raises(UsageError, match=r"expected lines as those of words\.jsonl"):
            judge_by_eye(file)


def test_the_kept_words_are_300_nouns_most_of_which_could_be_judged() -> None:
    verdicts = [verdict for line in EYE.read_text().splitlines() for _, verdict in json.loads(line)["nouns"]]
    counts = {verdict: verdicts.count(verdict) for verdict in ("there", "not there", "unclear")}
    assert counts == {"there": 195, "not there": 62, "unclear": 43}


def test_the_command_prints_a_row_for_each_range_of_places(cli: Cli) -> None:
    asked = ("signals", "scenes", "scenes:plain?split=test&n=20", "--samples", 2, "--json")
    rows = json.loads(cli(*asked, package="replication.__main__").out)["rows"]
    assert rows[0]["place"] == [1, 99] and set(rows[0]["intervals"]) == set(SIGNALS)
    assert sum(row["n"] for row in rows[1:]) == rows[0]["n"]


@pytest.mark.parametrize(
    ("data", "told"),
    [("scenes:plain?n=1", "1 picture; mutual information compares pictures, so expected at least 2"),
     ("nowhere/", "no such file or folder")],
)  # fmt: skip
def test_what_cannot_be_measured_is_one_line(cli: Cli, data: str, told: str) -> None:
    assert told in cli("signals", "scenes", data, package="replication.__main__").line


def test_what_is_undefined_is_null_in_json_and_a_dash_in_the_table(cli: Cli) -> None:
    asked = ("signals", "scenes", "scenes:plain?n=3", "--samples", 2)  # three captions without a false word
    found = cli(*asked, "--json", package="replication.__main__")
    rows = json.loads(found.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))["rows"]
    assert rows[0]["false"] == 0 and rows[0]["log p"] is None and rows[0]["intervals"]["log p"] == [None, None]
    shown = cli(*asked, package="replication.__main__").out
    assert "–" in shown and "nan" not in shown


def test_a_batch_is_never_of_one_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    captioner, items = load_captioner("scenes", "cpu", "fp32"), list(open_data("scenes:plain?split=test&n=5"))
    monkeypatch.setattr("replication.signals.BATCH", 4)
    found = measure_words(captioner, items, judge_scene, samples=2)
    assert set(found.picture_W.tolist()) == set(range(5))
    information = found.signal_WK[found.picture_W == 4, SIGNALS.index("PMI")]
    assert (information != 0).all()  # a picture alone is its own average
