"""Features of pictures: each picture is encoded once, and the rows are kept on disk.

`store` encodes and keeps, `row_store` is the format on disk, `files` reads features that other programs wrote, `views`
says which of these a captioner looks at.
"""

from __future__ import annotations

from tellapart.utils.lazy import lazily

_WHERE = {"FeatureFiles": "files", "FeatureStore": "store", "encoder_rows": "store", "pixel_rows": "store"}

__all__ = sorted(_WHERE)
__getattr__, __dir__ = lazily(__name__, _WHERE)
