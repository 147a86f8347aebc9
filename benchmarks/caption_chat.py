"""Compares time and memory of captioning with a vision-language model: our side, and a loop over batches with
transformers.

Each side runs in a separate process, with the same batch size, processor and precision. The sides take turns with the
parts of the photos.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.caption_models import PROMPT
from benchmarks.caption_worker import SIDES, Work
from benchmarks.process import worker
from benchmarks.rows import PairedRow, Row
from tellapart.errors import TellapartError
from tellapart.models.decoding import Decoding
from tellapart.models.precision import Precision
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

SAME = 0.9  # minimum fraction of equal captions in fp32; ties may resolve differently at other batch sizes


def check_captions(work: str, ours: Sequence[str], theirs: Sequence[str], name: str) -> None:
    """Raises `TellapartError` if our captions in fp32 differ from those of the reference ``name``."""
    if (same := fraction_equal(ours, theirs)) < SAME:
        raise TellapartError(f"{work}: {same:.0%} of the captions equal those of the {name}; expected {SAME:.0%}")


def fraction_equal(ours: Sequence[str], theirs: Sequence[str]) -> float:
    return sum(a == b for a, b in zip(ours, theirs, strict=True)) / len(theirs)


@dataclass
class Side:
    """One side's results: seconds per photo for each part, captions, and peak memory in GB (0 if not measured)."""

    seconds: list[float] = field(default_factory=list)
    captions: list[str] = field(default_factory=list)
    gigabytes: float = 0.0


@dataclass
class ChatSides:
    """One vision-language model with one decoding, in one or more precisions."""

    folder: Path
    decoding: Decoding
    device: str
    precisions: tuple[Precision, ...]

    def measure(self, work: str, parts: Sequence[Sequence[Path]]) -> tuple[list[Row], bool]:
        """Measures one precision after the other. Also returns whether Ctrl-C ended the measurement.

        Raises `TellapartError` if the captions of the two sides differ in fp32.
        """
        rows: list[Row] = []
        for precision in self.precisions:
            of_precision = f"{work}, both in {precision}"
            ours, theirs, stopped = self._run(of_precision, precision, parts)
            if ours.seconds:
                if precision == "fp32":
                    check_captions(of_precision, ours.captions, theirs.captions, "loop over batches")
                say(f"{of_precision}: {fraction_equal(ours.captions, theirs.captions):.0%} of the captions are equal")
                rows.append(PairedRow(f"{of_precision}, per photo", ours.seconds, theirs.seconds, 0.0, "s"))
            if ours.gigabytes:
                rows.append(Row(f"{of_precision}, peak memory", [ours.gigabytes], [theirs.gigabytes], 0.0, "GB"))
            if stopped:
                return rows, True
        return rows, False

    def _run(self, work: str, precision: Precision, parts: Sequence[Sequence[Path]]) -> tuple[Side, Side, bool]:
        """Runs our side and the reference side on each part, in turns. If Ctrl-C is pressed, omits a part that only one
        side has finished.

        On a CPU, measures the memory of the whole process. On a GPU, measures the memory of the tensors on the GPU.
        """
        sides = {name: Side() for name in SIDES}
        photos = sum(map(len, parts))
        with ExitStack() as stack:
            workers = {name: stack.enter_context(worker(self._work(name, precision).command())) for name in SIDES}
            try:
                for process in workers.values():
                    process.ask([str(path) for path in parts[0][:2]])  # warm-up: loads the model
                with Progress(len(sides) * photos, f"captioning: {work}") as progress:
                    for number, part in enumerate(parts):
                        answers = {}
                        for name in SIDES[:: -1 if number % 2 else 1]:
                            answers[name] = workers[name].ask([str(path) for path in part])
                            progress.advance(len(part))
                        for name, side in sides.items():
                            side.seconds.append(answers[name]["seconds"] / len(part) + answers[name]["once"] / photos)
                            side.captions += answers[name]["captions"]
                for name, side in sides.items():
                    side.gigabytes = answers[name]["gpu_gb"] or workers[name].finish() / 1e3
            except KeyboardInterrupt:
                say(f"{work}: stopped after {len(sides['ours'].seconds)} of {len(parts)} parts")
                return sides["ours"], sides["theirs"], True
        return sides["ours"], sides["theirs"], False

    def _work(self, side: str, precision: Precision) -> Work:
        settings = self.decoding.model_dump(exclude_defaults=True)
        return Work(side, str(self.folder), settings, PROMPT, self.device, precision)
