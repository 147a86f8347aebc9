"""Appending to a log while another process replaces it with a shorter one."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path

import pytest

from tellapart.captions.authors import Author
from tellapart.captions.journal import Journal, new_change
from tellapart.captions.log_file import LOG_NAME
from tellapart.captions.log_row import text_fields
from tellapart.captions.provenance import Provenance


@pytest.mark.parametrize("writer", ["provenance", "journal"])
def test_a_line_appended_while_the_log_is_replaced_is_in_the_new_log(tmp_path: Path, writer: str) -> None:
    path = tmp_path / LOG_NAME
    Provenance.open(tmp_path / "a.jsonl").record({"1": text_fields("a dog")})
    line = path.read_text()

    def append() -> None:
        if writer == "provenance":
            Provenance.open(tmp_path / "a.jsonl").record(
                {"2": text_fields("a cat")}, new_change("caption", Author("m"))
            )
        else:
            log = Journal.open(tmp_path)
            with log.locked():
                log.append([{"file": "a.jsonl", "id": "2", **text_fields("a cat")}])

    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        thread = threading.Thread(target=append)
        thread.start()
        time.sleep(0.5)  # until it waits for the lock
        (tmp_path / "shorter").write_text(line)
        (tmp_path / "shorter").replace(path)
    thread.join(10)
    assert Provenance.open(tmp_path / "a.jsonl").wrote("2", "a cat")
    assert Provenance.open(tmp_path / "a.jsonl").wrote("1", "a dog")
