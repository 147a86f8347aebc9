"""Gives a study's pictures addresses that reveal nothing about the pictures."""

from __future__ import annotations

import hashlib
import hmac
import threading
from pathlib import Path

MAX_ADDRESSES = 100_000  # kept in memory; the oldest address is dropped first, and its page requests a new state


class PictureAddresses:
    """Maps addresses, which are derived from a secret ``key``, to the pictures in ``folder``. Thread-safe."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder, self._key = folder, key
        self._names: dict[str, str] = {}
        self._lock = threading.Lock()

    def address(self, owner: str, trial: int, name: str) -> str:
        """Returns a picture's opaque address, which differs between participants and trials."""
        value = hmac.new(self._key, f"{owner}/{trial}/{name}".encode(), hashlib.sha256).hexdigest()[:32]
        with self._lock:
            self._names.pop(value, None)
            self._names[value] = name
            if len(self._names) > MAX_ADDRESSES:
                del self._names[next(iter(self._names))]
        return f"/pictures/{value}"

    def read(self, address: str) -> tuple[bytes, str] | None:
        """Returns the picture at an address, and its media type. Returns None for an unknown address."""
        name = self._names.get(address)
        if name is None:
            return None
        return (self._folder / name).read_bytes(), "image/png" if name.endswith("png") else "image/jpeg"
