"""Recipes from TOML files and plain tables, and back to TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from tellapart.errors import UsageError
from tellapart.recipe.deprecated import upgrade
from tellapart.recipe.error_messages import explain, shown
from tellapart.recipe.find import absolute
from tellapart.recipe.overrides import apply_override
from tellapart.recipe.schema import Recipe
from tellapart.utils.text import broken


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """A recipe from a TOML file with ``--set key.sub=value`` applied; names of other recipes become absolute paths.

    Raises `UsageError` that names the file, the key, and the nearest key that exists.
    """
    expected = "expected a TOML file such as recipes/scenes_sr_l.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise UsageError(f"no such recipe: {path}; {expected}") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); {expected}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not text in UTF-8; {expected}") from None
    except (ValueError, RecursionError) as error:  # also integers of thousands of digits and deep nesting
        raise UsageError(f"{path} is not TOML ({error}); {expected}") from None
    written_by_a_run = (path.parent / "run.json").is_file()  # nobody typed the old names in it
    table = upgrade(table, str(path), warn=not written_by_a_run)
    for override in overrides:
        apply_override(table, override)
    check_text(table, str(path))
    return check_recipe(table, str(path), path.parent)


def check_recipe(table: Mapping[str, Any], source: str, folder: Path | None = None) -> Recipe:
    """Validate a plain table; ``folder`` is where other recipes are looked for.

    Raises `UsageError` of one line, which starts with ``source``.
    """
    context = None if folder is None else {"folder": folder, "absolute": partial(absolute, folder=folder)}
    try:
        return Recipe.model_validate(upgrade(dict(table), source), context=context)
    except ValidationError as error:
        raise UsageError(f"{source}: {explain(error, Recipe)}") from None


def check_text(value: Any, source: str) -> None:
    """Raises `UsageError` where a key or a string of a recipe holds control characters, such as NUL in a path."""
    for text in (value, *(value if isinstance(value, dict) else ())):
        if isinstance(text, str) and (why := broken(text)) is not None:
            raise UsageError(f"{source}: {shown(text)} is {why}")
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        check_text(inner, source)


def to_toml(recipe: Recipe) -> str:
    """The resolved recipe, defaults included, as TOML that `read_recipe` reads back."""
    return tomli_w.dumps(recipe.model_dump(mode="json", exclude_none=True))
