"""A captioner as a system of an evaluation: its captions of a data set, in a file that a second evaluation reads."""

from __future__ import annotations

import re
from pathlib import Path

from tellapart.data import Dataset, open_data
from tellapart.errors import UsageError
from tellapart.inference.caption import caption_pictures
from tellapart.inference.server import MAX_TOKENS, caption_by_server, is_server
from tellapart.models.decoding import Decoding
from tellapart.utils.messages import say

BEAMS, LOCAL_TOKENS = 5, 30  # as `tellapart caption` decodes


def captions_of(name: str, data: str, device: str = "auto", precision: str = "auto") -> Path:
    """The file with the captions of ``data`` by a captioner; what it lacks is written now.

    The file is called after the captioner, and so is its system. A model behind a server writes greedy captions of at
    most 256 tokens, one of this machine five beams of at most 30. Raises as `caption_pictures` and `caption_by_server`,
    and `UsageError` where a file of that name has captions of other settings.
    """
    out, dataset = Path(f"{system_name(name)}.jsonl"), open_data(data)
    if is_server(name):
        summary = caption_by_server(name, dataset, out, decoding=Decoding(max_tokens=MAX_TOKENS))
        for line in summary.lines():
            say(line)
        summary.refuse_unanswered()
    else:
        _caption(name, dataset, out, device, precision)
    for line in dataset.report():
        say(line)
    dataset.refuse_mostly_unreadable()
    return out


def system_name(captioner: str) -> str:
    """The last part of a captioner's name, fit for a file: ``openai:org/vlm-2:7b@URL?key=K`` is ``vlm-2-7b``."""
    bare = captioner.partition("?")[0]
    if is_server(captioner):
        bare = bare.partition("@http")[0].partition(":")[2]
    found = re.sub(r"[^\w.-]+", "-", bare.rstrip("/").rpartition("/")[2]).strip("-.")
    if not found:
        raise UsageError(f"--captioner '{captioner}' has no name; type a folder, run, hub name, or openai:MODEL@URL")
    return found


def _caption(name: str, dataset: Dataset, out: Path, device: str, precision: str) -> None:
    from tellapart.captioners import load_captioner
    from tellapart.inference.caption import nothing_left
    from tellapart.models.device import resolve_device, resolve_precision

    decoding = Decoding(kind="beam", beams=BEAMS, max_tokens=LOCAL_TOKENS)
    place = resolve_device(device)
    precision = resolve_precision(precision, place)
    if not nothing_left(dataset, out, name, decoding=decoding, precision=precision):
        caption_pictures(load_captioner(name, place, precision), dataset, out, decoding=decoding)
