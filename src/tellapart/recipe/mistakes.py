"""Explains mistakes in a recipe, each in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from tellapart.errors import nearest

# The location of a table in pydantic's format: its keys, where the key of a tagged union is followed by the tag, e.g.
# ("objective", "reinforce", "decoding").
Location = tuple[int | str, ...]
Tables = dict[Location, list[str]]
NAMED = "*"  # placeholder in a location for a table name that the user chose


def explain(error: ValidationError, model: type[BaseModel]) -> str:
    """Describes the first mistake to fix.

    Unknown keys come before missing keys, because an unknown key can be a misspelled version of a missing key.
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
    """Returns the keys of every table in ``model``, by location. Outer tables come before inner tables."""
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
    """Returns the tables that a key (or the list under that key) can contain, each with its discriminator's name."""
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
    """Formats a location as a user would type it, without tags or list indices."""
    return ".".join(str(part) for n, part in enumerate(place) if place[:n] in tables)


def near(place: Location, tables: Tables) -> str:
    """Returns a hint with the key that the user probably meant.

    This is the closest match in the same table, unless another table has a clearly closer match. Prefers tables that
    are nearer and less deeply nested.
    """
    table, name = place[:-1], str(place[-1])
    close_here = difflib.get_close_matches(name, tables[table], n=1)
    least = max(0.8, likeness(name, close_here[0]) + 0.1) if close_here else 0.8
    for at in sorted(tables, key=lambda other: (-shared(table, other), len(other))):
        close = difflib.get_close_matches(name, tables[at], n=1, cutoff=min(1.0, least))
        if close and likeness(name, close[0]) >= least and not excludes(table, at, tables):
            return f"; did you mean '{typed((*at, close[0]), tables)}'?"
    return nearest(name, tables[table])


def likeness(a: str, b: str) -> float:
    """Returns the similarity of two words, from 0 to 1, as in `difflib.get_close_matches`."""
    return difflib.SequenceMatcher(None, b, a).ratio()


def shared(a: Location, b: Location) -> int:
    """Returns the length of the common prefix of two locations."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def excludes(a: Location, b: Location, tables: Tables) -> bool:
    """Returns True if two tables exclude each other, that is, if their locations differ at a tag."""
    n = shared(a, b)
    return n < min(len(a), len(b)) and a[:n] not in tables


def requirement(mistake: Any) -> str:
    """Describes the requirement that a value violates, e.g. ``must be greater than or equal to 1``."""
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
