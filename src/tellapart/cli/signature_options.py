"""Makes a command's options from the parameters of its function and their descriptions in its docstring."""

from __future__ import annotations

import builtins
import inspect
import re
import sys
from collections.abc import Callable, Collection
from copy import copy
from dataclasses import MISSING, fields, is_dataclass
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from typer.models import OptionInfo


def with_options(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a command's options from its parameters, and their help from the ``Args`` section of its docstring.

    A parameter that is a dataclass becomes one option for each documented or annotated field; the function receives an
    instance of it. Raises `TypeError` if a docstring describes a parameter or field that does not exist.
    """
    own = inspect.signature(function, eval_str=True).parameters.values()
    about, described = documented(function, [each.name for each in own])
    groups: dict[str, Any] = {each.name: each.annotation for each in own if is_dataclass(each.annotation)}
    options = {name: option_parameters(kind) for name, kind in groups.items()}

    def command(**values: Any) -> None:
        made = {
            name: kind(**{one.name: values.pop(one.name) for one in options[name]}) for name, kind in groups.items()
        }
        function(**values, **made)

    parameters = [one for each in own for one in options.get(each.name, [with_help(each, described.get(each.name))])]
    signature = inspect.Signature([each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters])
    command.__signature__ = signature  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__, command.__doc__ = function.__name__, about
    return command


def option_parameters(kind: Any) -> list[inspect.Parameter]:
    """Returns a parameter for each field of a dataclass that is documented or annotated with a `typer.Option`."""

    class Names(dict[str, Any]):
        def __missing__(self, name: str) -> Any:  # for names that are imported for type checkers only
            return object

    names = Names(vars(builtins) | vars(sys.modules[kind.__module__]))
    hints = get_type_hints(kind, localns=names, include_extras=True)
    known = [each.name for each in fields(kind)]
    described = {name: text for each in kind.__mro__[::-1] for name, text in documented(each, known)[1].items()}
    parameters = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if each.default is MISSING else each.default,
            annotation=hints[each.name],
        )
        for each in fields(kind)
        if each.name in described or any(isinstance(note, OptionInfo) for note in get_args(hints[each.name]))
    ]
    return [with_help(each, described.get(each.name)) for each in parameters]


def documented(thing: Any, known: Collection[str]) -> tuple[str, dict[str, str]]:
    """Splits a docstring into the text before its ``Args`` section, and the description of each argument.

    Raises `TypeError` if an argument is not among the ``known`` names.
    """
    about, _, section = inspect.cleandoc(thing.__doc__ or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", re.split(r"\n(?=\S)", section)[0], re.MULTILINE)
    if unknown := [name for name, _ in entries if name not in known]:
        raise TypeError(f"{thing.__name__}: the docstring describes {', '.join(unknown)}, which is no parameter")
    return about.strip(), {name: " ".join(text.split()) for name, text in entries}


def with_help(parameter: inspect.Parameter, text: str | None) -> inspect.Parameter:
    """Adds a help text to a command's parameter. A parameter without a default is an argument; a ``bool`` is a flag
    without an opposite.
    """
    if text is None:
        return parameter
    annotated = get_origin(parameter.annotation) is Annotated
    kind, *notes = get_args(parameter.annotation) if annotated else (parameter.annotation,)
    unnamed = typer.Argument() if parameter.default is inspect.Parameter.empty else typer.Option()
    note = copy(notes[0]) if notes else unnamed
    if kind is bool and note.default is ...:  # the names that `typer.Option` was given are in ``default``
        note.param_decls = (f"--{parameter.name.replace('_', '-')}",)
    note.help = text
    return parameter.replace(annotation=Annotated[kind, note])
