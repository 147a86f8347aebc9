"""The registry of captioner families. Modules in this package and installed packages register families in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tellapart.utils.registry import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class CaptionerEntry(Entry[Callable[..., Any]]):
    """Registry entry for a captioner family.

    If ``model_type`` is set, ``factory(folder) -> (model, captioner class)`` loads any model folder of that type. If
    ``takes`` is set, ``factory(name, options as typed) -> Captioner`` loads the names that this pattern matches
    entirely. If neither is set, ``factory(**options) -> Captioner`` gets the options from ``NAME?key=value``. The entry
    ``transformers`` loads model folders whose type has no entry: ``factory(folder, type, name, dtype)``.
    """

    model_type: bool = False
    takes: str = ""


# Modules in this package register a family under the ``model_type`` in its ``config.json``. Installed packages add
# families or other captioners through an entry point in the group.
CAPTIONERS: Registry[CaptionerEntry] = Registry(
    "captioner", CaptionerEntry, group="tellapart.captioners", packages=("tellapart.captioners",)
)
