"""``replication tradeoff``: the rule and its table, the seeds that are kept, and the verdict that is given once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

from replication import front, tradeoff, tradeoff_arms
from replication.bootstrap import PartResult
from replication.front import LETTER, LINE, Curve, Dot, front_svg, labels
from replication.lab import Lab
from replication.stamp import read_verdicts
from replication.verdict import settings_digest
from tellapart.errors import UsageError
from tellapart.recipe.reading import check_recipe
from tellapart.recipe.schema import Recipe


def test_every_arm_is_a_recipe_that_differs_from_self_retrieval_in_its_objective_alone(tmp_path: Path) -> None:
    arms = tradeoff.arms()
    lab = Lab(tmp_path, arms, tradeoff.TEST_SETS, tradeoff.DECODINGS)
    plain = lab.recipe("sr", 0)
    for name, arm in arms.items():
        if arm.table is None:
            continue
        recipe = lab.recipe(name, 0)
        recipe.objective.check()
        assert recipe.captioner == plain.captioner and captions_a_step(recipe) <= captions_a_step(plain)
        own = {"batch_size": plain.training.batch_size}
        if name == "detail":  # as many steps as captioners of one level take together, on more pictures
            assert recipe.training.steps == len(tradeoff_arms.LEVELS) * plain.training.steps
            own |= {key: getattr(plain.training, key) for key in ("steps", "checkpoint_every")}
        else:
            assert recipe.data == plain.data
        assert recipe.training.model_copy(update=own) == plain.training
        assert name == "sr" or recipe.objective != plain.objective
    assert {*tradeoff_arms.CONTROLS, "truth", "start", "truthful"} <= set(arms)


def captions_a_step(recipe: Recipe) -> int:
    """How many captions the learner reads at each step."""
    return recipe.training.batch_size * getattr(recipe.objective, "decoding").samples  # noqa: B009


def test_nothing_but_the_upper_bound_reads_the_truth(tmp_path: Path) -> None:
    lab = Lab(tmp_path, tradeoff.arms(), tradeoff.TEST_SETS, tradeoff.DECODINGS)
    for name, arm in tradeoff.arms().items():
        if arm.table is not None:
            reads = any("truth" in reward.needs() for reward in lab.recipe(name, 0).objective.reward_options)
            assert reads == (name in ("truth", "truth2"))


def test_the_share_of_the_gap_that_was_closed() -> None:
    def part(value: float) -> PartResult:
        return PartResult("", value, value, value, (value,), True)

    table = {
        name: {"hard": part(hard), "hallucination": part(false)}
        for name, hard, false in (("sr", 30.0, 12.0), ("truthful", 32.0, 6.0), ("truth", 34.0, 2.0))
    }
    result = tradeoff.TradeoffResult((0,), table)
    assert result.closed("hard") == pytest.approx(0.5) and result.closed("hallucination") == pytest.approx(0.6)
    assert not result.holds, "without its parts a rule does not hold"


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tiny_captioner: Path, tiny_scorer: Path) -> Path:
    """Arms of two steps with tiny models, measured on sixty pictures."""
    real = tradeoff_arms.reward
    pictures = {"train": "scenes:plain?n=60&split=train", "validation": "scenes:plain?n=30&split=validation"}

    def reward(name: str, **settings: Any) -> Any:
        arm = real(name, **{**settings, "pictures": pictures})
        table: dict[str, Any] = json.loads(json.dumps(arm.table))
        table["scorer"]["name"] = str(tiny_scorer)
        table["training"] |= {"batch_size": 12}
        table["objective"]["decoding"] |= {"max_tokens": 6}
        table["validation"]["decoding"] |= {"max_tokens": 6}
        check_recipe({**table, "name": name, "captioner": {"name": str(tiny_captioner)}}, name)
        return type(arm)(arm.name, table, arm.start)

    monkeypatch.setattr(tradeoff_arms, "reward", reward)
    monkeypatch.setattr(tradeoff, "TEST_SETS", {tradeoff.TEST_SET: "scenes:plain?split=test&n=60&seed=31"})
    return tiny_captioner


def test_the_settings_of_a_verdict_are_all_that_decides_it(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tradeoff.settings_digest(str(small), 2, tmp_path)
    found = {tradeoff.settings_digest(str(small), 1, tmp_path)}
    parts = tradeoff.PARTS
    monkeypatch.setattr(tradeoff, "PARTS", (replace(parts[0], statement="in other words"), *parts[1:]))
    assert tradeoff.settings_digest(str(small), 2, tmp_path) == first
    monkeypatch.setattr(tradeoff, "PARTS", (replace(parts[0], lower=-3.0), *parts[1:]))
    found.add(tradeoff.settings_digest(str(small), 2, tmp_path))
    monkeypatch.setattr(tradeoff, "PARTS", parts)
    monkeypatch.setattr(tradeoff, "TEST_SETS", {tradeoff.TEST_SET: "scenes:plain?split=test&n=61&seed=31"})
    found.add(tradeoff.settings_digest(str(small), 2, tmp_path))
    assert len(found) == 3 and first not in found
    monkeypatch.setattr("replication.stamp.commit", lambda: "")
    with pytest.raises(UsageError, match=r"this is not a clone of it.*python -m replication tradeoff --seeds 100"):
        tradeoff.verdict(start=str(small), steps=2, folder=tmp_path, records=tmp_path)


@pytest.mark.long
def test_a_verdict_is_given_once_and_a_second_one_is_marked(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "tradeoff"
    monkeypatch.setattr("replication.stamp.commit", lambda: "1a2b3c4")
    first = tradeoff.verdict(start=str(small), steps=2, folder=kept, seeds=(30,), records=kept)
    assert len(first["parts"]) == 6 and set(first["systems"]) == set(tradeoff.verdict_rows())
    assert first["stamp"]["number"] == 1 and set(first["closed"]) == {"hard", "hallucination"}
    runs = sorted(kept.glob("*-s30-*"))
    before = [run.stat().st_mtime_ns for run in runs]
    assert tradeoff.verdict(start=str(small), steps=2, folder=kept, seeds=(31,), records=kept) == first, (
        "the settings are the same"
    )
    assert [run.stat().st_mtime_ns for run in runs] == before and not list(kept.glob("*-s31-*"))
    second = tradeoff.verdict(start=str(small), steps=1, folder=kept, seeds=(30,), records=kept)
    assert second["stamp"]["number"] == 2 and [
        v["stamp"]["number"] for v in read_verdicts(kept / tradeoff.VERDICT_FILE)
    ] == [
        1,
        2,
    ]
    rows = tradeoff.table_lines(first)
    assert rows[0] == ["arm", *tradeoff.MEASURED] and len(rows) == 1 + len(first["systems"])


def test_the_picture_has_every_arm_that_claims_something_and_joins_those_of_the_recipe() -> None:
    def row(false: float | None, hard: float) -> dict[str, dict[str, float | None]]:
        return {
            "hallucination": {"value": false, "low": false, "high": false},
            "hard": {"value": hard, "low": hard - 1, "high": hard + 1},
        }

    systems = {"sr": row(5.0, 30.0), "truthful": row(1.0, 31.0), "speaker<1>": row(2.0, 35.0), "empty": row(None, 1.0)}
    svg = ElementTree.fromstring(front_svg(systems, [Curve(("truthful", "speaker<1>"), ours=True)]))
    texts = [one.text for one in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert {"sr", "truthful", "speaker<1>"} <= set(texts) and "empty" not in texts
    (line,) = svg.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, one.split(","))) for one in line.attrib["points"].split()]
    assert len(points) == 2 and points[0][0] < points[1][0] and points[0][1] > points[1][1], "further up is more R@1"
    with pytest.raises(ValueError, match="no arm to draw"):
        front_svg({"empty": row(None, 1.0)})


def test_no_name_in_the_picture_stands_on_another_or_on_a_dot() -> None:
    near = {f"arm {number}": Dot(lambda x, y: (200 + x, 200 - y), *two_alike(number)) for number in range(9)}
    found = labels(near)
    boxes = [(x, y - LINE + 6, x + LETTER * len(name), y + 3) for name, (x, y) in found.items()]
    dots = [(dot.x - 4, dot.y - 4, dot.x + 4, dot.y + 4) for dot in near.values()]
    crowd = [*boxes, *dots]
    for place, (left, top, right, bottom) in enumerate(boxes):
        for other in crowd[:place] + crowd[place + 1 :]:
            assert right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top


def test_the_front_has_every_curve_and_each_claim_its_control(tmp_path: Path) -> None:
    lab, rows = front.make_lab(tmp_path), [row for curve in front.CURVES for row in curve.rows]
    assert len(set(rows)) == len(rows) and {*front.AGAINST, *front.AGAINST.values(), front.UPPER_END} <= set(rows)
    for row in rows:
        arm, decoding = tradeoff_arms.captions_of(row)
        assert arm in lab.arms and decoding in lab.decodings
    for claim in front.CLAIMS:
        assert claim.control is not None
        for part in claim.parts:
            compared = [one.arm for one in part.measurements]
            controlled = [one.arm for one in claim.control.apply(part).measurements]
            assert controlled != compared and len(set(controlled)) == len(controlled), "no arm against itself"
    first = settings_digest(front.CLAIMS, lab, front.COMMAND)
    assert first == settings_digest(front.CLAIMS, lab, front.COMMAND)
    assert first != settings_digest(front.CLAIMS[1:], lab, front.COMMAND)


@pytest.mark.long
def test_a_front_is_measured_and_drawn(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two curves and one claim with tiny models of one step."""
    rows = front.Curve(("sr", "sr_free"), "by KL"), front.Curve(("start", "start_best_of"), "best of N", ours=True)
    monkeypatch.setattr(front, "CURVES", rows)
    parts = tuple(
        replace(part, measurements=tuple(replace(one, arm="start", decoding="beams") for one in part.measurements[:1]))
        for part in front.CLAIMS[-1].parts
    )
    monkeypatch.setattr(front, "CLAIMS", (replace(front.CLAIMS[-1], parts=parts),))

    def make_lab(folder: Path) -> tradeoff.ArmsLab:
        return tradeoff.ArmsLab(folder, tradeoff.arms(str(small), 1), tradeoff.TEST_SETS, tradeoff.DECODINGS)

    monkeypatch.setattr(front, "make_lab", make_lab)
    found = json.loads(json.dumps(front.run_front((0,), tmp_path)))
    assert set(found["systems"]) == {"sr", "sr_free", "start", "start_best_of"} and found["seeds"] == [0]
    assert [claim["id"] for claim in found["claims"]] == ["front-upper-end"] and len(found["claims"][0]["parts"]) == 2
    assert not found["claims"][0]["parts"][0]["holds"], "a tiny captioner does not reach 45"
    for row in found["systems"].values():  # whatever they claim, the picture has them
        row["hallucination"] = {"value": 1.0, "low": 0.5, "high": 2.0}
    svg = ElementTree.fromstring(front.front_svg(found["systems"], front.CURVES))
    space = "{http://www.w3.org/2000/svg}"
    assert {"by KL", "best of N"} <= {one.text for one in svg.iter(f"{space}text")}
    assert len(list(svg.iter(f"{space}polyline"))) == 2
    assert {one.text for one in svg.iter(f"{space}title")} >= set(found["systems"]), "each dot names its row"


def two_alike(number: int) -> list[dict[str, float]]:
    """The intervals of a dot, close to those of the dots before."""
    return [{"value": value, "low": value - 2, "high": value + 2} for value in (3.0 * number, 2.0 * number)]


@pytest.mark.long
def test_best_of_takes_the_sample_by_which_the_picture_is_found(small: Path, tmp_path: Path) -> None:
    """One by one: of ten samples the one with the highest share of the softmax over the picture's look-alikes."""
    lab = tradeoff.ArmsLab(tmp_path, tradeoff.arms(str(small), 1), tradeoff.TEST_SETS, tradeoff.DECODINGS)
    one = tradeoff_arms.of("start_best_of", "hard")
    chosen, written = lab.generate_captions(one, 0), lab.caption_lists("start", 0, one.test_set, one.decoding)
    scorer, image_ND = lab.test_sets.scorer, lab.test_sets.image_features(chosen)
    changed = 0
    for row, (item, texts) in enumerate(zip(chosen.items, chosen.captions, strict=True)):
        assert sorted(texts) == sorted(written[item.id]) and len(texts) == 10
        members = lab.test_sets.candidate_sets(chosen, "lookalikes").sets[row]
        logits_SK = scorer.scale * scorer.text_features(written[item.id]).cpu() @ torch.from_numpy(image_ND[members]).T
        assert members[0] == row
        best = float(logits_SK.softmax(1)[:, 0].max())
        assert float(logits_SK.softmax(1)[written[item.id].index(texts[0]), 0]) == pytest.approx(best, abs=1e-6)
        changed += texts[0] != written[item.id][0]
    assert changed > 10
    assert lab.statistic(one, 0) is lab.statistic(one, 0)


@pytest.mark.long
def test_a_captioner_of_several_prices_is_measured_at_each_of_its_settings(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the tiny captioner's own words: of the shipped one's it lacks some."""
    prompts = ("red", "blue", "", "a red", "a blue")
    levels = tuple({**level, "prompt": prompt} for level, prompt in zip(tradeoff_arms.LEVELS, prompts, strict=True))
    monkeypatch.setattr(tradeoff_arms, "LEVELS", levels)
    lab = tradeoff.ArmsLab(tmp_path, tradeoff.arms(str(small), 1), tradeoff.TEST_SETS, tradeoff.DECODINGS)
    for name, prompt in (("detail0", "red"), ("detail1", "a blue")):
        one = tradeoff_arms.of(name, "words")
        lab.prepare(one, 0)
        run = lab.run_of("detail", 0).folder
        found = lab.caption_lists(name, 0, one.test_set, one.decoding)
        items, decoding = lab.test_sets.items(one.test_set), lab.decodings[one.decoding]
        asked = lab._write_captions(f"{run}?prompt={prompt}", items, decoding, 0)
        assert [text for texts in found.values() for text in texts] == asked
        assert lab.arm_folder(name, 0).parent == run
    assert len(lab.trained) == 1, "one captioner for all settings"
