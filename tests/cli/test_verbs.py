"""A module of `tellapart.cli` is a command as it stands: no list names it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperGroup
from typer.testing import CliRunner

from tellapart.cli.app import VerbGroup
from tellapart.cli.entry import whole_app

VERB = '''
from typing import Annotated
import typer
from tellapart.cli.app import App, MEASURING
from tellapart.cli.options import Json
from tellapart.cli.output import show
app = App()
@app.command(rich_help_panel=MEASURING)
def greet(name: Annotated[str, typer.Argument(help="Whom.")], as_json: Json = False) -> None:
    """Greet somebody."""
    show({"name": name}, lambda: f"hello {name}", as_json)
'''


def test_a_command_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "greet.py").write_text(VERB)
    start = f"import tellapart.cli; tellapart.cli.__path__.append({str(tmp_path)!r}); tellapart.cli.main()"

    def typed(*arguments: str) -> str:
        done = subprocess.run([sys.executable, "-c", start, *arguments], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert typed("greet", "Ada") == "hello Ada\n"
    assert "Greet somebody." in typed("--help") and "╭─ Commands" not in typed("--help"), "each has its panel"


def test_twenty_two_verbs_at_most_and_some_of_two_words() -> None:
    app = typer.main.get_command(whole_app())
    assert isinstance(app, VerbGroup)
    shown = [name for name, command in app.commands.items() if not command.hidden]
    assert len(shown) <= 22
    for name in ("eval headroom", "report changes"):
        output = CliRunner().invoke(whole_app(), [name.split()[0], "--help"]).output
        assert f"See also: tellapart {name} --help" in output


def commands(group: TyperGroup) -> Iterator[Any]:
    for command in group.commands.values():
        yield command
        if isinstance(command, TyperGroup):
            yield from commands(command)


def test_the_help_drops_no_text_in_brackets() -> None:
    """Rich takes "[default: 300]" in a help text for a style and drops it."""
    app = typer.main.get_command(whole_app())
    assert isinstance(app, TyperGroup)
    texts = [text for command in commands(app) for text in (command.help, *(p.help for p in command.params))]
    assert len(texts) > 300
    assert [text for text in texts if text and Text.from_markup(text).plain != text] == []
    output = CliRunner().invoke(whole_app(), ["finetune", "--help"]).output
    assert "Default: 300." in " ".join(output.replace("│", "").split())
