"""A module of `tellapart.cli` is a command as it stands: no list names it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from rich.text import Text
from typer.core import TyperGroup
from typer.testing import CliRunner

import tellapart
from tellapart.cli.app import App, VerbGroup
from tellapart.cli.entry import GLOBAL_FLAGS
from tellapart.cli.signature_options import option_parameters
from tellapart.cli.whole_app import whole_app

# Options of other programs that messages tell people to type: tar, ray, pip, accelerate, git.
FOREIGN = {
    *("--dereference", "--hard-dereference", "--head", "--no-deps", "--force-reinstall", "--multi", "--cpu"),
    *("--always", "--dirty", "--abbrev", "--exclude"),
}

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


def test_options_are_described_in_the_docstring() -> None:
    app = App()

    @app.command()
    def greet(name: str, *, times: Annotated[int, typer.Option(min=1)] = 1, in_capitals: bool = False) -> None:
        """Greet somebody.

        Args:
            name: Whom.
            times: How many times. Default: once,
                as people do.
            in_capitals: Whether to shout.
        """
        print(" ".join([name.upper() if in_capitals else name] * times))

    run = CliRunner().invoke
    assert run(app, ["Ada", "--times", "2", "--in-capitals"]).stdout == "ADA ADA\n"
    command = typer.main.get_command(app)
    helps = {param.name: getattr(param, "help", None) for param in command.params}
    assert helps["times"] == "How many times. Default: once, as people do." and command.help == "Greet somebody."
    assert "--no-in-capitals" not in run(app, ["--help"]).stdout
    assert run(app, ["Ada", "--times", "0"]).exit_code == 2

    def mistaken(name: str) -> None:
        """Greet somebody.

        Args:
            nmae: Whom.
        """

    with pytest.raises(TypeError, match="nmae"):
        app.command()(mistaken)

    @dataclass
    class Mistaken:
        """Options.

        Args:
            nmae: Whom.
        """

        name: str = ""

    with pytest.raises(TypeError, match="Mistaken: the docstring describes nmae"):
        option_parameters(Mistaken)


def test_every_option_has_a_help_text() -> None:
    def without(command: Any, path: str) -> Iterator[str]:
        yield from (f"{path} {param.name}" for param in command.params if not getattr(param, "help", None))
        for name, inner in getattr(command, "commands", {}).items():
            yield from without(inner, f"{path} {name}")

    assert [*without(typer.main.get_command(whole_app()), "tellapart")] == []


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


def options_of(command: Any) -> Iterator[str]:
    """All options of a command and of its subcommands."""
    for parameter in command.params:
        yield from (*parameter.opts, *parameter.secondary_opts)
    for inner in getattr(command, "commands", {}).values():
        yield from options_of(inner)


def test_texts_of_the_package_name_only_options_that_exist() -> None:
    """An error that says "add --bertscore M" sends people to an option that became a key of --set."""
    known = {*options_of(typer.main.get_command(whole_app())), *GLOBAL_FLAGS, "--allow-code", "--help", *FOREIGN}
    unknown = []
    for path in sorted(Path(tellapart.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = re.findall(r"(?<![\w-])--[a-z]+(?:-[a-z]+)*", node.value)
                unknown += [f"{path.name}, line {node.lineno}: {name}" for name in named if name not in known]
    assert not unknown
