"""The list itself: 28 claims, arms that parse, and the command line."""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from replication import all_claims, further_claims, photo_findings, photo_objectives
from replication.__main__ import app
from replication.arms import ARMS, DECODINGS, TEST_SETS
from replication.claim import Claim, Measurement
from replication.further import FURTHER_ARMS, FURTHER_SETS
from replication.lab import Lab
from replication.measures import MEASURES
from replication.ndlb import TABLES
from replication.page import measure_label
from replication.replay import replay
from replication.setting_tables import markdown
from replication.stand_ins import STAND_INS
from replication.tradeoff_arms import MEASURED
from tellapart.cli.whole_app import app_of
from tellapart.errors import UsageError

SHARED = Path(__file__).parents[3] / "shared"
LIST, PAPERS = SHARED / "claims.md", SHARED / "papers"


def find_all() -> list[Claim]:
    return [*all_claims(), *further_claims()]


def test_further_claims_use_their_arms_and_what_there_is(tmp_path: Path) -> None:
    lab = Lab(tmp_path, FURTHER_ARMS, FURTHER_SETS, DECODINGS)
    arms = {arm for claim in further_claims() for one in claim.measurements() for arm in lab.lineage(one.arm)}
    assert set(FURTHER_ARMS) - set(ARMS) <= arms and not {c.id for c in further_claims()} & {c.id for c in all_claims()}
    for claim in further_claims():
        assert claim.control and any(claim.control.apply(part) != part for part in claim.parts), claim.id
        for one in claim.measurements():
            assert one.measure in MEASURES and one.test_set in FURTHER_SETS and one.decoding in DECODINGS, (
                claim.id,
                one,
            )
    shown = CliRunner().invoke(app_of([app]), ["claims", "--list", "--further", "--json"])
    assert [c["id"] for c in json.loads(shown.stdout)["claims"]] == [c.id for c in further_claims()]
    assert "sle-alpha" in CliRunner().invoke(app_of([app]), ["claims", "sle-alpha", "--list"]).stdout


@pytest.mark.slow
def test_further_claims_run(tmp_path: Path) -> None:
    """Every arm as it is, but for two steps on few pictures."""
    few = ["training.steps=2", "training.batch_size=10", "validation.every=2"]
    few += [f"data.{part}=scenes:plain?n=100&split={part}" for part in ("train", "validation")]
    sets = {name: re.sub(r"n=\d+", "n=100", spec) for name, spec in FURTHER_SETS.items()}
    lab = Lab(tmp_path, FURTHER_ARMS, sets, DECODINGS, settings=few)
    results = replay(further_claims(), lab, (0,))
    assert [len(result.parts) for result in results] == [len(claim.parts) for claim in further_claims()]
    assert {name.split("-s0-")[0] for name in lab.trained} >= set(FURTHER_ARMS) - set(ARMS)


def test_there_are_28_and_each_is_defined_or_says_what_it_waits_for() -> None:
    claims = all_claims()
    assert len({c.id for c in claims}) == len(claims) == 28
    for claim in claims:
        assert bool(claim.pending) != bool(claim.parts and claim.control), claim.id
        assert claim.paper_result and claim.location and claim.statement


@pytest.mark.skipif(not LIST.is_file(), reason=f"no list at {LIST}")
def test_they_are_those_of_the_list_in_its_order() -> None:
    ids = re.findall(r"^\| ([a-z-]+) \| \d", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    assert ids == [claim.id for claim in all_claims()]


def test_each_part_names_the_smallest_effect_that_matters_inside_its_bounds() -> None:
    for claim in find_all():
        for part in claim.parts:
            assert part.lower < part.planned < part.upper, (claim.id, part.statement)
            assert part.effect == 0 if part.equivalence else part.effect > 0, (claim.id, part.statement)
            assert len(part.paper) in (0, len(part.measurements)), (claim.id, part.statement)


@pytest.mark.skipif(not PAPERS.is_dir(), reason=f"no papers at {PAPERS}")
def test_the_papers_figures_of_a_part_are_those_that_it_prints() -> None:
    texts = {int(path.name[0]): path.read_text(encoding="utf-8") for path in PAPERS.glob("[1-4]_*.txt")}
    for claim in find_all():
        for value in (value for part in claim.parts for value in part.paper):
            # Distinct words stand there in thousands, diversity as a share.
            printed = (f"{value:.1f}", f"{value:.2f}", f"{value:g}", f"{value / 1000:.1f}", f"{value / 100:.2f}")
            assert any(text in texts[claim.paper_number] for text in printed), (claim.id, value)


def test_each_claim_says_what_stands_in_for_what_and_the_page_of_docs_has_the_tables() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
    from replication.docs_tables import PAGES, TABLES, with_tables

    assert list(STAND_INS) == [claim.id for claim in find_all()]
    assert all(one.here and one.differs for one in STAND_INS.values())
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    assert texts == [with_tables(text) for text in texts], "type: python -m replication.docs_tables"
    assert all(any(f"<!-- {mark} -->" in text for text in texts) for mark in TABLES)
    table = markdown(find_all())
    for name in FURTHER_ARMS:
        assert f"\n| `{name}` |" in table, name
    assert (
        "| `rich_both` | `rich` | reinforce, self_retrieval, cider (weight 0.5), 4 samples at temperature 0.5" in table
    )
    assert "R@1 gained by one from scratch, below 2: below 2, 1, -1.2;" in table


def test_claims_and_tables_use_every_measure_test_set_decoding_and_arm(tmp_path: Path) -> None:
    lab, arms, used = Lab(tmp_path, ARMS, TEST_SETS, DECODINGS), set(), set()
    for claim in all_claims():
        for one in claim.measurements():
            assert one.measure in MEASURES and one.test_set in TEST_SETS and one.decoding in DECODINGS, (claim.id, one)
            arms.update(lab.lineage(one.arm))
            used.update((one.test_set, one.decoding, one.measure))
    used.update(name for table in TABLES for name in table.measures)
    used.update(MEASURED)
    on_photos = [*photo_findings.CLAIMS, *photo_objectives.CLAIMS]
    used.update(one.measure for claim in on_photos for one in claim.measurements())
    assert arms == set(ARMS) and used == {*TEST_SETS, *DECODINGS, *MEASURES}


def test_every_measure_has_a_label_and_a_line_of_help() -> None:
    assert all(entry.label and entry.help and entry.name == name for name, entry in MEASURES.items())
    assert measure_label("cider") == "CIDEr ↑" and measure_label("length") == "words in a caption"
    with pytest.raises(UsageError, match="no measure is named 'cidre'; did you mean 'cider'"):
        MEASURES.find("cidre")


def test_every_arm_is_a_recipe_of_its_own(tmp_path: Path) -> None:
    lab = Lab(tmp_path, FURTHER_ARMS, TEST_SETS, DECODINGS)
    folders = [lab.run_of(name, 10).folder for name, arm in FURTHER_ARMS.items() if arm.table is not None]
    recipes = [
        lab.recipe(name, 10).model_dump_json(exclude={"name"}) for name, arm in FURTHER_ARMS.items() if arm.table
    ]
    assert len(set(folders)) == len(set(recipes)) == len(folders)


def test_a_control_changes_every_claim() -> None:
    for claim in all_claims():
        if claim.control:
            assert any(claim.control.apply(part) != part for part in claim.parts), claim.id


def test_no_control_compares_an_arm_with_itself() -> None:
    for claim in find_all():
        for part in claim.parts if claim.control else ():
            assert claim.control is not None
            factors: dict[Measurement, float] = defaultdict(float)
            for one in claim.control.apply(part).measurements:
                factors[replace(one, factor=1.0)] += one.factor
            assert any(factors.values()), (claim.id, part.statement)


def test_the_list_is_shown_as_json_and_for_people() -> None:
    shown = CliRunner().invoke(app_of([app]), ["claims", "--list", "--json"])
    assert [c["id"] for c in json.loads(shown.stdout)["claims"]] == [c.id for c in all_claims()]
    assert "smile-length" in CliRunner().invoke(app_of([app]), ["claims", "smile-length", "--list"]).stdout


def test_what_cannot_be_meant_is_refused_before_anything_is_trained() -> None:
    for arguments, line in (
        (["smile-lenght"], "did you mean 'smile-length'"),
        (["--seeds", "verdcit"], "did you mean 'verdict'"),
        (["--quick", "--seeds", "dev"], "remove one of them"),
        (["smile-length", "--seeds", "verdict"], "remove the names"),
        (["--power", "--seeds", "verdict"], "before a verdict"),
        (["--power", "--seeds", "0"], "the spread over seeds requires at least two"),
    ):
        error = CliRunner().invoke(app_of([app]), ["claims", *arguments]).exception
        assert isinstance(error, UsageError) and line in str(error)


def test_front_refuses_what_it_would_ignore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, line in (
        (["front", "--power", "--seeds", "verdict"], "before a verdict"),
        (["front", "--power", "--seeds", "0"], "the spread over seeds requires at least two"),
        (["front", "--power", "--seeds", "0,1", "--svg", "a.svg"], "--power does not measure curves to plot;"),
        (["front", "--power", "--seeds", "0,1"], "of the arms are not trained"),
        (["front", "--seeds", "50"], "is reserved for the verdict of python -m replication front"),
        (["front", "--svg", "nowhere/a.svg"], ", but the folder nowhere does not exist;"),
    ):
        error = CliRunner().invoke(app_of([app]), arguments).exception
        assert isinstance(error, UsageError) and line in str(error), (arguments, error)


def test_pending_claims_alone_train_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    waiting = Claim("later", 1, "Table 99", "says", "9", pending="comes with part Z")
    monkeypatch.setattr("replication.all_claims", lambda: (waiting,))
    shown = CliRunner().invoke(app_of([app]), ["claims", "later", "--json"])
    told = json.loads(shown.stdout)["claims"]
    assert [(c["id"], c["holds"]) for c in told] == [("later", None)] and "part Z" in told[0]["ours"]
    assert (tmp_path / "runs/claims/claims-dev.html").is_file()
