"""Option tables: pydantic models that reject unknown keys, one for each part of a kind.

Registers them, joins them into a union, and builds the parts that they describe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    create_model,
)

from tellapart.errors import UsageError
from tellapart.utils.code_loading import call_with
from tellapart.utils.registry import Entry, Registry


class Strict(BaseModel):
    """A table that rejects unknown keys and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PluginOptions(Strict):
    """The table of a plug-in that declares no options. Extra keys become keyword arguments of its factory."""

    model_config = ConfigDict(extra="allow")

    def call(self, entry: Entry[Callable[..., Any]], what: str) -> Any:
        """Calls the factory and returns its result. Raises `UsageError` if it fails or the result is not callable."""
        arguments = self.model_extra or {}
        key = f"{what} '{entry.name}'"
        part = call_with(entry.factory, key, arguments)
        if not callable(part):
            raise UsageError(f"{key} returned a {type(part).__name__}; expected a callable")
        return part


Options = TypeVar("Options", bound=BaseModel)


def option_tables(
    entries: Iterable[Entry[Callable[..., Any]]], base: type[Options], plugin: type[Options]
) -> tuple[type[Options], ...]:
    """Returns the entries' tables, for a union discriminated by ``kind``. Raises `TypeError` for an invalid table.

    Entries without options get the table ``plugin``. A table's ``kind`` must be ``Literal["name of the entry"]``.
    """
    tables = []
    for entry in sorted(entries, key=lambda each: each.name):
        table = entry.options
        if table is None:
            fields: dict[str, Any] = {"kind": (Literal[entry.name], ...)}
            table = create_model(f"{entry.name}_options", __base__=plugin, **fields)
        elif not (issubclass(table, base) and get_args(table.model_fields["kind"].annotation) == (entry.name,)):
            raise TypeError(f"options of '{entry.name}': expected a {base.__name__} with kind: Literal['{entry.name}']")
        tables.append(table)
    return tuple(tables)


def register_options(
    registry: Registry[Any], label: str, *, help: str, **about: Any
) -> Callable[[type[Options]], type[Options]]:
    """Decorator that registers an options class under its ``kind``. ``options.build(parts)`` must return the part.
    ``about`` sets fields of the registry's entries.
    """

    def register(options: type[Options]) -> type[Options]:
        (name,) = get_args(options.model_fields["kind"].annotation)
        build: Callable[..., Any] = options.build  # type: ignore[attr-defined]
        registry.register(registry.entry(name=name, factory=build, help=help, options=options, label=label, **about))
        return options

    return register


def build_part(registry: Registry[Any], options: Any, parts: Any) -> Any:
    """Builds the part that a recipe table describes. Raises `UsageError` if a plug-in's factory fails or does not
    return a callable.
    """
    entry = registry.find(options.kind)
    if isinstance(options, PluginOptions):
        return options.call(entry, registry.kind)
    return entry.factory(options, parts)
