"""Features of pictures: each picture is encoded once, and the rows are kept on disk.

`store` is the way in and encodes what is missing; `rows` keeps rows on disk, and `encoded` carries them to another
machine. `views` reads features that other programs wrote, and gives a captioner one of these as its input, or rows that
are made anew each time; `nearest` searches nearest neighbours.
"""

from __future__ import annotations

from tellapart.features.filling import encoder_rows
from tellapart.features.store import FeatureStore
from tellapart.features.views import FeatureFiles

__all__ = ["FeatureFiles", "FeatureStore", "encoder_rows"]
