"""Progress goes to stderr, late and seldom, and says rate and time left."""

import pytest

from tellapart.utils import progress
from tellapart.utils.progress import Progress, track


def test_short_jobs_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(track(range(5), label="x")) == [0, 1, 2, 3, 4]
    assert capsys.readouterr() == ("", "")


def test_line_says_rate_and_time_left() -> None:
    shown = Progress(1000, "encoding", enabled=False)
    shown.advance(250)
    assert shown.line(100.0) == "encoding: 250 of 1,000, 2.5/s, 5:00 left"
    endless = Progress(None, "reading", enabled=False)
    endless.advance(50)
    assert endless.line(10.0) == "reading: 50, 5.0/s"
    resumed = Progress(1000, "training", done=900, enabled=False)
    resumed.advance(50)
    resumed.note = "loss 1.5"
    assert resumed.line(10.0) == "training: 950 of 1,000, 5.0/s, 0:10 left; loss 1.5"
    slow = Progress(100_000, "encoding", enabled=False)
    slow.advance(10)
    assert slow.line(1.0) == "encoding: 10 of 100,000, 10.0/s, 2:46:39 left"


def test_without_a_terminal_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    for _ in track(range(100), label="encoding"):
        clock[0] += 1.0
    out, err = capsys.readouterr()
    assert out == "" and err.splitlines() == [
        "encoding: 30 of 100, 1.0/s, 1:10 left",
        "encoding: 60 of 100, 1.0/s, 0:40 left",
        "encoding: 90 of 100, 1.0/s, 0:10 left",
    ]
    for _ in track(range(100), label="encoding", enabled=False):
        clock[0] += 1.0
    assert capsys.readouterr() == ("", "")


def test_in_a_terminal_a_bar_after_two_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with Progress(10, "encoding") as shown:
        clock[0] = 1.0
        shown.advance()
        assert shown._bar is None
        clock[0] = 3.0
        shown.advance()
        assert shown._bar is not None and shown._bar.tasks[0].completed == 2
    assert not shown._bar.live.is_started
