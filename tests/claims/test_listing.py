"""The list itself: 28 claims, arms that parse, and the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tellapart.claims import all_claims
from tellapart.claims.catalogue import ARMS, DECODINGS, TESTS
from tellapart.claims.claim import Claim
from tellapart.claims.lab import Lab
from tellapart.claims.measure import MEASURES
from tellapart.cli.app import app
from tellapart.errors import UsageError

LIST = Path(__file__).parents[3] / "shared" / "claims.md"


def test_there_are_28_and_each_is_defined_or_says_what_it_waits_for() -> None:
    claims = all_claims()
    assert len({c.id for c in claims}) == len(claims) == 28
    for claim in claims:
        assert bool(claim.pending) != bool(claim.parts and claim.control), claim.id
        assert claim.paper and claim.place and claim.says


@pytest.mark.skipif(not LIST.is_file(), reason=f"no list at {LIST}")
def test_they_are_those_of_the_list_in_its_order() -> None:
    ids = re.findall(r"^\| ([a-z-]+) \| \d", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    assert ids == [claim.id for claim in all_claims()]


def test_every_term_can_be_measured_and_every_arm_is_asked_for(tmp_path: Path) -> None:
    lab, needed, seen = Lab(tmp_path, ARMS, TESTS, DECODINGS), set(), set()
    for claim in all_claims():
        for term in claim.terms():
            assert term.measure in MEASURES and term.test in TESTS and term.decoding in DECODINGS, (claim.id, term)
            needed.update(lab.needs(term.arm))
            seen.update((term.test, term.decoding, term.measure))
    assert needed == set(ARMS) and seen == {*TESTS, *DECODINGS, *MEASURES}


def test_every_arm_is_a_recipe_of_its_own(tmp_path: Path) -> None:
    lab = Lab(tmp_path, ARMS, TESTS, DECODINGS)
    folders = [lab.run_of(name, 10).folder for name, arm in ARMS.items() if arm.table is not None]
    recipes = [lab.recipe(name, 10).model_dump_json(exclude={"name"}) for name, arm in ARMS.items() if arm.table]
    assert len(set(folders)) == len(set(recipes)) == len(folders)


def test_a_control_changes_every_claim() -> None:
    for claim in all_claims():
        if claim.control:
            assert any(claim.control.of(part) != part for part in claim.parts), claim.id


def test_the_list_is_shown_as_json_and_for_people() -> None:
    shown = CliRunner().invoke(app, ["claims", "--list", "--json"])
    assert [c["id"] for c in json.loads(shown.stdout)["claims"]] == [c.id for c in all_claims()]
    assert "smile-length" in CliRunner().invoke(app, ["claims", "smile-length", "--list"]).stdout


def test_what_cannot_be_meant_is_refused_before_anything_is_trained() -> None:
    for arguments, line in (
        (["smile-lenght"], "did you mean 'smile-length'"),
        (["--seeds", "verdcit"], "did you mean 'verdict'"),
        (["--quick", "--seeds", "dev"], "leave one of them out"),
    ):
        error = CliRunner().invoke(app, ["claims", *arguments]).exception
        assert isinstance(error, UsageError) and line in str(error)


def test_pending_claims_alone_train_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waiting = Claim("later", 1, "Table 99", "says", "9", pending="comes with part Z")
    monkeypatch.setattr("tellapart.claims.all_claims", lambda: (waiting,))
    shown = CliRunner().invoke(app, ["claims", "later", "--json"])
    told = json.loads(shown.stdout)["claims"]
    assert [(c["id"], c["holds"]) for c in told] == [("later", None)] and "part Z" in told[0]["ours"]
    assert (tmp_path / "runs/claims/claims-verdict.html").is_file()
