"""The registry of captioner families, to which modules of this package and installed packages add theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tellapart.utils.registry import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class CaptionerEntry(Entry[Callable[..., Any]]):
    """Registry entry for a captioner family.

    With ``model_type``, ``factory(folder) -> (model, captioner class)`` loads any model folder of that type. With
    ``takes``, a pattern that matches whole names, ``factory(name, options as typed) -> Captioner`` loads these names.
    Otherwise ``factory(**options) -> Captioner`` gets the options from ``NAME?key=value``. The entry ``transformers``
    loads model folders whose type has no entry: ``factory(folder, type, name, dtype)``.
    """

    model_type: bool = False
    takes: str = ""


# Modules of this package register a family under the ``model_type`` of its ``config.json``. Installed packages add
# families or other captioners through an entry point in the group.
CAPTIONERS: Registry[CaptionerEntry] = Registry(
    "captioner", CaptionerEntry, group="tellapart.captioners", packages=("tellapart.captioners",)
)
