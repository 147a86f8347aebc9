"""SPICE against a stand-in ``java``, which speaks the real tool's command line, version line, input and output.

The real tool requires Java 8 and half a gigabyte of parser; it is not run here.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.metrics import cider_d, spice, spider
from tellapart.metrics.registry import METRICS
from tellapart.metrics.spice_score import JAR, PARSER, spice_scores
from tellapart.recipe.reading import check_recipe
from tellapart.training.runs import train

# What the jar does with words for tuples: F of the caption's words with those of all references; 0/0 is null.
STAND_IN = """#!{python}
import json, os, sys
place = {place!r}
if sys.argv[1:] == ["-version"]:
    print('openjdk version "{version}" 2023-10-17\\nOpenJDK Runtime Environment', file=sys.stderr)
    sys.exit(0)
options, memory, jar, given, *rest = sys.argv[1:]
assert (options, memory, jar) == ("-jar", "-Xmx8G", "spice-1.0.jar") and os.path.isfile(jar), "no jar in this folder"
assert rest[::2][:2] == ["-cache", "-out"] and rest[4:] == ["-subset", "-silent"] and os.path.isdir(rest[1])
entries = json.load(open(given))
open(os.path.join(place, "runs.jsonl"), "a").write(json.dumps([sys.argv, entries]) + "\\n")
{trouble}
def score(said, told):
    tp, fp, fn = len(said & told), len(said - told), len(told - said)
    share = lambda a, b: a / b if b else None
    pr, re = share(tp, tp + fp), share(tp, tp + fn)
    f = share(2 * (pr or 0) * (re or 0), (pr or 0) + (re or 0)) if tp else (0.0 if said or told else None)
    return {{"pr": pr, "re": re, "f": f, "tp": tp, "fp": fp, "fn": fn, "numImages": 1}}
found = []
for entry in entries[::-1]:
    said, told = set(entry["test"].split()), set(" ".join(entry["refs"]).split())
    colours = {{"red", "green"}}
    scores = {{"All": score(said, told), "Color": score(said & colours, told & colours)}}
    found.append({{"image_id": entry["image_id"], "test_tuples": [], "ref_tuples": [], "scores": scores}})
json.dump(found, open(rest[3], "w"))
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a stand-in of a version, with trouble or not; returns what reads its runs."""
    folder = tmp_path / "spice"
    (folder / "lib").mkdir(parents=True)
    for name in (JAR, *PARSER):
        (folder / name).write_bytes(b"")
    java = tmp_path / "java8" / "java"
    java.parent.mkdir()

    def install(version: str = "1.8.0_392", trouble: str = "") -> Any:
        text = STAND_IN.format(python=sys.executable, place=str(tmp_path), version=version, trouble=trouble)
        java.write_text(text)
        java.chmod(0o755)
        monkeypatch.setenv("TELLAPART_JAVA", str(java))
        monkeypatch.setenv("TELLAPART_SPICE", str(folder))
        runs = tmp_path / "runs.jsonl"
        return lambda: [json.loads(line) for line in runs.read_text().splitlines()] if runs.exists() else []

    return install


def test_scores_come_back_in_the_order_of_the_captions(stand_in: Any) -> None:
    runs = stand_in()
    captions = ["A red dog.", "cats, cats", "two birds"]
    references = [["a red dog", "A dog runs!"], ["a cat"], ["two birds"]]
    corpus, score_N = spice(captions, references)
    # 3 of 3 words right, 3 of 4 told; none; all.
    assert score_N == pytest.approx([2 * 0.75 / 1.75, 0, 1]) and corpus == pytest.approx(score_N.mean())
    ((arguments, entries),) = runs()
    assert entries[0] == {"image_id": 0, "test": "a red dog", "refs": ["a red dog", "a dog runs"]}
    assert not Path(arguments[arguments.index("-out") + 1]).parent.exists(), "the folder of the run is left behind"


def test_categories_and_what_is_no_number(stand_in: Any) -> None:
    runs = stand_in()
    captions, references = ["a red dog", "."], [["a red dog"], ["!"]]
    first, second = spice_scores(captions, references)
    assert first["Color"]["f"] == 1 and first["All"]["pr"] == 1 and math.isnan(second["All"]["f"])
    corpus, score_N = spice(captions, references)
    assert math.isnan(corpus) and score_N[0] == 1 and math.isnan(score_N[1])
    assert len(runs()) == 1, "the same captions were given to the tool twice"


@pytest.mark.long
def test_training_with_spice_as_the_reward_asks_the_tool_once_a_step(
    stand_in: Any, tiny_recipe: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All samples of a step go to one run of Java; the scores that it gives are the rewards that are logged."""
    runs = stand_in()
    objective = {**tiny_recipe["objective"], "rewards": [{"kind": "spice"}], "baseline": "none"}
    training = {**tiny_recipe["training"], "steps": 3}
    table = {**tiny_recipe, "objective": objective, "training": training, "validation": {"every": 3}}
    run = train(check_recipe(table, "test"), tmp_path / "run", evaluate=False)
    entries = [entries for _, entries in runs()]
    assert [len(own) for own in entries] == [20, 20, 20], "one run a step, a caption of each picture of the batch"
    logs = [json.loads(line) for line in (run.folder / "log.jsonl").read_text().splitlines()]
    rewards = [log["reward"] for log in logs if "reward" in log]
    words = [[(set(e["test"].split()), set(" ".join(e["refs"]).split())) for e in own] for own in entries]
    expected = [np.mean([2 * len(a & b) / (len(a) + len(b)) for a, b in own]) for own in words]
    assert rewards == pytest.approx(expected, abs=1e-6)
    assert capfd.readouterr().err.count("SPICE: parsing captions and references in") <= 1, (
        "said once, not at every step"
    )


def test_nothing_to_score_runs_nothing(stand_in: Any) -> None:
    runs = stand_in()
    corpus, score_N = spice([], [])
    assert math.isnan(corpus) and score_N.shape == (0,) and runs() == []


def test_it_is_evaluated_when_named_only(stand_in: Any) -> None:
    runs = stand_in()
    captions, references = {"1": "a dog x", "2": "green cat"}, {"1": ["a dog y"], "2": ["green cat"]}
    assert "spice" not in evaluate({"s": captions}, references=references, resamples=20).signatures and not runs()
    results = evaluate({"s": captions}, references=references, metrics=["spice"], resamples=20)
    found = results.systems["s"]["spice"]
    assert found.value == pytest.approx(100 * (2 / 3 + 1) / 2) and found.low < found.high
    assert results.values["s"]["spice"] == pytest.approx([200 / 3, 100])
    assert results.signatures["spice"].startswith("spice|spice-1.0,corenlp-3.6.0|mean-of-captions|tok:ptb")
    assert len(runs()) == 1


@pytest.mark.parametrize(
    ("version", "told"), [("17.0.9", "is Java 17"), ("11.0.2", "is Java 11"), ("strange", "does not print its version")]
)
def test_another_java_is_refused_before_anything_runs(stand_in: Any, version: str, told: str) -> None:
    runs = stand_in(version)
    with pytest.raises(UsageError, match=f"requires Java 8.*{told}.*set TELLAPART_JAVA"):
        evaluate({"s": {"1": "a"}}, references={"1": ["a"]}, metrics=["length", "spice"], resamples=1)
    assert runs() == []


def test_what_is_missing_is_said(stand_in: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in()
    ready = METRICS["spice"].check
    assert ready is not None
    ready()
    monkeypatch.setenv("TELLAPART_JAVA", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="nowhere was not found"):
        ready()
    (tmp_path / "spice" / PARSER[1]).unlink()
    with pytest.raises(
        UsageError, match=r"does not contain lib/stanford-corenlp-3.6.0-models.jar .*get_stanford_models"
    ):
        ready()
    (tmp_path / "spice" / JAR).unlink()
    with pytest.raises(UsageError, match=r"does not contain spice-1\.0\.jar; set TELLAPART_SPICE"):
        ready()
    monkeypatch.delenv("TELLAPART_SPICE")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tellapart\[spice\]"):
        ready()


@pytest.mark.parametrize(
    ("trouble", "told"),
    [
        (
            "print('x\\\\nException in thread: no memory\\\\n at y'); sys.exit(1)",
            "status 1: Exception in thread: no memory",
        ),
        ("sys.exit(3)", "status 3: no output"),
        ("sys.exit(0)", "SPICE finished, but its output cannot be"),
        ("entries = entries[1:]", "no score for 1 captions"),
    ],
)
def test_trouble_in_the_tool_is_one_line(stand_in: Any, trouble: str, told: str) -> None:
    stand_in(trouble=trouble.replace("\\\\", "\\"))
    with pytest.raises(TellapartError, match=told):
        spice([f"a {told}", "b"], [["a"], ["b"]])


def test_a_resample_is_a_mean_of_captions(stand_in: Any) -> None:
    from tellapart.metrics.corpus_scores import Sums
    from tellapart.metrics.spice_score import spice_of, spice_stats

    stand_in()
    statistic = Sums(spice_stats(["a b", "c"], [["a b"], ["d"]]), spice_of)
    assert statistic(np.array([1.0, 1.0])) == 0.5 and statistic(np.array([3.0, 1.0])) == 0.75


def test_spider_is_the_mean_of_spice_and_cider_d(stand_in: Any) -> None:
    stand_in()
    captions, references = ["a dog runs", "a cat sits on a mat"], [["a dog is running"], ["a cat on a mat", "the cat"]]
    corpus, values = spider(captions, references)
    expected = (spice(captions, references)[1] + cider_d(captions, references)[1]) / 2
    assert values.tolist() == expected.tolist() and corpus == pytest.approx(expected.mean()) and corpus > 0
    own, told = dict(zip("12", captions, strict=True)), dict(zip("12", references, strict=True))
    results = evaluate({"s": own}, references=told, metrics=["SPIDEr"], resamples=20)
    assert results.systems["s"]["spider"].value == pytest.approx(100 * corpus)
    assert results.signatures["spider"].startswith("spider|mean(spice,cider-d)|spice-1.0")
    assert "spider" not in evaluate({"s": own}, references=told, resamples=5).systems["s"]
