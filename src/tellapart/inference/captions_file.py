"""Finds or writes the caption file of a captioner that an evaluation names."""

from __future__ import annotations

import re
from pathlib import Path

from tellapart.captioners import load_captioner
from tellapart.captions.earlier_run import is_complete
from tellapart.data import Dataset, open_data
from tellapart.errors import UsageError
from tellapart.inference.caption import caption_pictures
from tellapart.inference.run_settings import caption_request
from tellapart.inference.server import MAX_TOKENS, caption_by_server
from tellapart.models.captioner_options import default_decoding
from tellapart.models.decoding import Decoding
from tellapart.models.devices import resolve_device
from tellapart.models.names import is_server
from tellapart.models.precision import resolve_precision
from tellapart.utils.messages import say


def captions_of(name: str, data: str, device: str = "auto") -> Path:
    """Returns the file with a captioner's captions for ``data``, after writing the captions that are missing.

    The file and the system are named after the captioner. A model behind a server decodes greedily, up to 256 tokens. A
    model on this machine uses the decoding settings saved with it, by default five beams and at most 30 tokens. Raises
    the same errors as `caption_pictures` and `caption_by_server`, and `UsageError` if a file with that name contains
    captions that were written with different settings.
    """
    out, dataset = Path(f"{system_name(name)}.jsonl"), open_data(data)
    if is_server(name):
        summary = caption_by_server(name, dataset, out, decoding=Decoding(max_tokens=MAX_TOKENS))
        for line in summary.lines():
            say(line)
        summary.refuse_unanswered()
    else:
        _caption_here(name, dataset, out, device)
    for line in dataset.report():
        say(line)
    dataset.refuse_mostly_unreadable()
    return out


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


def _caption_here(name: str, dataset: Dataset, out: Path, device: str) -> None:
    decoding = default_decoding(name)
    place = resolve_device(device)
    precision = resolve_precision("auto", place)
    if not is_complete(dataset, out, None, caption_request(dataset.spec, name, decoding, precision=precision)):
        for line in caption_pictures(load_captioner(name, place, precision), dataset, out, decoding=decoding).lines():
            say(line)
