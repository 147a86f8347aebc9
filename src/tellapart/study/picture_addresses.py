"""Addresses for a study's pictures that reveal nothing about them."""

from __future__ import annotations

import hashlib
import hmac
import threading
from collections import OrderedDict
from pathlib import Path

PICTURES_KNOWN = 100_000  # addresses in memory


class PictureAddresses:
    """The pictures in ``folder``, under addresses derived from a secret ``key``. Thread-safe."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder, self._key = folder, key
        self._names: OrderedDict[str, str] = OrderedDict()
        self._lock = threading.Lock()

    def address(self, owner: str, trial: int, name: str) -> str:
        """Returns a picture's opaque address, which differs between participants and trials."""
        value = hmac.new(self._key, f"{owner}/{trial}/{name}".encode(), hashlib.sha256).hexdigest()[:32]
        with self._lock:
            self._names[value] = name
            self._names.move_to_end(value)
            while len(self._names) > PICTURES_KNOWN:
                self._names.popitem(last=False)
        return f"/pictures/{value}"

    def read(self, address: str) -> tuple[bytes, str] | None:
        """Returns the picture at a known address and its media type; None for any other address."""
        with self._lock:
            name = self._names.get(address)
        if name is None:
            return None
        return (self._folder / name).read_bytes(), "image/png" if name.endswith("png") else "image/jpeg"
