"""From names to code: one registry per kind of part, modules imported late, and code of the user by dotted path.

Objectives, rewards, metrics, readers, captioners and scorers each have one `Registry`. A part is a module that
registers an `Entry`; the recipe schema, the choices and errors of the command line, reports and the tables of the
docs read the entries. Parts come from three places:

- modules of the package that the registry names (``package``), imported on first use, so no list needs extending;
- installed packages with an entry point of the registry's ``group``, which loads to an `Entry` or to its factory;
- `Registry.register`, called by a program.

``my.module:factory`` names code of the user. A recipe or a model folder may come from anybody, so the code that it
names does not run for that reason alone. It runs where the command line names it too (as a model, in ``--set``, or with
``--allow-code my.module:factory``), where a caller in Python allows it (`allow_code`), or where an installed package
offers it as an entry point of one of the `GROUPS`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from tellapart.errors import UsageError, nearest

Direction = Literal["higher", "lower"]
Factory = TypeVar("Factory", bound=Callable[..., Any], covariant=True)


@dataclass(frozen=True, kw_only=True)
class Entry(Generic[Factory]):
    """One part. Subclass it (frozen, ``kw_only``) where a kind has more to say.

    name: what people type. factory: makes the part, or is it; a function itself, never a string. It imports torch
    inside where the registry is read by commands that do without. help: one line. options: the pydantic model or
    dataclass of its settings. needs: names of what it requires, such as ``references`` or ``scorer``. label: what
    reports and tables call it. direction: whether a higher or a lower value is better, where one is.
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
        """The label, or the name where there is none."""
        return self.label or self.name


E = TypeVar("E", bound=Entry[Callable[..., Any]])


class Registry(Mapping[str, E], Generic[E]):
    """The entries of one kind by name: those of the package first, then those of installed packages.

    kind: what an error calls a part, such as ``objective``. entry: the class of the entries; a plug-in whose entry
    point loads to a plain factory becomes ``entry(name=…, factory=…, help=first line of its docstring)``. group: the
    group of the entry points. package: a module, or a package whose modules all register their parts.

    Iterating and ``in`` import no plug-in; looking an entry up does. A built-in name wins over an installed one.
    """

    def __init__(self, kind: str, entry: type[E], *, group: str = "", package: str = "") -> None:
        self.kind, self.entry, self.group, self.package = kind, entry, group, package
        self._entries: dict[str, E] = {}
        self._plugins: dict[tuple[str, str], E] = {}
        self._imported = not package

    def register(self, entry: E) -> E:
        """Adds an entry and returns it. Raises `ValueError` for a name that another entry has."""
        if entry.name in self._entries:
            raise ValueError(f"{self.kind} '{entry.name}' is registered already")
        self._entries[entry.name] = entry
        return entry

    def find(self, name: str) -> E:
        """Returns the entry of that name. Raises `UsageError` of one line: with the nearest name, or why a plug-in
        fails.
        """
        self._import_builtin()
        if name in self._entries:
            return self._entries[name]
        if (point := self.installed().get(name)) is not None:
            return self._load(point)
        raise UsageError(f"no {self.kind} is called '{name}'{nearest(name, self)}")

    def builtin(self) -> dict[str, E]:
        """Returns the entries that no installed package offers. To look for those takes longer than a short command."""
        self._import_builtin()
        return dict(self._entries)

    def entries(self, *, broken: Callable[[str], None] | None = None) -> list[E]:
        """Returns all entries. A plug-in that cannot be loaded raises `UsageError`; ``broken`` gets its line
        instead.
        """
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
        """Returns what installed packages offer, by name, without importing it."""
        return {point.name: point for point in entry_points(group=self.group)} if self.group else {}

    def _load(self, point: EntryPoint) -> E:
        key = (point.name, point.value)
        if key not in self._plugins:
            whose = f"{self.kind} '{point.name}' of the installed package {package_of(point)}"
            try:
                part = point.load()
            except Exception as error:
                line = f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
                raise UsageError(f"{whose} cannot be loaded: {line}") from error
            if not isinstance(part, self.entry):
                if isinstance(part, Entry) or not callable(part):
                    raise UsageError(f"{whose} is a {type(part).__name__}; expected a {self.entry.__name__} or factory")
                part = self.entry(name=point.name, factory=part, help=first_line(part))
            self._plugins[key] = replace(part, name=point.name)
        return self._plugins[key]

    def _import_builtin(self) -> None:
        if self._imported:
            return
        self._imported = True  # set first: the modules import the registry
        module = importlib.import_module(self.package)
        for module_info in pkgutil.iter_modules(getattr(module, "__path__", [])):
            importlib.import_module(f"{self.package}.{module_info.name}")

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
        return name in list(self)


def package_of(point: EntryPoint) -> str:
    """Returns the distribution that an entry point belongs to."""
    return point.dist.name if point.dist is not None else point.value


def first_line(part: object) -> str:
    """Returns the first line of a docstring; empty without one."""
    return (inspect.getdoc(part) or "").partition("\n")[0]


def lazily(package: str, where: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the package's ``__getattr__`` and ``__dir__``; ``where`` says which of its modules has a name."""

    def attribute(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{where[name]}"), name)

    return attribute, lambda: sorted(where)


Kind = Literal["captioner", "scorer", "reward", "metric"]
GROUPS: Mapping[Kind, str] = {
    "captioner": "tellapart.captioners",
    "scorer": "tellapart.scorers",
    "reward": "tellapart.rewards",
    "metric": "tellapart.metrics",
}
PATTERN = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
OPTION = "--allow-code"
_allowed: set[str] = set()


def is_dotted(name: str) -> bool:
    """Returns whether this reads as ``module:factory``."""
    return re.match(PATTERN, name) is not None


def allow_code(*paths: str) -> None:
    """Allow these ``module:factory`` to run in this process. Raises `UsageError` for another form."""
    for path in paths:
        if not is_dotted(path):
            raise UsageError(f"{OPTION} '{path}' is no code; expected module:factory, as in {OPTION} my_captioner:make")
    _allowed.update(paths)


def allow_named_in(arguments: Iterable[str]) -> None:
    """Allow every ``module:factory`` in the arguments of a command line: the user typed it."""
    for argument in arguments:
        _allowed.update(re.findall(r"(?<![\w./])[A-Za-z_][\w.]*:[A-Za-z_]\w*", argument))


def allowed_code() -> list[str]:
    """Returns what is allowed to run in this process, for processes that do its work."""
    return sorted(_allowed)


def installed(kind: Kind) -> dict[str, str]:
    """The captioners, scorers or rewards of installed packages: ``module:factory`` by name."""
    return {entry.name: entry.value for entry in entry_points(group=GROUPS[kind])}


def code_path(name: str, kind: Kind) -> str | None:
    """The ``module:factory`` behind a name: itself, or that of an installed entry point; None for any other name."""
    if name == "scenes" or Path(name).exists():
        return None
    if is_dotted(name):
        return name
    return installed(kind).get(name) if re.match(r"^\w[\w.-]*$", name) else None


def check_allowed(path: str, kind: Kind, key: str) -> None:
    """Raises `UsageError`, with the option to type, where only ``key`` asks for ``path`` to run."""
    if path not in _allowed and path not in installed(kind).values():
        raise UsageError(
            f"{key} asks to run code, '{path}', which only the command line and installed packages may name; if you "
            f"trust it, add {OPTION} {path} to the command"
        )


def load_allowed(path: str, kind: Kind, key: str) -> Any:
    """Returns what ``module:name`` names, imported; ``key`` is what to call it in a message.

    Raises `UsageError` of one line where it is not allowed to run (`check_allowed`) or there is no such module or name.
    """
    check_allowed(path, kind, key)
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"{key}: no module '{error.name}'; expected one that python can import; "
            "type: PYTHONPATH=FOLDER before the command"
        ) from None
    except AttributeError:
        raise UsageError(f"{key}: module {module} has no '{name}'") from None
    except Exception as error:
        raise UsageError(f"{key} cannot be imported: {one_line(error)}") from error


def call_factory(path: str, kind: Kind, key: str, options: Mapping[str, Any]) -> Any:
    """Returns what ``module:factory`` makes of ``options``; ``key`` is what to call it in a message.

    Raises `UsageError` of one line where it cannot be loaded (`load_allowed`) or fails.
    """
    factory = load_allowed(path, kind, key)
    if isinstance(factory, Entry):
        factory = factory.factory
    try:
        return factory(**options)
    except Exception as error:
        call = ", ".join(f"{option}={value!r}" for option, value in options.items())
        raise UsageError(f"{key}: its call ({call}) failed: {one_line(error)}") from error


def one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
