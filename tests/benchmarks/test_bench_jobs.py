"""The benchmark of jobs: its simulation against what can be counted by hand, and a run on few pictures."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from benchmarks import jobs
from benchmarks.jobs import EACH, SHARDS_EACH, SLOWER, efficiency, rows
from tellapart.errors import TellapartError, UsageError


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
    assert found[1].ours < 45  # the start, whatever there is to do; the docs say 14 s


def test_the_rows_are_made_of_what_the_commands_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the commands: they leave captions and the seconds of their shards."""
    took = {"plain": 10.0, "one": 11.0, "alone": 10.0, "two": 6.0}
    same = True

    def timed(data: Path, out: Path, threads: int, *options: object) -> float:
        parts = Path(f"{out}.job") / "parts-1"
        parts.mkdir(parents=True)
        out.write_text("captions" if same else out.name)
        for number, tar in enumerate(sorted(data.iterdir())):
            (parts / f"{number:06d}.summary.json").write_text('{"seconds": 4.0}')
            with tarfile.open(tar) as pictures:
                assert pictures.getnames() == [f"{20 * number + n:08d}.png" for n in range(20)]
        return took[out.stem]

    monkeypatch.setattr(jobs, "EACH", 20)
    monkeypatch.setattr(jobs, "_timed", timed)
    plain, outside, two, *simulated = rows(2, pictures=40)
    assert (plain.ours, plain.theirs, outside.ours) == (11.0, 10.0, 3.0)
    assert (two.ours, two.theirs) == (6.0, 10.0)
    assert [row.ours for row in simulated[::2]] == pytest.approx([100, 100, 100])  # equal shards, no slow machine
    same = False
    with pytest.raises(TellapartError, match="depend on the number of workers"):
        rows(1, pictures=40)


def test_too_few_pictures_are_refused() -> None:
    with pytest.raises(UsageError, match="at least 2,000"):
        rows(1, pictures=10)
