"""Files that a command writes: never an input, never somebody else's without --overwrite, whole, with their mode."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Cli

CAPTIONS = [{"image_id": 1, "caption": "a dog on a lawn"}, {"image_id": 2, "caption": "a cat on a sofa"}]
PERSON = "what a person wrote\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with ``c.json`` and ``c.jsonl``, two captions each."""
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(json.dumps(CAPTIONS))
    Path("c.jsonl").write_text("".join(json.dumps({"id": str(i), "caption": "a dog"}) + "\n" for i in range(2)))
    return tmp_path


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "typed",
    [
        "eval --captions c.json -o c.json",
        "eval --captions c.json -o ./sub/../c.json --overwrite",
        "eval --captions mine=c.json -o link.json",
        "eval --captions c.json -o hard.json --overwrite",
        "eval --captions c.jsonl --per-caption c.jsonl",
        "eval --captions c.json --references r.json --report r.json",
        "data simplify c.jsonl -o c.jsonl --overwrite",
        "bags mine jsonl:c.jsonl?images=. --scorer scenes -o c.jsonl --overwrite",
        "boost jsonl:c.jsonl -o c.jsonl --llm scripted --mllm scripted",
        "boost scenes:plain?n=2 -o new.jsonl --ledger new.jsonl --llm scripted --mllm scripted",
        "job merge c.jsonl d.jsonl -o d.jsonl",
        "study report . -o study.html --store study.html",
    ],
)
def test_an_output_that_is_an_input_is_refused(cli: Cli, here: Path, typed: str) -> None:
    (here / "sub").mkdir()
    (here / "link.json").symlink_to("c.json")
    (here / "hard.json").hardlink_to("c.json")
    for name in ("r.json", "d.jsonl", "study.html"):
        (here / name).write_text(PERSON)
    before = content(here)
    done = cli(*typed.split())
    assert done.status == 2 and "choose another file" in done.err, done.err
    assert content(here) == before


@pytest.mark.parametrize("name", ["photo.jpg", "photo.txt", "photo.jpg.txt", "photo.mp4"])
@pytest.mark.parametrize(
    "typed",
    [
        "data simplify photos -o {}",
        "bags mine photos --scorer scenes -o {}",
        "caption scenes photos --format jsonl --replace-edited -o {}",
        "eval --captions c.json --data folder:photos -o {} --format csv",
    ],
)
def test_a_picture_or_its_text_in_an_input_folder_is_no_output(cli: Cli, here: Path, typed: str, name: str) -> None:
    (here / "photos").mkdir()
    for each in ("photo.jpg", name):
        (here / "photos" / each).write_text(PERSON)
    done = cli(*typed.format(f"photos/{name}").split(), "--overwrite")
    assert done.status == 2 and "is a picture or its text file in the input folder" in done.err, done.err
    assert {path.read_text() for path in (here / "photos").iterdir()} == {PERSON}


@pytest.mark.parametrize(
    "typed",
    [
        "eval --captions c.json -o r.csv --per-caption r.csv",
        "eval --captions c.json --per-caption r.csv --report ./r.csv",
    ],
)
def test_two_outputs_in_one_file_are_refused(cli: Cli, here: Path, typed: str) -> None:
    done = cli(*typed.split())
    assert done.status == 2 and "choose another file" in done.err, done.err
    assert sorted(content(here)) == ["c.json", "c.jsonl"]


@pytest.mark.parametrize(
    ("typed", "output"),
    [
        ("eval --captions c.json -o out.json", "out.json"),
        ("eval --captions c.json -o out.md", "out.md"),
        ("eval --captions c.json --per-caption out.csv", "out.csv"),
        ("check c.jsonl --report out.html", "out.html"),
        ("boost scenes:plain?n=2 --llm scripted --mllm scripted -o out.jsonl", "out.html"),
    ],
)
def test_a_file_of_somebody_else_is_replaced_with_overwrite_alone(
    cli: Cli, here: Path, typed: str, output: str
) -> None:
    (here / output).write_text(PERSON)
    done = cli(*typed.split())
    assert done.status == 2 and "already exists, and was not written by tellapart or has been" in done.err, done.err
    assert (here / output).read_text() == PERSON
    assert cli(*typed.split(), "--overwrite").status == 0
    assert (here / output).read_text() != PERSON
    assert cli(*typed.split()).status == 0, "its own file is replaced"
    with (here / output).open("a") as file:
        file.write(PERSON)
    done = cli(*typed.split())
    assert done.status == 2 and "already exists, and was not written by tellapart or has been" in done.err
    assert (here / output).read_text().endswith(PERSON)


@pytest.mark.parametrize(
    ("typed", "output"),
    [
        ("bags build scenes:plain?n=9 --scorer scenes -o .", "3.json"),
        ("bags build scenes:plain?n=9 --scorer scenes -o .", "card.html"),
        ("bags pool scenes:plain?n=2 --among scenes:plain?n=9 --scorer scenes -o pool.jsonl", "pool.jsonl"),
        ("bags card bags.jsonl scenes:plain?n=9 --scorer scenes -o .", "card.md"),
        ("report runs/a -o page.html", "page.html"),
        ("report tokens scenes scenes:plain?n=1 -o drawing.svg", "drawing.svg"),
        ("data encode scenes scenes:plain?n=2 -o . --overwrite", "000007.npy"),
    ],
)
def test_a_file_of_somebody_else_is_refused_before_the_work(cli: Cli, here: Path, typed: str, output: str) -> None:
    (here / "runs" / "a").mkdir(parents=True)
    (here / "runs" / "a" / "run.json").write_text("{}")
    (here / output).write_text(PERSON)
    done = cli(*typed.split())
    message = (
        f"{output} was not written by tellapart, but would count as part of the result; move it elsewhere"
        if "--overwrite" in typed
        else f"{output} already exists, and was not written by tellapart or has been edited since"
    )
    assert done.status == 2 and message in done.err, done.err
    assert (here / output).read_text() == PERSON


def test_an_empty_file_is_no_one_s_and_a_file_keeps_its_mode(cli: Cli, here: Path) -> None:
    (here / "out.json").touch(mode=0o600)
    for _ in range(2):
        assert cli("eval", "--captions", "c.json", "-o", "out.json").status == 0
        assert stat.S_IMODE((here / "out.json").stat().st_mode) == 0o600 and (here / "out.json").stat().st_size
    assert not [path for path in here.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("cache", ["", "/dev/null/cache"], ids=["emptied", "not writable"])
def test_without_a_record_a_file_needs_overwrite_again(
    cli: Cli, here: Path, cache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("eval", "--captions", "c.json", "-o", "out.json").status == 0
    monkeypatch.setenv("TELLAPART_CACHE", cache or str(here / "new"))
    assert cli("eval", "--captions", "c.json", "-o", "out.json").status == 2
    assert cli("eval", "--captions", "c.json", "-o", "out.json", "--overwrite").status == 0


@pytest.mark.parametrize("name", ["report.toml", "report"])
def test_a_page_ends_in_html(cli: Cli, here: Path, name: str) -> None:
    (here / name).write_text(PERSON)
    for typed in (("report", here, "-o", name), ("study", "report", here, "-o", name)):
        done = cli(*typed, "--overwrite")
        assert done.status != 0 and (here / name).read_text() == PERSON


@pytest.mark.skipif(not Path("/sys/kernel").is_dir(), reason="no /sys, in which not even root may write a file")
def test_a_page_in_a_folder_that_is_not_writable_names_no_option_that_the_command_lacks(cli: Cli, here: Path) -> None:
    done = cli("check", "c.json", "--report", "/sys/x.html")
    line = done.err.splitlines()[-1]
    assert done.status == 1 and line.startswith("tellapart: /sys/x.html: ") and line.endswith("; choose another file")


def test_a_device_is_no_input(cli: Cli, here: Path) -> None:
    for typed in (
        ["check", "/dev/zero"],
        ["eval", "--captions", "mine=/dev/zero"],
        ["check", "c.jsonl", "jsonl:/dev/zero"],
    ):
        assert "expected a file, got a device" in cli(*typed).err


def test_a_model_that_is_not_there_leaves_no_job(cli: Cli, here: Path) -> None:
    before = content(here)
    assert cli("data", "encode", here / "no-scorer", "scenes:plain?n=2", "-o", "f").status != 0
    assert not (here / "f.job").exists() and content(here) == before


def deny(folder: Path) -> None:
    folder.chmod(0o500)
    if os.access(folder, os.W_OK):
        pytest.skip("root writes into any folder")


@pytest.mark.parametrize("make", [deny, Path.rmdir])
def test_a_folder_that_cannot_be_written_is_one_line(cli: Cli, here: Path, make: Callable[[Path], None]) -> None:
    (here / "sub").mkdir()
    make(here / "sub")
    (here / "file").write_text("")
    out = here / ("file" if make is Path.rmdir else "sub") / "out.json"
    done = cli("eval", "--captions", "c.json", "-o", out)
    message = f"{out} cannot be written (Not a directory)" if make is Path.rmdir else f"{out}: "
    assert done.status in (1, 2) and message in done.line
