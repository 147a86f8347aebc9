"""A reader from outside the package: one module, and everything that speaks of kinds of data knows it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import Cli
from reader_help import draw, wrong

from tellapart.data import READERS, Reader, open_data
from tellapart.data.reader_tables import kinds_of_data
from tellapart.data.specification import parse

MODULE = """
from tellapart.data import Reader, Skipped
from tellapart.data.pictures import FilePicture
from tellapart.types import Item

def read(path, options):
    texts = [line.split("=") for line in path.read_text().splitlines()]
    folder = path.parent / options.text("images")
    times = options.integer("times", 1)
    return [Item(name, FilePicture(folder / name), (text * times,)) for name, text in texts], Skipped()

def plain(path, options):
    '''Only a function.'''
    return read(path, options)

PAIRS = Reader(
    name="pairs", factory=read, help="name=caption a line", keys={"images": "the folder", "times": "how often"},
    suffixes=(".pairs",), json_layout=lambda content: content == {"pairs": True}, folder_suffixes=(".pairs",),
)
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with data, and an installed package with two readers and one that cannot be loaded."""
    site = tmp_path / "site"
    info = site / "outside-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "outside_reader.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[tellapart.readers]\npairs = outside_reader:PAIRS\nplain = outside_reader:plain\nbroken = outside_reader:no\n"
    )
    monkeypatch.syspath_prepend(site)
    data = tmp_path / "data"
    draw(data / "p" / "a.png")
    (data / "list.pairs").write_text("a.png=a dog ")
    yield data
    sys.modules.pop("outside_reader", None)


def test_the_package_reads_without_loading_a_plugin(installed: Path) -> None:
    assert len(open_data(str(installed / "p"))) == 1 and "outside_reader" not in sys.modules


def test_a_reader_of_an_installed_package(installed: Path) -> None:
    spec = f"{installed}/list.pairs?images=p&times=2"
    assert open_data(f"pairs:{spec}")[0].references == ("a dog a dog ",)
    assert open_data(spec)[0].id == "a.png", "known by its suffix"
    assert open_data(f"plain:{installed}/list.pairs?limit=1")[0].id == "a.png"
    assert "unknown key 'tims' for 'pairs:'; did you mean 'times'?" in wrong(f"pairs:{installed}/list.pairs?tims=2")
    assert wrong(f"pears:{installed}/list.pairs").endswith("unknown kind of data 'pears'; did you mean 'pairs'?")
    assert f"kinds: {', '.join(sorted(READERS))})" in wrong(installed / "nope") and "pairs" in READERS
    assert "'broken' of the installed package outside cannot be loaded" in wrong("broken:x")
    (installed / "x.json").write_text('{"pairs": true}')
    assert parse(f"{installed}/x.json")[0] == parse(str(installed))[0] == "pairs", "by content, and a folder by suffix"


def test_a_folder_and_an_unknown_file_by_a_plugin(installed: Path) -> None:
    (installed / "notes.md").write_text("x")
    assert ".tar .pairs" in wrong(installed / "notes.md")


def test_data_kinds_lists_every_kind(installed: Path, cli: Cli) -> None:
    assert "tellapart data kinds" in cli("caption", "--help").out
    done = cli("data", "kinds", "--json")
    kinds = json.loads(done.out)
    assert kinds["pairs"] == "name=caption a line" and kinds["plain"] == "Only a function."
    assert kinds == {reader.name: reader.help for reader in READERS.entries(broken=lambda line: None)}
    assert "kind of data 'broken' of the installed package outside cannot be loaded" in done.err


def test_a_reader_that_a_program_registers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(READERS, "_entries", dict(READERS._entries) if list(READERS) else {})
    READERS.register(Reader(name="again", factory=READERS["folder"].factory, help="pictures again"))
    draw(tmp_path / "a.png")
    assert open_data(f"again:{tmp_path}")[0].id == "a.png" and ("again", "pictures again") in kinds_of_data()[0]


def test_the_tables_in_the_docs_are_those_of_the_readers() -> None:
    root = Path(__file__).parents[2]
    sys.path.insert(0, str(root / "tools"))
    from data_tables import PAGE, with_tables

    text = PAGE.read_text(encoding="utf-8")
    assert text == with_tables(text), "type: python tools/data_tables.py"
    assert all(reader.help and reader.layouts and reader.read.__doc__ for reader in READERS.values())
