"""Reads recipes: TOML files, shipped names and overrides. Reports mistakes as one-line errors."""

from __future__ import annotations

import copy
import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, get_args, get_origin

import tomli_w
from pydantic import BaseModel, ValidationError

from tellapart.errors import UsageError, nearest
from tellapart.models.decoding import READ
from tellapart.recipe.schema import Recipe
from tellapart.utils.messages import say
from tellapart.utils.untrusted_text import broken

SHIPPED = Path(__file__).parent / "shipped"
PAPERS = (1, 2, 3, 4)


def shipped() -> dict[str, Path]:
    """Returns the recipes that ship with the package, by name: ``scenes_smile``, ``papers/smile_blip_coco``."""
    files = sorted(SHIPPED.glob("*.toml")) + sorted(SHIPPED.glob("papers/*.toml"))
    return {file.relative_to(SHIPPED).with_suffix("").as_posix(): file for file in files}


def absolute(name: str, folder: Path) -> str:
    """Returns the absolute path for a recipe's name: the file in ``folder`` or, if there is none, a shipped recipe."""
    if not name.endswith(".toml"):
        return name
    file = (folder / name).resolve()
    return str(file if file.is_file() else shipped().get(name.removesuffix(".toml"), file))


def shipped_recipe(name: str) -> Path | None:
    """Returns the shipped recipe of this name, with or without ``recipes/`` and ``.toml``; None if there is none."""
    return shipped().get(name.removesuffix(".toml").removeprefix("recipes/"))


def find_recipe(name: str | Path) -> Path:
    """Returns the file for ``name``: a path, or the name of a shipped recipe (``recipes/`` and ``.toml`` are optional).

    An existing file takes precedence. A path to a missing file is returned unchanged, so that reading it raises the
    error. Raises `UsageError`, with the nearest name, for an unknown recipe name.
    """
    path = Path(name)
    if path.is_file():
        return path
    if (ours := shipped_recipe(str(name))) is not None:
        return ours
    if path.suffix or len(path.parts) > 1 or path.exists():
        return path
    raise UsageError(
        f"unknown recipe '{name}'; expected a TOML file or a name that 'tellapart recipes' "
        f"lists{nearest(str(name), shipped())}"
    )


def descriptions() -> Iterator[tuple[str, str]]:
    """Yields the name and a one-line description of every shipped recipe."""
    for name, file in shipped().items():
        yield name, tomllib.loads(file.read_text(encoding="utf-8")).get("about", "")


@cache
def read_tables(paper: int) -> dict[str, Any]:
    """Reads the definitions of a paper's tables (`recipe.paper_tables`) as a plain dict."""
    return tomllib.loads((SHIPPED / "tables" / f"paper{paper}.toml").read_text(encoding="utf-8"))


def put_test_sets(table: dict[str, Any], source: str) -> None:
    """Replaces names such as "2:coco" in ``evaluation.test_sets`` with test sets from the papers' tables.

    Raises `UsageError` for an unknown test set.
    """
    evaluation = table.get("evaluation")
    tests = evaluation.get("test_sets") if isinstance(evaluation, dict) else None
    if not isinstance(tests, dict):
        return
    for key, name in tests.items():
        if not isinstance(name, str):
            continue
        paper, _, test = name.partition(":")
        if paper not in map(str, PAPERS):
            raise UsageError(
                f"{source}: evaluation.test_sets.{key} is '{name}'; expected a table with data = 'kind:path' or "
                "PAPER:NAME for a test set of the papers' tables, such as '2:coco'"
            )
        known = read_tables(int(paper))["tests"]
        if test not in known:
            raise UsageError(
                f"{source}: evaluation.test_sets.{key}: paper {paper} has no test set "
                f"'{test}'{nearest(test, known)}; known: {', '.join(known)}"
            )
        tests[key] = known[test]


def apply_override(table: dict[str, Any], setting: str) -> None:
    """Applies a setting such as ``training.steps=200`` to the table. A value that is not TOML is plain text.

    A relative path to another recipe is relative to the current folder. Raises `UsageError` for a malformed setting.
    """
    key, equals, text = setting.partition("=")
    keys = [part.strip() for part in key.split(".")]
    if not equals or not all(keys):
        raise UsageError(f"cannot parse --set {setting}; expected KEY=VALUE, for example --set training.steps=200")
    for parent in keys[:-1]:
        table = table.setdefault(parent, {})
        if not isinstance(table, dict):
            raise UsageError(f"--set {setting}: '{parent}' is a value, not a table, so it has no keys")
    last = keys[-1]
    table[last] = parse_value(text.strip())
    if last in ("name", "new"):  # an existing model replaces a new one, and vice versa
        table.pop({"name": "new", "new": "name"}[last], None)
    if keys[-2:] == ["decoding", "kind"]:
        leave_unread(table, setting)


def leave_unread(decoding: dict[str, Any], setting: str) -> None:
    """Drops the settings in a ``decoding`` table that its new kind does not use, and prints them."""
    read = READ.get(decoding["kind"]) if isinstance(decoding["kind"], str) else None
    for name in sorted(set().union(*READ.values()) - set(read)) if read is not None else ():
        if name in decoding:
            say(f"--set {setting}: ignored {name} = {decoding.pop(name)}, which this decoding does not use")


def parse_value(text: str) -> Any:
    """Parses a setting's value, and makes names of recipes absolute."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text
    if isinstance(value, list):
        return [absolute(entry, Path()) if isinstance(entry, str) else entry for entry in value]
    return absolute(value, Path()) if isinstance(value, str) else value


# The location of a table in pydantic's form: keys, where a key of a tagged union is followed by the tag, e.g.
# ("objective", "reinforce", "decoding").
Location = tuple[int | str, ...]
Tables = dict[Location, list[str]]
NAMED = "*"  # placeholder in a location for a table name that the user chose


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Describes the first mistake to fix.

    Unknown keys come before missing ones, because an unknown key can be a misspelling of the missing one.
    """
    mistakes = error.errors(include_url=False)
    first: Any = next((each for each in mistakes if each["type"] == "extra_forbidden"), mistakes[0])
    tables = tables_of(model)
    place: Location = tuple(part for part in first["loc"] if isinstance(part, str))  # an index in a list is not a key
    place, names = without_names(place, tables)
    key = with_names(typed(place, tables), names)
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'{with_names(near(place, tables), names)}"
    if first["type"] == "missing" and isinstance(first["loc"][-1], str):
        return f"'{key}' is missing; add it to the recipe or pass --set {key}=…"
    if first["type"].startswith("union_tag"):
        tag, kinds = first["ctx"].get("tag"), [str(at[-1]) for at in tables if at[:-1] == place]
        if tag is None:
            return f"'{key}.kind' is missing; expected one of {', '.join(kinds)}"
        return f"unknown {key} '{tag}'{nearest(tag, kinds)}"
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        return f"{key}: {message}" if key else message
    return f"{key} {requirement(first)}; found {shown(first['input'])}"


def tables_of(model: type[BaseModel], place: Location = ()) -> Tables:
    """Returns the keys of every table in ``model``, by location. Outer tables come before inner ones."""
    tables: Tables = {place: list(model.model_fields)}
    for key, field in model.model_fields.items():
        if get_origin(field.annotation) is dict and (inside := models_in(field.annotation)):
            tables |= {(*place, key): []} | tables_of(inside[0][0], (*place, key, NAMED))
            continue
        for inner, discriminator in models_in(field.annotation, field.discriminator):
            tag = () if discriminator is None else get_args(inner.model_fields[str(discriminator)].annotation)
            tables |= tables_of(inner, (*place, key, *tag))
    return tables


def models_in(annotation: Any, discriminator: Any = None) -> list[tuple[type[BaseModel], Any]]:
    """Returns the tables that a key, or the list under it, can contain, each with the name of its discriminator."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(annotation, discriminator)]
    for metadata in getattr(annotation, "__metadata__", ()):
        discriminator = getattr(metadata, "discriminator", None) or discriminator
    return [inner for argument in get_args(annotation) for inner in models_in(argument, discriminator)]


def without_names(place: Location, tables: Tables) -> tuple[Location, list[str]]:
    """Replaces user-chosen names in a location with `NAMED`. Returns the location and the names."""
    walked: Location = ()
    names = []
    for part in place:
        if (*walked, NAMED) in tables:
            names.append(str(part))
            part = NAMED
        walked = (*walked, part)
    return walked, names


def with_names(text: str, names: Sequence[str]) -> str:
    """Replaces each `NAMED` in the text with its name."""
    for name in names:
        text = text.replace(NAMED, name, 1)
    return text


def typed(place: Location, tables: Tables) -> str:
    """Formats a location as a user would type it, without tags and list indices."""
    return ".".join(str(part) for n, part in enumerate(place) if place[:n] in tables)


def near(place: Location, tables: Tables) -> str:
    """Returns a hint with the probably intended key: in the same table, or a clearly closer match in another table.

    Prefers tables that are nearer and less deeply nested."""
    table, name = place[:-1], str(place[-1])
    close_here = difflib.get_close_matches(name, tables[table], n=1)
    least = max(0.8, likeness(name, close_here[0]) + 0.1) if close_here else 0.8
    for at in sorted(tables, key=lambda other: (-shared(table, other), len(other))):
        close = difflib.get_close_matches(name, tables[at], n=1, cutoff=min(1.0, least))
        if close and likeness(name, close[0]) >= least and not excludes(table, at, tables):
            return f"; did you mean '{typed((*at, close[0]), tables)}'?"
    return nearest(name, tables[table])


def likeness(a: str, b: str) -> float:
    """Returns the similarity of two words, 0 to 1, as in `difflib.get_close_matches`."""
    return difflib.SequenceMatcher(None, b, a).ratio()


def shared(a: Location, b: Location) -> int:
    """Returns the length of the common prefix of two locations."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def excludes(a: Location, b: Location, tables: Tables) -> bool:
    """Returns whether two tables exclude each other, that is, their locations differ at a tag."""
    n = shared(a, b)
    return n < min(len(a), len(b)) and a[:n] not in tables


def requirement(mistake: Any) -> str:
    """Describes the requirement on a value, e.g. ``must be greater than or equal to 1``."""
    if mistake["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "must be a table"
    if mistake["type"] == "tuple_type":
        return "must be a list"
    if mistake["type"] == "missing":
        return "has too few values"
    return re.sub(r"^\w+ should ", "must ", str(mistake["msg"]))


def shown(value: Any) -> str:
    """Shortens a value to one line for a message."""
    if isinstance(value, dict):
        return "a table"
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe from a TOML file, and applies ``--set key.sub=value``. Names of recipes become absolute paths.

    Raises a `UsageError` that names the file, the key and the most similar existing key.
    """
    expected = "expected a TOML file such as recipes/scenes_sr_l.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"recipe {path} does not exist; {expected}") from None
    except OSError as error:
        raise UsageError(f"cannot read recipe {path} ({error.strerror}); {expected}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not UTF-8 text; {expected}") from None
    except (ValueError, RecursionError) as error:  # including huge integers and deep nesting
        raise UsageError(f"{path} is not valid TOML ({error}); {expected}") from None
    for override in overrides:
        apply_override(table, override)
    check_text(table, str(path))
    return check_recipe(table, str(path), path.parent)


def check_recipe(table: Mapping[str, Any], source: str, folder: Path | None = None) -> Recipe:
    """Validates a plain table. ``folder``: where to look for other recipes.

    Raises a one-line `UsageError` that starts with ``source``.
    """
    copied = copy.deepcopy(dict(table))
    put_test_sets(copied, source)
    context = None if folder is None else {"folder": folder, "absolute": partial(absolute, folder=folder)}
    try:
        return Recipe.model_validate(copied, context=context)
    except ValidationError as error:
        raise UsageError(f"{source}: {explain(error, Recipe)}") from None


def check_text(value: Any, source: str) -> None:
    """Raises `UsageError` if a key or string in a recipe contains control characters, e.g. NUL in a path."""
    for text in (value, *(value if isinstance(value, dict) else ())):
        if isinstance(text, str) and (why := broken(text)) is not None:
            raise UsageError(f"{source}: {shown(text)} is {why}")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_text(inner, source)


def to_toml(recipe: Recipe) -> str:
    """Returns the resolved recipe, including defaults, as TOML that `read_recipe` can read."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True))
