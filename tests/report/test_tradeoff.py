"""The picture of R@1 against CIDEr: what its lines are made of, and when there is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from page_reader import read_page
from sample_run import make_run

from tellapart.report import build_report
from tellapart.report.folder import read_run
from tellapart.report.trade_off import VALIDATIONS, trade_off


def logged(folder: Path, name: str, cost: float) -> Path:
    """A run whose validations have CIDEr too, which falls from 100 by ``cost`` at each, in a straight line."""
    run = make_run(folder, name=name)
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    checks = [line for line in lines if line.get("event") == "validation"]
    for number, line in enumerate(checks):
        line |= {"cider": 100 - cost * number, "recall@1.lookalike": 40 + 2 * number}
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_recall_against_cider_over_the_course_of_several_runs(tmp_path: Path) -> None:
    runs = [logged(tmp_path / "a", "self-retrieval", 4), logged(tmp_path / "b", "<b>BagCurri", 1)]
    (section,) = read_page(build_report(runs, tmp_path / "page.html")).all("section", class_="trade")
    svg = section.all("svg")[0]
    first, second = svg.all("g", class_="course")
    titles = [[title.text for title in course.all("title")] for course in (first, second)]
    assert titles[0][0] == "self-retrieval, step 50: R@1 among 10 look-alikes 40, CIDEr 100"
    assert titles[1][-1] == "<b>BagCurri, step 400: R@1 among 10 look-alikes 54, CIDEr 93"
    dots = [[(float(c.attributes["cx"]), float(c.attributes["cy"])) for c in g.all("circle")] for g in (first, second)]
    assert all(len(own) == 8 for own in dots)
    (x0, y0), (x7, y7) = dots[0][0], dots[0][-1]
    assert x7 < x0 and y7 < y0, "CIDEr falls to the left, recall rises"
    assert dots[0][0] == dots[1][0] and (dots[1][-1][0] - x0) * 4 == pytest.approx(x7 - x0, abs=0.5)
    later, line = first.all("path")
    kept = 5  # step 300 was kept, and two validations came after it
    assert line.attributes["d"] == "M" + "L".join(f"{x} {y}" for x, y in dots[0][: kept + 1])
    assert later.attributes["d"] == "M" + "L".join(f"{x} {y}" for x, y in dots[0][kept:])
    classes = [c.attributes.get("class", "") for c in first.all("circle")]
    assert [place for place, own in enumerate(classes) if own == "ends"] == [kept]
    number = first.all("text")[0].attributes
    assert (float(number["x"]), float(number["y"]) - 4) == pytest.approx(dots[0][kept])
    assert "to R@1 among 10 look-alikes 50, CIDEr 80 (step 300, kept)" in section.text
    assert [g.all("text")[0].text for g in (first, second)] == ["1", "2"]
    assert (
        "on the validation pictures" in section.text and "from R@1 among 10 look-alikes 40, CIDEr 100" in section.text
    )
    alone = read_page(build_report(runs[:1])).all("section", class_="trade")
    assert len(alone) == 1 and len(alone[0].all("svg")[0].all("g", class_="course")) == 1


def test_runs_that_logged_no_cider_are_named_and_not_drawn(tmp_path: Path) -> None:
    runs = [logged(tmp_path / "a", "a", 4), make_run(tmp_path / "b", name="b")]
    (section,) = read_page(build_report(runs, tmp_path / "page.html")).all("section", class_="trade")
    assert len(section.all("svg")[0].all("g", class_="course")) == 1
    assert "Not drawn because one of the two metrics is missing: b." in section.text
    assert not read_page(build_report(runs[1:])).all("section", class_="trade")


def test_runs_that_were_validated_otherwise_are_not_drawn_together(tmp_path: Path) -> None:
    runs = [logged(tmp_path / name, name, 4) for name in ("a", "b", "c")]
    (runs[1] / "recipe.toml").write_text('[data]\nvalidation = "flickr8k:x"\n')
    log = (runs[0] / "log.jsonl").read_text()
    (runs[0] / "log.jsonl").write_text(log.replace('"best": ', '"n": 200, "best": '))  # 0.1 did not log it
    (section,) = read_page(build_report(runs, tmp_path / "page.html")).all("section", class_="trade")
    assert len(section.all("svg")[0].all("g", class_="course")) == 2 and "n = 200" in section.text
    assert "Not drawn because they are not comparable" in section.text


def test_a_long_course_is_thinned_and_keeps_its_ends(run: Path) -> None:
    folder = read_run(run)
    folder.log.validation = {"cider": dict.fromkeys(range(1000), 1.0), "recall@1": {n: float(n) for n in range(1000)}}
    trade = trade_off([folder], ["x"])
    assert trade is not None and 30 <= len(trade.courses[0].points) <= VALIDATIONS + 1
    assert [trade.courses[0].points[n][0] for n in (0, -1)] == ["step 0", "step 999"]


def test_a_validation_measures_both_axes(tiny_recipe: dict[str, Any]) -> None:
    """Also where the checkpoint is chosen by recall; CIDEr only where there is something to hold captions against."""
    from tellapart.captioners import generate_captions
    from tellapart.metrics.cider import cider_d
    from tellapart.recipe.reading import check_recipe
    from tellapart.training.build import TrainingSetup
    from tellapart.training.validation import Validator

    setup = TrainingSetup(check_recipe(tiny_recipe, "test"), lambda name: name)
    validation = Validator(setup)
    values = validation.run()
    assert "recall@1.lookalike" in values and setup.recipe.validation.select != "cider"
    texts = generate_captions(setup.learner, validation.pictures, setup.recipe.validation.decoding)
    references = [list(item.references) for item in setup.validation_items]
    assert values["cider"] == pytest.approx(100 * cider_d(texts, references)[0])
    first, *others = setup.validation_items
    setup.validation_items = [replace(first, references=()), *others]
    assert "cider" not in Validator(setup).run()
