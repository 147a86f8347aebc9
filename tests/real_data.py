"""Where the real data lie: ``../shared/data``, or ``$TELLAPART_DATA``."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("TELLAPART_DATA") or Path(__file__).parents[2] / "shared" / "data")
