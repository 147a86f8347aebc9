"""`tellapart bench caption`: both sides write the same captions; its rows and its refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Cli
from real_data import DATA

from tellapart.bench.caption import parts_of
from tellapart.bench.rows import PairedRow
from tellapart.errors import UsageError


@pytest.mark.data
def test_both_sides_write_the_same_captions_of_photos(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32; `measure` refuses rows whose captions differ."""
    monkeypatch.setenv("TELLAPART_DATA", str(DATA))
    command = ("bench", "caption", "--only", "tiny Qwen2-VL, greedy", "--pictures", 4, "--repeat", 2)
    done = cli(*command, "--device", "cpu", "--json")
    assert done.status == 0, done.err
    rows = json.loads(done.out)["rows"]
    ours = "tiny Qwen2-VL, greedy, ours in fp32"
    assert [row["work"] for row in rows] == [f"{ours}, pipeline in fp32", f"{ours}, loop over batches in fp32"]
    assert all(row["unit"] == "s" and row["ours"] > 0 and row["ratio"] > 0 for row in rows)
    assert "4 photos in 2 parts; theirs in fp32" in done.err
    assert "not measurable here" in done.err  # see `auto_is_fp32`


def test_the_ratio_is_the_median_of_the_ratios_of_parts() -> None:
    row = PairedRow("work", [1.0, 10.0, 2.0], [3.0, 20.0, 2.0], 1.5, "s")
    assert (row.ours, row.theirs, row.ratio, row.met) == (2.0, 3.0, 2.0, True)


def test_parts_share_no_photo() -> None:
    paths = [Path(f"{number}.jpg") for number in range(11)]
    parts = parts_of(paths, 10, 5)
    assert [path for part in parts for path in part] == paths[:10] and {len(part) for part in parts} == {2}
    for pictures in (4, 12):
        with pytest.raises(UsageError, match=f"--pictures {pictures}: expected at least 5, one a part, and at most 11"):
            parts_of(paths, pictures, 5)


def test_options_of_one_benchmark_are_refused_by_others(cli: Cli) -> None:
    done = cli("bench", "smile", "--pictures", 4)
    assert done.status == 2 and "bench smile has no --pictures; leave it out" in done.err
    done = cli("bench", "caption", "--only", "flamingo")
    assert done.status == 2 and "no row contains 'flamingo'; known: BLIP-base, greedy" in done.err
