"""The registry of captioners: which families of models there are, and how each is loaded.

A family is a module of `tellapart.captioners.families` that registers a `CaptionerEntry` under the ``model_type`` of
its ``config.json``. An installed package adds one, or a captioner of another make, by an entry point of the group
``tellapart.captioners``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tellapart.captioners.base import Captioner
from tellapart.models.loading import load_whole
from tellapart.utils.registry import Entry, Registry


@dataclass(frozen=True, kw_only=True)
class CaptionerEntry(Entry[Callable[..., Any]]):
    """With ``model_type`` ``factory(folder) -> (model, class of captioner)`` loads any model folder of that type.

    Otherwise ``factory(**options) -> Captioner`` is called with what follows the name, ``NAME?key=value``.
    """

    model_type: bool = False


def pretrained(classes: Callable[[], tuple[Any, type[Captioner]]]) -> Callable[[str], tuple[Any, type[Captioner]]]:
    """A factory for ``model_type``: loads a folder, in float32. ``classes`` imports the model's and the captioner's."""

    def load(folder: str) -> tuple[Any, type[Captioner]]:
        import torch

        model, captioner = classes()
        return load_whole(model, folder, dtype=torch.float32), captioner

    return load


CAPTIONERS: Registry[CaptionerEntry] = Registry(
    "captioner", CaptionerEntry, group="tellapart.captioners", package="tellapart.captioners.families"
)


def load_family(model_type: str, folder: str) -> tuple[Any, type[Captioner]] | None:
    """The model in a folder and the class of its captioner; None where no family is registered for its type."""
    if model_type not in CAPTIONERS or not (entry := CAPTIONERS.find(model_type)).model_type:
        return None
    loaded: tuple[Any, type[Captioner]] = entry.factory(folder)
    return loaded
