"""Loads checkpoints that authors published: ClipCap's ``.pt`` files and BLIP's ``.pth`` files (also used by SMILE).

Also loads checkpoints from the code of papers 2 and 3, whose weights are nested in a game (``sender.clipcap.*``). All
of these files contain only weights. Options after the file name supply everything else: for ClipCap,
``coco_weights.pt?vision=NAME&language_model=NAME``; for BLIP, ``tokenizer=NAME``, ``image_size=N`` and ``prompt=TEXT``.
"""

from __future__ import annotations

from pathlib import Path

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.name_options import parse_options
from tellapart.captioners.new_clipcap import PARTS
from tellapart.captioners.official_blip import blip_from_state
from tellapart.captioners.official_clipcap import bare_clipcap, clipcap_from_state
from tellapart.captioners.published_weights import read_state
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.errors import TellapartError


def open_official(name: str, written: str) -> Captioner:
    """Loads the captioner ``FILE.pt``, ``FILE.pth`` or ``FILE.tar``. ``written``: its options.

    Skips keys that are not weights of the captioner, and reports them on stderr. Raises `TellapartError` if the file is
    not such a checkpoint, or if its shapes do not match the named models, and `UsageError` for unknown options.
    """
    path = Path(name).expanduser()
    state = bare_clipcap(read_state(path), path)
    if any(key.startswith("clip_project.") for key in state):
        return clipcap_from_state(state, path, **parse_options(written, PARTS, name))
    if any(key.startswith("text_decoder.") for key in state):
        known = {"tokenizer": str, "image_size": int, "prompt": str}
        return blip_from_state(state, path, **parse_options(written, known, name))
    some = ", ".join(list(state)[:3]) or "none"
    raise TellapartError(
        f"{path} is not a captioner's checkpoint: its weights are {some}; expected the weights of ClipCap "
        "(clip_project.*, gpt.*) or BLIP (visual_encoder.*, text_decoder.*)"
    )


CAPTIONERS.register(
    CaptionerEntry(
        name="official",
        factory=open_official,
        help="A published checkpoint in its authors' format.",
        takes=r"(?s:.*)\.(pth?|tar)",
    )
)
