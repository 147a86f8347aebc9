"""The bench of a reward's captions: both implementations compute the same, and different results are refused."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import rollout
from tellapart.errors import TellapartError, UsageError


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "PICTURES", 40)  # of which captions end early and late
    monkeypatch.setattr(rollout, "TOKENS", 12)


@pytest.mark.long
def test_both_ways_are_timed_on_the_same_work() -> None:
    rows = rollout.rows(2)
    assert [row.work for row in rows] == [
        "captions, greedy",
        "captions, sampled",
        "their log-probabilities, forward and backward",
    ]
    assert all(row.unit == "ms" and min(*row.ours_R, *row.theirs_R) > 0 for row in rows)


def test_only_some_rows() -> None:
    assert len(rollout.rows(1, "Sampled")) == 1
    with pytest.raises(UsageError, match="no row contains 'beam'; available: captions, greedy, "):
        rollout.rows(1, "beam")


def test_other_scores_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = rollout.padded
    monkeypatch.setattr(rollout, "padded", lambda *args: 1.01 * theirs(*args))
    with pytest.raises(TellapartError, match="compute different numbers"):
        rollout.rows(1, "log-probabilities")


def test_other_captions_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = rollout._RolloutStep._generate

    def others(self: Any, decoding: Any, number: int, *, reference: bool) -> Any:
        sampled = theirs(self, decoding, number, reference=reference)
        sampled.tokens_RT[0] += int(reference)
        return sampled

    monkeypatch.setattr(rollout._RolloutStep, "_generate", others)
    with pytest.raises(TellapartError, match="compute different numbers"):
        rollout.rows(1, "greedy")
