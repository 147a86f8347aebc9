"""Runs one side of ``benchmarks caption`` in a separate process, so that its peak memory can be measured.

Reads lines of JSON with the paths of photos. Answers each line with {"captions", "seconds", "once", "gpu_gb"}: the
seconds for these photos, the seconds for work that is done once for all photos, and the peak GPU memory. Loads the
model before it reads the first line.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.caption_ours import Ours
from benchmarks.caption_theirs import BATCH, Loop
from tellapart.models.decoding import Decoding
from tellapart.models.precision import Precision

SIDES = ("ours", "theirs")


@dataclass(frozen=True)
class Work:
    """A worker's job, which can be converted to and from the worker's command line. ``side`` is one of `SIDES`."""

    side: str
    folder: str
    decoding: dict[str, Any]
    prompt: str
    device: str
    precision: Precision

    def command(self) -> list[str]:
        return [sys.executable, "-m", "benchmarks.caption_worker", json.dumps(asdict(self))]

    def load(self) -> tuple[Callable[[Sequence[Path]], list[str]], float]:
        """Returns the side, and the seconds for work that it does once for all photos."""
        folder, decoding = Path(self.folder), Decoding(**self.decoding)
        if self.side == "theirs":
            return Loop.load(folder, decoding, self.device, self.precision), 0.0
        ours = Ours(folder, f"prompt={self.prompt}", decoding, self.device, self.precision, BATCH)
        return ours, ours.once()


def main(work: Work) -> None:
    # The answers go to a separate stream, because libraries may print.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    side, once = work.load()
    for line in sys.stdin:
        paths = [Path(path) for path in json.loads(line)]
        started = time.perf_counter()
        captions = side(paths)
        seconds = time.perf_counter() - started
        gpu_gb = torch.cuda.max_memory_allocated(work.device) / 1e9 if work.device.startswith("cuda") else None
        answer = {"captions": captions, "seconds": seconds, "once": once, "gpu_gb": gpu_gb}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main(Work(**json.loads(sys.argv[1])))
