"""``benchmarks caption``: compares captioning photos with tellapart and with transformers alone.

BLIP is compared with (a) the ``image-text-to-text`` pipeline, called with one picture at a time as in its
documentation; (b) the same pipeline, called with a list and ``batch_size=16``; and (c) a loop over batches of 16 with
the processor and ``generate``. Vision-language models (`caption_chat`) are compared with (c) in each precision, both in
time and in memory.

All sides use the same PIL processor. Models have real configurations and random weights, and write 20 tokens for every
photo, because the end token is made impossible. The sides take turns with the parts of the photos. A row's ratio is the
median of the parts' ratios. Loading is not counted. The time for work that our side does once for all photos is divided
among the photos. After Ctrl-C, the measurement consists of the parts that all sides have finished. By default, only
rows that take at most five minutes are measured.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, pipeline

from benchmarks.caption_chat import ChatSides, check_captions
from benchmarks.caption_models import MODELS, PROMPT, Model
from benchmarks.caption_ours import Ours
from benchmarks.caption_theirs import BATCH, Loop, beams_of, caption_of
from benchmarks.rows import PairedRow, Row
from tellapart.captioners.processors import whole_processor
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding
from tellapart.models.devices import resolve_device
from tellapart.models.precision import Precision, dtype_of, resolve_precision
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

TOKENS = 20
SHORT_PARTS = 2  # default number of parts; the five sides of BLIP-base take 6 s per photo
GOALS = {"pipeline": 4.0, "pipeline, batch_size=16": 2.0, "loop over batches": 1.5}
GPU_GOALS = {"pipeline, batch_size=16": 3.0}
DECODINGS = {
    "greedy": Decoding(max_tokens=TOKENS),
    "5 beams": Decoding(kind="beam", beams=5, max_tokens=TOKENS),
}

Run = Callable[["Sequence[Path]"], list[str]]


def rows(
    repeat: int,
    only: str = "",
    *,
    pictures: int | None = None,
    device: str = "auto",
    precision: str = "auto",
    full: bool = False,
) -> list[Row]:
    """Measures the rows whose name contains ``only``, in seconds per picture. ``repeat`` is the number of parts.

    Without ``only``, ``pictures`` and ``full``, measures the rows that take at most five minutes on two cores: greedy
    captions of a few photos in two parts, without the largest model.

    ``precision``: ``auto`` measures in fp32 and, if the device supports it, in bf16. Raises `UsageError` if the photos
    are missing, and `TellapartError` if the two sides write different captions.
    """
    place = resolve_device(device)
    precisions: dict[str, tuple[Precision, ...]] = {
        "auto": ("bf16", "fp32") if resolve_precision("auto", place) == "bf16" else ("fp32",),
        "bf16": ("bf16",),
        "fp32": ("fp32",),
    }
    if precision not in precisions:
        raise UsageError(f"--precision {precision}: expected auto, fp32 or bf16")
    chosen = {
        f"{model}, {decoding}": (model, decoding)
        for model in MODELS
        for decoding in DECODINGS
        if only.lower() in f"{model}, {decoding}".lower()
    }
    if not chosen:
        known = "; ".join(f"{model}, {decoding}" for model in MODELS for decoding in DECODINGS)
        raise UsageError(f"no row contains '{only}'; available: {known}")
    short = not (only or pictures or full)
    if short:
        chosen = {work: pair for work, pair in chosen.items() if pair[1] == "greedy" and MODELS[pair[0]].short}
        repeat = min(repeat, SHORT_PARTS)
        say("only the short rows, with few photos; for all rows (hours), add --full")
    if precision == "auto" and len(precisions["auto"]) == 1:
        say("bf16 rows cannot be measured here (no AMX, AVX512_BF16 or CUDA 8.0)")
    say(f"{machine(place)}; {repeat} parts")
    available, found = photos(), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        for model in dict.fromkeys(model for model, _ in chosen.values()):
            count = pictures or (MODELS[model].short if short else MODELS[model].pictures)
            parts = parts_of(available, count, repeat)
            where = MODELS[model].write(Path(folder) / model.replace(" ", "-"))
            for work, (of, decoding) in chosen.items():
                if of == model:
                    sides = sides_of(MODELS[model], where, DECODINGS[decoding], str(place), precisions[precision])
                    some, stopped = sides.measure(f"{work}, {count} photos", parts)
                    found += some
                    if stopped:
                        return found
    return found


def sides_of(
    model: Model, folder: Path, decoding: Decoding, device: str, precisions: tuple[Precision, ...]
) -> Sides | ChatSides:
    kind = ChatSides if model.chats else Sides
    return kind(folder, decoding, device, precisions)


def photos() -> list[Path]:
    """Returns the COCO photos next to the project. Raises `UsageError` if they are missing."""
    folder = Path(os.environ.get("TELLAPART_DATA", "../shared/data")) / "coco280" / "images"
    found = sorted(folder.glob("*.jpg"))
    if not found:
        raise UsageError(f"{folder} contains no photos; set TELLAPART_DATA to the folder that contains 'coco280/'")
    return found


def parts_of(paths: Sequence[Path], pictures: int, parts: int) -> list[Sequence[Path]]:
    """Splits the first ``pictures`` photos into parts of equal size. Raises `UsageError` if there are too few."""
    size = pictures // parts
    if size < 1 or pictures > len(paths):
        raise UsageError(f"--pictures {pictures}: expected between {parts} (one per part) and {len(paths):,}")
    return [paths[start * size : (start + 1) * size] for start in range(parts)]


def machine(device: Any) -> str:
    """Describes the machine: device, cores, and the CPU's matrix instructions."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    flags = {"AMX": torch.cpu._is_amx_tile_supported(), "AVX512_BF16": torch.cpu._is_avx512_bf16_supported()}
    there = [name for name, is_there in flags.items() if is_there]
    return (
        f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {', '.join(there) or 'no bf16'}"
    )


@dataclass
class Sides:
    """One captioner with one decoding. Our side runs in several precisions, the reference sides run in fp32."""

    folder: Path
    decoding: Decoding
    device: str
    precisions: tuple[Precision, ...]

    def measure(self, work: str, parts: Sequence[Sequence[Path]]) -> tuple[list[Row], bool]:
        """Runs all sides on each part, in rotating order. Also returns whether Ctrl-C ended the measurement."""
        sides: dict[str, Run] = {**self.ours, **self.theirs}
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        written: dict[str, list[str]] = {name: [] for name in sides}
        stopped = False
        try:
            photos = sum(map(len, parts))
            shares = {name: side.once() / photos for name, side in self.ours.items()}
            for run in sides.values():
                run(parts[0][:2])  # warm-up: loads the model and triggers compilation
            with Progress(len(sides) * photos, f"captioning: {work}") as progress:
                for number, part in enumerate(parts):
                    found = self._timed(sides, number, part, progress)
                    for name, (amount, captions) in found.items():
                        seconds[name].append(amount + shares.get(name, 0.0))
                        written[name] += captions
        except KeyboardInterrupt:
            stopped = True
            say(f"{work}: stopped after {len(seconds['pipeline'])} of {len(parts)} parts")
        if not seconds["pipeline"]:
            return [], stopped
        if "fp32" in written:
            for name in self.theirs:
                check_captions(work, written["fp32"], written[name], name)
        best, goals = self.precisions[0], GPU_GOALS if self.device.startswith("cuda") else GOALS
        return [
            PairedRow(
                f"{work}, ours in {ours}, {name} in fp32{', equal precision' if ours == 'fp32' != best else ''}",
                seconds[ours],
                seconds[name],
                goals.get(name, 0.0) if ours == best else 0.0,
                "s",
            )
            for name in self.theirs
            for ours in self.precisions
        ], stopped

    def _timed(
        self, sides: Mapping[str, Run], number: int, part: Sequence[Path], progress: Progress
    ) -> dict[str, tuple[float, list[str]]]:
        """Returns each side's seconds per photo and captions."""
        found: dict[str, tuple[float, list[str]]] = {}
        names = list(sides)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            started = time.perf_counter()
            captions = sides[name](part)
            found[name] = (time.perf_counter() - started) / len(part), captions
            progress.advance(len(part))
        return found

    @cached_property
    def ours(self) -> dict[str, Ours]:
        """Returns our side by precision."""
        options = f"prompt={PROMPT}"
        return {name: Ours(self.folder, options, self.decoding, self.device, name) for name in self.precisions}

    # Theirs
    @cached_property
    def theirs(self) -> dict[str, Run]:
        """Returns the reference sides."""
        loop = Loop(self._pipeline.model, self._pipeline.processor, self.decoding)
        return {"pipeline": self.one_by_one, "pipeline, batch_size=16": self.batched, "loop over batches": loop}

    @cached_property
    def _pipeline(self) -> Any:
        processor = whole_processor(str(self.folder), AutoConfig.from_pretrained(self.folder, trust_remote_code=False))
        return pipeline(
            "image-text-to-text",
            model=str(self.folder),
            processor=processor,
            device=self.device,
            dtype=dtype_of("fp32"),
        )

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return {"generate_kwargs": {"max_new_tokens": TOKENS, "num_beams": beams_of(self.decoding), "do_sample": False}}

    def one_by_one(self, paths: Sequence[Path]) -> list[str]:
        """Runs (a): ``pipe("photo.jpg", text="a photo of")``."""
        answers = [self._pipeline(str(path), text=PROMPT, **self._settings) for path in paths]
        return [caption_of(answer[0]["generated_text"]) for answer in answers]

    def batched(self, paths: Sequence[Path]) -> list[str]:
        """Runs (b)."""
        asked = ({"images": str(path), "text": PROMPT} for path in paths)  # the pipeline would treat a list as a chat
        answers = self._pipeline(asked, batch_size=BATCH, **self._settings)
        return [caption_of(answer[0]["generated_text"]) for answer in answers]
