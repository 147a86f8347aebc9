"""The work of encoding: the features of a shard."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tellapart.data import Dataset
from tellapart.features.encoded import encode_rows
from tellapart.features.store import FeatureStore
from tellapart.jobs.works.base import Done
from tellapart.scorers import load_scorer
from tellapart.scorers.base import Scorer
from tellapart.utils.allowed_code import allow_code

SUFFIX = ".npz"


@dataclass(frozen=True)
class Features:
    """Computes image features with one scorer, in the ``.npz`` format of `tellapart.features.encoded`."""

    scorer: Scorer

    @classmethod
    def open(cls, scorer: str, device: str, precision: str, code: list[str]) -> Features:
        """Loads the named scorer. ``code``: the user code that may run."""

        allow_code(*code)
        return cls(load_scorer(scorer, device, precision))

    def models(self) -> dict[str, Any]:
        """See `Work`."""
        return {"scorer_weights": self.scorer.fingerprint, "precision": self.scorer.encoder.precision}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `Work`."""

        rows, errors = encode_rows(FeatureStore().table, list(dataset), self.scorer.encoder)
        for item, error in errors:
            dataset.unreadable.add_error(item.picture.name, error)
        rows.save(out)
        return Done.of(dataset, len(rows.ids))
