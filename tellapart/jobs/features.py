"""The work of ``tellapart encode``: features of a shard's pictures, as rows for a feature store.

``eval`` and ``bags mine`` share this work among their workers, and take the rows into the store of the machine that
goes on: what comes after is the plain command, which finds them there.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tellapart.data import Dataset
from tellapart.errors import UsageError
from tellapart.jobs.job import Job
from tellapart.jobs.merge import wanted_shards
from tellapart.jobs.storage import open_folder
from tellapart.jobs.works import Done
from tellapart.progress import track

if TYPE_CHECKING:
    from tellapart.scorers.base import Scorer

SUFFIX = ".npz"


class Features:
    """Image features by one scorer, in ``.npz`` files of `tellapart.features.exchange`."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer, self._encoder = scorer, scorer.encoder

    @classmethod
    def open(cls, scorer: str, device: str, precision: str, code: list[str]) -> Features:
        """With the scorer of that name, loaded; ``code`` is what may run for it."""
        from tellapart.models.plugins import allow_code
        from tellapart.scorers import load_scorer

        allow_code(*code)
        return cls(load_scorer(scorer, device, precision))

    def models(self) -> dict[str, Any]:
        """See `tellapart.jobs.works.Work`."""
        return {"scorer_weights": self._scorer.fingerprint, "precision": self._encoder.precision}

    def run(self, dataset: Dataset, out: Path) -> Done:
        """See `tellapart.jobs.works.Work`."""
        from tellapart.features.exchange import encode_rows
        from tellapart.features.store import FeatureStore

        items = list(dataset)
        rows, errors = encode_rows(FeatureStore().table, items, self._encoder)
        kept = set(rows.ids)
        unreadable = [item.picture.name for item in items if item.id not in kept]
        for name, error in zip(unreadable, errors, strict=False):
            dataset.unreadable.add_error(name, error)
        rows.save(out)
        return Done.of(dataset, len(rows.ids))


def write_features(job: Job, out: str, *, without_failed: bool = False) -> int:
    """``OUT/000000.npy`` (N×D) and ``OUT/000000.txt`` (an id a line) for each shard. Returns the number of rows."""
    import numpy as np

    from tellapart.features.exchange import EncodedRows

    target, count = open_folder(out), 0
    with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
        for number in track(wanted_shards(job, without_failed), label="writing features"):
            rows = EncodedRows.load(job.folder.local(job.part(number), Path(scratch)))
            if not rows.ids:
                continue
            file = Path(scratch) / "rows.npy"
            np.save(file, rows.rows_ND, allow_pickle=False)
            target.write(f"{number:06d}.txt", "".join(f"{id_}\n" for id_ in rows.ids).encode())
            target.put(file, f"{number:06d}.npy")
            count += len(rows.ids)
    if not count:
        raise UsageError(f"{job.path}: not one picture could be read")
    return count


def take_features(job: Job) -> int:
    """Bring the rows of a job into this machine's feature store. Returns how many there were."""
    from tellapart.features.exchange import EncodedRows, take_rows
    from tellapart.features.store import FeatureStore

    store, count = FeatureStore().table, 0
    with TemporaryDirectory(prefix="tellapart-take-") as scratch:
        for number in track(wanted_shards(job, False), label="taking features"):
            rows = EncodedRows.load(job.folder.local(job.part(number), Path(scratch)))
            take_rows(store, rows)
            count += len(rows.ids)
    return count
