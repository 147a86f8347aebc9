"""Registries of parts, each of which maps the names of one kind of part to the parts.

Objectives, rewards, metrics, readers, captioners and scorers each have one `Registry`. A part is a module that
registers an `Entry`. The recipe schema, the command line, the reports and the tables in the docs are built from the
entries. Parts come from three places:

- modules in the registry's ``packages``, which are imported on first use, so there is no list to extend;
- installed packages with an entry point in the registry's ``group``, which loads an `Entry` or its factory;
- calls to `Registry.register`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, Literal, TypeVar

from tellapart.errors import UsageError, error_line, nearest

Direction = Literal["higher", "lower"]
Factory = TypeVar("Factory", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True, kw_only=True)
class Entry(Generic[Factory]):
    """A registry entry for one part. Kinds that need more fields subclass it (frozen, ``kw_only``).

    name: the name that users type.
    factory: a callable that creates the part or is the part itself, never a string. It must import torch inside the
        function if commands that do not load torch read the registry.
    help: a one-line description.
    options: the pydantic model or dataclass of its settings.
    needs: the inputs that it requires, such as ``references`` or ``scorer``.
    label: the name in reports and tables.
    direction: whether a higher or a lower value is better, if either is.
    """

    name: str
    factory: Factory
    help: str = ""
    options: type[Any] | None = None
    needs: tuple[str, ...] = ()
    label: str = ""
    direction: Direction | None = None

    @property
    def title(self) -> str:
        """The label, or the name if there is no label."""
        return self.label or self.name


E = TypeVar("E", bound=Entry[Callable[..., Any]])


class Registry(Mapping[str, E], Generic[E]):
    """The entries of one kind, by name: first the built-in entries, then those of installed packages.

    Iteration and ``in`` do not import plug-ins, but looking up an entry does. Built-in names take precedence.

    kind: the name of a part in errors, such as ``objective``.
    entry: the class of the entries. A plug-in whose entry point loads a plain factory becomes
        ``entry(name=…, factory=…, help=first line of its docstring)``.
    group: the group of the entry points.
    packages: packages whose modules register their parts; all modules are imported on first use.
    """

    def __init__(self, kind: str, entry: type[E], *, group: str = "", packages: Sequence[str] = ()) -> None:
        self.kind, self.entry, self.group, self.packages = kind, entry, group, packages
        self._entries: dict[str, E] = {}
        self._plugins: dict[tuple[str, str], E] = {}
        self._imported = not packages

    def register(self, entry: E) -> E:
        """Adds an entry and returns it. Raises `ValueError` if the name is already registered."""
        if entry.name in self._entries:
            raise ValueError(f"{self.kind} '{entry.name}' is already registered")
        self._entries[entry.name] = entry
        return entry

    def find(self, name: str) -> E:
        """Returns the named entry. Raises a one-line `UsageError` that gives the nearest name, or the reason why
        a plug-in failed.
        """
        self._import_builtin()
        if name in self._entries:
            return self._entries[name]
        if (point := self.installed().get(name)) is not None:
            return self._load(point)
        raise UsageError(f"no {self.kind} is named '{name}'{nearest(name, self)}")

    def builtin(self) -> dict[str, E]:
        """Returns the built-in entries. Searching installed packages would take longer than a short command."""
        self._import_builtin()
        return dict(self._entries)

    def entries(self, *, broken: Callable[[str], None] | None = None) -> list[E]:
        """Returns all entries. Raises `UsageError` if a plug-in fails to load, or passes the message to ``broken``."""
        result = []
        for name in self:
            try:
                result.append(self.find(name))
            except UsageError as error:
                if broken is None:
                    raise
                broken(str(error))
        return result

    def installed(self) -> dict[str, EntryPoint]:
        """Returns the entry points of installed packages, by name, without importing them."""
        return {point.name: point for point in entry_points(group=self.group)} if self.group else {}

    def _load(self, point: EntryPoint) -> E:
        key = (point.name, point.value)
        if key not in self._plugins:
            whose = f"{self.kind} '{point.name}' of the installed package {package_of(point)}"
            try:
                part = point.load()
            except Exception as error:
                raise UsageError(f"{whose} cannot be loaded: {error_line(error)}") from error
            if not isinstance(part, self.entry):
                if isinstance(part, Entry) or not callable(part):
                    raise UsageError(f"{whose} is a {type(part).__name__}; expected a {self.entry.__name__} or factory")
                part = self.entry(name=point.name, factory=part, help=first_doc_line(part))
            self._plugins[key] = replace(part, name=point.name)
        return self._plugins[key]

    def _import_builtin(self) -> None:
        if self._imported:
            return
        self._imported = True  # set first, because the modules import the registry
        for package in self.packages:
            for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
                importlib.import_module(module.name)

    def __getitem__(self, name: str) -> E:
        if name not in self:
            raise KeyError(name)
        return self.find(name)

    def __iter__(self) -> Iterator[str]:
        self._import_builtin()
        yield from dict.fromkeys([*self._entries, *self.installed()])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        self._import_builtin()
        return name in self._entries or name in self.installed()


def package_of(point: EntryPoint) -> str:
    """Returns the name of the distribution that provides an entry point."""
    return point.dist.name if point.dist is not None else point.value


def first_doc_line(part: object) -> str:
    """Returns the first line of a docstring, or "" if there is none."""
    return (inspect.getdoc(part) or "").partition("\n")[0]
