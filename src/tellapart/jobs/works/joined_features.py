"""Joins the features of all shards, in files or in the feature store."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tellapart.errors import UsageError
from tellapart.features.encoded_rows import EncodedRows, take_rows
from tellapart.features.store import FeatureStore
from tellapart.jobs.job import Job
from tellapart.jobs.shard_results import results, wanted_shards
from tellapart.jobs.storage import DiskFolder, Folder, open_folder
from tellapart.utils.outputs import check_removable, write_output
from tellapart.utils.urls import is_url

ROWS_PER_FILE = 2**18  # a result file is complete as soon as it has at least this many rows
WRITTEN = re.compile(r"\d{6,}\.(npy|txt)")


def write_features(job: Job, out: str, *, without_failed: bool = False) -> int:
    """Writes ``OUT/000000.npy`` (N×D), ``OUT/000000.txt`` (one id per line), and so on, in the order of the data.

    Removes the files of other jobs. Returns the number of rows.
    """

    numbers, target = wanted_shards(job, without_failed), open_folder(out)
    check_features(out)
    for name in filter(WRITTEN.fullmatch, target.names("")):
        target.remove(name)
    with TemporaryDirectory(prefix="tellapart-merge-") as scratch:
        files = _Files(target, Path(scratch))
        for _, path in results(job, numbers, "writing features"):
            files.add(EncodedRows.load(path))
        files.finish()
    if not files.count:
        raise UsageError(f"{job.path}: none of the pictures could be read")
    return files.count


def check_features(out: str) -> None:
    """Raises `UsageError` if the folder ``out`` contains files that are named like features but were not written by
    tellapart.

    URLs are not checked.
    """
    if not is_url(out):
        for name in filter(WRITTEN.fullmatch, open_folder(out).names("")):
            check_removable(Path(out).expanduser() / name)


class _Files:
    """Writes the rows of many shards to files of about `ROWS_PER_FILE` rows, and moves each full file to ``target``."""

    def __init__(self, target: Folder, scratch: Path) -> None:
        self._target, self._path = target, scratch / "rows.npy"
        self._ids: list[str] = []
        self._number = self.count = 0

    def add(self, rows: EncodedRows) -> None:
        """Appends a shard's rows."""

        if not rows.ids:
            return
        with self._path.open("r+b" if self._ids else "wb") as file:
            self._ids += rows.ids
            header = np.lib.format.header_data_from_array_1_0(rows.rows_ND)
            header["shape"] = (len(self._ids), *rows.rows_ND.shape[1:])
            np.lib.format.write_array_header_1_0(file, header)  # NumPy pads the header so that the first axis can grow
            file.seek(0, 2)
            file.write(np.ascontiguousarray(rows.rows_ND).data)
        self.count += len(rows.ids)
        if len(self._ids) >= ROWS_PER_FILE:
            self.finish()

    def finish(self) -> None:
        """Moves the current file to ``target``."""
        if self._ids:
            name, ids = f"{self._number:06d}", "".join(f"{id_}\n" for id_ in self._ids)
            if isinstance(self._target, DiskFolder):
                write_output(self._target.path / f"{name}.txt", ids)
                write_output(self._target.path / f"{name}.npy", lambda temporary: shutil.move(self._path, temporary))
            else:
                self._target.write(f"{name}.txt", ids.encode())
                self._target.put(self._path, f"{name}.npy")
            self._number += 1
            self._ids = []


def take_features(job: Job) -> int:
    """Copies a job's rows into this machine's feature store. Returns the number of rows."""

    store, count = FeatureStore().table, 0
    for _, path in results(job, wanted_shards(job, False), "collecting features"):
        rows = EncodedRows.load(path)
        take_rows(store, rows)
        count += len(rows.ids)
    return count
