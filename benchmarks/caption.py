"""``benchmarks caption``: captions photos, compared with three ways of doing so with transformers alone.

(a) the ``image-text-to-text`` pipeline as its documentation calls it, a picture at a time; (b) the same over a list
with ``batch_size=16``; (c) a loop over batches of 16 with the processor and ``generate``. Pictures go through the same
PIL processor on all sides. Models have real configurations and random weights, and write 20 tokens of every photo: the
end token is made impossible. Each side works through parts of the photos, in turns; a row's ratio is the median of the
parts' ratios. Loading is not counted; what ours does once for all photos is shared out among them. Ctrl-C ends the
measurement with the parts that all sides have done. By default the rows that end within five minutes are measured.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.caption_models import MODELS, PROMPT
from benchmarks.rows import PairedRow, Row
from tellapart.errors import TellapartError, UsageError
from tellapart.models.decoding import Decoding
from tellapart.models.devices import dtype_of, resolve_device, resolve_precision
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

if TYPE_CHECKING:
    from benchmarks.caption_ours import Ours
    from tellapart.models.devices import Precision

TOKENS, BATCH = 20, 16
PICTURES = 200
SHORT_PARTS = 2  # default number of parts, one batch each: 6 s per photo for the five sides of BLIP-base, greedy
GOALS = {"pipeline": 4.0, "pipeline, batch_size=16": 2.0, "loop over batches": 1.5}
GPU_GOALS = {"pipeline, batch_size=16": 3.0}
DECODINGS = {
    "greedy": Decoding(max_tokens=TOKENS),
    "5 beams": Decoding(kind="beam", beams=5, max_tokens=TOKENS),
}
SAME = 0.9  # minimum fraction of equal captions in fp32; ties may resolve differently at other batch sizes

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
    """Measures rows, in seconds per picture, whose work contains ``only``; ``repeat`` is the number of parts.

    Without ``only``, ``pictures`` and ``full`` those that end within five minutes on two cores: greedy captions, two
    parts of a batch each.

    ``precision``: ``auto`` measures ours in bf16 if the device supports it, and in fp32. Raises `UsageError` if the
    photos are missing, `TellapartError` if the two sides write different captions.
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
    if not (only or pictures or full):
        chosen = {work: made for work, made in chosen.items() if made[1] == "greedy"}
        pictures, repeat = BATCH * min(repeat, SHORT_PARTS), min(repeat, SHORT_PARTS)
        say(f"only the short rows, with {pictures} photos; for all rows with {PICTURES} (over an hour), add --full")
    parts = parts_of(photos(), pictures or PICTURES, repeat)
    if precision == "auto" and len(precisions["auto"]) == 1:
        say("bf16 rows cannot be measured here (no AMX, AVX512_BF16 or CUDA 8.0)")
    say(f"{machine(place)}; {sum(map(len, parts))} photos in {len(parts)} parts; theirs in fp32")
    found: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for model in dict.fromkeys(model for model, _ in chosen.values()):
            where = MODELS[model](Path(folder) / model.replace(" ", "-"))
            for work, (of, decoding) in chosen.items():
                if of == model:
                    sides = Sides(where, model, DECODINGS[decoding], str(place), precisions[precision])
                    some, stopped = sides.measure(work, parts)
                    found += some
                    if stopped:
                        return found
    return found


def photos() -> list[Path]:
    """Returns the COCO photos beside the project. Raises `UsageError` if they are missing."""
    folder = Path(os.environ.get("TELLAPART_DATA", "../shared/data")) / "coco280" / "images"
    found = sorted(folder.glob("*.jpg"))
    if not found:
        raise UsageError(f"{folder} contains no photos; set TELLAPART_DATA to the folder that contains 'coco280/'")
    return found


def parts_of(paths: Sequence[Path], pictures: int, parts: int) -> list[Sequence[Path]]:
    """Splits the first ``pictures`` into parts of equal size. Raises `UsageError` if there are too few."""
    size = pictures // parts
    if size < 1 or pictures > len(paths):
        raise UsageError(f"--pictures {pictures}: expected between {parts} (one per part) and {len(paths):,}")
    return [paths[start * size : (start + 1) * size] for start in range(parts)]


def machine(device: Any) -> str:
    """Describes the machine: device, cores, and the CPU's matrix instructions."""
    import torch

    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    flags = {"AMX": torch.cpu._is_amx_tile_supported(), "AVX512_BF16": torch.cpu._is_avx512_bf16_supported()}
    there = [name for name, is_there in flags.items() if is_there]
    return (
        f"{torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}, {', '.join(there) or 'no bf16'}"
    )


@dataclass
class Sides:
    """One model with one decoding: our side in some precisions, and the reference sides."""

    folder: Path
    model: str
    decoding: Decoding
    device: str
    precisions: tuple[Precision, ...]

    def measure(self, work: str, parts: Sequence[Sequence[Path]]) -> tuple[list[Row], bool]:
        """Runs all sides on each part, rotating which goes first; also returns whether Ctrl-C ended the measurement."""
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
        self._compare(work, written)
        best, goals = self.precisions[0], GPU_GOALS if self.device.startswith("cuda") else GOALS
        return [
            PairedRow(
                f"{work}, ours in {ours}, {name} in fp32{', equal precision' if ours == 'fp32' != best else ''}",
                seconds[ours],
                seconds[name],
                goals.get(name, 0.0) if ours == best and self.model == "BLIP-base" else 0.0,
                "s",
            )
            for name in self.theirs
            for ours in self.precisions
        ], stopped

    def _timed(
        self, sides: Mapping[str, Run], number: int, part: Sequence[Path], progress: Progress
    ) -> dict[str, tuple[float, list[str]]]:
        """Returns seconds per photo and captions of each side."""
        found: dict[str, tuple[float, list[str]]] = {}
        names = list(sides)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            started = time.perf_counter()
            captions = sides[name](part)
            found[name] = (time.perf_counter() - started) / len(part), captions
            progress.advance(len(part))
        return found

    def _compare(self, work: str, written: Mapping[str, list[str]]) -> None:
        """Raises `TellapartError` if our captions in fp32 differ from theirs."""
        if "fp32" not in written:
            return
        for name in self.theirs:
            same = sum(a == b for a, b in zip(written["fp32"], written[name], strict=True)) / len(written[name])
            if same < SAME:
                raise TellapartError(
                    f"{work}: {same:.0%} of the captions equal those of the {name}; expected {SAME:.0%}"
                )

    @cached_property
    def ours(self) -> dict[str, Ours]:
        """Returns our side by precision."""
        from benchmarks.caption_ours import Ours

        options = f"prompt={PROMPT}"
        return {name: Ours(self.folder, options, self.decoding, self.device, name) for name in self.precisions}

    # Theirs
    @cached_property
    def theirs(self) -> dict[str, Run]:
        """Returns the reference sides for this model; the pipeline cannot batch pictures of different shapes."""
        ways: dict[str, Run] = {"pipeline": self.one_by_one}
        if not self._chats:
            ways["pipeline, batch_size=16"] = self.batched
        return ways | {"loop over batches": self.loop}

    @cached_property
    def _pipeline(self) -> Any:
        from transformers import AutoConfig, pipeline

        from tellapart.captioners.processors import whole_processor

        processor = whole_processor(str(self.folder), AutoConfig.from_pretrained(self.folder, trust_remote_code=False))
        return pipeline(
            "image-text-to-text",
            model=str(self.folder),
            processor=processor,
            device=self.device,
            dtype=dtype_of("fp32"),
        )

    @property
    def _chats(self) -> bool:
        return bool(getattr(self._pipeline.processor, "chat_template", None))

    @cached_property
    def _settings(self) -> dict[str, Any]:
        return {"generate_kwargs": {"max_new_tokens": TOKENS, "num_beams": self._beams, "do_sample": False}}

    @property
    def _beams(self) -> int:
        return self.decoding.beams if self.decoding.kind == "beam" else 1

    def one_by_one(self, paths: Sequence[Path]) -> list[str]:
        """Runs (a): ``pipe("photo.jpg", text="a photo of")``, or a chat if the model has a template."""
        pipe: Any = self._pipeline
        if self._chats:
            answers = [pipe(text=chat(path), return_full_text=False, **self._settings) for path in paths]
        else:
            answers = [pipe(str(path), text=PROMPT, **self._settings) for path in paths]
        return [caption_of(answer[0]["generated_text"]) for answer in answers]

    def batched(self, paths: Sequence[Path]) -> list[str]:
        """Runs (b)."""
        asked = ({"images": str(path), "text": PROMPT} for path in paths)  # the pipeline would treat a list as a chat
        answers = self._pipeline(asked, batch_size=BATCH, **self._settings)
        return [caption_of(answer[0]["generated_text"]) for answer in answers]

    def loop(self, paths: Sequence[Path]) -> list[str]:
        """Runs (c): a user's own loop over batches."""
        import torch
        from PIL import Image

        model, processor = self._pipeline.model, self._pipeline.processor
        texts: list[str] = []
        for start in range(0, len(paths), BATCH):
            images = [Image.open(path).convert("RGB") for path in paths[start : start + BATCH]]
            prompt = PROMPT
            if self._chats:
                prompt = processor.apply_chat_template(chat(paths[start]), add_generation_prompt=True, tokenize=False)
            inputs = processor(
                images=images, text=[prompt] * len(images), padding=True, return_tensors="pt", padding_side="left"
            ).to(model.device)
            with torch.inference_mode():
                tokens = model.generate(**inputs, max_new_tokens=TOKENS, num_beams=self._beams, do_sample=False)
            if self._chats:
                tokens = tokens[:, inputs["input_ids"].shape[1] :]
            texts += processor.batch_decode(tokens, skip_special_tokens=True)
        return [caption_of(text) for text in texts]


def chat(path: Path) -> list[dict[str, Any]]:
    """Returns the chat messages for a photo."""
    return [
        {"role": "user", "content": [{"type": "image", "url": str(path)}, {"type": "text", "text": PROMPT}]},
    ]


def caption_of(text: str) -> str:
    """Removes the prompt in front of a caption, if any."""
    return " ".join(text.rpartition(PROMPT)[2].split())
