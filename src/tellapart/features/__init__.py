"""Picture features: encodes each picture once and keeps the rows on disk.

`store` is the entry point and encodes missing rows. `rows` stores rows on disk; `encoded` transfers them to another
machine. `views` provides a captioner's input: stored features, feature files written by other programs, or rows that
are recomputed each time. `nearest` searches nearest neighbours.
"""

from __future__ import annotations

from tellapart.features.filling import encoder_rows
from tellapart.features.store import FeatureStore
from tellapart.features.views import FeatureFiles

__all__ = ["FeatureFiles", "FeatureStore", "encoder_rows"]
