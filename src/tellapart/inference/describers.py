"""Describers for `tellapart.boost`: chat models, captioners of every family, and files of captions.

openai:MODEL@URL, local:FOLDER, scripted   chat models (`tellapart.boost.backends`)
local:NAME                                 a captioner without a chat template: InstructBLIP, BLIP, …
file:CAPTIONS                              existing captions, e.g. from ``tellapart caption``
"""

from __future__ import annotations

from pathlib import Path

from tellapart.boost.backends import open_backend
from tellapart.boost.local import has_chat_template
from tellapart.boost.types import Backend
from tellapart.captioners import load
from tellapart.data import Dataset
from tellapart.inference.caption_file_backend import CaptionFileBackend
from tellapart.inference.captioner_backend import CaptionerBackend


def open_backends(
    llm: str | None, mllm: str | None, dataset: Dataset | None, device: str = "auto", precision: str = "auto"
) -> tuple[Backend | None, Backend | None]:
    """Returns the model that blends descriptions, and the model that describes the pictures in ``dataset``. Each is
    None if it is not named.

    If both have the same name, they share one backend, so a local model is loaded only once, and a server's rate limit
    applies to both.
    """
    blends = open_backend(llm, device, precision) if llm else None
    if not mllm or mllm == llm:
        return blends, blends if mllm else None
    return blends, open_describer(mllm, dataset, device, precision)


def open_describer(spec: str, dataset: Dataset | None, device: str = "auto", precision: str = "auto") -> Backend:
    """Opens the describer that a specification (see the module docstring) names, for the pictures in ``dataset``.

    Raises `UsageError` if the specification is invalid, or if the file contains no captions for these pictures.
    """
    kind, _, rest = spec.partition(":")
    if kind == "file":
        return CaptionFileBackend.open(rest, dataset)
    if kind == "local" and rest and _is_captioner(rest):
        return CaptionerBackend(load.load_captioner(rest, device, precision))
    return open_backend(spec, device, precision)


def _is_captioner(name: str) -> bool:
    """Returns whether a name contains options for a captioner, is a published checkpoint, or is a model without a chat
    template.
    """
    return "?" in name or Path(name).suffix in (".pt", ".pth") or not has_chat_template(name)
