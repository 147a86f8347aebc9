"""Types of recipe values that name a model, data or a file, and are resolved relative to their recipe.

The validation context, if given, contains ``folder``, the recipe's folder, and ``absolute``, a function that makes a
recipe's name absolute. The serialization context is a `Resolver`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationInfo,
)


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
    """Makes a name absolute, so that a recipe used as a model is looked up next to the recipe that names it."""
    return info.context["absolute"](name) if info.context else name


def fill_in(spec: str) -> str:
    """Replaces ``$TELLAPART_DATA`` with the folder of the real data sets."""
    return spec.replace("$TELLAPART_DATA", os.environ.get("TELLAPART_DATA", "../shared/data"))


ModelName = Annotated[str, Field(min_length=1), AfterValidator(beside_recipe), PlainSerializer(written_model)]
DataSpec = Annotated[str, Field(min_length=1), AfterValidator(fill_in)]
FileName = Annotated[str, Field(min_length=1), AfterValidator(fill_in), PlainSerializer(written_file)]
# Like `DataSpec`, but keeps ``$TELLAPART_DATA``.
DataName = Annotated[str, Field(min_length=1), PlainSerializer(written_data)]
FilePath = Annotated[str, Field(min_length=1), PlainSerializer(written_file)]
PoolName = Annotated[str, Field(min_length=1), PlainSerializer(written_pool)]
DataSpecs = Annotated[DataSpec | Annotated[tuple[DataSpec, ...], Field(min_length=1)], PlainSerializer(written_specs)]
