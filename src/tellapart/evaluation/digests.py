"""Short hashes of an evaluation's inputs, for signatures."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def short_digest(value: Any) -> str:
    """Returns an eight-digit hex hash of bytes or of a JSON value."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return hashlib.blake2b(content, digest_size=4).hexdigest()
