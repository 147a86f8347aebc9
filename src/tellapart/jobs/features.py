"""The work of ``tellapart encode``: features of a shard's pictures, as rows for a feature store.

``eval`` and ``bags mine`` share this work among their workers, and take the rows into the store of the machine that
goes on: what comes after is the plain command, which finds them there.
"""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tellapart.data import Dataset
from tellapart.errors import UsageError
from tellapart.jobs.job import Job
from tellapart.jobs.merge import results, wanted_shards
from tellapart.jobs.storage import Folder, open_folder
from tellapart.jobs.works import Done

if TYPE_CHECKING:
    from tellapart.features.exchange import EncodedRows
    from tellapart.scorers.base import Scorer

SUFFIX = ".npz"
ROWS = 2**18  # a file of the result ends with the shard that reaches so many
WRITTEN = re.compile(r"\d{6,}\.(npy|txt)")


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
    """``OUT/000000.npy`` (N×D) and ``OUT/000000.txt`` (an id a line), and so on, in the order of the data.

    Files of another job that are there are removed. Returns the number of rows.
    """
    from tellapart.features.exchange import EncodedRows

    numbers, target = wanted_shards(job, without_failed), open_folder(out)
    for name in filter(WRITTEN.fullmatch, target.names("")):
        target.remove(name)
    with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
        files = _Files(target, Path(scratch))
        for _, path in results(job, numbers, "writing features"):
            files.add(EncodedRows.load(path))
        files.finish()
    if not files.count:
        raise UsageError(f"{job.path}: not one picture could be read")
    return files.count


class _Files:
    """Rows of many shards in files of about `ROWS` rows, each brought to ``target`` when it is full."""

    def __init__(self, target: Folder, scratch: Path) -> None:
        self._target, self._path = target, scratch / "rows.npy"
        self._ids: list[str] = []
        self._number = self.count = 0

    def add(self, rows: EncodedRows) -> None:
        """Write a shard's rows behind the others."""
        import numpy as np

        if not rows.ids:
            return
        with self._path.open("r+b" if self._ids else "wb") as file:
            self._ids += rows.ids
            header = np.lib.format.header_data_from_array_1_0(rows.rows_ND)
            header["shape"] = (len(self._ids), *rows.rows_ND.shape[1:])
            np.lib.format.write_array_header_1_0(file, header)  # NumPy leaves room for the first axis to grow
            file.seek(0, 2)
            file.write(np.ascontiguousarray(rows.rows_ND).data)
        self.count += len(rows.ids)
        if len(self._ids) >= ROWS:
            self.finish()

    def finish(self) -> None:
        """Bring what was written to its place."""
        if self._ids:
            self._target.write(f"{self._number:06d}.txt", "".join(f"{id_}\n" for id_ in self._ids).encode())
            self._target.put(self._path, f"{self._number:06d}.npy")
            self._number += 1
            self._ids = []


def take_features(job: Job) -> int:
    """Bring the rows of a job into this machine's feature store. Returns how many there were."""
    from tellapart.features.exchange import EncodedRows, take_rows
    from tellapart.features.store import FeatureStore

    store, count = FeatureStore().table, 0
    for _, path in results(job, wanted_shards(job, False), "taking features"):
        rows = EncodedRows.load(path)
        take_rows(store, rows)
        count += len(rows.ids)
    return count
