"""Texts that a person wrote or edited stay, and captions are those of the pictures that were decoded."""

import hashlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL
from typing import Any

import pytest
from command_line import Cli, Done
from PIL import Image

from tellapart.captioners import load_captioner
from tellapart.captions import own_texts
from tellapart.captions.authors import PERSON, UNKNOWN, Author
from tellapart.captions.journal import Journal, new_change
from tellapart.captions.log_file import LOG_NAME
from tellapart.captions.log_row import text_fields
from tellapart.captions.own_files import OwnFiles
from tellapart.captions.own_texts import text_of_person
from tellapart.captions.provenance import Provenance
from tellapart.captions.replacement import Replace
from tellapart.captions.store import CaptionStore, Edit
from tellapart.captions.texts_beside import TextFiles
from tellapart.captions.written import Written
from tellapart.data import open_data, xmp, xmp_files
from tellapart.data.pictures import BytesPicture, FilePicture
from tellapart.errors import UsageError
from tellapart.features.store import FeatureStore
from tellapart.inference.caption import caption_pictures
from tellapart.inference.engine import CaptionEngine
from tellapart.language.word_removal import without_words
from tellapart.models.decoding import Decoding
from tellapart.purposes.output_checks import refuse_other_language
from tellapart.scenes import Scenes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Eight scenes as photos."""
    (tmp_path / "dogs").mkdir()
    for number, scene in enumerate(Scenes(8, split="test", seed=3)):
        scene.image().save(tmp_path / "dogs" / f"{number}.jpg")
    return tmp_path / "dogs"


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def caption(cli: Cli, *typed: Any) -> Done:
    done = cli("caption", *typed, "--beams", 1)
    assert done.status == 0, done.err
    return done


def purpose(cli: Cli, verb: str, folder: Path, *typed: Any, model: Any = "scenes", decoding: str = "beams=1") -> Done:
    """Captions a folder and makes texts of the captions."""
    return cli(verb, folder, "--model", model, "--decoding", decoding, *typed)


def made(cli: Cli, verb: str, folder: Path, *typed: Any, **settings: Any) -> Done:
    """`purpose` that succeeds."""
    done = purpose(cli, verb, folder, *typed, **settings)
    assert done.status == 0, done.err
    return done


LORA = ("--trigger", "ohwx")


# What a person wrote.


def test_a_list_of_many_rows_hashes_only_the_texts_it_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {f"{number}.jpg": text_fields(f"text {number}") for number in range(1000)}
    Provenance.open(tmp_path / "metadata.jsonl").record(rows)
    own, hashed, sha256 = OwnFiles(), list[bytes](), hashlib.sha256
    assert own.are_own(tmp_path / "0.jpg", ["text 999"])  # reads the log
    monkeypatch.setattr(hashlib, "sha256", lambda data: (hashed.append(data), sha256(data))[1])
    assert not own.are_own(tmp_path / "0.jpg", ["by hand", "twice"]) and len(hashed) <= 3


def test_overwrite_leaves_text_files_of_people(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (folder / "1.txt").write_text("by hand")
    caption(cli, "scenes", folder, "--format", "txt")
    (folder / "2.txt").write_text("edited\n")
    done = caption(cli, "scenes", folder, "--format", "txt", "--overwrite")
    assert "6 captions written, 2 already done" in done.err
    assert "2 .txt files were written, edited or accepted by hand and are kept; pass --replace-edited to" in done.err
    assert [(folder / f"{n}.txt").read_text() for n in (1, 2)] == ["by hand", "edited\n"]
    done = caption(cli, "scenes", folder, "--format", "txt", "--overwrite", "--replace-edited")
    assert (
        "8 captions written" in done.err
        and "replaced 2 texts that were written, edited or accepted by hand; to restore them, run" in done.err
    )
    assert all(text_of_person(path, OwnFiles()) is None for path in folder.glob("*.txt"))
    hidden = {path.name for path in folder.iterdir() if path.suffix not in (".jpg", ".txt")}
    assert hidden == {LOG_NAME}, "one file of ours"
    done = cli("captions", "undo", folder)
    assert "restored 2 captions" in done.err
    assert [(folder / f"{n}.txt").read_text() for n in (1, 2)] == ["by hand", "edited\n"]


PLACES = {
    "txt": ("--format", "txt"),
    "jsonl": ("-o", "{}/c.jsonl"),
    "csv": ("-o", "{}/c.csv"),
}


@pytest.mark.parametrize("place", PLACES)
def test_overwrite_leaves_accepted_captions(cli: Cli, folder: Path, tmp_path: Path, place: str) -> None:
    """Accepted captions are kept as they are in later runs, and pictures marked as decorative get no caption."""
    typed = ("scenes", folder, *(part.format(tmp_path) for part in PLACES[place]))
    caption(cli, *typed)
    file = None if place == "txt" else tmp_path / f"c.{place}"
    store = CaptionStore.open(folder, file)
    before = store.captions()
    assert len({one.text for one in before.values()} - {""}) > 1
    store.write({"0.jpg": Edit(state={"accepted": True}), "1.jpg": Edit("", {"decorative": True})}, "edit")
    # A caption by another model, so that the text would be replaced.
    other = Author("other")
    store.write({f"{n}.jpg": Edit(f"other {n}") for n in (2, 3)}, "caption", other)
    store.write({"2.jpg": Edit(state={"accepted": True})}, "edit")
    store.write({"4.jpg": Edit(state={"decorative": True})}, "edit")
    marked = {n: store.caption(f"{n}.jpg") for n in (0, 1, 2, 4)}

    done = caption(cli, *typed)
    assert "8 already done" in done.err
    for _ in range(2):  # the second run reads what the first run recorded
        done = caption(cli, *typed, "--overwrite")
        assert "4 captions written" in done.err and "4 already done" in done.err, done.err
        assert re.search("4 (.txt files|captions) were written, edited or accepted by hand and are kept", done.err)
        store = CaptionStore.open(folder, file)
        assert {n: store.caption(f"{n}.jpg") for n in marked} == marked
        assert store.caption("2.jpg").author == other and store.caption("3.jpg").text == before["3.jpg"].text
    assert "8 already done" in caption(cli, *typed).err

    done = caption(cli, *typed, "--overwrite", "--replace-edited")
    assert "8 captions written" in done.err
    assert {id_: one.text for id_, one in CaptionStore.open(folder, file).captions().items()} == {
        id_: one.text for id_, one in before.items()
    }
    assert cli("captions", "undo", folder, *(("--captions", file) if file else ())).status == 0
    now = CaptionStore.open(folder, file).captions()
    assert {n: now[f"{n}.jpg"].text for n in marked} == {n: one.text for n, one in marked.items()}


def marks(store: CaptionStore, id_: str) -> tuple[Any, ...]:
    one = store.caption(id_)
    return one.text, one.accepted, one.language, one.doubts, one.candidates


@pytest.mark.parametrize("place", PLACES)
def test_marks_of_a_caption_do_not_pass_to_another(cli: Cli, folder: Path, tmp_path: Path, place: str) -> None:
    typed = ("scenes", folder, *(part.format(tmp_path) for part in PLACES[place]))
    caption(cli, *typed)
    file = None if place == "txt" else tmp_path / f"c.{place}"
    store = CaptionStore.open(folder, file)
    store.write({"0.jpg": Edit("other")}, "caption", Author("other"))
    state = {"accepted": True, "language": "en", "candidates": ["x"]}
    store.write({"0.jpg": Edit(state=state)}, "edit")
    before = marks(store, "0.jpg")
    assert before == ("other", True, "en", (), ("x",)) or place == "csv"
    caption(cli, *typed, "--overwrite", "--replace-edited")
    now = CaptionStore.open(folder, file).caption("0.jpg")
    assert now.text != "other" and not now.accepted and not now.candidates and now.author != PERSON
    assert cli("captions", "undo", folder, *(("--captions", file) if file else ())).status == 0
    assert marks(CaptionStore.open(folder, file), "0.jpg") == before


def test_lora_adds_the_trigger_to_accepted_captions(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its text is not what the person accepted. If it is killed before it writes, the caption is still accepted."""
    caption(cli, "scenes", folder, "--format", "txt")
    store = CaptionStore.open(folder)
    store.write({"0.jpg": Edit(state={"accepted": True})}, "edit")
    before = store.caption("0.jpg")
    if (child := os.fork()) == 0:
        monkeypatch.setattr(own_texts, "replace_text", lambda *typed, **options: os.kill(os.getpid(), SIGKILL))
        cli("lora", folder, *LORA)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -SIGKILL
    assert CaptionStore.open(folder).caption("0.jpg") == before
    caption(cli, "scenes", folder, "--format", "txt", "--overwrite")
    assert CaptionStore.open(folder).caption("0.jpg") == before

    assert cli("lora", folder, *LORA).status == 0
    now = CaptionStore.open(folder).caption("0.jpg")
    assert now.text.startswith("ohwx") and not now.accepted
    CaptionStore.open(folder).write({"0.jpg": Edit(state={"accepted": True})}, "edit")
    assert cli("lora", folder, *LORA).status == 0
    assert CaptionStore.open(folder).caption("0.jpg").accepted, "the same text"
    store = CaptionStore.open(folder)
    store.undo(store.last(3))
    assert store.caption("0.jpg").text == before.text and store.caption("0.jpg").accepted


def test_marks_in_the_list_of_alt_texts_do_not_pass_to_another_text(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out, captions = tmp_path / "alt.csv", tmp_path / "c.jsonl"
    typed = ("alt-text", folder, "--captions", captions, "-o", out)
    captions.write_text('{"id": "0.jpg", "caption": "a dog"}\n')
    assert cli(*typed).status == 0
    store = CaptionStore.open(folder, out)
    store.write({"0.jpg": Edit(state={"accepted": True, "candidates": ["x"]})}, "edit")
    captions.write_text('{"id": "0.jpg", "caption": "a wolf"}\n')
    assert cli(*typed).status == 0 and marks(store, "0.jpg")[:2] == ("a dog", True)
    assert cli(*typed, "--replace-edited").status == 0
    assert marks(store, "0.jpg") == ("a wolf", False, "", (), ())
    store.undo(store.last(1))
    assert marks(store, "0.jpg") == ("a dog", True, "", (), ("x",))


def test_a_decorative_picture_without_a_caption_stays_so(cli: Cli, folder: Path, tmp_path: Path) -> None:
    for place in PLACES:
        typed = ("scenes", folder, *(part.format(tmp_path) for part in PLACES[place]))
        file = None if place == "txt" else tmp_path / f"c.{place}"
        CaptionStore.open(folder, file or Path(".txt")).write({"0.jpg": Edit(state={"decorative": True})}, "edit")
        if file and file.exists():  # rows that a person started
            continue
        assert "7 captions written, 1 already done" in caption(cli, *typed).err
        one = CaptionStore.open(folder, file).caption("0.jpg")
        assert one.decorative and not one.text


def test_a_caption_that_is_accepted_during_a_run_stays(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The review page is another process than the run."""
    items = list(open_data(str(folder)))
    CaptionStore.open(folder, Path(".txt")).write({"0.jpg": Edit("one"), "1.jpg": Edit("two")}, "caption", UNKNOWN)
    run = TextFiles.beside(items, Replace(own=True), change=new_change("caption", UNKNOWN))
    assert not run.done
    CaptionStore.open(folder).write(
        {"0.jpg": Edit(state={"accepted": True}), "2.jpg": Edit(state={"decorative": True})}, "edit"
    )
    run.write([Written(item, "new", (), None) for item in items[:3]])
    assert [(folder / f"{n}.txt").read_text() for n in range(2)] == ["one\n", "new\n"]
    assert not (folder / "2.txt").exists() and CaptionStore.open(folder).caption("2.jpg").decorative


def test_text_files_by_another_prompt_are_told(cli: Cli, tiny_captioner: Path, folder: Path) -> None:
    """They stay, so that a person is not left to wonder why nothing changed."""
    few = ("--format", "txt", "--max-tokens", 4)
    caption(cli, tiny_captioner, folder, *few, "--prompt", "a red")
    before = (folder / "2.txt").read_text()
    done = caption(cli, tiny_captioner, folder, *few, "--prompt", "a blue")
    assert (
        "or with other decoding settings; pass --overwrite to caption these pictures again" in done.err
        and "or with other decoding settings; pass --overwrite to caption these pictures again" in done.err
    )
    assert (folder / "2.txt").read_text() == before
    assert (
        "or with other decoding settings; pass --overwrite to caption these pictures again"
        not in caption(cli, tiny_captioner, folder, *few, "--prompt", "a red").err
    )
    assert (
        "or with other decoding settings; pass --overwrite to caption these pictures again"
        in cli("caption", tiny_captioner, folder, *few, "--prompt", "a red", "--beams", 2).err
    )
    assert (
        "or with other decoding settings; pass --overwrite to caption these pictures again"
        not in caption(cli, tiny_captioner, folder, *few, "--prompt", "a blue", "--overwrite").err
    )
    assert (
        "or with other decoding settings; pass --overwrite to caption these pictures again"
        not in caption(cli, tiny_captioner, folder, *few, "--prompt", "a blue").err
    )


def test_overwrite_leaves_text_files_of_people_in_a_folder_for_a_generator(cli: Cli, folder: Path) -> None:
    made(cli, "lora", folder, *LORA)
    (folder / "2.txt").write_text("ohwx, edited\n")
    made(cli, "lora", folder, *LORA, "--overwrite")
    assert (folder / "2.txt").read_text() == "ohwx, edited\n"
    assert {row["file_name"]: row["text"] for row in records(folder / "metadata.jsonl")}["2.jpg"] == "ohwx, edited"
    hidden = [path.name for path in folder.iterdir() if path.suffix not in (".jpg", ".txt")]
    assert sorted(hidden) == [LOG_NAME, "metadata.jsonl"]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_overwrite_leaves_captions_of_people_in_one_file(
    cli: Cli, tiny_captioner: Path, folder: Path, tmp_path: Path, suffix: str
) -> None:
    """And goes on with another prompt, which it was told to type."""
    out = tmp_path / f"a.{suffix}"
    caption(cli, "scenes", folder, "-o", out)
    lines = out.read_text().splitlines(keepends=True)
    number = next(n for n, line in enumerate(lines) if "2.jpg" in line)
    lines[number] = '{"id": "2.jpg", "caption": "größer, by hand"}\n' if suffix == "jsonl" else "2.jpg,by hand\n"
    out.write_bytes("".join(lines).encode("latin-1"))  # as an old editor saves it
    edited = lines[number].encode("latin-1")
    assert (
        "hand-written and edited texts are kept" in cli("caption", tiny_captioner, folder, "-o", out, "--beams", 1).err
    )
    done = caption(cli, tiny_captioner, folder, "-o", out, "--overwrite")
    assert "7 captions written, 1 already done" in done.err
    assert (
        "1 captions were written, edited or accepted by hand and are kept; pass --replace-edited to replace" in done.err
        and edited in out.read_bytes()
    )
    done = caption(cli, tiny_captioner, folder, "-o", out, "--overwrite", "--replace-edited")
    assert "8 captions written" in done.err and edited not in out.read_bytes()
    assert "by hand" in cli("captions", "history", folder, "2.jpg", "--captions", out).out
    assert cli("captions", "undo", folder, "--captions", out).status == 0
    assert "by hand" in out.read_text(encoding="utf-8", errors="replace")


def test_an_edited_caption_stays_where_the_picture_was_replaced(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Also as the last line, saved without its end."""
    out = tmp_path / "a.jsonl"
    caption(cli, "scenes", folder, "-o", out)
    lines = out.read_text().splitlines()
    out.write_text("\n".join([*lines[:-1], '{"id": "7.jpg", "caption": "by hand"}']))
    Image.new("RGB", (40, 40), "red").save(folder / "7.jpg")
    assert "0 captions written, 8 already done" in caption(cli, "scenes", folder, "-o", out).err
    assert records(out)[-1]["caption"] == "by hand" and len(records(out)) == 8


def test_workers_do_not_replace_what_a_person_edited(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    typed = ("scenes", folder, "-o", out, "--workers", 1)
    caption(cli, *typed)
    rows = records(out)
    out.write_text(
        "".join(json.dumps(row | ({"caption": "mine"} if n == 3 else {})) + "\n" for n, row in enumerate(rows))
    )
    assert (
        "1 captions were written or edited by hand; choose another file, or pass --replace-edited"
        in cli("caption", *typed, "--beams", 1).err
    )
    assert (
        "1 captions were written or edited by hand; choose another file, or pass --replace-edited"
        in cli("job", "merge", f"{out}.job").line
    )
    assert records(out)[3]["caption"] == "mine"
    caption(cli, *typed, "--replace-edited")
    assert records(out) == rows and records(tmp_path / "a.jsonl.replaced.jsonl")[0]["text"] == "mine"


def test_overwrite_leaves_sidecars_of_people(cli: Cli, folder: Path, tmp_path: Path) -> None:
    (folder / "2.xmp").write_text(xmp.with_languages("", {(xmp.ALT, xmp.DEFAULT): "by hand"}, "2.xmp"))
    typed = ("alt-text", folder, "-o", tmp_path / "alt.jsonl", "--embed")

    def alt() -> str:
        return xmp.texts_of(xmp_files.read_sidecar(folder / "2.xmp"), "2.xmp")[xmp.ALT]

    done = made(cli, *typed, "--overwrite")
    assert (
        "1 pictures already have an alt text from another source, or one that was emptied since, and were left "
        "unchanged: "
        in done.err
        and alt() == "by hand"
    )
    made(cli, *typed, "--replace-edited")
    assert alt() != "by hand" and records(folder / "xmp.replaced.jsonl")[0]["text"] == "by hand"


def test_texts_saved_in_another_encoding_are_refused_and_stay(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """As a spreadsheet saves them: read as UTF-8 a name became "M\ufffdller", in the file and in the pictures."""
    out = tmp_path / "alt.csv"
    made(cli, "alt-text", folder, "-o", out)
    rows = out.read_text(encoding="utf-8").splitlines(keepends=True)
    saved = "".join([rows[0], "0.jpg,Müller am Tor,\n", *rows[2:]]).encode("cp1252")
    out.write_bytes(saved)
    done = purpose(cli, "alt-text", folder, "-o", out, "--embed")
    assert done.status == 2 and "alt.csv has a line that this command cannot parse ('utf-8' codec" in done.err
    assert out.read_bytes() == saved and not list(folder.glob("*.xmp"))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_table_that_a_spreadsheet_saved_is_read(
    cli: Cli, folder: Path, tmp_path: Path, encoding: str, separator: str
) -> None:
    out, captions = tmp_path / "alt.csv", tmp_path / "c.jsonl"
    captions.write_text("".join(json.dumps({"id": f"{n}.jpg", "caption": "a dog"}) + "\n" for n in range(8)))
    typed = ("alt-text", folder, "--captions", captions, "-o", out)
    assert cli(*typed).status == 0
    saved = out.read_text(encoding="utf-8").replace("1.jpg,a dog", "1.jpg,Müller am Tor").replace(",", separator)
    out.write_text(saved, encoding=encoding, newline="\r\n")
    assert cli(*typed, "--embed").status == 0
    assert "1.jpg,Müller am Tor," in out.read_text(encoding="utf-8")
    assert xmp.texts_of(xmp_files.read_sidecar(folder / "1.xmp"), "")[xmp.ALT] == "Müller am Tor"


@pytest.mark.parametrize(("true", "false"), [("True", "False"), ("TRUE", "FALSE"), ("WAHR", "FALSCH")])
def test_a_text_that_was_accepted_in_a_spreadsheet_stays(
    cli: Cli, folder: Path, tmp_path: Path, true: str, false: str
) -> None:
    """Spreadsheets write TRUE or WAHR; the column ``variation`` is the user's."""
    out, captions = tmp_path / "alt.csv", tmp_path / "c.jsonl"
    typed = ("alt-text", folder, "--captions", captions, "-o", out)
    for caption in ("a dog", "a wolf"):
        captions.write_text("".join(json.dumps({"id": f"{n}.jpg", "caption": caption}) + "\n" for n in range(3)))
        assert cli(*typed).status == 0
        if caption == "a dog":
            rows = [f"0.jpg,a dog,,{true},,x\n", f"1.jpg,a dog,,{false},{false},x\n", "2.jpg,a dog,,,,x\n"]
            out.write_text("id,caption,long,accepted,decorative,variation\n" + "".join(rows))
            stored = CaptionStore.open(folder, out).captions()
            assert [stored[f"{n}.jpg"].accepted for n in range(3)] == [True, False, False]
            assert not any(one.decorative or one.variation for one in stored.values())
    lines = out.read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["a dog", "a wolf", "a wolf"]
    out.write_text("id,caption,long,accepted\n0.jpg,a dog,,TAMAM\n1.jpg,a wolf,,\n")
    done = cli(*typed)
    assert done.status == 2 and "accepted of '0.jpg' is 'TAMAM', expected TRUE or FALSE" in done.err
    assert "TAMAM" in out.read_text()


def test_marks_on_the_page_count_beside_a_column_and_other_columns_stay(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out, captions = tmp_path / "alt.csv", tmp_path / "c.jsonl"
    captions.write_text('{"id": "0.jpg", "caption": "a dog"}\n{"id": "1.jpg", "caption": "a dog"}\n')
    typed = ("alt-text", folder, "--captions", captions, "-o", out)
    assert cli(*typed).status == 0
    out.write_text("id,caption,accepted,variation,texts\n0.jpg,a dog,FALSE,x,y\n1.jpg,a dog,FALSE,x,y\n")
    store = CaptionStore.open(folder, out)
    store.write({"0.jpg": Edit(state={"accepted": True})}, "edit")
    store.write({"1.jpg": Edit("a red dog")}, "edit")
    assert out.read_text().splitlines()[2] == "1.jpg,a red dog,,x,y"
    captions.write_text('{"id": "0.jpg", "caption": "a wolf"}\n{"id": "1.jpg", "caption": "a wolf"}\n')
    assert cli(*typed).status == 0
    assert [line.split(",")[1] for line in out.read_text().splitlines()[1:]] == ["a dog", "a red dog"]


def test_a_table_with_a_column_for_marks_loses_them_on_the_page(folder: Path, tmp_path: Path) -> None:
    """The cell kept its True, so that the caption was accepted again as soon as it was read."""
    out = tmp_path / "alt.csv"
    out.write_text("id,caption,accepted,score,language\n0.jpg,a dog,TRUE,1.5,\n1.jpg,a,TRUE,2,en\n1.jpg,b,TRUE,3,de\n")
    store = CaptionStore.open(folder, out)
    assert store.caption("0.jpg").accepted and store.caption("1.jpg").accepted
    store.write({id_: Edit(state={"accepted": False}) for id_ in ("0.jpg", "1.jpg")}, "edit")
    assert out.read_text().splitlines()[1:] == ["0.jpg,a dog,,1.5,", "1.jpg,a,,2,en", "1.jpg,b,,3,de"]
    store = CaptionStore.open(folder, out)
    assert not store.caption("0.jpg").accepted and not store.caption("1.jpg").accepted
    store.undo(store.last(1))
    assert store.caption("0.jpg").accepted and store.caption("1.jpg").accepted


@pytest.mark.parametrize("word", ["yes", "x", "1", "ja"])
def test_an_unknown_mark_in_a_table_is_refused_and_stays(cli: Cli, folder: Path, tmp_path: Path, word: str) -> None:
    """It was ignored, and erased at the next edit."""
    out = tmp_path / "c.csv"
    caption(cli, "scenes", folder, "-o", out)
    lines = out.read_text().splitlines()
    out.write_text("".join(f"{line},{end}\n" for line, end in zip(lines, ["accepted", word, *[""] * 7], strict=True)))
    before = out.read_text()
    with pytest.raises(UsageError, match=f"c.csv, line 2: accepted is '{word}', expected TRUE or FALSE; fix the cell"):
        CaptionStore.open(folder, out).captions()
    done = cli("caption", "scenes", folder, "-o", out, "--beams", 1, "--overwrite")
    assert done.status == 2 and f"line 2: accepted is '{word}', expected TRUE or FALSE" in done.err
    assert out.read_text() == before


def test_overwrite_leaves_captions_that_were_accepted_in_a_table(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """The header keeps its columns, without which the table could not be read. An undo restores the marks."""
    out = tmp_path / "c.csv"
    caption(cli, "scenes", folder, "-o", out)
    other = {f"{n}.jpg": Edit(f"other {n}") for n in range(2)}
    CaptionStore.open(folder, out).write(other, "caption", Author("other"))
    lines = out.read_text().splitlines()
    marks = ["accepted", "TRUE", *[""] * 7]
    out.write_text("".join(f"{line},{mark}\n" for line, mark in zip(lines, marks, strict=True)))
    done = caption(cli, "scenes", folder, "-o", out, "--overwrite")
    assert "7 captions written, 1 already done" in done.err
    rows = out.read_text().splitlines()
    assert rows[:2] == ["id,caption,accepted", "0.jpg,other 0,TRUE"] and "1.jpg,other 1," not in rows
    assert [row.count(",") for row in rows] == [2] * 9
    stored = CaptionStore.open(folder, out).captions()
    assert [one.accepted for one in stored.values()] == [True, *[False] * 7]
    assert stored["0.jpg"].author == Author("other"), "still the text of a model"
    caption(cli, "scenes", folder, "-o", out, "--overwrite", "--replace-edited")
    assert not CaptionStore.open(folder, out).caption("0.jpg").accepted
    assert cli("captions", "undo", folder, "--captions", out).status == 0
    now = CaptionStore.open(folder, out).caption("0.jpg")
    assert now.text == "other 0" and now.accepted


def test_a_mark_that_is_only_in_a_line_is_restored_and_its_text_stays_a_models(
    cli: Cli, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "c.jsonl"
    caption(cli, "scenes", folder, "-o", out)
    CaptionStore.open(folder, out).write({"0.jpg": Edit("other")}, "caption", Author("other"))
    rows = records(out)
    out.write_text(
        "".join(json.dumps(row | ({"accepted": True} if not n else {})) + "\n" for n, row in enumerate(rows))
    )
    assert "1 already done" in caption(cli, "scenes", folder, "-o", out, "--overwrite").err
    assert CaptionStore.open(folder, out).caption("0.jpg").author == Author("other")
    caption(cli, "scenes", folder, "-o", out, "--overwrite", "--replace-edited")
    assert CaptionStore.open(folder, out).caption("0.jpg").text != "other"
    assert cli("captions", "undo", folder, "--captions", out).status == 0
    now = CaptionStore.open(folder, out).caption("0.jpg")
    assert now.text == "other" and now.accepted


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_workers_leave_no_mark_on_another_text(cli: Cli, folder: Path, tmp_path: Path, suffix: str) -> None:
    """Merging gave the mark of the previous text to the new one, and undo could not restore it."""
    out = tmp_path / f"a.{suffix}"
    typed = ("scenes", folder, "-o", out, "--workers", 1)
    caption(cli, *typed)
    store = CaptionStore.open(folder, out)
    first = store.caption("0.jpg").text
    store.write({"0.jpg": Edit("other")}, "caption", Author("other"))
    store.write({f"{n}.jpg": Edit(state={"accepted": True}) for n in (0, 1)}, "edit")
    assert cli("job", "merge", f"{out}.job").status == 0
    stored = CaptionStore.open(folder, out).captions()
    assert stored["0.jpg"].text == first and not stored["0.jpg"].accepted
    assert stored["1.jpg"].accepted, "the same text"
    assert cli("captions", "undo", folder, "--captions", out).status == 0
    now = CaptionStore.open(folder, out).caption("0.jpg")
    assert now.text == "other" and now.accepted

    caption(cli, *typed, "--overwrite", "--replace-edited")
    stored = CaptionStore.open(folder, out).captions()
    assert stored["0.jpg"].text == first and not any(one.accepted for one in stored.values())
    store = CaptionStore.open(folder, out)
    store.undo(store.last(2))
    now = store.caption("0.jpg")
    assert now.text == "other" and now.accepted and store.caption("1.jpg").accepted


def test_several_rows_of_a_picture_are_kept_and_restored(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """A person added a second caption of a picture to the table."""
    out = tmp_path / "c.csv"
    typed = ("scenes", folder, "-o", out)
    caption(cli, *typed)
    out.write_text(out.read_text() + "0.jpg,mine\n")
    before = CaptionStore.open(folder, out).caption("0.jpg").text
    assert before.endswith("\nmine")
    caption(cli, *typed, "--overwrite")
    assert CaptionStore.open(folder, out).caption("0.jpg").text == before
    caption(cli, *typed, "--overwrite", "--replace-edited")
    store = CaptionStore.open(folder, out)
    assert store.caption("0.jpg").text != before
    store.undo(store.last(1))
    assert store.caption("0.jpg").text == before


def test_a_merge_that_is_repeated_changes_nothing(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"
    for _ in range(2):
        caption(cli, "scenes", folder, "-o", out, "--workers", 1)
    assert len(CaptionStore.open(folder, out).changes()) == 1


def test_a_mark_in_any_row_of_a_picture_counts(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "c.csv"
    out.write_text("id,caption,accepted\n0.jpg,a dog,\n0.jpg,a puppy,TRUE\n")
    assert CaptionStore.open(folder, out).caption("0.jpg").accepted


def test_workers_write_no_caption_for_a_decorative_picture(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.csv"
    typed = ("scenes", folder, "-o", out, "--workers", 1)
    CaptionStore.open(folder, out).write({"2.jpg": Edit(state={"decorative": True})}, "edit")
    assert not out.exists()
    assert "1 pictures that are marked as decorative get no caption" in caption(cli, *typed).err
    assert "2.jpg" not in out.read_text() and CaptionStore.open(folder, out).caption("2.jpg").decorative
    lines = out.read_text().splitlines()
    out.write_text("\n".join([*lines[:-1], "7.jpg,mine"]) + "\n")
    caption(cli, *typed, "--replace-edited")
    now = CaptionStore.open(folder, out).caption("2.jpg")
    assert now.text and not now.decorative


def test_a_mark_that_was_set_since_the_log_was_read_does_not_pass_to_another_text(folder: Path, tmp_path: Path) -> None:
    """The state of the new text was computed before the log was locked and read again."""
    out = tmp_path / "c.jsonl"
    store = CaptionStore.open(folder, out)
    store.write({"0.jpg": Edit("a dog")}, "caption", Author("m"))
    known = Provenance.open(out)
    store.write({"0.jpg": Edit(state={"accepted": True})}, "edit")
    known.record({"0.jpg": text_fields("a wolf")}, new_change("caption", UNKNOWN), {"0.jpg": "a dog"})
    row = Provenance.open(out).rows["0.jpg"]
    assert row.state == {} and row.state_of("a dog") == {"accepted": True}


def test_a_language_tag_counts_as_usually_written(tmp_path: Path) -> None:
    """Earlier versions stored it as typed."""
    out = tmp_path / "alt.jsonl"
    out.write_text('{"id": "0.jpg", "caption": "a dog", "language": "pt-br"}\n')
    refuse_other_language(out, "pt-BR")
    with pytest.raises(UsageError, match="are marked as 'pt-BR'"):
        refuse_other_language(out, "pt")


def test_a_picture_without_a_text_stays_so(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """An alt text that a person emptied: the picture is decorative."""
    out = tmp_path / "alt.jsonl"
    typed = ("alt-text", folder, "-o", out, "--embed")
    made(cli, *typed)
    assert xmp.ALT in xmp.texts_of(xmp_files.read_sidecar(folder / "2.xmp"), "")
    rows = records(out)
    rows[2]["caption"] = ""
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(3):
        made(cli, *typed, "--characters", 40)
        assert [row["caption"] for row in records(out) if row["id"] == rows[2]["id"]] == [""]
        sidecar = (folder / str(rows[2]["id"])).with_suffix(".xmp")
        assert xmp.texts_of(xmp_files.read_sidecar(sidecar), "") == {}


def test_a_text_in_utf_16_for_a_generator_is_told(cli: Cli, folder: Path) -> None:
    (folder / "2.txt").write_text("ein größerer Hund", encoding="utf-16")
    done = made(cli, "lora", folder, *LORA)
    assert "1 of these are in UTF-16, but training scripts expect UTF-8: 2.txt" in done.err
    assert "größerer" in (folder / "2.txt").read_text(encoding="utf-16")


@pytest.mark.parametrize("text", ["", "a dog on grass\nthe dog is brown\n"])
def test_captions_of_people_for_a_generator_are_told(cli: Cli, folder: Path, text: str) -> None:
    """An emptied one is a caption; two lines are two captions, of which kohya reads the first."""
    made(cli, "lora", folder, *LORA)
    (folder / "2.txt").write_text(text)
    done = made(cli, "lora", folder, *LORA)
    listed = {row["file_name"]: row["text"] for row in records(folder / "metadata.jsonl")}
    assert (
        listed["2.jpg"] == (["a dog on grass", "the dog is brown"] if text else "")
        and (folder / "2.txt").read_text() == text
    )
    if not text:
        assert "1 of these are empty, so their pictures will be trained on without a caption: 2.txt" in done.err
    if text:
        assert (
            "1 of these do not contain the trigger 'ohwx', so the generator will not learn it from them" in done.err
            and "', so the generator will not learn it from them: 2.txt; add the trigger to these files" in done.err
        )
        assert "1 of these are empty" not in done.err
        assert (
            "1 of these have several lines, but kohya's scripts read only the first line, or a random one with "
            "enable_wildcard: 2.txt;" in done.err
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a bowl of food in front of a dog", "a bowl of food"),
        ("a cat sits next to a dog", "a cat sits"),
        ("a ball to the left of a dog on a beach", "a ball on a beach"),
        ("a bowl in front of a black dog", "a bowl in front of a black dog"),
    ],
)
def test_a_place_is_left_out_with_what_it_is_said_of(text: str, expected: str) -> None:
    assert without_words(text, {"dog"}, "ohwx") == expected


@pytest.mark.parametrize("verb", ["lora", "caption"])
def test_a_prompt_does_not_read_our_own_texts(cli: Cli, tiny_captioner: Path, folder: Path, verb: str) -> None:
    if verb == "lora":
        made(cli, "lora", folder, *LORA)
    else:
        caption(cli, "scenes", folder, "--format", "txt")
    (folder / "2.txt").write_text("by hand")
    done = cli("caption", tiny_captioner, folder, "-o", "-", "--prompt", "Notes: {text}", "--max-tokens", 2)
    assert done.status == 2 and "--prompt: 7 of 8 pictures lack the field 'text'" in done.err


# Files are checked before the work.


def test_files_are_checked_before_the_first_caption_and_together(cli: Cli, folder: Path) -> None:
    for name in ("0.bmp", "1.webp", "1.bmp"):
        Image.new("RGB", (32, 32)).save(folder / name)
    (folder / "3.txt").write_bytes("größer".encode("latin-1"))
    before = sorted(folder.iterdir())
    for more in (LORA, (*LORA, "--dry-run")):
        line = purpose(cli, "lora", folder, *more).err
        assert re.search(
            r"0\.bmp and \S*0\.jpg would both use \S*0\.txt; \S*1\.bmp and \S*1\.jpg and \S*1\.webp would", line
        )
        assert "3.txt: not valid UTF-8 (byte 2); convert it to UTF-8" in line
    assert sorted(folder.iterdir()) == before
    line = purpose(cli, "alt-text", folder, "-o", folder.parent / "alt.jsonl", "--embed").err
    assert "0.xmp" in line and "1.xmp" in line


def test_texts_that_cannot_be_read_are_named_before_the_first_caption(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def captions(*arguments: Any, **options: Any) -> Iterator[Any]:
        said.append(sys.stderr.getvalue())  # type: ignore[attr-defined]
        yield from ()

    monkeypatch.setattr("tellapart.inference.engine.CaptionEngine.captions", captions)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    (folder / "3.txt").write_bytes(latin := "größer".encode("latin-1"))
    cli("caption", "scenes", folder, "--format", "txt")
    assert "3.txt (not valid UTF-8 (byte 2); convert it to UTF-8)" in said[0]
    assert (folder / "3.txt").read_bytes() == latin


def test_a_folder_in_the_place_of_a_text_is_told_with_all_other_files(cli: Cli, folder: Path) -> None:
    for name in ("0.txt", "1.txt"):
        (folder / name).mkdir()
    line = cli("caption", "scenes", folder, "--format", "txt").line
    assert "cannot write .txt files in" in line and "0.txt (a folder), " in line and "1.txt (a folder)" in line


def test_a_list_that_is_begun_anew_keeps_its_mode(cli: Cli, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "a.jsonl"
    caption(cli, "scenes", folder, "-o", out)
    out.chmod(0o600)
    caption(cli, "scenes", folder, "-o", out, "--overwrite")
    assert out.stat().st_mode & 0o777 == 0o600 and len(records(out)) == 8


def test_two_folders_have_no_list_in_common(cli: Cli, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "cats")
    line = purpose(cli, "lora", folder, tmp_path / "cats", *LORA).line
    assert "the pictures are in 2 folders" in line and f"pass {tmp_path.resolve()}" in line
    assert "2 folders" in purpose(cli, "lora", *sorted(tmp_path.glob("*/*.jpg")), *LORA).line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cats", "dogs"]
    made(cli, "lora", tmp_path, *LORA)
    assert {row["file_name"].split("/")[0] for row in records(tmp_path / "metadata.jsonl")} == {"cats", "dogs"}


# The same pictures.


@pytest.mark.parametrize("typed", ["./dogs", "{}/dogs", "dogs/*.jpg", "{}/dogs/../dogs", "moved"])
def test_resuming_does_not_depend_on_spelling(
    cli: Cli, tiny_captioner: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.chdir(folder.parent)
    shutil.copytree(tiny_captioner, "model")

    def run(model: Any, pictures: str) -> list[Done]:
        settings: dict[str, Any] = {"model": model, "decoding": "beams=1,max_tokens=4"}
        alt = made(cli, "alt-text", Path(pictures), "-o", "alt.jsonl", **settings)
        lora = made(cli, "lora", Path(pictures), *LORA, **settings)
        return [caption(cli, model, pictures, "--max-tokens", 4, "-o", "a.jsonl"), alt, lora]

    run("model", "dogs")
    texts = Path("alt.jsonl").read_text()
    if typed == "moved":
        Path("dogs").rename("moved")
    Image.new("RGB", (40, 40), "red").save(folder.with_name("moved" if typed == "moved" else "dogs") / "new.jpg")
    model = folder.parent / "model"
    for done in run(model, typed.format(folder.parent)):
        assert "1 captions written, 8 already done" in done.err
    assert len(records(Path("a.jsonl"))) == 9
    assert [row["caption"] for row in records(Path("alt.jsonl"))][:8] == [
        json.loads(line)["caption"] for line in texts.splitlines()
    ]


def test_other_pictures_of_the_same_names_are_refused(cli: Cli, folder: Path, tmp_path: Path) -> None:
    """Their captions would take the place of those that are there."""
    out = tmp_path / "a.jsonl"
    caption(cli, "scenes", folder, "-o", out)
    before = out.read_bytes()
    (tmp_path / "cats").mkdir()
    Image.new("RGB", (40, 40), "red").save(tmp_path / "cats" / "1.jpg")
    assert "contains captions of other pictures with the same ids, such as '1.jpg'" in cli(
        "caption", "scenes", tmp_path / "cats", "-o", out, "--beams", 1).line  # fmt: skip
    assert out.read_bytes() == before


@pytest.mark.parametrize("how", ["jsonl", "csv", "txt", "lora"])
def test_a_picture_that_is_replaced_while_it_is_captioned_is_captioned_again(
    cli: Cli, tiny_captioner: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The file is replaced as soon as it was read."""
    read = FilePicture.read

    def read_and_replace(self: FilePicture) -> BytesPicture:
        found = read(self)
        if self.path.name in ("2.jpg", "5.jpg"):
            Image.new("RGB", (48, 48), "red").save(self.path)
        return found

    caption = ("caption", tiny_captioner, folder, "--max-tokens", 4)
    typed = {
        "jsonl": (*caption, "-o", tmp_path / "a.jsonl"),
        "csv": (*caption, "-o", tmp_path / "a.csv"),
        "txt": (*caption, "--format", "txt"),
        "lora": ("lora", folder, "--model", tiny_captioner, "--decoding", "max_tokens=4", *LORA),
    }[how]
    with monkeypatch.context() as patch:
        patch.setattr(FilePicture, "read", read_and_replace)
        assert cli(*typed).status == 0
    again = cli(*typed)
    assert "2 captions written, 6 already done" in again.err
    assert "0 captions written, 8 already done" in cli(*typed).err


def test_a_picture_that_is_replaced_while_its_features_are_stored_is_captioned_again(
    tiny_captioner: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = FilePicture.read

    def read_and_replace(self: FilePicture) -> BytesPicture:
        found = read(self)
        if self.path.name == "2.jpg":
            Image.new("RGB", (48, 48), "red").save(self.path)
        return found

    captioner, store = load_captioner(str(tiny_captioner)), FeatureStore(tmp_path / "cache")
    for replaced, written in ((True, 8), (False, 1), (False, 0)):
        with monkeypatch.context() as patch:
            patch.setattr(FilePicture, "read", read_and_replace if replaced else read)
            done = caption_pictures(captioner, open_data(str(folder)), tmp_path / "a.jsonl", store=store,
                                    decoding=Decoding(kind="greedy", max_tokens=4), progress=False)  # fmt: skip
        assert done.written == written


# Processes.


def start(*typed: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tellapart", *map(str, typed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_do_not_write_one_folder(cli: Cli, folder: Path) -> None:
    code = ("import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); "
            "input()")  # fmt: skip
    lock = str(folder / ".metadata.jsonl.lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    assert "dogs is in use by" in purpose(cli, "lora", folder, *LORA).line
    holder.communicate("\n")
    made(cli, "lora", folder, *LORA)


@pytest.mark.long
def test_a_kill_leaves_files_and_log_whole(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, scene in enumerate(Scenes(60, split="test", seed=3)):
        scene.image().save(folder / f"{number:02}.jpg")
    (folder / "07.txt").write_text("ohwx, by hand\n")
    random.seed(0)
    for number in range(4):
        trigger = ("ohwx", "zwx")[number % 2]
        process = start("lora", folder, "--model", "scenes", "--decoding", "beams=1", "--trigger", trigger)
        end = time.monotonic() + 60
        while not (folder / LOG_NAME).exists() and time.monotonic() < end:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 1.5) + (6 if number else 0))
        process.kill()
        process.communicate()
        assert (folder / "07.txt").read_text() == "ohwx, by hand\n"
    done = made(cli, "lora", folder, "--trigger", "last")
    assert "1 .txt files were written or edited by hand and" in done.err
    rows = {row["file_name"]: row["text"] for row in records(folder / "metadata.jsonl")}
    assert len(rows) == 60 and rows.pop("07.jpg") == "ohwx, by hand"
    for name, text in rows.items():
        assert text.startswith("last") and (folder / name).with_suffix(".txt").read_text() == text + "\n"
    assert not [path for path in folder.glob(".*") if path.name != LOG_NAME]


def test_runs_that_were_killed_before_they_wrote_do_not_make_a_text_a_persons(tmp_path: Path) -> None:
    """However many there were: each recorded what it was about to replace."""
    log = Provenance.open(tmp_path / "a.jsonl")
    for number in range(9):
        log.record({"1": text_fields(f"new {number}")}, new_change("lora", UNKNOWN), {"1": "old"} if number else None)
        log.record({"1": text_fields("old")}) if not number else None
    again = Provenance.open(tmp_path / "a.jsonl")
    assert again.wrote("1", "old") and again.wrote("1", "new 8") and not again.wrote("1", "new 3")
    assert Journal.open(tmp_path).author("a.jsonl", "1", "old") == UNKNOWN


def test_half_a_line_in_the_log_spoils_nothing(tmp_path: Path) -> None:
    log = Provenance.open(tmp_path / "a.jsonl")
    log.record({"1": text_fields("one"), "2": text_fields("two")})
    whole = (tmp_path / LOG_NAME).read_bytes()
    (tmp_path / LOG_NAME).write_bytes(whole[:-9])
    again = Provenance.open(tmp_path / "a.jsonl")
    assert again.wrote("1", "one") and not again.wrote("2", "two")
    again.record({"3": text_fields("three")})
    assert Provenance.open(tmp_path / "a.jsonl").rows.keys() == {"1", "3"}
    assert Provenance.open(tmp_path / "b.jsonl").rows == {}


def test_ctrl_c_is_one_line_that_fits_the_command(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any, **options: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr("tellapart.inference.engine.CaptionEngine.captions", stop)
    err = cli("caption", "scenes", folder, "-o", tmp_path / "a.jsonl").err
    assert (
        err.endswith("tellapart: stopped; everything saved so far is kept; to resume, run the same command\n")
        and "train" not in err
    )


def test_two_runs_do_not_write_text_files_of_the_same_pictures(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captions, others = CaptionEngine.captions, list[Done]()

    def beside(*arguments: Any, **options: Any) -> Iterator[Any]:
        monkeypatch.setattr(CaptionEngine, "captions", captions)
        others.append(cli("caption", "scenes", folder, "--format", "txt"))
        yield from captions(*arguments, **options)

    monkeypatch.setattr(CaptionEngine, "captions", beside)
    caption(cli, "scenes", folder, "--format", "txt")
    assert others[0].status == 2 and f"{folder} is in use by process" in others[0].err
    assert len(list(folder.glob("*.txt"))) == 8 and not list(folder.glob(".*.lock"))


@pytest.mark.parametrize("verb", ["boost", "caption"])
def test_ctrl_c_behind_a_server_says_once_that_the_command_goes_on(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    def stop(*arguments: Any, **options: Any) -> Iterator[Any]:
        raise KeyboardInterrupt

    monkeypatch.setattr("tellapart.boost.job.BoostJob.run", stop)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    model = "openai:m@http://127.0.0.1:9/v1"
    names = (folder, "--mllm", model, "--llm", model) if verb == "boost" else (model, folder)
    done = cli(verb, *names, "-o", tmp_path / "a.jsonl")
    assert done.status == 130 and "0 answers" in done.err and done.err.count("the same command") == 1, done.err
    assert done.err.count("stopped") == 1


def test_a_file_of_captions_that_is_not_there_is_named(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    for command in ("list", "history", "undo"):
        line = cli("captions", command, folder, "--captions", folder / "captoins.jsonl").line
        assert line.endswith("captoins.jsonl: no such file; expected a file of captions, or a suffix: .txt, .xmp")
    assert cli("captions", "list", folder, "--captions", ".txt").status == 0
