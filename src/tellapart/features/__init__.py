"""Features of pictures: each picture is encoded once, and the rows are kept on disk.

`store` is the way in, and keeps rows on disk. `views` reads features that other programs wrote, and gives a
captioner one of these as its input, or rows that are made anew each time; `nearest` searches nearest neighbours.
"""

from __future__ import annotations

from tellapart.utils.registry import lazily

_WHERE = {"FeatureFiles": "views", "FeatureStore": "store", "encoder_rows": "store"}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
