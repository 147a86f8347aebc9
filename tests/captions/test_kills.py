"""Commands that are killed (SIGKILL) at random moments leave files and history whole.

``TELLAPART_KILLS=60 pytest tests/captions/test_kills.py`` kills more often than CI does.
"""

import itertools
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tellapart.captions.log_file import LOG_NAME
from tellapart.captions.store import CaptionStore
from tellapart.data import xmp
from tellapart.scenes import Scenes

KILLS = int(os.environ.get("TELLAPART_KILLS", "6"))
PICTURES = 30
BY_HAND = "größer,\r\nby hand".encode()  # no end of the last line, and ends of lines as Windows has them
# What the review page does when a person saves: texts that say themselves whether they are whole.
EDIT = """
import random, sys
from tellapart.review.start import open_session
session = open_session(sys.argv[1], sys.argv[2] and __import__("pathlib").Path(sys.argv[2]))
draw = random.Random(int(sys.argv[3]))
for turn in range(200):
    rows = session.state()["rows"]
    some = [n for n in draw.sample(range(len(rows)), 5) if n not in (3, 4)]
    edits = {n: {"text": f"<{turn} {'word ' * draw.randint(0, 300)}>", "version": rows[n]["version"]} for n in some}
    session.write(edits, "edit")
    if draw.random() < 0.3:
        session.undo(session.undoable()["undo"]["id"])
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Thirty pictures; 03 has a text and an alt text by hand, 04 an alt text that a person accepted."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, scene in enumerate(Scenes(PICTURES, split="test", seed=3)):
        scene.image().resize((48, 32)).save(folder / f"{number:02}.jpg")
    (folder / "03.txt").write_bytes(BY_HAND)
    rows = [{"id": f"{n:02}.jpg", "caption": caption_of(n)} for n in range(PICTURES)]
    (tmp_path / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = start(folder, "alt-text").wait()
    assert done == 0
    store = CaptionStore.open(folder, tmp_path / "alt.jsonl")
    lines = store.layout.path.read_text().splitlines()  # type: ignore[attr-defined]
    lines[3] = json.dumps({"id": "03.jpg", "caption": "an alt text by hand"})
    lines[4] = json.dumps({**json.loads(lines[4]), "accepted": True})
    (tmp_path / "alt.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def caption_of(number: int) -> str:
    return f"number {number} by a lake, under a tree, next to a house, behind a fence, on a lawn, in a park"


def start(folder: Path, what: str, number: int = 0) -> subprocess.Popen[bytes]:
    alt, source = folder.parent / "alt.jsonl", ("--captions", folder.parent / "captions.jsonl")
    command = [sys.executable, "-m", "tellapart"]
    typed = {
        "edit": [sys.executable, "-c", EDIT, folder, "" if number % 8 else alt, number],
        "undo": [*command, "captions", "undo", folder, *(() if number % 8 == 3 else ("--captions", alt))],
        "lora": [*command, "lora", folder, *source, "--trigger", f"zwx{number}", "--common", "1"],
        "alt-text": [*command, "alt-text", folder, *source, "-o", alt, "--characters", 30 + number % 60, "--embed"],
    }[what]
    return subprocess.Popen(list(map(str, typed)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check(folder: Path) -> None:
    """What was written by hand is there byte for byte; all other texts, rows, sidecars and lines are whole."""
    assert (folder / "03.txt").read_bytes() == BY_HAND
    alt, listed = folder.parent / "alt.jsonl", folder / "metadata.jsonl"
    rows = [json.loads(line) for line in alt.read_text().splitlines()]
    texts = {row["id"]: row["caption"] for row in rows}
    assert texts["03.jpg"] == "an alt text by hand" and next(row for row in rows if row["id"] == "04.jpg")["accepted"]
    for id_, text in texts.items():
        whole = (text[:1], text[-1:]) == ("<", ">") or caption_of(int(id_[:2])).startswith(text)
        assert whole or id_ == "03.jpg", text
    if listed.exists():
        assert len([json.loads(line) for line in listed.read_text().splitlines()]) == PICTURES
    for n in range(PICTURES):
        beside, packet = folder / f"{n:02}.txt", folder / f"{n:02}.xmp"
        text = beside.read_text() if n != 3 and beside.exists() else "<>\n"
        ours = text.startswith("zwx") and text.endswith(f", {caption_of(n)}\n")
        assert ours or (text.startswith("<") and text.endswith(">\n")), text
        assert not packet.exists() or xmp.texts_of(packet.read_text(encoding="utf-8"), str(packet))
    for log in (folder / LOG_NAME, folder.parent / LOG_NAME):
        lines = log.read_text().split("\n") if log.exists() else []
        halves = [line for line in lines if line and not line.endswith("}")]
        assert len(halves) <= KILLS
    for captions in (None, alt):
        store = CaptionStore.open(folder, captions)
        for id_ in store.items:
            history = store.history(id_)
            assert all(a.before == b.after for a, b in itertools.pairwise(history) if a.before is not None), id_


@pytest.mark.long
def test_kills_at_random_moments_leave_files_and_history_whole(folder: Path) -> None:
    draw, running = random.Random(KILLS), 0
    for number in range(KILLS):
        what = ("edit", "lora", "alt-text", "undo")[number % 4]
        logs = [folder / LOG_NAME, folder.parent / LOG_NAME]
        before = [path.stat().st_size if path.exists() else 0 for path in logs]
        process, end = start(folder, what, number), time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:  # until it writes
            if [path.stat().st_size if path.exists() else 0 for path in logs] != before:
                break
            time.sleep(0.001)
        time.sleep(draw.choice((0, draw.uniform(0, 0.02), draw.uniform(0, 0.3))))
        running += process.poll() is None
        process.kill()
        process.wait()
        check(folder)
    assert running >= KILLS / 2, "the commands had ended before they were killed"
    for what in ("lora", "alt-text"):
        assert start(folder, what, 7).wait() == 0
    check(folder)
    texts = [(folder / f"{n:02}.txt").read_text() for n in range(PICTURES) if n != 3]
    assert all(text.startswith(("zwx7, ", "<")) for text in texts), "ours are written anew, and edits stay"
    store = CaptionStore.open(folder)
    assert store.undo(store.since("")).stayed == ()
    assert [path.name for path in folder.glob("*.txt")] == ["03.txt"] and (folder / "03.txt").read_bytes() == BY_HAND
    left = [path.name for path in (*folder.iterdir(), *folder.parent.iterdir()) if path.suffix not in (".jpg", ".xmp")]
    assert not [name for name in left if name.startswith(".") and name != LOG_NAME and not name.endswith(".lock")]
