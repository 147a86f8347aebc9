"""Finds or writes the caption file of a captioner that an evaluation names."""

from __future__ import annotations

import re
from pathlib import Path

from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.inference.options import CaptionOptions
from tellapart.inference.plan import plan_captions
from tellapart.inference.run_plan import caption_folder
from tellapart.models.names import is_server


def captions_of(name: str, data: str, device: str = "auto") -> Path:
    """Returns the file with a captioner's captions for ``data``, after writing the captions that are missing.

    The file and the system are named after the captioner. Otherwise, this is ``tellapart caption`` without options, and
    raises the same errors.
    """
    out = f"{system_name(name)}.jsonl"
    options = CaptionOptions(out=out)
    device = "auto" if is_server(name) else device
    caption_folder(plan_captions(name, options), open_data(data), options, device, "auto")
    return Path(out)


def system_name(captioner: str) -> str:
    """Returns the last part of a captioner's name in a form that suits a file name: ``vlm-2-7b`` for
    ``openai:org/vlm-2:7b@URL?key=K``, ``apart-detail-0.5`` for ``runs/apart?detail=0.5``.
    """
    bare, _, options = captioner.partition("?")
    if is_server(captioner):
        bare = bare.partition("@http")[0].partition(":")[2]
    else:
        chosen = [pair.replace("=", "-") for pair in options.split("&") if pair.startswith("detail=")]
        bare = "-".join([bare.rstrip("/"), *chosen])
    found = re.sub(r"[^\w.-]+", "-", bare.rstrip("/").rpartition("/")[2]).strip("-.")
    if not found:
        raise UsageError(
            f"--captioner '{captioner}': missing name; expected a folder, run, hub name, or openai:MODEL@URL"
        )
    return found
