"""`eval --queries`: captions as an index for search, by words and by meaning."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from command_line import Cli

from tellapart.errors import UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.metrics.bm25 import BM25

CAPTIONS = {"a": "a black dog runs", "b": "a white cat sleeps", "c": "a white cat sleeps", "d": "two men at a table"}
QUERIES = {"a": ["black dog", "a hound"], "b": ["white cat"], "d": ["men"]}


def test_bm25_by_hand() -> None:
    score_N = BM25(["black dog", "dog dog cat cat"]).scores(["dog", "black"])
    idf_dog, idf_black = math.log(1 + 0.5 / 2.5), math.log(1 + 1.5 / 1.5)
    short, long = 1.2 * (0.25 + 0.75 * 2 / 3), 1.2 * (0.25 + 0.75 * 4 / 3)
    assert score_N == pytest.approx([(idf_dog + idf_black) / (1 + short), idf_dog * 2 / (2 + long)])


def test_ranks_are_counted_by_query_and_equal_captions_share_theirs() -> None:
    found = evaluate({"one": CAPTIONS}, queries=QUERIES, metrics=["search"]).systems["one"]
    # black dog and men first; a hound: "a" alone, three share the first rank, the fourth is longer; white cat: two do
    assert found["search_bm25_r10"].value == pytest.approx(100)
    assert found["search_bm25_r1"].value == pytest.approx(100 * (1 + 1 / 3 + 0.5 + 1) / 4)
    empty = evaluate({"one": dict.fromkeys(CAPTIONS, "")}, queries=QUERIES, metrics=["search"]).systems["one"]
    assert empty["search_bm25_r10"].value == 0


def test_the_captions_of_people_are_no_queries() -> None:
    references = {key: [text, f"{text} outside"] for key, text in CAPTIONS.items()}
    found = evaluate({"one": CAPTIONS}, references=references, queries=references, human="first", metrics=["search"])
    assert any(note.startswith("4 queries are removed for every system") for note in found.notes)
    with pytest.raises(UsageError, match="every query is identical to a human caption"):
        evaluate({"one": CAPTIONS}, references=references, queries=references, human="mean", metrics=["search"])


def test_queries_of_other_pictures_are_an_error(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text(json.dumps(CAPTIONS))
    (tmp_path / "queries.json").write_text(json.dumps({"x": "a dog", "y": "a cat"}))
    done = cli("eval", "--captions", str(tmp_path / "captions.json"), "--queries", str(tmp_path / "queries.json"))
    assert ": none of its queries belongs to a captioned picture;" in done.line


@pytest.mark.pretrained
def test_a_sentence_encoder_finds_other_words() -> None:
    from tellapart.evaluation.sentence_encoder import load_sentence_encoder

    encoder = load_sentence_encoder("minilm-l6", "cpu")
    queries = {"a": ["a hound"], "d": ["people having dinner"]}
    found = evaluate({"one": CAPTIONS}, queries=queries, query_encoder=encoder, metrics=["search"]).systems["one"]
    assert found["search_encoder_r1"].value == 100
    assert found["search_bm25_r1"].value < 50


def test_the_keys_of_json_are_those_of_the_docs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"x": "a dog", "y": "a cat"}))
    (tmp_path / "b.json").write_text(json.dumps({"x": "a dog", "y": "a dog"}))
    (tmp_path / "queries.json").write_text(json.dumps({"x": ["dog", "a brown dog"], "y": ["cat"]}))
    both = ("--captions", tmp_path / "a.json", "--captions", tmp_path / "b.json")
    done = cli("eval", *both, "--queries", tmp_path / "queries.json", "--metrics", "search_bm25_r1", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["systems"]["a"]["search_bm25_r1"].keys() == {"value", "low", "high", "n"}
    assert found["systems"]["a"]["search_bm25_r1"]["n"] == 3 and found["pictures"]["n"] == 2
    assert found["pairs"][0].keys() == {"a", "b", "metric", "difference", "low", "high", "n", "p"}
    assert "queries:3," in found["signatures"]["search_bm25_r1"] and found["pictures"].keys() == {"n", "ids"}
    assert (
        found["metrics"]["search_bm25_r1"].keys() == {"label", "help", "direction", "group", "digits"}
        and found["notes"]
    )
