"""A registry: entries of the package, of installed packages, and of a program."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tellapart.errors import UsageError
from tellapart.utils.registry import Entry, Registry

Colour = Entry[Callable[[], str]]


@pytest.fixture
def colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry[Colour]]:
    """A registry of two packages with a module each, and an installed package that offers three more."""
    (tmp_path / "paints").mkdir()
    (tmp_path / "paints" / "__init__.py").write_text(
        "from tellapart.utils.registry import Entry, Registry\n"
        "COLOURS = Registry('colour', Entry, group='paints.colours', packages=('paints.shades', 'paints.tones'))\n"
    )
    for folder, entry in (("shades", "name='red', factory=lambda: 'f00', help='Warm.', label='Red'"),
                          ("tones", "name='pink', factory=lambda: 'fcc'")):  # fmt: skip
        (tmp_path / "paints" / folder).mkdir()
        (tmp_path / "paints" / folder / "__init__.py").touch()
        (tmp_path / "paints" / folder / "module.py").write_text(
            "from paints import COLOURS\nfrom tellapart.utils.registry import Entry\n"
            f"COLOURS.register(Entry({entry}))\n"
        )
    (tmp_path / "outside.py").write_text(
        "from tellapart.utils.registry import Entry\n"
        "def green():\n    '''Fresh.\n\n    More.'''\n    return '0f0'\n"
        "blue = Entry(name='blue', factory=lambda: '00f', needs=('sky',), direction='lower')\n"
        "red = Entry(name='red', factory=lambda: 'not this one')\n"
    )
    info = tmp_path / "outside-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[paints.colours]\ngreen = outside:green\nblue = outside:blue\nred = outside:red\nbroken = outside:nothing\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import paints  # type: ignore[import-not-found]

    yield paints.COLOURS
    for name in [name for name in sys.modules if name.split(".")[0] in ("paints", "outside")]:
        del sys.modules[name]


def test_entries_come_from_the_package_from_outside_and_from_a_program(colours: Registry[Colour]) -> None:
    assert list(colours) == ["red", "pink", "green", "blue", "broken"]
    assert "outside" not in sys.modules, "listing names imports no plug-in"
    colours.register(Entry(name="grey", factory=lambda: "888"))
    assert colours["grey"].factory() == "888"
    assert (colours["red"].factory(), colours["red"].title) == ("f00", "Red")
    assert (colours["green"].help, colours["green"].title) == ("Fresh.", "green")
    assert (colours["blue"].needs, colours["blue"].direction) == (("sky",), "lower")


def test_what_is_wrong_is_one_line(colours: Registry[Colour]) -> None:
    with pytest.raises(UsageError, match="no colour is named 'gren'; did you mean 'green'"):
        colours.find("gren")
    with pytest.raises(UsageError, match="colour 'broken' of the installed package outside cannot be loaded"):
        colours.find("broken")
    with pytest.raises(KeyError):
        colours["gren"]
    with pytest.raises(ValueError, match="red"):
        colours.find("red")
        colours.register(Entry(name="red", factory=lambda: "again"))
    lines: list[str] = []
    assert [entry.name for entry in colours.entries(broken=lines.append)] == ["red", "pink", "green", "blue"]
    assert len(lines) == 1 and "\n" not in lines[0]
