"""The caption store: every layout, who wrote what, undo, renamed pictures, two writers, and kills at any moment."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Cli
from PIL import Image

from tellapart.captions.authors import PERSON, Author
from tellapart.captions.log_file import LOG_NAME
from tellapart.captions.store import CaptionStore, Edit
from tellapart.data import xmp
from tellapart.errors import UsageError
from tellapart.scenes import Scenes
from tellapart.utils.messages import say_once

BLIP = Author("blip", "a photo of", {"kind": "beam", "beams": 5})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six scenes as photos."""
    (tmp_path / "dogs").mkdir()
    for number, scene in enumerate(Scenes(6, split="test", seed=3)):
        scene.image().save(tmp_path / "dogs" / f"{number}.jpg")
    return tmp_path / "dogs"


def texts(store: CaptionStore) -> dict[str, str]:
    return {id_: caption.text for id_, caption in store.captions().items() if caption.text}


LAYOUTS: dict[str, dict[str, str]] = {
    ".txt": {"1.txt": "by hand", "2.caption": "in two\nlines\n"},
    "captions.jsonl": {
        "captions.jsonl": '{"id": "1.jpg", "caption": "by hand", "x": [1]}\n'
        '{"id": "2.jpg", "captions": ["in two", "lines"]}'
    },
    "captions.csv": {
        "captions.csv": 'photo;text;by\n1.jpg;by hand;me, too\n2.jpg;"in ""two""\nlines";you\n3.jpg;"three";\n'
    },
    "several.csv": {"several.csv": "image,caption\n1.jpg,by hand\n2.jpg,in two\n2.jpg,lines\n"},
    "metadata.jsonl": {"dogs/metadata.jsonl": '{"file_name": "1.jpg", "text": "by hand"}\n'},
    ".xmp": {
        "1.xmp": xmp.with_languages(
            "", {(xmp.ALT, xmp.DEFAULT): "by hand", (xmp.LONG, xmp.DEFAULT): "and long"}, "1.xmp"
        )
    },
}


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest, folder: Path) -> tuple[CaptionStore, Path]:
    """A store of each layout with a person's texts, and the file or folder that they are in."""
    name, place = request.param, folder
    for file, text in LAYOUTS[name].items():
        path = folder / Path(file).name if "/" in file or name.startswith(".") else folder.parent / file
        path.write_text(text, newline="")
        place = folder if name.startswith(".") else path
    return CaptionStore.open(folder, Path(name) if name == ".xmp" else None if place == folder else place), place


def contents(place: Path) -> dict[str, bytes]:
    files = [place] if place.is_file() else [path for path in place.iterdir() if path.suffix != ".jpg"]
    return {path.name: path.read_bytes() for path in files if path.name != LOG_NAME and path.exists()}


def test_texts_of_people_stay_and_all_is_undone(layout: tuple[CaptionStore, Path], folder: Path) -> None:
    store, place = layout
    original = contents(place)
    before = store.captions()
    assert before["1.jpg"].text == "by hand" and before["1.jpg"].author == PERSON and before["0.jpg"].author is None
    outcome = store.write({f"{n}.jpg": Edit(f"model {n}") for n in (0, 1, 4)}, "caption", BLIP)
    assert outcome.written == ("0.jpg", "4.jpg") and outcome.stayed == ("1.jpg",)
    assert store.caption("0.jpg").author == BLIP and store.caption("1.jpg").text == "by hand"
    store.write({"0.jpg": Edit('mine, "quoted"')}, "edit")
    store.write({"4.jpg": Edit(state={"accepted": True})}, "accept")
    again = store.write({f"{n}.jpg": Edit(f"again {n}") for n in (0, 1, 4)}, "caption", BLIP)
    assert again.stayed == ("0.jpg", "1.jpg", "4.jpg") and again.change is None
    replaced = store.write({f"{n}.jpg": Edit(f"again {n}") for n in (0, 1, 4)}, "caption", BLIP, replace_edited=True)
    assert replaced.replaced == ("0.jpg", "1.jpg", "4.jpg") and not store.caption("4.jpg").accepted
    other = CaptionStore.open(folder, _typed(store))
    assert other.captions() == store.captions()
    store.undo(store.last(1))
    assert texts(store) == {**texts(other), "0.jpg": 'mine, "quoted"', "1.jpg": "by hand", "4.jpg": "model 4"}
    assert store.caption("4.jpg").accepted and store.caption("4.jpg").author == BLIP
    store.undo(store.last(2))
    assert store.caption("0.jpg").text == "model 0" and store.caption("0.jpg").author == BLIP
    store.undo(store.last(9))
    assert store.last(9) == [] and {id_: one.text for id_, one in store.captions().items()} == {
        id_: one.text for id_, one in before.items()
    }
    left = contents(place)
    if "1.xmp" in left:  # of a new sidecar an empty alt text stays
        left = {"1.xmp": left["1.xmp"]}
    assert {name: data.rstrip() for name, data in left.items()} == {
        name: data.rstrip() for name, data in original.items()
    }
    assert not [path for path in place.parent.rglob(".*") if path.name not in (LOG_NAME,)]


def _typed(store: CaptionStore) -> Path | None:
    return getattr(store.layout, "path", Path(".xmp") if ".xmp" in store.layout.name else None)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("\ufeffein größerer Hund".encode(), "ein größerer Hund"),
        ("ein größerer Hund\r\nauf der Wiese\r\n".encode(), "ein größerer Hund\nauf der Wiese"),
        ("ein größerer Hund\n".encode("utf-16"), "ein größerer Hund"),
        ("ein größerer Hund\n".encode("latin-1"), "ein gr\ufffd\ufffderer Hund"),
    ],
)
def test_a_text_beside_a_picture_is_decoded_as_eval_decodes_it(folder: Path, data: bytes, text: str) -> None:
    """An unchanged text stays byte by byte, and an undone edit restores its bytes."""
    (folder / "1.txt").write_bytes(data)
    store = CaptionStore.open(folder)
    assert store.caption("1.jpg").text == text
    assert store.write({"1.jpg": Edit(text)}, "edit").change is None and (folder / "1.txt").read_bytes() == data
    store.write({"1.jpg": Edit("ein Hund")}, "edit")
    assert (folder / "1.txt").read_text(encoding="utf-8") == "ein Hund\n"
    store.undo(store.last(1))
    assert (folder / "1.txt").read_bytes() == data


@pytest.mark.parametrize(
    ("table", "encoding", "line"),
    [
        ("id,caption\n1.jpg,a dog\n", "utf-16", "is in UTF-16, but only UTF-8 files can be edited; save it as UTF-8"),
        ("id,caption,caption\n1.jpg,a dog,a cat\n", "utf-8", "2 columns are named 'caption'; rename or remove all"),
        (
            "id,caption\n0.jpg,x,,\n1.jpg,a dog, brown\n",
            "utf-8",
            "line 3: more fields than in the header; put captions containing",
        ),
    ],
)
def test_a_table_that_would_lose_text_is_refused(folder: Path, table: str, encoding: str, line: str) -> None:
    path = folder.parent / "a.csv"
    path.write_bytes(table.encode(encoding))
    with pytest.raises(UsageError, match=line):
        CaptionStore.open(folder, path).captions()


def test_rows_that_are_not_changed_stay_byte_by_byte(folder: Path) -> None:
    path = folder.parent / "a.csv"
    lines = [
        "photo;text;by\r\n",
        '1.jpg;"by hand";"me, too"\r\n',
        '2.jpg;"in ""two""\r\nlines";you\r\n',
        "3.jpg;x;\r\n",
    ]
    path.write_bytes("".join(lines).encode())
    store = CaptionStore.open(folder, path)
    store.write({"3.jpg": Edit("a; b")}, "edit")
    store.write({"5.jpg": Edit("new")}, "edit")
    assert path.read_bytes() == "".join([*lines[:3], '3.jpg;"a; b";\n', "5.jpg;new;\n"]).encode()


def test_a_json_row_keeps_its_fields_and_shows_the_state(folder: Path) -> None:
    path = folder.parent / "a.jsonl"
    path.write_text(
        '{"image": "photos/1.jpg", "caption": "x", "score": 1.5, "candidates": [{"caption": "y", "score": 1}]}\n'
    )
    store = CaptionStore.open(folder, path)
    assert store.caption("1.jpg").candidates == ("y",)
    store.write({"1.jpg": Edit("y", {"accepted": True, "language": "en"})}, "choose")
    row = json.loads(path.read_text())
    assert row["caption"] == "y" and row["accepted"] is True and row["language"] == "en" and row["score"] == 1.5
    assert row["image"] == "photos/1.jpg"
    store.write({"1.jpg": Edit("z")}, "caption", BLIP, replace_edited=True)
    assert json.loads(path.read_text()) == {"image": "photos/1.jpg", "caption": "z", "language": "en"}


def test_a_state_is_kept_and_decorative_pictures_are_a_persons(folder: Path) -> None:
    store = CaptionStore.open(folder)
    store.write({"1.jpg": Edit("", {"decorative": True})}, "decorative")
    assert store.write({"1.jpg": Edit("model")}, "caption", BLIP).stayed == ("1.jpg",)
    assert CaptionStore.open(folder).caption("1.jpg").decorative
    assert [version.state for version in store.history("1.jpg")] == [{"decorative": True}]
    store.undo(store.last(1))
    assert not store.caption("1.jpg").decorative


def test_what_was_changed_since_stays(folder: Path) -> None:
    store = CaptionStore.open(folder)
    store.write({f"{n}.jpg": Edit(f"model {n}") for n in range(3)}, "caption", BLIP)
    (folder / "1.txt").write_text("edited in an editor")
    outcome = store.undo(store.last(1))
    assert outcome.stayed == ("1.jpg",) and texts(store) == {"1.jpg": "edited in an editor"}
    assert store.caption("1.jpg").author == PERSON


def test_an_undo_can_be_undone(folder: Path) -> None:
    store = CaptionStore.open(folder)
    store.write({"0.jpg": Edit("one")}, "edit")
    store.write({"0.jpg": Edit("two")}, "edit")
    undo = store.undo(store.last(1)).change
    assert texts(store) == {"0.jpg": "one"} and len(store.last(5)) == 1
    assert undo is not None
    store.undo([undo])
    assert texts(store) == {"0.jpg": "two"} and len(store.last(5)) == 2


@pytest.mark.parametrize("suffix", [".txt", "a.jsonl", "a.csv"])
def test_renamed_and_moved_pictures_keep_their_captions(folder: Path, suffix: str) -> None:
    captions = None if suffix == ".txt" else folder.parent / suffix
    store = CaptionStore.open(folder, captions)
    store.write({f"{n}.jpg": Edit(f"model {n}") for n in range(3)}, "caption", BLIP)
    store.write({"2.jpg": Edit("mine", {"accepted": True})}, "edit")
    (folder / "1.jpg").rename(folder / "renamed.jpg")
    (folder / "below").mkdir()
    (folder / "2.jpg").rename(folder / "below" / "moved.jpg")
    store = CaptionStore.open(folder, captions)
    assert sorted(store.follow()) == ["below/moved.jpg", "renamed.jpg"]
    assert texts(store) == {"0.jpg": "model 0", "renamed.jpg": "model 1", "below/moved.jpg": "mine"}
    assert store.caption("renamed.jpg").author == BLIP and store.caption("below/moved.jpg").author == PERSON
    assert CaptionStore.open(folder, captions).caption("below/moved.jpg").accepted
    assert store.follow() == []
    if captions is None:
        assert sorted(path.name for path in folder.rglob("*.txt")) == ["0.txt", "moved.txt", "renamed.txt"]


@pytest.mark.parametrize("suffix", [".txt", "a.jsonl"])
def test_a_renamed_picture_keeps_its_history_and_can_be_undone(folder: Path, suffix: str) -> None:
    captions = None if suffix == ".txt" else folder.parent / suffix
    store = CaptionStore.open(folder, captions)
    store.write({"1.jpg": Edit("by hand")}, "edit")
    store.write({f"{n}.jpg": Edit(f"model {n}") for n in range(3)}, "caption", BLIP, replace_edited=True)
    for number in range(2):
        (folder / f"{'1' if number == 0 else 'other'}.jpg").rename(
            folder / f"{'other' if number == 0 else 'third'}.jpg"
        )
        store = CaptionStore.open(folder, captions)
        assert len(store.follow()) == 1
    assert [version.change.what for version in store.history("third.jpg")] == ["move", "move", "caption", "edit"]
    store.undo(store.last(1))
    assert texts(store) == {"third.jpg": "by hand"} and store.caption("third.jpg").is_persons
    store = CaptionStore.open(folder, captions)
    store.undo(store.since(""))
    assert texts(store) == {}


def test_a_text_by_hand_follows_its_picture_once_it_is_remembered(folder: Path) -> None:
    (folder / "1.txt").write_text("by hand")
    assert CaptionStore.open(folder).remember() == 1
    (folder / "1.jpg").rename(folder / "other.jpg")
    store = CaptionStore.open(folder)
    assert store.follow() == ["other.jpg"] and store.caption("other.jpg").is_persons


def test_a_row_that_somebody_changed_is_a_conflict(folder: Path) -> None:
    one, two = CaptionStore.open(folder), CaptionStore.open(folder)
    versions = {id_: caption.version for id_, caption in two.captions().items()}
    one.write({"1.jpg": Edit("first")}, "edit")
    outcome = two.write({"1.jpg": Edit("second"), "2.jpg": Edit("good")}, "edit", versions=versions)
    assert outcome.conflicts == ("1.jpg",) and outcome.written == ("2.jpg",)
    assert texts(one) == texts(two) == {"1.jpg": "first", "2.jpg": "good"}


def test_two_pictures_of_one_stem_have_texts_of_their_own(folder: Path) -> None:
    (folder / "1.jpg").rename(folder / "0.png")
    store = CaptionStore.open(folder)
    store.write({"0.jpg": Edit("a"), "0.png": Edit("b")}, "edit")
    assert {path.name: path.read_text() for path in folder.glob("*.txt")} == {"0.jpg.txt": "a\n", "0.png.txt": "b\n"}


def test_texts_that_are_no_utf8_survive_an_undo(folder: Path) -> None:
    (folder / "1.txt").write_bytes("größe".encode("latin-1"))
    store = CaptionStore.open(folder)
    store.write({"1.jpg": Edit("model")}, "caption", BLIP, replace_edited=True)
    store.undo(store.last(1))
    assert (folder / "1.txt").read_bytes() == "größe".encode("latin-1")


def test_a_table_whose_columns_another_program_changed_is_read_with_the_new_ones(folder: Path) -> None:
    table = folder / "captions.csv"
    table.write_text("id,caption\n1.jpg,a\n")
    store = CaptionStore.open(folder, table)
    assert texts(store) == {"1.jpg": "a"}
    table.write_text("id,caption,long\n1.jpg,b,longer\n")
    assert texts(store) == {"1.jpg": "b"}


def test_of_two_layouts_texts_beside_pictures_go_first(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "captions.jsonl").write_text('{"id": "1.jpg", "caption": "b"}\n')
    assert texts(CaptionStore.open(folder)) == {"1.jpg": "b"}
    (folder / "1.txt").write_text("a")
    assert texts(CaptionStore.open(folder)) == {"1.jpg": "a"}
    message = capsys.readouterr().err
    assert f"using the .txt files beside the pictures, and ignoring {folder / 'captions.jsonl'}; to use a" in message
    assert texts(CaptionStore.open(folder, folder / "captions.jsonl")) == {"1.jpg": "b"}
    (folder / "1.txt").unlink()
    (folder / "captions.csv").write_text("id,caption\n")
    with pytest.raises(UsageError, match="contains several caption files; specify one of them"):
        CaptionStore.open(folder)


def test_a_layout_that_is_read_only_is_not_written(folder: Path) -> None:
    path = folder.parent / "a.json"
    path.write_text('[{"id": "1.jpg", "caption": "x"}]')
    store = CaptionStore.open(folder, path)
    assert texts(store) == {"1.jpg": "x"}
    with pytest.raises(UsageError, match="read-only"):
        store.write({"1.jpg": Edit("y")}, "edit")


def test_a_row_whose_text_stays_keeps_its_form(folder: Path) -> None:
    """One of a picture's rows lists its text; changing the other row leaves it as it is."""
    path = folder.parent / "several.jsonl"
    path.write_text('{"id": "1.jpg", "caption": ["one"]}\n{"id": "1.jpg", "caption": "two"}\n')
    store = CaptionStore.open(folder, path)
    assert store.write({"1.jpg": Edit("one\nnew")}, "edit").written == ("1.jpg",)
    assert path.read_text() == '{"id": "1.jpg", "caption": ["one"]}\n{"id": "1.jpg", "caption": "new"}\n'


# Kills.


def _in_child(work: Callable[[], None]) -> int:
    """Runs ``work`` in a process of its own, and returns its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def _worker(folder: Path, captions: Path | None, seed: int, ready: int) -> None:
    """Edits, replaces, accepts and undoes at random for ever; every text says that it is whole."""
    draw, store = random.Random(seed), CaptionStore.open(folder, captions)
    ids = list(store.items)
    for number in range(10**6):
        some = draw.sample(ids, draw.randint(1, len(ids)))
        edits = {id_: Edit(f"<{seed} {number} {'word ' * draw.randint(0, 400)}>") for id_ in some}
        kind = draw.choice(("edit", "caption", "accept", "undo", "to"))
        if kind == "edit":
            store.write(edits, "edit")
        elif kind == "caption":
            store.write(edits, "caption", BLIP, replace_edited=True)
        elif kind == "accept":
            store.write({id_: Edit(state={"accepted": draw.random() < 0.5}) for id_ in some}, "accept")
        else:
            store.undo(store.last(draw.randint(1, 3)) if kind == "undo" else [c.id for c in store.changes()[-2:]])
        os.write(ready, b".")


@pytest.mark.parametrize(("suffix", "kills"), [(".txt", 30), ("a.jsonl", 20), ("a.csv", 10)])
def test_a_kill_at_any_moment_leaves_files_and_history_whole(folder: Path, suffix: str, kills: int) -> None:
    """After each kill every text is whole, and after all of them an undo restores what was written by hand."""
    captions = None if suffix == ".txt" else folder.parent / suffix
    first = CaptionStore.open(folder, captions)
    if captions is None:
        (folder / "1.txt").write_text("by hand\nin lines")
        (folder / "2.txt").write_bytes("größe".encode("latin-1"))
    else:
        head = "id,caption\n" if suffix.endswith("csv") else ""
        rows = ["1.jpg,by hand\n"] if head else ['{"id": "1.jpg", "caption": "by hand"}\n']
        captions.write_text(head + "".join(rows))
    original, before = contents(captions or folder), texts(first)
    draw, active = random.Random(suffix), 0
    for kill in range(kills):
        ready, told = os.pipe()
        child = _in_child(lambda kill=kill, told=told: _worker(folder, captions, kill, told))  # type: ignore[misc]
        os.read(ready, 1)
        time.sleep(draw.uniform(0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(ready)
        os.close(told)
        store = CaptionStore.open(folder, captions)
        for id_, text in texts(store).items():
            assert text == before.get(id_) or (text[0] == "<" and text[-1] == ">"), text[:80]
        for id_ in store.items:
            history = store.history(id_)
            assert all(a.before == b.after for a, b in itertools.pairwise(history) if a.before is not None)
        active = max(active, len(store.changes()))
    assert active > kills, "the processes were killed before they did anything"
    store = CaptionStore.open(folder, captions)
    assert store.undo(store.since("")).stayed == ()
    assert texts(store) == before and not any(caption.accepted for caption in store.captions().values())
    left = contents(captions or folder)
    assert {name: data for name, data in left.items() if not name.startswith(".")} == original


def test_two_processes_lose_nothing_of_each_other(folder: Path) -> None:
    path = folder.parent / "a.jsonl"
    path.write_text('{"id": "1.jpg", "caption": "by hand"}\n')

    def work(number: int) -> None:
        store = CaptionStore.open(folder, path)
        for turn in range(20):
            while True:
                try:
                    store.write({f"{number}.jpg": Edit(f"{number} {turn}")}, "edit")
                    break
                except UsageError:  # the other one is writing at this moment
                    time.sleep(0.001)

    for child in [_in_child(lambda n=n: work(n)) for n in (2, 3, 4)]:  # type: ignore[misc]
        assert os.waitpid(child, 0)[1] == 0
    store = CaptionStore.open(folder, path)
    assert texts(store) == {"1.jpg": "by hand", "2.jpg": "2 19", "3.jpg": "3 19", "4.jpg": "4 19"}
    assert [len(store.history(f"{n}.jpg")) for n in (1, 2, 3, 4)] == [0, 20, 20, 20]


def test_a_run_of_alt_text_is_undone(cli: Cli, folder: Path) -> None:
    """Its list is written whole; what a person changed in it stays."""
    (folder.parent / "a.jsonl").write_text(
        "".join(f'{{"id": "{n}.jpg", "caption": "A dog on a lawn by a lake, number {n}."}}\n' for n in range(6))
    )
    alt = folder.parent / "alt.jsonl"
    typed = ("alt-text", folder, "--captions", folder.parent / "a.jsonl", "-o", alt)
    assert cli(*typed).status == 0
    first = alt.read_text()
    alt.write_text(first.replace("number 2", "number two"))
    assert cli(*typed, "--characters", "20").status == 0
    store = CaptionStore.open(folder, alt)
    assert texts(store)["0.jpg"] == "A dog on a lawn" and texts(store)["2.jpg"].endswith("number two.")
    assert not store.caption("0.jpg").is_persons and store.caption("2.jpg").is_persons
    done = cli("captions", "undo", folder, "--captions", alt)
    assert "restored 5 captions" in done.err
    assert texts(CaptionStore.open(folder, alt)) == {
        f"{n}.jpg": f"A dog on a lawn by a lake, number {'two' if n == 2 else n}." for n in range(6)
    }


@pytest.mark.parametrize("verb", ["lora", "caption"])
def test_a_run_that_changed_nothing_does_not_block_undo(cli: Cli, folder: Path, verb: str) -> None:
    listed, table = folder.parent / "a.jsonl", folder.parent / "u.csv"
    listed.write_text("".join(f'{{"id": "{n}.jpg", "caption": "a dog, number {n}"}}\n' for n in range(6)))
    lora = ("lora", folder, "--captions", listed, "--trigger", "ohwx")
    typed = lora if verb == "lora" else ("caption", "scenes", folder, "-o", table, "--beams", 1, "--overwrite")
    captions = Path(".txt") if verb == "lora" else table
    for _ in range(2):
        assert cli(*typed).status == 0
    assert len(texts(CaptionStore.open(folder, captions))) == 6
    restored = [cli("captions", "undo", folder, "--captions", captions).err for _ in range(2)]
    assert ["restored 0" in restored[0], "restored 6 captions" in restored[1]] == [True, True], restored
    assert not texts(CaptionStore.open(folder, captions))
    assert "no changes to undo" in cli("captions", "undo", folder, "--captions", captions).err


def test_undo_goes_on_after_a_change_that_cannot_be_restored(layout: tuple[CaptionStore, Path], folder: Path) -> None:
    """One text has been changed by another program, and another one's picture was deleted."""
    store, _ = layout
    for number in (4, 3, 5):
        store.write({f"{number}.jpg": Edit(f"text {number}")}, "edit")
    raw = store.layout.read(["3.jpg"])["3.jpg"]
    store.layout.write({"3.jpg": raw.replace("text 3", "by another program")}, {})
    (folder / "5.jpg").unlink()
    store = CaptionStore.open(folder, _typed(store))
    assert store.undo(store.last(1)).written == () and store.undo(store.last(1)).stayed == ("3.jpg",)
    undone = store.active()[-1]
    assert undone.undoes and store.size(undone.id) == 0
    assert store.undo(store.last(1)).written == ("4.jpg",) and store.last(1) == []
    store.undo([undone.id])  # if it is redone, it can be undone again
    assert len(store.last(9)) == 1


def test_undo_and_history_say_when_they_turn_from_text_files_to_a_list(cli: Cli, folder: Path) -> None:
    listed = folder.parent / "a.jsonl"
    listed.write_text("".join(f'{{"id": "{n}.jpg", "caption": "a dog, number {n}"}}\n' for n in range(6)))
    assert cli("lora", folder, "--captions", listed, "--trigger", "ohwx").status == 0
    message = f"using {folder / 'metadata.jsonl'}, because no text files are left beside the pictures"
    say_once.cache_clear()
    first = cli("captions", "undo", folder)
    assert "restored 6 captions" in first.err and message not in first.err
    assert message in cli("captions", "history", folder).err
    say_once.cache_clear()
    assert message in cli("captions", "undo", folder).err
    assert "undo" in cli("captions", "history", folder, "--captions", ".txt").out


LIMITED = """
import resource, sys
limits = int(sys.argv.pop(1)), int(sys.argv.pop(1))
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
from tellapart.cli import main
main()
"""


def test_a_change_to_more_folders_than_files_may_be_open_is_undone(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / str(number)).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / str(number) / "a.png")
    store = CaptionStore.open(tmp_path)
    store.write({id_: Edit("a dog") for id_ in store.items}, "caption", BLIP)

    def undo(soft: int, hard: int) -> subprocess.CompletedProcess[str]:
        typed = [sys.executable, "-c", LIMITED, str(soft), str(hard), "captions", "undo", str(tmp_path)]
        return subprocess.run(typed, capture_output=True, text=True, check=False)

    done = undo(256, 300)
    assert done.returncode == 2 and "the captions are in 300 folders" in done.stderr, done.stderr
    assert "at most 300 files" in done.stderr and "Traceback" not in done.stderr
    assert len(list(tmp_path.rglob("*.txt"))) == 300
    done = undo(256, 1024)
    assert done.returncode == 0 and "restored 300 captions" in done.stderr, done.stderr
    assert not list(tmp_path.rglob("*.txt")) and not store.last(1)


def test_an_undo_that_restores_nothing_is_recorded_only_for_the_last_change(folder: Path) -> None:
    """Otherwise a change counted as undone although its text can still come back."""
    store = CaptionStore.open(folder)
    first = store.write({"0.jpg": Edit("a")}, "edit").change
    store.write({"0.jpg": Edit("b")}, "edit")
    assert first is not None
    assert store.undo([first]).stayed == ("0.jpg",) and len(store.last(9)) == 2
    store.undo(store.last(1))
    store.undo(store.last(1))
    changes = len(store.changes())
    for _ in range(2):
        store.undo(store.since("2026-01-01T00:00:00"))
    assert not store.last(9) and len(store.changes()) - changes < 2


def test_an_edit_does_not_log_the_candidates_that_a_list_stores(folder: Path, tmp_path: Path) -> None:
    captions = tmp_path / "c.jsonl"
    scored = [{"caption": text, "score": 1.0} for text in ("x", "y")]
    captions.write_text(json.dumps({"id": "1.jpg", "caption": "x", "score": 1.0, "candidates": scored}) + "\n")
    CaptionStore.open(folder, captions).write({"1.jpg": Edit("z")}, "edit")
    assert "candidates" not in (tmp_path / LOG_NAME).read_text()
