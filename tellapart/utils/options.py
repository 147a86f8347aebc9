"""Tables of options: pydantic models that refuse unknown keys, and the types of their values.

A value that names a model, data or a file is resolved against the recipe that it stands in. The validation context, if
there is one, holds ``folder``, the recipe's folder, and ``absolute``, which makes the name of a recipe absolute. The
serialization context is a `Resolver`.
"""

from __future__ import annotations

import os
from typing import Annotated, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, SerializationInfo, ValidationInfo


class Resolver(Protocol):
    """Replaces the names in a recipe when it is dumped with a resolver as its context."""

    def model(self, name: str) -> str: ...

    def data(self, spec: str) -> str: ...

    def file(self, path: str) -> str: ...


def written_model(name: str, info: SerializationInfo[Resolver | None]) -> str:
    return info.context.model(name) if info.context else name


def written_data(spec: str, info: SerializationInfo[Resolver | None]) -> str:
    return info.context.data(spec) if info.context else spec


def written_file(path: str, info: SerializationInfo[Resolver | None]) -> str:
    return info.context.file(path) if info.context else path


def beside_recipe(name: str, info: ValidationInfo) -> str:
    """A recipe named as a model is looked for beside the recipe that names it; its name becomes absolute."""
    return info.context["absolute"](name) if info.context else name


def fill_in(spec: str) -> str:
    """``$TELLAPART_DATA`` is the folder of the real data sets."""
    return spec.replace("$TELLAPART_DATA", os.environ.get("TELLAPART_DATA", "../shared/data"))


ModelName = Annotated[str, Field(min_length=1), AfterValidator(beside_recipe), PlainSerializer(written_model)]
DataSpec = Annotated[str, Field(min_length=1), AfterValidator(fill_in), PlainSerializer(written_data)]
FileName = Annotated[str, Field(min_length=1), AfterValidator(fill_in), PlainSerializer(written_file)]
DataSpecs = DataSpec | Annotated[tuple[DataSpec, ...], Field(min_length=1)]


class Strict(BaseModel):
    """A table that refuses unknown keys, and numbers that are not finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
