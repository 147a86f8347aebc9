"""The benchmark of jobs: its simulation against what can be counted by hand, and a run on few pictures."""

from __future__ import annotations

import pytest

from tellapart.bench.jobs import EACH, SHARDS_EACH, SLOWER, efficiency, rows
from tellapart.errors import UsageError


def test_equal_shards_leave_no_worker_idle() -> None:
    assert efficiency([2.0], 7, 0.0) == pytest.approx(1.0)


def test_a_slow_worker_holds_up_the_end() -> None:
    """Two workers, one five times slower: 200 equal shards are 167 and 33; whoever is last sets the time."""
    last = min(max(200 - n, SLOWER * n) for n in range(201))
    assert efficiency([1.0], 2, 0.5) == pytest.approx(2 * SHARDS_EACH / (1.2 * last), rel=0.02)


def test_longer_shards_waste_more() -> None:
    assert 0.9 < efficiency([1.0, 1.0, 1.0, 30.0], 50, 0.0) < efficiency([1.0, 1.2], 50, 0.0) <= 1.0


@pytest.mark.slow
def test_the_commands_are_compared() -> None:
    found = rows(1, pictures=2 * EACH)
    assert [row.unit for row in found] == ["s", "s", "s"] + 6 * ["%"]
    assert all(0 < row.ours <= 100 for row in found if row.unit == "%") and all(row.ours > 0 for row in found)


def test_too_few_pictures_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 2,000"):
        rows(1, pictures=10)
