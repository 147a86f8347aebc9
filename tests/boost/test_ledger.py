"""The ledger: what was put is there, whatever happened to the process or the file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tellapart.boost.ledger import Ledger, address
from tellapart.boost.types import Answer, Message, Request, Stage
from tellapart.data.pictures import BytesPicture
from tellapart.errors import TellapartError, UsageError
from tellapart.types import Item

NOTE = {"stage": "blend", "model": "m", "id": "1"}


def key(n: int) -> str:
    return f"{n:032x}"


def test_an_answer_is_there_after_reopening(tmp_path: Path) -> None:
    answer = Answer("two dogs ‘play’ \udc80 \n\t☂", 3, 4, "length")
    with Ledger.open(tmp_path / "l.jsonl") as ledger:
        assert ledger.get(key(1)) is None
        ledger.put(key(1), answer, NOTE)
        assert ledger.get(key(1)) == answer
    with Ledger.open(tmp_path / "l.jsonl") as ledger:
        assert ledger.get(key(1)) == answer and len(ledger) == 1
    line = json.loads((tmp_path / "l.jsonl").read_text("utf-8"))
    assert line["stage"] == "blend" and line["id"] == "1" and line["key"] == key(1)


def test_the_first_answer_stands(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "l.jsonl") as one, Ledger.open(tmp_path / "l.jsonl") as other:
        one.put(key(1), Answer("first"), NOTE)
        assert other.put(key(1), Answer("second"), NOTE).text == "first"
        assert one.put(key(1), Answer("third"), NOTE).text == "first"
    assert (tmp_path / "l.jsonl").read_bytes().count(b"\n") == 1


@pytest.mark.parametrize("torn", [b'{"key": "00', b'{"key": "' + b"0" * 32 + b'", "text": "\xe2\x82', b"\x00\x00"])
def test_a_torn_last_line_is_cut_off(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger.open(path) as ledger:
        ledger.put(key(1), Answer("one"), NOTE)
        whole = path.read_bytes()
        path.write_bytes(whole + torn)  # another process is killed while it writes
        ledger.put(key(2), Answer("two"), NOTE)
        assert ledger.get(key(2)) == Answer("two")
    path.write_bytes(path.read_bytes() + torn)
    with Ledger.open(path) as ledger:
        assert [ledger.get(key(n)).text for n in (1, 2)] == ["one", "two"]  # type: ignore[union-attr]
    assert path.read_bytes().startswith(whole) and path.read_bytes().count(b"\n") == 2
    assert b"\x00" not in path.read_bytes()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(json.dumps({"1.jpg": ["a dog", "the dog"]}).encode(), id="references"),
        pytest.param(b'{"id": "1", "caption": "a dog"}\n{"id": "2", "caption": "a c', id="captions"),
        pytest.param(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01", id="a picture"),
        pytest.param(b"id,caption\n1,a dog", id="a table"),
        pytest.param(b'{"key": "value"}', id="JSON with a key"),
        pytest.param(b'[ledger]\nkey = "00"', id="TOML"),
    ],
)
def test_a_file_of_something_else_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="and was not changed; specify another file with --ledger"):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_an_answer_without_its_line_break_is_kept(tmp_path: Path) -> None:
    """As an editor or `head -c` leaves the file."""
    path = tmp_path / "l.jsonl"
    with Ledger.open(path) as ledger:
        ledger.put(key(1), Answer("one"), NOTE)
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with Ledger.open(path) as ledger:
        assert ledger.put(key(1), Answer("again"), NOTE) == Answer("one")
        ledger.put(key(2), Answer("two"), NOTE)
    assert [json.loads(line)["text"] for line in path.read_text().splitlines()] == ["one", "two"]


def test_lines_that_say_nothing_are_counted_and_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "l.jsonl"
    with Ledger.open(path) as ledger:
        ledger.put(key(1), Answer("one"), NOTE)
    path.write_bytes(b"\x00\x00\n{}\n[]\n\n" + path.read_bytes() + b'{"key": "zz"}\n')
    with Ledger.open(path) as ledger:
        assert ledger.get(key(1)) == Answer("one") and len(ledger) == 1
    assert "4 lines could not be read" in capsys.readouterr().err


def test_threads_share_flushes_and_every_answer_is_flushed_before_put_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, flushed, count = tmp_path / "l.jsonl", [0], [0]

    def fsync(file: int) -> None:
        size = os.fstat(file).st_size
        real(file)
        flushed[0], count[0] = size, count[0] + 1

    real = os.fsync
    with Ledger.open(path) as ledger:
        monkeypatch.setattr(os, "fsync", fsync)

        def put(thread: int) -> None:
            for n in range(12):
                ledger.put(key(thread * 1000 + n), Answer(f"{thread} {n}"), NOTE)
                seen = path.read_bytes()[: flushed[0]]
                assert key(thread * 1000 + n).encode() in seen

        errors = in_threads([lambda t=t: put(t) for t in range(16)])
        assert errors == [] and len(ledger) == 192
    assert 12 <= count[0] < 192


def test_a_full_disk_is_said_and_nothing_half_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "l.jsonl"
    real = os.write

    def write(file: int, data: bytes) -> int:
        if len(data) > 20:
            return real(file, bytes(data)[:20])  # some of it fits
        raise OSError(28, "No space left on device")

    with Ledger.open(path) as ledger:
        ledger.put(key(1), Answer("one"), NOTE)
        whole = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(TellapartError, match="No space left"):
                ledger.put(key(2), Answer("two"), NOTE)
            assert path.read_bytes() == whole
        assert ledger.put(key(3), Answer("three"), NOTE) == Answer("three")
        assert ledger.get(key(1)) == Answer("one")


def test_two_processes_write_one_ledger(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tellapart.boost.ledger import Ledger; from tellapart.boost.types "
        "import Answer\nledger = Ledger.open(Path(sys.argv[1]))\nfor n in range(2, 152):\n"
        "  ledger.put(f'{n if n % 2 else n * 1000 + int(sys.argv[2]):032x}', Answer(str(n) + 'x' * 3000), "
        "{'stage': 's', 'model': 'm', 'id': str(n)})"
    )
    both = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "l.jsonl"), n]) for n in "12"]
    assert [process.wait() for process in both] == [0, 0]
    lines = [json.loads(line) for line in (tmp_path / "l.jsonl").read_text().splitlines()]
    keys = [line["key"] for line in lines]
    assert len(keys) == len(set(keys)) == 75 + 2 * 75


@pytest.mark.long
def test_a_ledger_that_another_process_holds_says_which(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "l.jsonl"
    script = (
        "import fcntl, sys, time\nfile = open(sys.argv[1], 'a')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\ntime.sleep(4)"
    )
    with Ledger.open(path) as ledger:
        command = [sys.executable, "-c", script, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None and other.stdout.readline() == b"held\n"
            assert ledger.put(key(1), Answer("one"), NOTE) == Answer("one")
            assert other.wait() == 0
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"waiting for the lock on {path}, which is in use by process {other.pid} (")


def test_the_address_is_of_all_that_the_answer_depends_on(tmp_path: Path) -> None:
    class Backend:
        name = "openai:m"

        def complete(self, request: Request) -> Answer:
            raise NotImplementedError

    def of(**other: object) -> str:
        given = {
            "prompt": "p", "model": "openai:m", "picture": b"1", "references": ("a dog",), "text": "q", "shown": None,
            "temperature": 0.0, "seed": None, "attempt": 0, "truth": None, "id": "1", "name": "blend",
        } | other  # fmt: skip
        backend = Backend()
        backend.name = str(given["model"])
        stage = Stage(given["name"], backend, given["prompt"], None, None, None)  # type: ignore[arg-type]
        item = Item(given["id"], BytesPicture(given["picture"], "p"), given["references"])  # type: ignore[arg-type]
        shown = BytesPicture(given["shown"], "s") if given["shown"] else None  # type: ignore[arg-type]
        request = Request(
            (Message("user", given["text"]),), shown, given["temperature"], seed=given["seed"], truth=given["truth"]
        )  # type: ignore[arg-type]
        return address(stage, item, request, given["attempt"])  # type: ignore[arg-type]

    changes = [
        {"prompt": "P"}, {"model": "openai:n"}, {"picture": b"2"}, {"references": ("a dog", "b")}, {"text": "Q"},
        {"shown": b"1"}, {"temperature": 0.5}, {"seed": 1}, {"attempt": 1}, {"name": "describe"},
    ]  # fmt: skip
    assert len({of(), *(of(**change) for change in changes)}) == len(changes) + 1
    assert of() == of(truth="a scene") == of(id="2")


def in_threads(works: list[object]) -> list[BaseException]:
    errors: list[BaseException] = []

    def run(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors
