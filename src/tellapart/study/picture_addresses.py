"""Addresses for a study's pictures that reveal nothing about them."""

from __future__ import annotations

import hashlib
import hmac
import threading
from pathlib import Path

MAX_ADDRESSES = 100_000  # in memory; the oldest is dropped first, and its page asks for its state again


class PictureAddresses:
    """The pictures in ``folder``, under addresses derived from a secret ``key``. Thread-safe."""

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
        """Returns the picture at a known address and its media type; None for any other address."""
        name = self._names.get(address)
        if name is None:
            return None
        return (self._folder / name).read_bytes(), "image/png" if name.endswith("png") else "image/jpeg"
