"""``tellapart bench mining``: a small run of the real thing, and the arithmetic for 10⁸."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tellapart.bags.shards import FeatureShards
from tellapart.bench import mining, mining_work
from tellapart.bench.bags import features
from tellapart.errors import UsageError


def test_a_small_run_measures_time_memory_and_what_is_found() -> None:
    rows = {row.work: row for row in mining.rows(1, to=3000)}
    work = "bags of 3, 5 and 7 among 3,000 × 512"
    stages = [rows[f"{work}: {stage}"].ours for stage in ("centroids", "order", "found", "near", "bags")]
    assert rows[f"{work}: time"].ours == pytest.approx(sum(stages))
    assert 100 < rows[f"{work}: peak memory"].ours < 4000
    for top in (2, 4, 6):  # one cluster: exact
        assert rows[f"{work}: of the nearest {top}, found all but"].ours < 0.01
    assert rows["top 200 among 3,000 × 512, found all but"].ours < 0.01


def test_features_on_disk_are_those_of_the_other_benchmark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mining_work, "ROWS", 700)
    mining_work.write_features(tmp_path / "f", 20_000)
    shards = FeatureShards.open(tmp_path / "f")
    assert [shard.rows for shard in shards.shards] == [700] * 28 + [400]
    found = np.concatenate([shard.read(slice(None)) for shard in shards.shards])
    assert np.allclose(found, features(20_000, uneven=True), rtol=0, atol=1e-3)


def test_the_arithmetic_for_a_hundred_million() -> None:
    seconds = {"centroids": 1.0, "order": 2.0, "found": 36.0, "near": 3.6, "bags": 7.2}
    rows = {row.work: row.ours for row in mining.for_large(10**6, seconds)}
    head = "100,000,000 × 512, from 1,000,000"
    assert rows[f"{head}: found"] == pytest.approx(1.0)  # a hundred times 36 s
    assert rows[f"{head}: order"] == pytest.approx(1e4 * 2 / 3600)
    alone, shared = 1e4 / 3600 + 0.2, 1e4 * 2 / 3600 + 1.1
    assert rows[f"{head}: on this machine"] == pytest.approx(alone + shared)
    key = f"{head}: with 64 such machines for assigning, searching and joining"
    assert rows[key] == pytest.approx(alone + shared / 64)


def test_wrong_options_are_one_line() -> None:
    with pytest.raises(UsageError, match="without --only"):
        mining.rows(1, only="x")
    with pytest.raises(UsageError, match="--to is 10"):
        mining.rows(1, to=10)
