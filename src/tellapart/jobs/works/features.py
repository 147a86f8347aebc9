"""The work of encoding: the features of a shard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tellapart.data import Dataset
from tellapart.features.encoded_rows import encode_rows
from tellapart.features.store import FeatureStore
from tellapart.jobs.works.base import Done
from tellapart.scorers import load_scorer
from tellapart.scorers.base import Scorer
from tellapart.utils.allowed_code import allow_code


@dataclass(frozen=True)
class Features:
    """Computes image features with one scorer, in the ``.npz`` format of `tellapart.features.encoded_rows`.

    ``code``: the user code that may run.
    """

    scorer: str
    device: str
    precision: str
    code: list[str]

    @cached_property
    def _loaded(self) -> Scorer:
        allow_code(*self.code)
        return load_scorer(self.scorer, self.device, self.precision)

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        return {"scorer_weights": self._loaded.fingerprint, "precision": self._loaded.encoder.precision}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""

        rows, errors = encode_rows(FeatureStore().table, list(dataset), self._loaded.encoder)
        for item, error in errors:
            dataset.unreadable.add_error(item.picture.name, error)
        rows.save(out)
        return Done.of(dataset, len(rows.ids))
