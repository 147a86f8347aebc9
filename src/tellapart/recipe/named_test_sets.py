"""Looks up test sets of the papers' tables by name."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

from tellapart.errors import UsageError, nearest
from tellapart.recipe.shipped_recipes import SHIPPED

PAPERS = (1, 2, 3, 4)


@cache
def read_tables(paper: int) -> dict[str, Any]:
    """Reads the definitions of a paper's tables (see `recipe.paper_tables`) as a plain dict."""
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
                f"{source}: evaluation.test_sets.{key} is '{name}'; expected a table with data = 'kind:path', or "
                "PAPER:NAME for a test set of the papers' tables, such as '2:coco'"
            )
        known = read_tables(int(paper))["tests"]
        if test not in known:
            raise UsageError(
                f"{source}: evaluation.test_sets.{key}: paper {paper} has no test set "
                f"'{test}'{nearest(test, known)}; known: {', '.join(known)}"
            )
        tests[key] = known[test]
