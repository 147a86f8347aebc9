"""200 participants at once on two cores: no answer lost, and 95 of 100 answers within 300 milliseconds."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sample_study import make_material, make_study

from tellapart.study.rehearsal import CAREFUL, Rehearsal, planted_effects, run_participants
from tellapart.study.scripted import StudyBrowser
from tellapart.study.store import AnswerStore

PARTICIPANTS, THINK, LIMIT = 200, 8.0, 0.300  # people, mean seconds before an answer, seconds


@pytest.mark.slow
def test_two_hundred_participants_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds: dict[str, list[float]] = defaultdict(list)
    ask = StudyBrowser.ask

    def timed(web: StudyBrowser, path: str, body: Any = None) -> tuple[int, bytes]:
        started = time.perf_counter()
        reply = ask(web, path, body)
        seconds["picture" if "/pictures/" in path else path.rpartition("/")[2]].append(time.perf_counter() - started)
        return reply

    monkeypatch.setattr(StudyBrowser, "ask", timed)
    study = make_study(
        tmp_path / "s", "pick", make_material(300), items=20, block=20, controls=5, candidates=10, raters=70
    )
    store_path = tmp_path / "answers.sqlite"
    command = [sys.executable, "-m", "tellapart", "study", "serve", str(study.folder), "--store", str(store_path)]
    server = subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", server.stderr.readline())
        assert found
        log = Rehearsal(store_path, {CAREFUL: PARTICIPANTS}, planted_effects(study))
        run_participants(study, found[0], log, think=THINK, at_once=PARTICIPANTS)
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
    with AnswerStore.open(study, store_path) as store:
        saved = len(store.answers())
    answers, pictures = (np.quantile(seconds[kind], 0.95, method="inverted_cdf") for kind in ("answer", "picture"))
    requests = sum(map(len, seconds.values()))
    print(
        f"\n{PARTICIPANTS} participants, {log.acknowledged:,} answers and {requests:,} requests; 95th percentile of "
        f"answers {1000 * answers:.0f} ms, of pictures {1000 * pictures:.0f} ms"
    )
    assert log.ends == {"complete": PARTICIPANTS}
    assert saved == log.acknowledged == PARTICIPANTS * (2 + 20 + 5)
    assert answers < LIMIT
