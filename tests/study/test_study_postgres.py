"""The same study on a real PostgreSQL server, which the test starts for itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from sample_study import answer, browser, make_study

from tellapart.errors import UsageError
from tellapart.study.analysis import analyse
from tellapart.study.databases import StoreError
from tellapart.study.rehearsal import Rehearsal, local_server, planted_effects, run_participants
from tellapart.study.session import StudySession
from tellapart.study.store import AnswerStore

FOUND = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
INITDB = str(FOUND[-1]) if FOUND else shutil.which("initdb")
pytestmark = pytest.mark.skipif(not INITDB, reason="no PostgreSQL here; type: apt-get install postgresql")


class Server:
    """A server with its own data, reached through a socket in its folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, Path(str(INITDB)).parent
        self.run_as: list[str] = []
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self.run_as = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
            shutil.chown(folder, "postgres", "postgres")
        self.call([self.bin / "initdb", "-D", folder / "data", "-U", "study", "-A", "trust", "--no-sync"])
        self.url = f"postgresql://study@/postgres?host={folder}"
        self.start()

    def call(self, command: list[object]) -> None:
        done = subprocess.run(
            [*self.run_as, *map(str, command)], capture_output=True, text=True, cwd="/tmp", check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self) -> None:
        options = f"-k {self.folder} -c listen_addresses='' -c shared_buffers=16MB"
        log = self.folder / "log"
        self.call([self.bin / "pg_ctl", "-D", self.folder / "data", "-o", options, "-l", log, "-w", "start"])

    def stop(self, how: str = "fast") -> None:
        self.call([self.bin / "pg_ctl", "-D", self.folder / "data", "-m", how, "-w", "stop"])


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder:  # a short path: it names a socket
        Path(folder).chmod(0o755)
        made = Server(Path(folder))
        try:
            yield made
        finally:
            made.stop("immediate")


@pytest.mark.long
def test_a_study_on_postgresql(server: Server, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s", "compare")
    with pytest.raises(UsageError, match="contains no answers to this study yet; run: tellapart study"):
        AnswerStore.open(study, server.url, create=False)
    with AnswerStore.open(study, server.url) as store:
        store.set_stamp(study.stamp, time.time())
        with local_server(study, store) as url:
            log = Rehearsal(tmp_path, {"careful": 2, "hasty": 0, "random": 0}, planted_effects(study))
            run_participants(study, url, log, at_once=4)
        assert log.ends == {"complete": 2} and len(store.answers()) == log.acknowledged == 2 * (2 + 6 + 2)
        results = analyse(study, store)
        assert len(results.counted) == 2 and results.stamps[0]["stamp"] == study.stamp
        assert store.forget("SIMULATED0.0") and store.forget_identifiers() == 1
    other = make_study(tmp_path / "other", "compare")
    with AnswerStore.open(other, server.url) as store:
        assert store.answers() == [], "each study has a schema of its own"
    with AnswerStore.open(study, server.url, create=False) as store:
        assert len({one.participant for one in store.answers()}) == 1


def test_a_database_that_is_started_anew_loses_nothing(server: Server, tmp_path: Path) -> None:
    """It is stopped hard in the middle: requests fail meanwhile and succeed again, and no answer is lost."""
    study = make_study(tmp_path / "s")
    with AnswerStore.open(study, server.url) as store, local_server(study, store) as url:
        web, state = browser(url, "p1")
        for _ in range(4):
            state = answer(web, state, [1])
        server.stop("immediate")
        status, content = web.ask("/api/answer", {"position": state["position"], "options": [1], "revision": 0})
        assert status == 503 and b"sent again" in content
        server.start()
        state = answer(web, state, [1])
        assert state["position"] == 5 and [one.position for one in store.answers()] == [0, 1, 2, 3, 4]


def test_two_processes_on_one_database_do_not_give_a_place_twice(server: Server, tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    with AnswerStore.open(study, server.url) as one, AnswerStore.open(study, server.url) as two:
        sessions = [StudySession(study, store) for store in (one, two)]
        full: list[int] = []

        def begin(number: int) -> None:
            if sessions[number % 2].begin(f"{number:048x}", f"p{number}")["phase"] == "full":
                full.append(number)

        threads = [threading.Thread(target=begin, args=(n,)) for n in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        people = one.participants()
        assert len(people) == study.quota == 6 and len(full) == 6
        assert sorted((p.block, p.ordinal) for p in people) == [(b, o) for b in range(3) for o in range(2)]


def test_addresses_with_a_password_and_servers_that_are_not_there(tmp_path: Path) -> None:
    study = make_study(tmp_path / "s")
    with pytest.raises(UsageError, match="--store: other users can read a password on the command line") as error:
        AnswerStore.open(study, "postgresql://me:secret@host/db")
    assert "secret" not in str(error.value)
    with pytest.raises(StoreError, match="not saved") as error:
        AnswerStore.open(study, f"postgresql:///db?host={tmp_path}")
    assert "\n" not in str(error.value)
