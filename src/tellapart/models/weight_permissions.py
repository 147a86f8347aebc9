"""Sets the permissions of saved weights."""

from __future__ import annotations

import stat
from pathlib import Path

from tellapart.utils.atomic_writes import temporary_beside


def readable_weights(folder: Path) -> None:
    """Gives all safetensors files in and below ``folder`` the mode of a new file (644 with the usual umask).

    safetensors creates files that only the owner can read. The mode is taken from a temporary file, because reading the
    umask would change it for all threads.
    """
    probe = temporary_beside(folder / "mode")
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for file in folder.rglob("*.safetensors"):
        file.chmod(mode)
