"""The comparison of recent objectives: its arms differ in the objective alone, and its rule needs truth and Holm."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from replication import objectives, photo_objectives
from replication.__main__ import app
from replication.bootstrap import PartResult
from replication.replay import ClaimResult
from replication.verdict import settings_digest
from tellapart.cli.whole_app import app_of
from tellapart.errors import UsageError


def test_every_arm_differs_from_its_recipe_in_the_objective_alone(tmp_path: Path) -> None:
    lab = objectives.make_lab(tmp_path)
    for base, names in (("base", objectives.RLOO), ("smile", objectives.SUBSET)):
        plain = lab.recipe(base, 0)
        for name in names:
            recipe = lab.recipe(name, 0)
            assert recipe.model_copy(update={"name": base, "objective": plain.objective}) == plain
            assert name == base or recipe.objective != plain.objective
    assert lab.recipe("base", 0).objective.kind == "reinforce" and lab.recipe("gem", 0).objective.kind == "gem"


def test_arms_on_photos_have_the_changes_of_those_on_scenes(tmp_path: Path) -> None:
    lab = photo_objectives.make_lab(tmp_path)
    plain = lab.recipe("base", 0)
    assert plain.captioner is not None and Path(str(plain.captioner.name)).stem == photo_objectives.START
    for name in objectives.RLOO:
        recipe = lab.recipe(name, 0)
        assert recipe.model_copy(update={"name": "base", "objective": plain.objective}) == plain
        assert name == "base" or recipe.objective != plain.objective
    assert {part.measurements[0].measure for claim in photo_objectives.CLAIMS for part in claim.parts} == {
        "hard",
        "facts",
    }


def test_a_change_of_the_rule_is_another_verdict(tmp_path: Path) -> None:
    lab = objectives.make_lab(tmp_path)
    first = settings_digest(objectives.CLAIMS, lab, objectives.COMMAND)
    stricter = replace(objectives.CLAIMS[0].parts[1], lower=0.0)
    changed = replace(objectives.CLAIMS[0], parts=(objectives.CLAIMS[0].parts[0], stricter))
    assert first != settings_digest((changed, *objectives.CLAIMS[1:]), lab, objectives.COMMAND)


@pytest.mark.parametrize(
    ("p", "precise", "control", "beats"),
    [(0.001, True, False, True), (0.02, True, False, False), (0.001, False, False, False), (0.001, True, True, False)],
    ids=["beats", "not after Holm", "less true", "its control, too"],
)
def test_a_method_beats_base_by_recall_truth_holm_and_control(
    p: float, precise: bool, control: bool, beats: bool
) -> None:
    def part(holds: bool, p: float) -> PartResult:
        return PartResult("", 3.0, 1.0, 5.0, (3.0,), holds, p)

    results = [
        ClaimResult(claim, (0,), [part(True, p), part(precise, p)], [part(control, p), part(True, p)])
        if claim == objectives.CLAIMS[0]
        else ClaimResult(claim, (0,), [part(False, 0.5), part(True, p)], [part(False, 0.5), part(True, p)])
        for claim in objectives.CLAIMS
    ]
    judged = objectives.judge(results)
    assert judged["beats_base"] == (["objectives-max2"] if beats else [])
    assert judged["holm"]["objectives-max2"] == pytest.approx(len(objectives.CLAIMS) * p)


def test_the_command_keeps_the_seeds_of_the_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, line in (
        (["--seeds", "60"], "is reserved for the verdict of python -m replication objectives"),
        (["--power", "--seeds", "verdict"], "--power uses development seeds, which the verdict must not use; add"),
        (["--subset-losses", "--seeds", "verdict"], "--subset-losses uses development seeds,"),
        (["--power", "--subset-losses", "--seeds", "0,1"], "remove --power or --subset-losses"),
        (["--photos", "--subset-losses", "--seeds", "0,1"], "is measured on scenes only; remove --photos"),
        (["--photos", "--seeds", "70"], "is reserved for the verdict of python -m replication objectives --photos"),
        (["--power", "--seeds", "0,1"], "of the arms are not trained"),
    ):
        error = CliRunner().invoke(app_of([app]), ["objectives", *arguments]).exception
        assert isinstance(error, UsageError) and line in str(error), (arguments, error)


@pytest.mark.long
def test_both_tables_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of one method, and of the likelihood objectives, on 30 test pictures."""
    monkeypatch.chdir(tmp_path)
    small = {"steps": 1, "batch_size": 4, "warmup": 0}
    monkeypatch.setattr(objectives, "TRAINING", {"scenes_rloo": small, "scenes_smile": small})
    monkeypatch.setattr(objectives, "TEST_SETS", {"plain": "scenes:plain?split=test&n=30&seed=31"})
    monkeypatch.setattr(objectives, "RLOO", {"base": {}, "max2": objectives.METHODS["max2"]})
    rows = {row: objectives.ON_SCENES.rows[row] for row in ("start", "base", "max2")}
    monkeypatch.setattr(objectives, "ON_SCENES", replace(objectives.ON_SCENES, claims=objectives.CLAIMS[:1], rows=rows))
    shown = CliRunner().invoke(app_of([app]), ["objectives", "--seeds", "0", "--workers", "1", "--json"])
    result = json.loads(shown.stdout)
    assert set(result["systems"]) == {"start", "base", "max2"}
    assert set(result["systems"]["base"]) == set(objectives.MEASURES)
    (claim,) = result["claims"]
    assert len(claim["parts"]) == 2 and len(claim["control"]) == 2
    losses = objectives.subset_losses((0,), workers=1)
    assert set(losses["systems"]) == {"start", *objectives.SUBSET}
    assert all({*objectives.LONG_MEASURES, "div1"} == set(row) for row in losses["systems"].values())
