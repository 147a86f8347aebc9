"""Packages that import their modules on first use."""

from __future__ import annotations

import importlib
import sys
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
    """Imports a module when an attribute of it is first read, and stands for it in the module that made this until
    then.

    Where a module's functions need torch and its options do not, ``torch = LazyModule("torch")`` beside
    ``if TYPE_CHECKING: import torch`` keeps reading a recipe, and ``--help``, fast. ``LazyModule("rich", "table")`` is
    ``import rich, rich.table``.
    """

    def __init__(self, name: str, *submodules: str) -> None:
        super().__init__(name)
        self.__dict__.update(_home=sys._getframe(1).f_globals, _submodules=submodules)

    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module(self.__name__)
        for submodule in self._submodules:
            importlib.import_module(f"{self.__name__}.{submodule}")
        for alias in [alias for alias, value in list(self._home.items()) if value is self]:
            self._home[alias] = module
        return getattr(module, name)
