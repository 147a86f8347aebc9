"""Packages that import their modules on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any


def lazily(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the package's ``__getattr__`` and ``__dir__``; ``where`` says which of its modules has a name."""

    def attribute(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{where[name]}"), name)

    return attribute, lambda: sorted(where)


class LazyModule(ModuleType):
    """A module that is imported when an attribute of it is first read.

    Where a module's functions need torch and its options do not, ``torch = LazyModule("torch")`` beside
    ``if TYPE_CHECKING: import torch`` keeps reading a recipe, and ``--help``, fast.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
