"""What is wrong with a table that pydantic refused, in one line, with the nearest key that exists."""

from __future__ import annotations

import difflib
import re
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tellapart.errors import nearest

# Where a table lies, as pydantic says it: keys, and after a key that takes one of several tables the tag of the
# table that was taken, as in ("objective", "reinforce", "decoding").
Location = tuple[int | str, ...]
Tables = dict[Location, list[str]]


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The mistake to mend first. An unknown key goes before one that is missing, for it may be that one, misspelt."""
    mistakes = error.errors(include_url=False)
    first: Any = next((each for each in mistakes if each["type"] == "extra_forbidden"), mistakes[0])
    tables = tables_of(model)
    place: Location = tuple(part for part in first["loc"] if isinstance(part, str))  # a place in a list is no key
    key = typed(place, tables)
    if first["type"] == "extra_forbidden":
        return f"unknown key '{key}'{near(place, tables)}"
    if first["type"] == "missing" and isinstance(first["loc"][-1], str):
        return f"'{key}' is missing; add it, or type: --set {key}=…"
    if first["type"].startswith("union_tag"):
        found, kinds = first["ctx"].get("tag"), [str(at[-1]) for at in tables if at[:-1] == place]
        if found is None:
            return f"'{key}.kind' is missing; expected one of {', '.join(kinds)}"
        return f"unknown {key} '{found}'{nearest(found, kinds)}"
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        return f"{key}: {message}" if key else message
    return f"{key} {requirement(first)}; found {shown(first['input'])}"


def tables_of(model: type[BaseModel], place: Location = ()) -> Tables:
    """The keys of every table of ``model``, by location; a table stands before those inside it."""
    found: Tables = {place: list(model.model_fields)}
    for key, field in model.model_fields.items():
        for inner, discriminator in models_in(field.annotation, field.discriminator):
            tag = () if discriminator is None else get_args(inner.model_fields[str(discriminator)].annotation)
            found |= tables_of(inner, (*place, key, *tag))
    return found


def models_in(annotation: Any, discriminator: Any = None) -> list[tuple[type[BaseModel], Any]]:
    """The tables that a key may hold, or a list in it, each with the name of the key that says which it is."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [(annotation, discriminator)]
    for metadata in getattr(annotation, "__metadata__", ()):
        discriminator = getattr(metadata, "discriminator", None) or discriminator
    return [found for argument in get_args(annotation) for found in models_in(argument, discriminator)]


def typed(place: Location, tables: Tables) -> str:
    """A location as a person types it: what does not stand in a table (a tag, a list's index) is no key."""
    return ".".join(str(part) for n, part in enumerate(place) if place[:n] in tables)


def near(place: Location, tables: Tables) -> str:
    """A hint at the key that was meant: of the same table, or of another one that has it clearly nearer, nearer tables
    and those that stand less deep first."""
    table, name = place[:-1], str(place[-1])
    own = difflib.get_close_matches(name, tables[table], n=1)
    least = max(0.8, likeness(name, own[0]) + 0.1) if own else 0.8
    for at in sorted(tables, key=lambda other: (-shared(table, other), len(other))):
        close = difflib.get_close_matches(name, tables[at], n=1, cutoff=min(1.0, least))
        if close and likeness(name, close[0]) >= least and not excludes(table, at, tables):
            return f"; did you mean '{typed((*at, close[0]), tables)}'?"
    return nearest(name, tables[table])


def likeness(a: str, b: str) -> float:
    """Of two words, 0 to 1, as `difflib.get_close_matches` has it."""
    return difflib.SequenceMatcher(None, b, a).ratio()


def shared(a: Location, b: Location) -> int:
    """How many parts two locations have in common from the start."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def excludes(a: Location, b: Location, tables: Tables) -> bool:
    """Whether two tables cannot stand in one recipe: they part at a tag."""
    n = shared(a, b)
    return n < min(len(a), len(b)) and a[:n] not in tables


def requirement(mistake: Any) -> str:
    """What a value must be, such as ``must be greater than or equal to 1``."""
    if mistake["type"] in ("model_type", "model_attributes_type", "dict_type"):
        return "must be a table"
    if mistake["type"] == "tuple_type":
        return "must be a list"
    if mistake["type"] == "missing":
        return "has too few values"
    return re.sub(r"^\w+ should ", "must ", str(mistake["msg"]))


def shown(value: Any) -> str:
    """A value in a message: short, on one line."""
    if isinstance(value, dict):
        return "a table"
    text = repr(value)
    return text if len(text) <= 60 else text[:59] + "…"
