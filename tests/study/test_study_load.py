"""200 participants at once on two cores: no answer lost, and 95 of 100 answers within 300 milliseconds."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sample_study import make_material, make_study

from tellapart.study.simulate import CAREFUL, planted_effects, run_participants
from tellapart.study.store import AnswerStore

PARTICIPANTS, THINK, LIMIT = 200, 8.0, 0.300  # people, mean seconds before an answer, seconds


@pytest.mark.slow
def test_two_hundred_participants_at_once(tmp_path: Path) -> None:
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
        log = run_participants(
            study, found[0], planted_effects(study), {CAREFUL: PARTICIPANTS}, think=THINK, at_once=PARTICIPANTS
        )
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0
    with AnswerStore.open(study, store_path) as store:
        saved = len(store.answers())
    answers, pictures = log.percentile(0.95, ("answer",)), log.percentile(0.95, ("picture",))
    requests = sum(map(len, log.seconds.values()))
    print(
        f"\n{PARTICIPANTS} participants, {log.acknowledged:,} answers and {requests:,} requests; 95th percentile of "
        f"answers {1000 * answers:.0f} ms, of pictures {1000 * pictures:.0f} ms"
    )
    assert log.ends == {"complete": PARTICIPANTS}
    assert saved == log.acknowledged == PARTICIPANTS * (2 + 20 + 5)
    assert answers < LIMIT
