"""Our side of ``benchmarks caption``. It does the work of ``tellapart caption`` and times one-time work separately."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from tellapart.captioners import load_captioner
from tellapart.captioners.captioner import Captioner
from tellapart.captions.writers import open_writer
from tellapart.data import Dataset, Skipped, open_many
from tellapart.inference.engine import CaptionEngine
from tellapart.models.decoding import Decoding
from tellapart.models.digests import files_digest, weights_fingerprint
from tellapart.models.packed_linears import packed_linears
from tellapart.models.precision import Precision

BATCH = 32  # the default of `tellapart caption`


class Ours:
    """Captions photos with one captioner in one precision. Call the object with a part of the photos."""

    def __init__(
        self, folder: Path, options: str, decoding: Decoding, device: str, precision: Precision, batch_size: int = BATCH
    ) -> None:
        self.folder, self.decoding, self.batch_size = folder, decoding, batch_size
        self._model = f"{folder}?{options}", device, precision

    def __call__(self, paths: Sequence[Path]) -> list[str]:
        """Returns the captions; also writes them to a temporary file."""
        data = dataset_of(paths)
        with tempfile.TemporaryDirectory() as folder, packed_linears(self.captioner.model):
            out = Path(folder) / "captions.jsonl"
            settings = {"best_of": None, "decoding": self.decoding.model_dump()}
            writer = open_writer(data, out, None, settings, False)
            for _, captions in self.engine.captions(list(data)):
                writer.write(captions)
            writer.close()
            return [json.loads(line)["caption"] for line in out.read_text(encoding="utf-8").splitlines()]

    def once(self) -> float:
        """Returns the seconds for one-time work for all photos: hashing files and weights, building the engine."""
        captioner = self.captioner
        started = time.perf_counter()
        files_digest(str(self.folder), "captioner")
        weights_fingerprint(captioner.model, captioner.processor)
        assert self.engine is not None
        return time.perf_counter() - started

    @cached_property
    def captioner(self) -> Captioner:
        return load_captioner(*self._model)

    @cached_property
    def engine(self) -> CaptionEngine:
        return CaptionEngine.open(self.captioner, self.decoding, None, Skipped(), batch_size=self.batch_size)


def dataset_of(paths: Sequence[Path]) -> Dataset:
    return open_many([str(path) for path in paths])
