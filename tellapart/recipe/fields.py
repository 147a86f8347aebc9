"""What the values of a recipe may be: names of models, specifications of data, tables without unknown keys."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, SerializationInfo, ValidationInfo

from tellapart.recipe.find import shipped


class Resolver(Protocol):
    """What stands for the names in a recipe that is dumped with one as its context."""

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
    """A recipe named as a model stands beside the recipe that names it; its name becomes absolute."""
    return absolute(name, info.context["folder"]) if info.context else name


def absolute(name: str, folder: Path) -> str:
    """A recipe's name as an absolute path: the file in ``folder``, or else the shipped recipe of that name."""
    if not name.endswith(".toml"):
        return name
    file = (folder / name).resolve()
    return str(file if file.is_file() else shipped().get(name.removesuffix(".toml"), file))


def fill_in(spec: str) -> str:
    """``$TELLAPART_DATA`` is the folder of the real data sets."""
    return spec.replace("$TELLAPART_DATA", os.environ.get("TELLAPART_DATA", "../shared/data"))


ModelName = Annotated[str, Field(min_length=1), AfterValidator(beside_recipe), PlainSerializer(written_model)]
DataSpec = Annotated[str, Field(min_length=1), AfterValidator(fill_in), PlainSerializer(written_data)]
FileName = Annotated[str, Field(min_length=1), AfterValidator(fill_in), PlainSerializer(written_file)]
DataSpecs = DataSpec | Annotated[tuple[DataSpec, ...], Field(min_length=1)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
