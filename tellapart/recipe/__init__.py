"""Recipes: what to train, on what, how, and how to measure it.

`schema` is the recipe as a whole, `objectives` and `bags` its larger tables,
`error_messages` says in one line what is wrong with a table.
"""

from __future__ import annotations

from tellapart.utils.lazy import lazily

_WHERE = {"Recipe": "schema", "check_recipe": "schema", "read_recipe": "schema", "to_toml": "schema"}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
