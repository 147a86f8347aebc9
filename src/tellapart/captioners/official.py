"""Loads checkpoints that authors published: ClipCap's ``.pt`` files and BLIP's ``.pth`` files (also used by SMILE).

Also loads checkpoints from the code of papers 2 and 3, whose weights are nested in a game (``sender.clipcap.*``). All
of these files contain only weights. Options after the file name supply everything else: for ClipCap,
``coco_weights.pt?vision=NAME&language_model=NAME``; for BLIP, ``tokenizer=NAME``, ``image_size=N`` and ``prompt=TEXT``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.name_options import parse_options
from tellapart.captioners.new_clipcap import CLIP, GPT2, build_clipcap
from tellapart.captioners.official_blip import blip_from_state
from tellapart.captioners.official_clipcap import bare_clipcap, clipcap_from_state
from tellapart.captioners.published_weights import read_state
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.errors import TellapartError, UsageError

PARTS = {"vision": str, "language_model": str, "mapper": str, "prefix_length": int, "stop": str}


def open_official(name: str, written: str) -> Captioner:
    """Loads the captioner ``FILE.pt``, ``FILE.pth``, ``FILE.tar`` or ``clipcap``. ``written``: its options."""
    if name == "clipcap":
        return build_clipcap(**new_clipcap(written))
    return load_official(Path(name).expanduser(), lambda known: parse_options(written, known, name))


def new_clipcap(written: str) -> dict[str, Any]:
    """Returns the arguments of a new ClipCap. Raises `UsageError` for an unknown mapper."""
    parts = {"vision": CLIP, "language_model": GPT2, "mapper": "mlp"} | parse_options(written, PARTS, "clipcap")
    if parts["mapper"] not in ("mlp", "transformer"):
        raise UsageError(f"clipcap: mapper must be 'mlp' or 'transformer'; got '{parts['mapper']}'")
    return {**parts, "name": "clipcap"}


def load_official(path: Path, options: Callable[[Mapping[str, Any]], dict[str, Any]]) -> Captioner:
    """Loads a published checkpoint. ``options(known)`` parses the options after the file name.

    Skips keys that are not weights of the captioner, and reports them on stderr. Raises `TellapartError` if the file is
    not such a checkpoint, or if its shapes do not match the named models.
    """
    state = bare_clipcap(read_state(path), path)
    if any(key.startswith("clip_project.") for key in state):
        return clipcap_from_state(state, path, **options({"vision": str, "language_model": str, "stop": str}))
    if any(key.startswith("text_decoder.") for key in state):
        return blip_from_state(state, path, **options({"tokenizer": str, "image_size": int, "prompt": str}))
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
        takes=r"(?s:.*)\.(pth?|tar)|clipcap",
    )
)
