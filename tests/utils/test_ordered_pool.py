"""The ordered thread pool: order, bounded reading ahead, and errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from tellapart.utils.ordered_pool import in_order


def test_at_most_so_many_are_asked_at_a_time_and_the_stream_is_not_read_ahead() -> None:
    now, most, read = [0], [0], [0]
    lock = threading.Lock()

    def work(value: int) -> int:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.002 if value else 0.2)  # the first is slow: the others may run ahead of it by the window only
        with lock:
            now[0] -= 1
        return value

    def stream() -> Iterator[int]:
        for value in range(60):
            read[0] += 1
            yield value

    found = in_order(work, stream(), 4, threading.Event(), window=10)
    assert next(found) == 0 and read[0] == 10
    assert list(found) == list(range(1, 60)) and 2 <= most[0] <= 4


def test_an_error_of_the_work_ends_the_job_and_its_threads() -> None:
    stop = threading.Event()
    found = in_order(lambda value: 1 // value, [1, 1, 0, 1], 2, stop, window=4)
    with pytest.raises(ZeroDivisionError):
        list(found)
    assert stop.is_set()


def test_ctrl_c_says_at_once_that_it_waits_for_what_is_in_progress(capsys: pytest.CaptureFixture[str]) -> None:
    answer = threading.Event()
    seen = list[str]()

    def interrupt() -> None:
        threading.Timer(0.3, lambda: (seen.append(capsys.readouterr().err), answer.set())).start()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(in_order(lambda _: answer.wait(20), [1, 2], 2, threading.Event(), window=2, waiting=interrupt))
    assert seen == ["interrupted; waiting at most 10 s for what is in progress\n"]
