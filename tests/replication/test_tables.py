"""Tables of paper 2: its figures as printed, our recipes as trained, and a whole small table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from replication.arms import DECODINGS, TEST_SETS
from replication.claim import Arm, Measurement
from replication.lab import Lab
from replication.measures import MEASURES
from replication.ndlb import NDLB, TABLES, PaperRow, PaperTable
from replication.tables import make_tasks, measure_tables, run_tables
from replication.test_sets import DESCRIBER_ERROR_RATE
from tellapart.cli.whole_app import whole_app
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import read_recipe

ROOT = Path(__file__).parents[2]
PAPER = ROOT.parent / "shared" / "papers" / "2_no_detail_left_behind.txt"
BOOSTED = {"blend": "blended", "holistic": "holistic"}


@pytest.mark.skipif(not PAPER.is_file(), reason=f"no paper at {PAPER}")
@pytest.mark.parametrize("table", TABLES, ids=lambda table: str(table.number))
def test_the_papers_figures_are_those_that_it_prints(table: PaperTable) -> None:
    text = re.sub(r"\([\d.]+\)|</?b>|\*+|[✓\t ]+", " ", PAPER.read_text(encoding="utf-8"))
    section = text[text.index(f"\nTable {table.number}:") :][:2500]
    lines = [" ".join(line.split()) for line in section.splitlines()]
    for row in table.rows:
        printed = " ".join(f"{value:.1f}" for value in row.paper)
        assert any(line.endswith(printed) for line in lines), (row.labels, printed)
        assert len(row.paper) == len(table.measures) and len(row.labels) == len(table.label_columns)


def test_every_row_has_an_arm_and_every_arm_a_row(tmp_path: Path) -> None:
    lab = Lab(tmp_path, NDLB, TEST_SETS, DECODINGS)
    assert {task.arm for task in make_tasks(TABLES, lab, (0,))} == set(NDLB)
    assert {name for table in TABLES for name in table.measures} <= set(MEASURES)
    order = [task.arm for task in make_tasks(TABLES, lab, (0,))]
    assert all(order.index(arm.start) < order.index(name) for name, arm in NDLB.items() if arm.start)


@pytest.mark.parametrize("name", [name for name, arm in NDLB.items() if arm.table is not None])
def test_the_recipe_of_an_arm_is_what_is_trained(name: str, tmp_path: Path) -> None:
    arm, lab = NDLB[name], Lab(tmp_path, NDLB, TEST_SETS, DECODINGS)
    path = ROOT / "recipes" / f"ndlb_{name.removeprefix('ndlb_')}.toml"
    theirs, ours = (recipe.model_dump() for recipe in (read_recipe(path), lab.recipe(name, 0)))
    start = str(arm.start)
    assert theirs["captioner"].pop("name").endswith("scenes" if start == "start" else f"/{start}.toml")
    ours["captioner"].pop("name")
    train, pictures = theirs["data"].pop("train"), ours["data"].pop("train")
    if arm.boosted:
        assert train.startswith(f"runs/ndlb/{BOOSTED[arm.boosted]}") and arm.table is not None
        assert f"tellapart boost '{arm.table['data']['train']}'" in path.read_text() and train in path.read_text()
        assert arm.boosted == "blend" or f"scripted:error={DESCRIBER_ERROR_RATE:g}" in path.read_text()
    else:
        assert train == pictures
    printed = ("name", "about", "seed", "evaluation")
    assert {k: v for k, v in theirs.items() if k not in printed} == {
        **{k: v for k, v in ours.items() if k not in printed}, "data": theirs["data"],
    }  # fmt: skip
    assert theirs["data"]["validation"] == ours["data"]["validation"]


def test_a_boosted_file_that_recipes_share_is_made_in_one_way() -> None:
    made: dict[str, set[str]] = {}
    for path in (ROOT / "recipes").glob("ndlb_*.toml"):
        for command, out in re.findall(r"# (tellapart boost .*) -o (\S+)", path.read_text()):
            made.setdefault(out, set()).add(command)
    assert len(made) == 3 and all(len(commands) == 1 for commands in made.values())


@pytest.fixture
def lab(tiny_recipe: dict[str, Any], tiny_scorer: Path, tmp_path: Path) -> Lab:
    data = {key: spec for key, spec in tiny_recipe["data"].items() if key != "test"}
    taught = {
        "data": data,
        "scorer": tiny_recipe["scorer"],
        "objective": {"kind": "mle"},
        "training": {"steps": 2, "batch_size": 20, "learning_rate": 1e-2},
        "validation": {"every": 2, "decoding": {"max_tokens": 6}},
    }
    arms = (
        Arm("start", model=tiny_recipe["captioner"]["name"]),
        Arm("references"),
        Arm("caps", boosted="holistic"),
        Arm("taught", taught, "start", boosted="holistic"),
    )
    decodings = {"greedy": Decoding(kind="greedy", max_tokens=6)}
    tests = {"plain": "scenes:plain?n=120&split=test"}
    return Lab(tmp_path, {arm.name: arm for arm in arms}, tests, decodings, str(tiny_scorer))


SMALL = PaperTable(
    3, "small", ("from",), ("bleu4", "cider", "r1", "clipscore", "bag3", "bag5", "bag7"),
    (
        PaperRow(("people",), "references", "", (1.0,) * 7),
        PaperRow(("boosted",), "caps", "holistic", (2.0,) * 7),
        PaperRow(("taught",), "taught", "holistic", (3.0,) * 7),
    ),
)  # fmt: skip


@pytest.mark.long
def test_a_table_is_filled_and_its_arms_are_trained_once(lab: Lab) -> None:
    measured = measure_tables([SMALL], lab, (0, 1))[0]
    assert np.isfinite(measured.ours).all() and lab.trained and len(lab.trained) == 2
    people, boosted, _ = (dict(zip(SMALL.measures, row, strict=True)) for row in measured.ours)
    assert people["bleu4"] > 99 and 0 < boosted["cider"] < 1000 and 0 <= people["bag3"] <= 100
    assert boosted["bleu4"] > 50  # of seed 0 it is its own reference, seed 1 has other errors of the describer
    again = Lab(lab.folder, lab.arms, lab.test_sets.specifications, lab.decodings, lab.test_sets.scorer_name)
    assert measure_tables([SMALL], again, (0, 1))[0] == measured and again.trained == []
    printed = json.loads(json.dumps(measured.to_json()))
    assert (
        printed["table"] == 3
        and printed["rows"][2]["labels"] == {"from": "taught"}
        and printed["rows"][2]["paper"]["r1"] == 3
    )
    assert measured.to_rich().row_count == 3
    for row in printed["rows"]:
        assert all(low <= row["ours"][name] <= high for name, (low, high) in row["intervals"].items())
    assert printed["settings"]["r1"] == "n = 100, 100 candidates, chance 1.0"
    n, size = (int(x) for x in re.findall(r"\d+", printed["settings"]["bag3"])[:2])
    assert 60 < n < 120 and size == 3 and printed["settings"]["bag3"].endswith("chance 33.3")
    assert "chance 33.3" in str(measured.to_rich().columns[5].header) and set(printed["settings"]) == {
        "r1",
        "bag3",
        "bag5",
        "bag7",
    }


def test_what_is_learned_are_the_boosted_captions_of_the_same_pictures(lab: Lab) -> None:
    from tellapart.data import open_data

    lab.train("taught", 0)
    learned = list(open_data(lab.recipe("taught", 0).data.train))
    table = lab.arms["taught"].table
    assert table is not None
    plain = {item.id: item for item in open_data(table["data"]["train"])}
    assert len(learned) == len(plain)
    for item in learned:
        assert np.array_equal(np.asarray(item.picture.image()), plain[item.id].picture.array())  # type: ignore[attr-defined]
        assert len(item.references) == 1 and len(item.references[0]) > len(plain[item.id].references[0])


def test_bags_share_no_picture_and_are_the_same_for_every_arm(lab: Lab) -> None:
    captions = {arm: lab.generate_captions(Measurement(arm, "r1"), 0) for arm in ("references", "caps")}
    asked = {arm: ~np.isnan(lab.test_sets.hits_at_1(own, "bag3")) for arm, own in captions.items()}
    assert (
        (asked["references"] == asked["caps"]).all() and asked["caps"].sum() % 3 == 0 and 60 < asked["caps"].sum() < 120
    )
    cosine_N = lab.test_sets.cosines(captions["caps"])
    assert cosine_N.shape == (120,) and (np.abs(cosine_N) <= 1 + 1e-5).all()


def test_an_unknown_table_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="table 4 of paper 2 is not available; known: 2, 3, 5, 7"):
        run_tables([4], folder=tmp_path / "new")
    assert not (tmp_path / "new").exists()
    error = CliRunner().invoke(whole_app(), ["tables", "--world", "scenes", "--seeds", "quikc"]).exception
    assert isinstance(error, UsageError) and "did you mean 'quick'" in str(error)
