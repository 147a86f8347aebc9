"""Whole claims with the tiny models: arms are trained once, write their captions once, and the rule is applied."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from chromium import NEEDS_CHROMIUM, chromium

from replication import all_claims
from replication.bootstrap import PartResult
from replication.claim import Arm, Claim, Control, Measurement, Part, about_equal, greater
from replication.lab import Lab
from replication.page import page_path, render, results_table, summary, write_page
from replication.plot import plot_part
from replication.replay import ClaimResult, Corrected, evaluate_claim, replay, select_claims
from replication.seeds import parse_seeds
from replication.worker_pool import WorkerPool
from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import Decoding
from tellapart.utils.versions import VERSIONS


def needs_chromium(test: Any) -> Any:
    for mark in NEEDS_CHROMIUM:
        test = mark(test)
    return test


QUICK, DEV, VERDICT = (parse_seeds(name, "claims") for name in ("quick", "dev", "verdict"))
TEST_SETS = {"plain": "scenes:plain?n=30&split=test", "rich": "scenes:plain?n=30&split=test&detail=0.9"}
DECODINGS = {
    "greedy": Decoding(kind="greedy", max_tokens=6),
    "samples": Decoding(kind="sample", samples=2, max_tokens=6),
}


@pytest.fixture
def arms(tiny_recipe: dict[str, Any]) -> dict[str, Arm]:
    """Two steps of self-retrieval, two of MLE, and one that starts from the first."""
    data = {key: spec for key, spec in tiny_recipe["data"].items() if key != "test"}
    base = {"data": data, "scorer": tiny_recipe["scorer"], "validation": {"every": 2, "decoding": {"max_tokens": 6}}}
    training = {"steps": 2, "batch_size": 20, "learning_rate": 1e-2}
    rewarded = {**base, "objective": tiny_recipe["objective"], "training": training}
    taught = {**base, "objective": {"kind": "mle"}, "training": training}
    listed = (
        Arm("start", model=tiny_recipe["captioner"]["name"]),
        Arm("references"),
        Arm("sr", rewarded, "start"),
        Arm("mle_more", taught, "start"),
        Arm("sr_long", rewarded, "sr"),
    )
    return {arm.name: arm for arm in listed}


def lab_of(folder: Path, arms: dict[str, Arm], tiny_scorer: Path) -> Lab:
    return Lab(folder / "claims", arms, TEST_SETS, DECODINGS, str(tiny_scorer))


def claim(*parts: Part) -> Claim:
    return Claim("tiny", 3, "nowhere", "says", "1 → 2", parts, Control("SR replaced", {"sr": "mle_more"}))


@pytest.mark.long
def test_an_arm_is_trained_once_for_all_claims(tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path) -> None:
    lab = lab_of(tmp_path, arms, tiny_scorer)
    asks = greater("longer", Measurement("sr_long", "length"), Measurement("sr", "r1"))
    replay([claim(asks), claim(asks)], lab, [0])
    assert [name[: name.rindex("-")] for name in lab.trained] == ["sr-s0", "sr_long-s0", "mle_more-s0"]
    again = lab_of(tmp_path, arms, tiny_scorer)  # as after Ctrl-C
    results = replay([claim(asks)], again, [0])
    assert again.trained == [] and results[0].seconds > 0  # the time that they took then


def test_captions_are_kept_by_pictures_and_decoding(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_of(tmp_path, arms, tiny_scorer)
    for test, decoding in (("plain", "greedy"), ("rich", "greedy"), ("plain", "samples")):
        captions = lab.generate_captions(Measurement("start", "length", test, decoding), 0).captions
        assert len(captions) == 30 and all(len(texts) == DECODINGS[decoding].samples for texts in captions)
    kept = sorted(path.name[: path.name.index("-")] for path in lab.arm_folder("start", 0).glob("heard/*"))
    assert kept == ["greedy", "samples"]  # "rich" is of the same pictures, with other references
    monkeypatch.setattr(Lab, "_write_captions", lambda *a: pytest.fail("written twice"))
    again = lab_of(tmp_path, arms, tiny_scorer)
    assert again.generate_captions(Measurement("start", "length", decoding="samples"), 0).captions == captions


def test_the_scorer_encodes_an_arms_captions_once_for_all_measures(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, read = lab_of(tmp_path, arms, tiny_scorer), []
    text_features = lab.test_sets.scorer.text_features
    monkeypatch.setattr(
        lab.test_sets.scorer, "text_features", lambda texts: read.append(len(texts)) or text_features(texts)
    )
    lab.statistic(Measurement("start", "mle-plain"), 0)  # reads the model and no captions, and leaves none behind
    for name in ("r1", "hard", "r1"):
        lab.statistic(Measurement("start", name), 0)
    assert read == [30]


def test_a_changed_setting_trains_that_arm_anew_and_what_starts_from_it(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path
) -> None:
    before = lab_of(tmp_path, arms, tiny_scorer)
    changed = json.loads(json.dumps(arms["sr"].table))
    changed["training"]["learning_rate"] = 1e-3
    after = lab_of(tmp_path, {**arms, "sr": Arm("sr", changed, "start")}, tiny_scorer)
    folder = {name: (before.run_of(name, 0).folder, after.run_of(name, 0).folder) for name in ("sr", "sr_long")}
    assert all(old != new for old, new in folder.values())
    assert before.run_of("mle_more", 0).folder == after.run_of("mle_more", 0).folder
    assert before.run_of("sr", 0).folder != before.run_of("sr", 1).folder


def test_an_arm_has_one_name_wherever_it_lies_and_another_with_other_code_or_weights(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start and the scorer are the same files elsewhere; then objective, renderer and weights change in turn."""

    def names(arms: dict[str, Arm], folder: str) -> list[str]:
        lab = lab_of(tmp_path / folder, arms, tiny_scorer)
        return [lab.arm_folder(arm, 0).name for arm in ("start", "sr", "sr_long", "mle_more")]

    shutil.copytree(str(arms["start"].model), tmp_path / "copied")
    moved = {**arms, "start": Arm("start", model=str(tmp_path / "copied"))}
    first = names(arms, "here")
    assert names(moved, "there") == first
    monkeypatch.setitem(VERSIONS, "mle", VERSIONS["mle"] + 1)
    second = names(moved, "there")
    assert second[:3] == first[:3] and second[3] != first[3]
    monkeypatch.setitem(VERSIONS, "scenes", VERSIONS["scenes"] + 1)
    third = names(moved, "there")
    assert third[0] == second[0] and all(old != new for old, new in zip(second[1:], third[1:], strict=True))
    config = tmp_path / "copied" / "config.json"
    config.write_text(config.read_text() + " ")
    assert all(old != new for old, new in zip(third, names(moved, "there"), strict=True))


def test_the_last_weights_count_and_not_the_best_by_validation(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path
) -> None:
    from safetensors.torch import load_file

    lab = lab_of(tmp_path, arms, tiny_scorer)
    lab.train("mle_more", 0)
    folder = lab.run_of("mle_more", 0).folder
    start = load_file(Path(str(arms["start"].model)) / "model.safetensors")
    ours = load_file(folder / "model" / "model.safetensors")
    assert any(not (ours[name] == start[name]).all() for name in ours if name in start)
    assert not (folder / "checkpoints").exists() and json.loads((folder / "run.json").read_text())["seconds"] > 0


def test_an_interrupted_arm_goes_on(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tellapart.training.loop as loop

    whole = loop.train_step

    def second_step(*a: Any) -> dict[str, float]:
        if a[-1] == 1:
            raise KeyboardInterrupt
        return whole(*a)

    monkeypatch.setattr(loop, "train_step", second_step)
    lab = lab_of(tmp_path, arms, tiny_scorer)
    with pytest.raises(KeyboardInterrupt):
        lab.train("sr", 0)
    assert not lab.run_of("sr", 0).finished and lab.trained == []
    spent = lab.seconds("sr", 0)
    monkeypatch.setattr(loop, "train_step", whole)
    lab.train("sr", 0)
    assert lab.run_of("sr", 0).finished and lab.trained == [lab.run_of("sr", 0).folder.name]
    assert lab.seconds("sr", 0) > spent > 0


@pytest.mark.long
def test_a_claim_holds_only_where_its_control_does_not(tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path) -> None:
    lab = lab_of(tmp_path, arms, tiny_scorer)
    length = Measurement("sr", "length"), Measurement("start", "length")
    true_of_all = about_equal("any length", *length, margin=100.0)
    result = evaluate_claim(claim(true_of_all), lab, (0, 1))
    assert result.all_parts_hold and result.control_false is False and result.holds is False
    assert "CONTROL" in result.summary()
    # A bound between the two arms' own numbers tells them apart, whichever is the higher.
    values = {arm: lab.statistic(Measurement(arm, "mle-plain"), 0).value() for arm in ("sr", "mle_more")}
    assert values["sr"] != values["mle_more"]
    middle, sign = sum(values.values()) / 2, 1.0 if values["sr"] > values["mle_more"] else -1.0
    part = Part("on its side of the middle", (Measurement("sr", "mle-plain", factor=sign),), sign * middle)
    result = evaluate_claim(claim(part), lab, (0,))
    assert [p.value for p in result.control] == pytest.approx([sign * values["mle_more"]])
    assert result.control_false is True and result.holds is result.all_parts_hold


def test_every_measure_measures(tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path) -> None:
    from replication.measures import MEASURES

    lab = lab_of(tmp_path, arms, tiny_scorer)
    for name, entry in MEASURES.items():
        measurement = Measurement("start", name, decoding="samples" if "samples" in entry.needs else "greedy")
        assert lab.statistic(measurement, 0).n == 30, name
        if not entry.needs:
            assert lab.statistic(Measurement("references", name), 0).n == 30
    of = {
        name: lab.statistic(Measurement("references", name), 0).value()
        for name in ("length", "precision", "hallucination")
    }
    assert of["precision"] == 100 and of["hallucination"] == 0 and 3 < of["length"] < 12
    smile, mle = (lab.statistic(Measurement("start", f"{o}-plain"), 0).value() for o in ("smile", "mle"))
    assert 0 < smile < mle  # fewer words to lose to


def test_unknown_ids_are_one_line_with_the_nearest() -> None:
    known = [Claim("smile-mix", 1, "", "", ""), Claim("sr-init", 2, "", "", "")]
    assert select_claims((), known) == known and select_claims(["sr-init", "sr-init"], known) == known[1:]
    with pytest.raises(UsageError, match="unknown claim 'smile-mx'; did you mean 'smile-mix'"):
        select_claims(["smile-mx"], known)
    with pytest.raises(UsageError, match="; for a list, run: python -m replication photos --findings --list"):
        select_claims(["smile-mx"], known, "photos --findings")


def finished() -> list[ClaimResult]:
    part, wrong = (PartResult("a & <b>", 1.0, 0.5, 1.5, (1.0,), found) for found in (True, False))
    waiting = Claim("later", 1, "", "", "9", pending="clips come with part E")
    measurements = Measurement("sr", "length"), Measurement("start", "length")
    means = {measurements[0]: 12.34, measurements[1]: 5.0}
    return [
        ClaimResult(claim(greater("a & <b>", *measurements)), (10,), [part], [wrong], means, 61.0),
        ClaimResult(waiting),
    ]


def test_json_has_the_five_keys_and_null_where_pending() -> None:
    told = [json.loads(json.dumps(result.to_json())) for result in finished()]
    assert [t["holds"] for t in told] == [True, None]
    assert {key: told[1][key] for key in ("id", "holds", "paper", "ours", "seconds")} == {
        "id": "later", "holds": None, "paper": "9", "ours": "pending: clips come with part E", "seconds": 0.0,
    }  # fmt: skip
    assert told[0]["ours"].startswith("a & <b>: +1 [+0.5, +1.5] (sr 12.34, start 5); the")


def test_the_page_stands_alone_and_says_what_came_out() -> None:
    page = render(finished(), QUICK, 28)
    assert "1 of 1 claims hold, 1 is pending" in page and "a &amp; &lt;b&gt;" in page and "1 → 2" in page
    assert "http" not in page.replace("http-equiv", "") and "<script" not in page and "came out false" in page
    assert "sr 12.34, start 5" in page
    assert summary(finished()) == "1 of 1 claims hold, 1 is pending; 1.0 min"
    assert results_table(finished()).row_count == 2


def shown_claim() -> Claim:
    length = Measurement("sr", "length"), Measurement("start", "length")
    parts = (
        greater("longer <&>", *length, effect=1.0, paper=(22.3, 10.0)),
        about_equal("as long", *length, 100.0, paper=(9000.0, 1.0)),
        greater("loss", Measurement("sr", "mle-plain"), Measurement("start", "mle-plain"), effect=0.1),
    )
    return Claim("tiny", 3, "nowhere", "says", "1 → 2", parts, Control("SR replaced", {"sr": "mle_more"}))


@pytest.mark.long
def test_the_page_plots_every_part_and_shows_three_pictures_with_what_each_arm_says(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path
) -> None:
    lab = lab_of(tmp_path, arms, tiny_scorer)
    result = evaluate_claim(shown_claim(), lab, (0, 1))
    captions = lab.generate_captions(Measurement("sr", "length"), 0).first_captions
    assert [one.id for one in result.examples] == [item.id for item in lab.test_sets.items("plain")[:3]]
    assert [[said.arm for said in one.captions] for one in result.examples] == [["sr", "start"]] * 3
    assert [one.captions[0].caption for one in result.examples] == captions[:3]
    page = render([result], DEV, 28, records=tmp_path)
    assert page.count('<symbol id="p') == 3 and page.count("data:image/png;base64,") == 3
    assert page.count('<svg class="plot" role="img"') == 3 and "longer &lt;&amp;&gt;: " in page
    assert page.count('class="seed" cx="') == 3 * 2 + 1  # and the key's
    assert "+12.3" in page and "+9e+03" in page, "the paper's figures, within and beyond the edge"
    assert "two one-sided tests" in page and "http" not in page.replace("http-equiv", "") and "<script" not in page


def test_a_plot_has_its_numbers_in_order_and_the_paper_at_the_edge_where_it_is_far() -> None:
    length = Measurement("sr", "length"), Measurement("start", "length")
    found = PartResult("x", 5.0, 4.0, 6.0, (4.5, 5.5), True)
    control = PartResult("x", -1.0, -2.0, 0.5, (-1.0,), False)
    near = plot_part(greater("x", *length, paper=(8.0, 1.0)), found, Corrected(0.01, 3.5, 6.5), control)
    assert near is not None and near.control is not None and near.paper is not None and near.beyond == 0
    assert near.control[0] < near.control[1] < near.bounds[0].x < near.control[2] < near.holm[0]
    assert near.holm[0] < near.low < near.seeds[0] < near.value < near.seeds[1] < near.high < near.holm[1]
    assert near.inside == (near.bounds[0].x, 100.0) and near.paper.x > near.high
    far = plot_part(greater("x", *length, paper=(4500.0, 1400.0)), found, Corrected(0.01, 3.5, 6.5), None)
    assert far is not None and far.paper is not None and far.beyond == 1 and far.paper.x == 94.0
    assert "the paper +3.1e+03" in far.summary
    flat = plot_part(
        greater("x", *length), PartResult("x", 0.0, 0.0, 0.0, (0.0,), False), Corrected(1.0, 0.0, 0.0), None
    )
    assert flat is not None and flat.value == 50.0
    lost = PartResult("x", math.nan, math.nan, math.nan, (math.nan,), False)
    assert plot_part(greater("x", *length), lost, Corrected(1.0, 0.0, 0.0), None) is None


@needs_chromium
def test_the_page_fits_a_screen_and_a_phone(tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path) -> None:
    """All 28 claims in the summary, and one with its plots and pictures."""
    lab = lab_of(tmp_path, arms, tiny_scorer)
    pending = [replace(c, parts=(), control=None, pending="not run") for c in all_claims()[:27]]
    results = [*(ClaimResult(c) for c in pending), evaluate_claim(shown_claim(), lab, (0,))]
    (tmp_path / "page.html").write_text(render(results, QUICK, 28, records=tmp_path), encoding="utf-8")
    with chromium(tmp_path / "profile", {"browser": "ALL"}) as browser:
        for width, summary_height in ((1400, 900), (420, 1500)):
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get((tmp_path / "page.html").as_uri())
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            bottom = "return document.querySelector('.board').getBoundingClientRect().bottom"
            assert browser.execute_script(bottom) <= summary_height
            plots = "return [...document.querySelectorAll('.part .plot')].map(p => p.clientWidth)"
            assert len(found := browser.execute_script(plots)) == 3 and min(found) > 250
        assert browser.get_log("browser") == []


def test_a_page_says_what_it_holds_and_the_command_that_made_it() -> None:
    first, later = (result.claim.id for result in finished())
    page = render(finished(), QUICK, 28, [first, later])
    assert f"This page holds 2 of the 28 claims: {first}, {later}." in page and "asked for" not in page
    assert f"<code>python -m replication claims {first} {later} --quick</code>" in page
    begun = render(finished()[:1], DEV, 28, [first, later])
    assert "1 of the 28 claims" in begun and "2 were asked for" in begun
    assert f"<code>python -m replication claims {first} {later} --seeds dev</code>" in begun
    whole = render([ClaimResult(c) for c in all_claims()], VERDICT, 28)
    assert "This page holds" not in whole and "<code>python -m replication claims --seeds verdict</code>" in whole


def test_recalls_have_their_setting_beside_them() -> None:
    result = finished()[0]
    measurement = next(iter(result.means))
    result.settings[measurement] = "n = 400, 100 candidates, chance 1.0"
    assert "start 5; n = 400, 100 candidates, chance 1.0)" in result.summary()
    assert render([result], QUICK, 28).count("n = 400, 100 candidates, chance 1.0") == 2


def test_a_partial_run_leaves_a_fuller_page_alone(tmp_path: Path) -> None:
    whole = page_path(tmp_path, "quick", [])
    assert whole.name == "claims-quick.html" and write_page(finished(), QUICK, whole, 28) == whole
    some = page_path(tmp_path, "quick", ["later"])
    assert some.name == "claims-quick-later.html", "some claims have a page of their own"
    before = whole.read_text()
    partial = write_page(finished()[:1], QUICK, whole, 28)  # the same command again, only begun
    assert partial.name == "claims-quick.partial.html" and "1 of 1 claims hold" in partial.read_text()
    assert whole.read_text() == before
    assert write_page(finished(), QUICK, whole, 28) == whole and not partial.exists()
    long = page_path(tmp_path, "quick", [claim.id for claim in all_claims()[:20]])
    assert len(long.name) < 80 and long != page_path(tmp_path, "quick", [claim.id for claim in all_claims()[1:21]])


@pytest.mark.long
def test_a_worker_pool_trains_the_same_arms_and_writes_the_same_captions(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path
) -> None:
    asks = claim(greater("longer", Measurement("sr_long", "length"), Measurement("sr", "r1")))
    alone, lab = lab_of(tmp_path / "alone", arms, tiny_scorer), lab_of(tmp_path / "pool", arms, tiny_scorer)
    expected, found = replay([asks], alone, [0, 1]), replay([asks], lab, [0, 1], workers=2)
    assert lab.trained == []  # others did it
    assert found[0].means == expected[0].means and found[0].parts == expected[0].parts
    assert "training sr, seed 1" in (lab.folder / "workers.log").read_text()


def test_a_worker_pool_leaves_its_parent_one_thread_and_restores_the_others(
    tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path
) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with WorkerPool(lab_of(tmp_path, arms, tiny_scorer), [], 2):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


@pytest.mark.long
def test_an_error_in_a_worker_is_raised(tmp_path: Path, arms: dict[str, Arm], tiny_scorer: Path) -> None:
    broken = json.loads(json.dumps(arms["sr"].table))
    broken["data"]["train"] = "folder:nowhere"
    lab = lab_of(tmp_path, {**arms, "sr": Arm("sr", broken, "start")}, tiny_scorer)
    with pytest.raises(TellapartError, match="nowhere"):
        replay(
            [claim(greater("longer", Measurement("sr", "length"), Measurement("start", "length")))], lab, [0], workers=2
        )
