"""Calibration of claims in eval: literal formulas, numbers by hand, and a caption file with several captions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

from tellapart.data import open_data
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.metrics import calibration
from tellapart.evaluation.metrics.calibration import auroc, brier, expected_calibration_error, histograms

Claims = list[tuple[float, bool]]


def drawn(seed: int, samples: int = 10, pictures: int = 12) -> list[Claims]:
    rng = np.random.default_rng(seed)
    return [
        [(int(rng.integers(1, samples + 1)) / samples, bool(rng.integers(2))) for _ in range(rng.integers(0, 7))]
        for _ in range(pictures)
    ]


def literal_auroc(claims: Claims) -> float:
    true, false = ([q for q, y in claims if y == side] for side in (True, False))
    wins = [1.0 if p > n else 0.5 if p == n else 0.0 for p in true for n in false]
    return sum(wins) / len(wins)


def literal_ece(claims: Claims) -> float:
    total = 0.0
    for number in range(10):
        inside = [(q, y) for q, y in claims if number < round(10 * q, 9) <= number + 1]
        if inside:
            gap = sum(q for q, _ in inside) / len(inside) - sum(y for _, y in inside) / len(inside)
            total += len(inside) / len(claims) * abs(gap)
    return total


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("samples", [3, 10, 16])
def test_each_number_is_its_formula(seed: int, samples: int) -> None:
    claims_N = drawn(seed, samples)
    claims = [claim for each in claims_N for claim in each]
    level_G, counts = histograms({"x": claims_N, "y": drawn(seed + 1, samples)})
    count_NC = counts["x"]
    sums_C = count_NC.sum(0)
    assert float(brier(level_G, sums_C)) == pytest.approx(sum((q - y) ** 2 for q, y in claims) / len(claims))
    assert float(auroc(level_G, sums_C)) == pytest.approx(literal_auroc(claims))
    assert float(expected_calibration_error(level_G, sums_C)) == pytest.approx(literal_ece(claims))
    weights_RN = np.array([[2.0] + [1.0] * (len(claims_N) - 1), [1.0] * len(claims_N)])
    again = [*claims_N[0], *claims]
    assert brier(level_G, weights_RN @ count_NC)[0] == pytest.approx(sum((q - y) ** 2 for q, y in again) / len(again))


def test_without_false_claims_there_is_no_auroc() -> None:
    level_G, counts = histograms({"x": [[(0.5, True)], [(1.0, True)]]})
    count_NC = counts["x"]
    assert np.isnan(auroc(level_G, count_NC.sum(0))) and float(brier(level_G, count_NC.sum(0))) == 0.125


CAPTIONS = {
    "1": ["a red ball", "a red ball", "a ball", "a dog"],
    "2": ["a cat", "a cat", "a cat", "a cat"],
}
REFERENCES = {"1": ["a red ball on grass"], "2": ["two dogs"]}


def test_numbers_by_hand() -> None:
    """Claims: ball 3/4 true, red 2/4 true, dog 1/4 false; cat 4/4 false."""
    pytest.importorskip("HanTa")
    names = [f"calibration_{name}" for name in ("brier", "auroc", "ece")]
    found = evaluate({"mine": CAPTIONS}, references=REFERENCES, metrics=names, resamples=50)
    expected = {
        "calibration_brier": (0.25**2 + 0.5**2 + 0.25**2 + 1) / 4,
        "calibration_auroc": 2 / 4,
        "calibration_ece": (0.25 + 0.5 + 0.25 + 1) / 4,
    }
    assert {name: found.systems["mine"][name].value for name in names} == pytest.approx(expected)
    assert found.systems["mine"]["calibration_brier"].n == 4  # claims


def test_a_paired_test_swaps_confidences_that_only_one_system_has() -> None:
    """Two pictures have four permutations; the columns of the counts must mean the same for both systems."""
    pytest.importorskip("HanTa")
    systems = {
        "a": {"1": ["a red ball", "a ball"], "2": ["a cat", "a dog"]},
        "b": {"1": ["a red ball", "a ball", "a ball"], "2": ["a cat", "a cat", "a dog"]},
    }

    def error(*texts: list[str]) -> float:
        captions = dict(zip("12", texts, strict=True))
        found = evaluate({"x": captions}, references=REFERENCES, metrics=["calibration_brier"], resamples=9)
        return found.systems["x"]["calibration_brier"].value

    found = evaluate(systems, references=REFERENCES, metrics=["calibration_brier"], resamples=2000)
    one, other = systems["a"], systems["b"]
    observed = error(one["1"], one["2"]) - error(other["1"], other["2"])
    swapped = error(other["1"], one["2"]) - error(one["1"], other["2"])
    (pair,) = found.pairs
    assert abs(pair.difference.value) == pytest.approx(abs(observed))
    assert pair.difference.p == pytest.approx(1.0 if abs(swapped) >= abs(observed) else 0.5, abs=0.05)


def test_confidences_of_a_file_with_one_caption_per_picture(cli: Cli, tmp_path: Path) -> None:
    """Claims: ball 0.75 true, red 0.5 true, cat 1 false. The file does not state grass; the caption does not make dog.

    A file with several captions per picture is measured by its captions.
    """
    pytest.importorskip("HanTa")

    def claim(share: float, *words: str) -> dict[str, object]:
        return {"kind": "object" if len(words) == 1 else "attribute", "claim": words, "share": share}

    stated = {
        "1": [claim(0.75, "ball"), claim(0.5, "ball", "red"), claim(0.25, "dog")],
        "2": [claim(1, "cat")],
    }
    rows = [{"id": id_, "caption": text} for id_, text in (("1", "a red ball on grass"), ("2", "a cat"))]
    references = [{"id": f"{id_}.jpg", "captions": texts} for id_, texts in REFERENCES.items()]
    several = [{"id": id_, "captions": texts, "claims": stated[id_]} for id_, texts in CAPTIONS.items()]
    with_claims = [{**row, "claims": stated[row["id"]]} for row in rows]
    for name, lines in {"plain": rows, "one": with_claims, "several": several, "refs": references}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    notes: list[str] = []

    def run(*names: str) -> tuple[dict[str, float], str]:
        files = [option for name in names for option in ("--captions", tmp_path / f"{name}.jsonl")]
        done = cli(
            "eval", *files, "--references", tmp_path / "refs.jsonl", "--metrics", "calibration_brier", "--resamples", 9,
            "--json",
        )  # fmt: skip
        found = json.loads(done.out)
        notes[:] = found["notes"]
        values = {name: own["calibration_brier"]["value"] for name, own in found["systems"].items() if own}
        return values, found["signatures"]["calibration_brier"]

    one, several_value = (0.25**2 + 0.5**2 + 1) / 3, (0.25**2 + 0.5**2 + 0.25**2 + 1) / 4
    values, signature = run("one")
    assert values == pytest.approx({"one": one}) and "|q:share-in-file|" in signature
    assert "one: calibration omits 2 claims in its captions, such as 'grass' for '1.jpg'" in " ".join(notes)
    values, signature = run("several", "plain")
    assert values == pytest.approx({"several": several_value}) and "|q:share-of-captions|" in signature
    values, signature = run("one", "several")
    assert values == pytest.approx({"one": one, "several": several_value})
    assert "|q:share-of-captions+share-in-file|" in signature
    command = ("eval", "--captions", tmp_path / "plain.jsonl", "--references", tmp_path / "refs.jsonl", "--metrics")
    assert "repeats ids, or one written by tellapart caption --claims" in cli(*command, "calibration").line
    wrong = [{**rows[0], "claims": [claim(75, "ball")]}, rows[1]]
    (tmp_path / "plain.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wrong))
    assert "plain.jsonl, line 1: expected claims such as {'kind'" in cli(*command, "calibration").line


def test_captions_without_any_stored_confidence_have_no_number(cli: Cli, tmp_path: Path) -> None:
    """The captions were replaced after their claims were stored; the reference file ends in ``.ndjson``."""
    pytest.importorskip("HanTa")
    claim = {"kind": "object", "claim": ["dog"], "share": 0.5}
    rows = [{"id": id_, "caption": text, "claims": [claim]} for id_, text in (("1", "a red ball"), ("2", "a cat"))]
    (tmp_path / "edited.ndjson").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "refs.json").write_text(json.dumps(REFERENCES))
    done = cli(
        "eval", "--captions", tmp_path / "edited.ndjson", "--references", tmp_path / "refs.json", "--metrics",
        "calibration", "--resamples", 9, "--json",
    )  # fmt: skip
    found = json.loads(done.out)
    assert not found["systems"].get("edited")
    assert any("edited: calibration omits 3 claims" in note for note in found["notes"])


def test_human_references_do_not_confirm_themselves() -> None:
    pytest.importorskip("HanTa")
    references = {"1": ["a red ball", "a cat"], "2": ["two dogs", "a dog"]}
    found = evaluate({"x": CAPTIONS}, references=references, metrics=["calibration_brier"], human="mean", resamples=9)
    assert set(found.systems) == {"x"}
    assert any("human has no calibration" in note for note in found.notes)


def test_each_systems_claims_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three metrics of three systems need one count of each system's claims."""
    pytest.importorskip("HanTa")
    counted = []

    def counting(systems: Mapping[int, list[Claims]]) -> tuple[np.ndarray, dict[int, np.ndarray]]:
        counted.append(len(systems))
        return histograms(systems)

    monkeypatch.setattr(calibration, "histograms", counting)
    systems = dict.fromkeys("abc", CAPTIONS)
    names = ["calibration"]
    found = evaluate(systems, references=REFERENCES, metrics=names, resamples=9, pairs="all")
    assert counted == [3] and len(found.pairs) == 9


def test_calibration_has_no_best_caption(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("HanTa")
    (tmp_path / "many.json").write_text(json.dumps(CAPTIONS))
    (tmp_path / "refs.json").write_text(json.dumps(REFERENCES))
    files = ("eval", "--captions", tmp_path / "many.json", "--references", tmp_path / "refs.json")
    assert (
        "all captions of a picture together, so it has no .oracle; request calibration_brier"
        in cli(*files, "--metrics", "calibration_brier.oracle").line
    )


def test_a_metric_of_the_users_own_gets_the_stored_confidences(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read depends on the metric's needs, not on its name."""
    (tmp_path / "own_metrics.py").write_text(OWN_METRIC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    claim = {"kind": "object", "claim": ["dog"], "share": 0.25}
    row = {"id": "1", "caption": "a dog", "claims": [claim]}
    (tmp_path / "one.jsonl").write_text(json.dumps(row) + "\n")
    done = cli(
        "eval", "--captions", "one.jsonl", "--metrics", "own_metrics:doubt", "--resamples", 9, "--json",
    )  # fmt: skip
    assert json.loads(done.out)["systems"]["one"]["doubt"]["value"] == 0.75


OWN_METRIC = """
import numpy as np
from tellapart.metrics.metric import ContextMetric
from tellapart.metrics.corpus_scores import Measurement


def one_minus_share(context, slot):
    return Measurement(np.array([1 - min(own.values()) for own in slot.confidences]))


doubt = ContextMetric(name="doubt", factory=one_minus_share, needs=("confidences",))
"""


def test_a_file_of_several_captions_on_the_command_line(cli: Cli, tmp_path: Path) -> None:
    """Scenes: right claims in most captions, wrong ones in few."""
    rows = []
    for item in open_data("scenes:plain?split=train&n=6"):
        thing = item.truth.objects[0]
        right = f"a {thing.colour} {thing.shape}"
        rows.append({"id": item.id, "captions": [right, right, f"a purple {thing.shape}"]})
    (tmp_path / "samples.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = cli(
        "eval", "--captions", str(tmp_path / "samples.jsonl"), "--data", "scenes:plain?split=train&n=6", "--metrics",
        "calibration_exact", "--resamples", "20", "--json",
    )  # fmt: skip
    metrics = next(iter(json.loads(done.out)["systems"].values()))
    assert set(metrics) >= {"calibration_exact_brier", "calibration_exact_auroc", "calibration_exact_ece"}
    assert 0 < metrics["calibration_exact_brier"]["value"] < 0.3 and metrics["calibration_exact_auroc"]["value"] > 0.9
