"""Words that are a system's own: the statistic by hand, the real tagger on real captions, the command."""

from __future__ import annotations

import json
import math
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from real_data import DATA
from rich.console import Console
from typer.testing import CliRunner

from tellapart.cli.whole_app import whole_app
from tellapart.errors import MissingExtra, UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval
from tellapart.metrics import associated_words
from tellapart.metrics.results import Results
from tellapart.metrics.terminal_table import terminal_table
from tellapart.metrics.typical_words import hanta, local_mutual_information, tagger_signature

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent; set TELLAPART_DATA")

PLAIN = ["a new image of people", "some other people", "a new beautiful view"]
RICH = ["a red dog and two blue cats", "the red cat runs", "a smaller red dog", "people and dogs"]


def test_local_mutual_information_by_hand() -> None:
    red, dog, people = ("red", "adjective"), ("dog", "noun"), ("people", "noun")
    found = local_mutual_information({"a": Counter({red: 6, dog: 2}), "b": Counter({dog: 2, people: 10})})
    # N = 20, f(a) = 8, f(b) = 12, f(dog) = 4.
    assert {word.lemma: word.lmi for word in found["a"]} == pytest.approx(
        {"red": 6 * math.log(6 * 20 / (6 * 8)), "dog": 2 * math.log(2 * 20 / (4 * 8))}
    )
    assert {word.lemma: word.lmi for word in found["b"]} == pytest.approx(
        {"people": 10 * math.log(10 * 20 / (10 * 12)), "dog": 2 * math.log(2 * 20 / (4 * 12))}
    )
    assert next(word for word in found["b"] if word.lemma == "dog").lmi < 0


def test_words_are_lemmas_by_part_of_speech_and_a_systems_own() -> None:
    found = associated_words({"plain": PLAIN, "rich": RICH}, 2)
    named = {system: [(word.pos, word.lemma, word.count) for word in own] for system, own in found.items()}
    assert named["rich"] == [("adjective", "red", 3), ("adjective", "blue", 1), ("noun", "dog", 3), ("noun", "cat", 2)]
    assert named["plain"][:2] == [("adjective", "new", 2), ("adjective", "beautiful", 1)]
    assert [word.lmi for word in found["rich"][:2]] == sorted((w.lmi for w in found["rich"][:2]), reverse=True)
    every = associated_words({"plain": PLAIN, "rich": RICH}, 100)
    assert all(word.lmi > 0 for own in every.values() for word in own)
    assert "people" in [word.lemma for word in every["plain"]] and "people" not in [w.lemma for w in every["rich"]]


def test_equal_captions_count_as_often_as_they_are_said() -> None:
    found = associated_words({"a": ["red"] * 5 + ["blue"], "b": ["dog"]}, 5, tag=lambda text: [(text, "noun")])
    assert [(word.lemma, word.count) for word in found["a"]] == [("red", 5), ("blue", 1)]


def test_the_tagger_reads_punctuation_and_contractions() -> None:
    lemmas = dict(hanta()("The man's dogs, which aren't small: mid-air!"))
    assert lemmas["dog"] == "noun" and lemmas["small"] == "adjective" and lemmas["man"] == "noun"
    assert "," not in lemmas and ":" not in lemmas and "not" in lemmas and "mid-air" in lemmas
    assert hanta()("") == [] and hanta()("!?") == []


def test_in_an_evaluation(tmp_path: Path) -> None:
    plain = {str(n): [text, "people"] for n, text in enumerate(PLAIN)}  # two captions a picture: all are read
    rich = {str(n): text for n, text in enumerate(RICH[:3])}
    results = evaluate({"plain": plain, "rich": rich}, metrics=["length"], resamples=9, words=3)
    found = results.to_json()
    json.dumps(found, allow_nan=False)
    assert found["words"]["rich"][0].keys() == {"lemma", "pos", "lmi", "count"}
    assert next(word for word in found["words"]["plain"] if word["lemma"] == "people")["count"] == 5
    assert found["signatures"]["words"] == f"words|{tagger_signature()}" and "HanTa-" in tagger_signature()
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(terminal_table(results))
    text = console.export_text()
    assert "adjectives most associated" in text and "red 3" in text and "\n  words" not in text
    again = Results.from_json(found)
    assert again.words == results.words
    assert "words" not in evaluate({"plain": plain, "rich": rich}, resamples=9).to_json()


def test_what_is_missing_is_told_before_anything_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a dog\n")
    (tmp_path / "b.txt").write_text("a cat\n")
    with pytest.raises(UsageError, match="word analysis compares systems; add a second"):
        run_eval(EvalOptions([tmp_path / "a.txt"], words=5))
    assert (
        run_eval(EvalOptions([tmp_path / "a.txt", tmp_path / "b.txt"], words=5, resamples=5)).words["a"][0].lemma
        == "dog"
    )
    monkeypatch.setitem(sys.modules, "HanTa", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'tellapart\[words\]'"):
        run_eval(EvalOptions([tmp_path / "a.txt", tmp_path / "b.txt"], words=5))


def test_the_command_prints_them(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("\n".join(PLAIN))
    (tmp_path / "rich.txt").write_text("\n".join(RICH[:3]))
    command = ["eval", "--captions", str(tmp_path / "plain.txt"), "--captions", str(tmp_path / "rich.txt")]
    command += ["--metrics", "length", "--resamples", "5", "--set", "words=2"]
    found = json.loads(CliRunner().invoke(whole_app(), [*command, "--json"]).stdout)
    assert found["words"]["rich"][0]["lemma"] == "red" and found["words"]["rich"][0]["pos"] == "adjective"
    assert "nouns most associated with each system" in CliRunner().invoke(whole_app(), command).stdout


@pytest.mark.data
@needs_data
def test_published_captions_have_the_words_that_one_expects() -> None:
    said = {
        name: (DATA / f"published/clipcap_{name}_on_coco.txt").read_text(encoding="utf-8").split("\n")[:600]
        for name in ("coco", "concap")
    }
    found = associated_words(said, 10)
    nouns = {system: {word.lemma for word in own if word.pos == "noun"} for system, own in found.items()}
    # Table 14 of paper 3, on other pictures: ClipCap trained on Conceptual Captions speaks of persons and actors.
    assert "person" in nouns["concap"] and {"man", "group"} & nouns["coco"]
