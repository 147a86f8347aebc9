"""Converts recipes from and to TOML."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from tellapart.errors import UsageError, nearest
from tellapart.recipe.mistakes import explain, shown
from tellapart.recipe.overrides import apply_override
from tellapart.recipe.paper_tables import PAPERS, read_paper
from tellapart.recipe.schema import Recipe
from tellapart.recipe.shipped_recipes import absolute
from tellapart.utils.untrusted_text import broken


def read_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Reads a recipe from a TOML file and applies overrides such as ``training.steps=200``.

    Names of recipes become absolute paths. Raises a `UsageError` that names the file, the key and the most similar
    existing key.
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
    except (ValueError, RecursionError) as error:  # also raised for huge integers and deep nesting
        raise UsageError(f"{path} is not valid TOML ({error}); {expected}") from None
    for override in overrides:
        apply_override(table, override)
    check_text(table, str(path))
    return check_recipe(table, str(path), path.parent)


def check_recipe(table: Mapping[str, Any], source: str, folder: Path | None = None) -> Recipe:
    """Validates a plain table. Raises a one-line `UsageError` that starts with ``source``.

    ``folder``: the folder in which to look for other recipes.
    """
    copied = copy.deepcopy(dict(table))
    evaluation = copied.get("evaluation")
    if isinstance(evaluation, dict) and isinstance(tests := evaluation.get("test_sets"), dict):
        for key, name in tests.items():
            if isinstance(name, str):
                tests[key] = named_test_set(name, f"{source}: evaluation.test_sets.{key}")
    context = None if folder is None else {"folder": folder, "absolute": partial(absolute, folder=folder)}
    try:
        return Recipe.model_validate(copied, context=context)
    except ValidationError as error:
        raise UsageError(f"{source}: {explain(error, Recipe)}") from None


def named_test_set(name: str, key: str) -> dict[str, Any]:
    """Returns the test set of the papers' tables with a name such as "2:coco". Raises `UsageError` for other names."""
    number, _, test = name.partition(":")
    if number not in map(str, PAPERS):
        raise UsageError(
            f"{key} is '{name}'; expected a table with data = 'kind:path', or "
            "PAPER:NAME for a test set of the papers' tables, such as '2:coco'"
        )
    known = read_paper(int(number)).tests
    if test not in known:
        raise UsageError(
            f"{key}: paper {number} has no test set '{test}'{nearest(test, known)}; known: {', '.join(known)}"
        )
    return known[test].model_dump(exclude_unset=True)


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
