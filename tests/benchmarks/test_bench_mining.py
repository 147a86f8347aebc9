"""``benchmarks mining``: a small run of the real thing, and the arithmetic for 10⁸."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import mining, mining_work
from benchmarks.bags import features
from tellapart.bags.shards import FeatureShards
from tellapart.errors import UsageError


@pytest.mark.long
def test_a_small_run_measures_time_memory_and_what_is_found() -> None:
    rows = {row.work: row for row in mining.rows(1, to=3000)}
    work = "bags of 3, 5 and 7 among 3,000 × 512"
    stages = [rows[f"{work}: {stage}"].ours for stage in ("centroids", "order", "before", "found", "near", "bags")]
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
    """From a million pictures in 1,600 clusters of 5,000 to 80,000 of 10,000, each picture in eight."""
    seconds = {"centroids": 5.0, "order": 36.0, "found": 51.2, "near": 3.6, "round-1": 72.0, "bags": 7.2}
    rows = {row.work: row.ours for row in mining.for_large(10**6, seconds)}
    head = "100,000,000 × 512, from 1,000,000"
    rate = 1600 * 5_000**2 * 512 / 51.2  # multiplications and additions a second
    order = 1.0 + 2 * 1e8 * 80_000 * 512 / rate / 3600
    centroids = (5 + 2 * 10 * 64 * 80_000**2 * 512 / rate) / 3600
    expected = {"centroids": centroids, "order": order, "found": 2 * 51.2 / 36, "near": 0.1, "round-1": 2.0}
    expected["bags"] = 0.2
    for stage, hours in expected.items():
        assert rows[f"{head}: {stage}"] == pytest.approx(hours)
    assert rows[f"{head}: on this machine"] == pytest.approx(sum(expected.values()))
    key = f"{head}: with 64 such machines for assigning, searching, joining and refining"
    assert rows[key] == pytest.approx(centroids + 0.2 + (order + 2 * 51.2 / 36 + 0.1 + 2.0) / 64)


def test_wrong_options_are_one_line() -> None:
    with pytest.raises(UsageError, match="without --only"):
        mining.rows(1, only="x")
    with pytest.raises(UsageError, match="--to is 10"):
        mining.rows(1, to=10)
