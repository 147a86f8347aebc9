"""Picture features: each picture is encoded once, and its row is kept on disk.

`store` is the entry point and encodes missing rows. `row_makers` converts pictures to rows; `rows` stores them on disk;
`encoded_rows` transfers them to another machine. `feature_files` reads features that other programs wrote. `views`
provides a captioner's input: stored features, features from files, or rows that are recomputed on each access.
`nearest` finds nearest neighbours.
"""

from __future__ import annotations

from tellapart.features.feature_files import FeatureFiles
from tellapart.features.row_makers import encoder_rows
from tellapart.features.store import FeatureStore

__all__ = ["FeatureFiles", "FeatureStore", "encoder_rows"]
