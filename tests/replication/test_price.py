"""``replication price``: the captions' exact claims, the fit of the exchange rate, and a small grid end to end."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import Cli

from replication.price import (
    CELLS,
    FILLER,
    QUERY_FACTS,
    Cell,
    fit_price,
    parse_cells,
    pictures_of,
    write_caption,
    write_query,
)
from tellapart.errors import UsageError
from tellapart.scenes.truth import count_claims


def test_every_caption_has_exactly_the_claims_of_its_cell() -> None:
    scenes = pictures_of("train", 40)
    for cell in CELLS:
        for scene in scenes:
            text = write_caption(scene, cell, seed=1)
            found = count_claims(text, scene)
            assert (found.correct, found.claims) == (cell.true, cell.true + cell.false), text
            assert found.attribute_recall == cell.recall and found.attribute_precision == cell.precision
            assert found.binding_errors == 0  # a false value is nowhere in the picture
            assert len(text.split()) == cell.words, text
    assert len({(cell.precision, cell.recall) for cell in CELLS}) == 25
    for omitted in range(4, 9):
        assert len({cell.words for cell in CELLS if cell.omitted == omitted}) == 1


def test_cells_of_a_picture_differ_in_what_they_are_about_alone() -> None:
    """More falsehoods leave the true claims as they are; another seed states other facts."""
    (scene,) = pictures_of("test", 1)
    few, many = (set(write_caption(scene, Cell(false, 6)).split()) for false in (0, 4))
    assert few - many <= {*FILLER, "a", "an", "thing", "and"}
    assert write_caption(scene, Cell(2, 4)) == write_caption(scene, Cell(2, 4), seed=0)
    assert write_caption(scene, Cell(2, 4)) != write_caption(scene, Cell(2, 4), seed=1)


def test_queries_are_true() -> None:
    for scene in pictures_of("test", 30):
        found = count_claims(write_query(scene), scene)
        assert found.correct == found.claims == QUERY_FACTS


@pytest.mark.parametrize("k", [0.25, 1.0, 3.0])
def test_the_fit_recovers_a_planted_price(k: float) -> None:
    rng = np.random.default_rng(0)
    chance_C = np.array([0.7 - 0.05 * (cell.omitted + k * cell.false) * 0.5 for cell in CELLS])
    value_SCN = 100.0 * (rng.random((3, len(CELLS), 400)) < chance_C[:, None])
    found = fit_price(CELLS, value_SCN)
    assert found.low < k < found.high and found.high - found.low < 1.5 * max(1.0, k)
    assert found.determined and found.omission == pytest.approx(2.5, abs=0.5)
    assert found.threshold == pytest.approx(found.k / (1 + found.k))
    exact = fit_price(CELLS, np.repeat(100 * chance_C[None, :, None], 2, axis=2), resamples=20)
    assert (exact.k, exact.low, exact.high) == pytest.approx((k, k, k))


def test_a_price_of_noise_is_not_determined() -> None:
    found = fit_price(CELLS, 100.0 * (np.random.default_rng(1).random((2, len(CELLS), 50)) < 0.5))
    assert not found.determined and found.to_json()["k"] is None


@pytest.mark.parametrize(
    ("text", "told"),
    [("4", "expected FALSE-OMITTED with commas"), ("5-4", "cell 5-4: expected 0 ≤ false ≤ omitted ≤ 10"),
     ("a-b", "expected FALSE-OMITTED")],
)  # fmt: skip
def test_a_wrong_cell_is_one_line(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told.replace("(", r"\(")):
        parse_cells(text)


@pytest.mark.long
def test_a_small_grid_goes_through_and_goes_on(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("price", "--cells", "0-4,4-4,0-8", "--pictures", 60, "--steps", 3)
    found = json.loads(cli(*asked, "--json", package="replication.__main__").out)
    assert set(found["prices"]) == {"retriever", "sampled", "greedy"} and len(found["cells"]) == 3
    assert [(row["precision"], row["recall"]) for row in found["cells"]] == [(100, 60), (60, 60), (100, 20)]
    kept = sorted((tmp_path / "runs" / "price").iterdir())
    assert len(kept) == 3
    times = [path.stat().st_mtime_ns for path in kept]
    kept[0].unlink()
    assert json.loads(cli(*asked, "--json", package="replication.__main__").out) == found  # the cell is the same again
    assert [path.stat().st_mtime_ns for path in kept][1:] == times[1:]
    shown = cli(*asked, package="replication.__main__").out
    assert "retriever (R@1 by true queries)" in shown
    one_line = cli("price", "--cells", "0-4,4-4", package="replication.__main__").line
    assert "must differ in false claims and in omitted facts" in one_line
