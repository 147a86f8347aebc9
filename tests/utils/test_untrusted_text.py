"""Text from outside: what is cleaned where it comes in, and what a terminal never gets to see."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import Cli

from tellapart.data import open_data
from tellapart.utils.messages import say
from tellapart.utils.strict_json import json_text
from tellapart.utils.terminal_text import console, for_terminal, single_line
from tellapart.utils.untrusted_text import broken, clean_text

RED, TITLE, CLEAR = "\x1b[31m", "\x1b]0;forged\x07", "\x9b2J"
HOSTILE = f"{RED}a\u202edog{TITLE}\x00{CLEAR}\ud83d[bold]b[/bold]"


def test_text_is_cleaned_and_what_is_clean_stays_itself() -> None:
    for text in ("a dog", "Zoë’s 犬 🐕\u200d🦺 a\u00a0b", "two\nlines\tand a tab", ""):
        assert clean_text(text) is text or clean_text(text) == text
        assert broken(text) is None
    assert clean_text("a\x00b\x1b[1mc\ud800d\x85") == "a b [1mc\ufffdd\x85"
    assert (
        broken("a\udc80") == "broken text (a lone surrogate)" and broken("\x07") == "broken text (control characters)"
    )


def test_what_is_shown_holds_no_control_character() -> None:
    shown = for_terminal(HOSTILE)
    assert shown.isprintable() and r"\x1b[31m" in shown and r"\u202e" in shown and r"\ud83d" in shown
    assert for_terminal("two\nlines, Zoë\t犬") == "two\nlines, Zoë\t犬" and for_terminal("a\rb") == r"a\x0db"
    assert json.loads(json_text({"a": HOSTILE})) == {"a": HOSTILE} and json_text({"a": HOSTILE + "Zoë"}).isprintable()
    assert single_line("a\n b") == "a b" and len(single_line("x" * 10**6)) < 2100


def test_lines_tables_and_progress_show_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(f"{HOSTILE} :smile:")
    screen = io.StringIO()
    console(file=screen, width=200).print(Group(table, Text(HOSTILE)), HOSTILE)
    assert screen.getvalue().count("[bold]b[/bold]") == 5 and ":smile:" in screen.getvalue()
    say(HOSTILE)
    for text in (screen.getvalue(), capsys.readouterr().err):
        assert for_terminal(text) == text and r"\x1b[31ma\u202edog" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_a_hostile_name_of_a_system_is_shown_as_text(cli: Cli, tmp_path: Path, as_json: bool) -> None:
    captions = tmp_path / f"{RED}[bold]red.jsonl"
    captions.write_text('{"id": "1", "caption": "a dog"}\n{"id": "2", "caption": "a cat"}\n')
    done = cli("eval", "--captions", captions, "--metrics", "length", *(["--json"] if as_json else []))
    assert done.status == 0 and "[bold]red" in done.out and "\x1b" not in done.out + done.err


def test_a_hostile_key_is_named_without_its_escape_sequence(
    cli: Cli, tiny_recipe: dict[str, Any], tmp_path: Path
) -> None:
    recipe = tmp_path / "r.toml"
    recipe.write_text('name = "r"\n"\\u001b[31mobjective\\u001b]0;x\\u0007" = 1\n')
    for arguments in ((recipe,), (f"{TITLE}{RED}.toml",), ("recipes/scenes_mle.toml", "--set", f"{RED}steps=1")):
        line = cli("train", *arguments).line
        assert line.isprintable() and r"\x1b" in line


def test_an_encoding_without_the_character_ends_no_command(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tellapart.cli import main

    captions = tmp_path / "犬.jsonl"
    captions.write_text('{"id": "1", "caption": "a dog"}\n{"id": "2", "caption": "a cat"}\n')
    out = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "argv", ["tellapart", "eval", "--captions", str(captions), "--metrics", "length"])
    main()
    out.flush()
    assert rb"\u72ac" in out.buffer.getvalue()  # type: ignore[attr-defined]


def test_mostly_unreadable_pictures_are_exit_status_1(cli: Cli, tiny_captioner: Path, tmp_path: Path) -> None:
    from tellapart.scenes import Scenes

    folder, out = tmp_path / "photos", tmp_path / "c.jsonl"
    folder.mkdir()
    Scenes(1)[0].image().save(folder / "good.png")
    (folder / "bad0.png").write_text("Dear all")
    command = ("caption", tiny_captioner, folder, "-o", out, "--max-tokens", 2, "--beams", 1, "--overwrite")
    assert cli(*command).status == 0
    for number in range(1, 9):
        (folder / f"bad{number}.png").write_text("Dear all")
    done = cli(*command)
    assert (
        done.status == 1 and "9 of 10 pictures could not be read, which is more than half" in done.err.splitlines()[-1]
    )
    assert len(out.read_text().splitlines()) == 1


NEW = """name = "n"
data = { train = "scenes:plain?n=4", validation = "scenes:plain?n=4" }
objective = { kind = "reinforce", kl = 0.1 }
training = { steps = 1, batch_size = 2, learning_rate = 1e-3 }
scorer = { name = "scenes" }
captioner = { new = { vision = "scenes", width = 16, heads = 2 } }
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("heads = 2", "heads = 3", "width = 16 is not a multiple of heads = 3;"),
        ("heads = 2", 'heads = 2, visual = "cells"', "visual = 'cells' and mapper = 'linear' require each other;"),
        ("", "", "objective 'reinforce' requires an initial model (as do objective.kl and"),
        ("1e-3", "inf", "training.learning_rate must be a finite number"),
        ("1e-3", "1e300", "training.learning_rate must be less than or equal to 1000"),
        ("1e-3", "9" * 5000, "is not valid TOML"),
        ("1e-3", "[" * 5000, "is not valid TOML"),
        ('"scenes"', '"a\\u0000b"', "is broken text (control characters)"),
        ("scenes:plain?n=4", "shards/{0..99999999999}.tar", "matches more than 1,000,000 files; use"),
    ],
)
def test_a_recipe_that_cannot_be_is_one_line(cli: Cli, tmp_path: Path, old: str, new: str, line: str) -> None:
    recipe = tmp_path / "n.toml"
    recipe.write_text(NEW.replace(old, new, 1) if old else NEW)
    if "shards" in new:
        recipe.write_text(NEW.replace("kl = 0.1", "kl = 0.0").replace(old, new, 1))
    done = cli("train", recipe, "--out", tmp_path / "run")
    assert done.status == 2 and line in done.line and not (tmp_path / "run").exists()


def test_readers_clean_captions_and_ids_but_never_paths(tmp_path: Path) -> None:
    from PIL import Image

    picture = tmp_path / f"{RED}.png"
    Image.new("RGB", (3, 2)).save(picture)
    row = {"id": "\ud800\x00x", "image": picture.name, "caption": "a\x00 dog\udc80 \x1b[1m"}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    (item,) = open_data(str(tmp_path / "d.jsonl"))
    assert item.references == ("a dog\ufffd [1m",) and item.id == "\ufffd x" and item.picture.image().size == (3, 2)
    (item,) = open_data(f"folder:{tmp_path}")
    assert item.id == "%1B[31m.png" and item.picture.image().size == (3, 2)
