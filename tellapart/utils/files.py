"""Small files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


def replace_text(path: Path, text: str, *, sync: bool = True, errors: str = "strict") -> None:
    """Write a file in UTF-8 so that it is either the old one or the new one, never half of it.

    A temporary file beside it, flushed to disk unless ``sync`` is off (for very many files), then renamed. ``errors``
    is what `str.encode` does with a character that UTF-8 has not. Raises `OSError`: the caller knows what to say.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("w", encoding="utf-8", errors=errors, newline="\n") as file:
            file.write(text)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):  # what went wrong is told by the first error
            temporary.unlink(missing_ok=True)


def readable_weights(folder: Path) -> None:
    """Gives the safetensors in and below ``folder`` the mode of any new file (644 by the usual umask).

    safetensors makes them readable by their owner alone. The umask cannot be asked without changing it for all threads;
    the mode of a file made for the purpose tells it.
    """
    probe = folder / f".mode.{os.getpid()}"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    probe.unlink()
    for file in folder.rglob("*.safetensors"):
        file.chmod(mode)
