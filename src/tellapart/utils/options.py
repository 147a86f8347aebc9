"""Option tables: pydantic models that reject unknown keys, and the types of their values.

A value that names a model, data or a file is resolved relative to its recipe. The validation context, if given,
contains ``folder``, the recipe's folder, and ``absolute``, a function that makes a recipe's name absolute. The
serialization context is a `Resolver`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
    create_model,
)

from tellapart.errors import UsageError
from tellapart.utils.registry import Entry


class Resolver(Protocol):
    """Replaces names while a recipe is dumped with this resolver as the context."""

    def model(self, name: str) -> str: ...

    def data(self, spec: str) -> str: ...

    def file(self, path: str) -> str: ...


def written_model(name: str, info: SerializationInfo[Resolver | None]) -> str:
    return info.context.model(name) if info.context else name


def written_data(spec: str, info: SerializationInfo[Resolver | None]) -> str:
    return info.context.data(spec) if info.context else spec


def written_specs(specs: str | tuple[str, ...], info: SerializationInfo[Resolver | None]) -> str | tuple[str, ...]:
    """Resolves the whole union, because pydantic turns errors in the serializer of a member into warnings."""
    return written_data(specs, info) if isinstance(specs, str) else tuple(written_data(spec, info) for spec in specs)


def written_file(path: str, info: SerializationInfo[Resolver | None]) -> str:
    return info.context.file(path) if info.context else path


def written_pool(name: str, info: SerializationInfo[Resolver | None]) -> str:
    """Resolves a pool for hard bags: a file of ids, or a data set."""
    if info.context is None:
        return name
    is_file = name.endswith(".json") and Path(name).is_file()
    return info.context.file(name) if is_file else info.context.data(name)


def beside_recipe(name: str, info: ValidationInfo) -> str:
    """Makes a name absolute, so that a recipe that is used as a model is looked up beside the recipe that names it."""
    return info.context["absolute"](name) if info.context else name


def fill_in(spec: str) -> str:
    """Replaces ``$TELLAPART_DATA`` with the folder of the real data sets."""
    return spec.replace("$TELLAPART_DATA", os.environ.get("TELLAPART_DATA", "../shared/data"))


ModelName = Annotated[str, Field(min_length=1), AfterValidator(beside_recipe), PlainSerializer(written_model)]
DataSpec = Annotated[str, Field(min_length=1), AfterValidator(fill_in)]
FileName = Annotated[str, Field(min_length=1), AfterValidator(fill_in), PlainSerializer(written_file)]
# The same, but keeps ``$TELLAPART_DATA``.
DataName = Annotated[str, Field(min_length=1), PlainSerializer(written_data)]
FilePath = Annotated[str, Field(min_length=1), PlainSerializer(written_file)]
PoolName = Annotated[str, Field(min_length=1), PlainSerializer(written_pool)]
DataSpecs = Annotated[DataSpec | Annotated[tuple[DataSpec, ...], Field(min_length=1)], PlainSerializer(written_specs)]


class Strict(BaseModel):
    """A table that rejects unknown keys and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PluginOptions(Strict):
    """The table of a plug-in that declares no options; extra keys become keyword arguments of its factory."""

    model_config = ConfigDict(extra="allow")

    def call(self, entry: Entry[Callable[..., Any]], what: str) -> Any:
        """Calls the factory and returns its result. Raises `UsageError` if it fails or the result is not callable."""
        arguments = self.model_extra or {}
        key = f"{what} '{entry.name}'"
        try:
            part = entry.factory(**arguments)
        except Exception as error:
            call = ", ".join(f"{option}={value!r}" for option, value in arguments.items())
            line = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
            raise UsageError(f"{key}: the call ({call}) failed: {line}") from error
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
