"""The rows of ``benchmarks rollout --model NAME``: the time of one self-retrieval step at full size, in total and by
part.
"""

from __future__ import annotations

import math
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context

import torch

from benchmarks.rows import Row
from benchmarks.training_step import PARTS, STEP, Milliseconds, TrainingStep, Work
from tellapart.errors import TellapartError, UsageError
from tellapart.models.devices import best_device
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

COCO, DENSE = (12, 15), (50, 50)  # tokens per caption, including the end token
TOLERANCE = 1e-3  # tolerance for log-probabilities in fp32
GOALS = {  # goals for the whole step, by model, samples and precision
    ("clipcap-gpt2", 1): {"fp32": 2.5, "bf16": 5.0},
    ("clipcap-gpt2", 4): {"fp32": 3.0, "bf16": 6.0},
    ("clipcap-gpt2", 8): {"fp32": 3.0, "bf16": 6.0},
    ("blip-base", 4): {"fp32": 2.0},
}
FP32, BF16, EQUAL = "fp32, both", "ours in bf16, theirs in fp32", "bf16, both"


@dataclass(frozen=True)
class Pairing:
    """The precisions in which the two sides run."""

    label: str
    ours_bf16: bool
    theirs_bf16: bool
    goal: str


PAIRINGS = (
    Pairing(FP32, False, False, "fp32"),
    Pairing(BF16, True, False, "bf16"),
    Pairing(EQUAL, True, True, ""),
)


def step_rows(name: str, repeat: int, only: str = "") -> list[Row]:
    """Measures the rows whose name contains ``only``, in milliseconds. Raises `UsageError` if there are none."""
    device = best_device()
    settings, pairings = works(name, device), pairings_of(name, device)
    wanted = only.lower()
    chosen = [
        work for work in settings if any(wanted in title(work, p, part) for p in pairings for part in (STEP, *PARTS))
    ]
    if not chosen:
        raise UsageError(
            f"no row contains '{only}'; rows are named, for example, {title(settings[0], pairings[0], STEP)}"
        )
    say(f"measuring on {device_words(device)}; weights are random, and the machine should be idle")
    rows = []
    with ExitStack() as stack, Progress(4 * (repeat + 1) * len(chosen), "measuring, ours and theirs") as progress:
        sides = {side: stack.enter_context(worker(name, device)) for side in ("ours", "theirs")}
        for work in chosen:
            rows += rows_of(name, sides, work, pairings, repeat, progress, wanted)
    return rows


def worker(name: str, device: torch.device) -> Executor:
    """Starts a process for one side, so that its memory caching does not affect the other side."""
    return ProcessPoolExecutor(1, get_context("spawn"), make_step, (name, str(device)))


STEPS: dict[str, TrainingStep] = {}  # of this process


def make_step(name: str, device: str) -> None:
    STEPS["only"] = TrainingStep(name, torch.device(device))


def run_side(side: str, work: Work, number: int, bf16: bool) -> Milliseconds:
    """Runs one step of one side in that side's process."""
    step = STEPS["only"]
    found: Milliseconds = getattr(step, side)(step.prepare(work), number, bf16=bf16)
    return found


def gap_of(work: Work) -> tuple[float, bool]:
    """Returns `TrainingStep.gap`, and whether the model is in fp32."""
    step = STEPS["only"]
    return step.gap(step.prepare(work)), step.pixel_dtype == torch.float32


def works(name: str, device: torch.device) -> list[Work]:
    """Returns the work to measure: with one, four and eight samples, and with as many pictures as fit in a step."""
    large = name == "qwen2-vl-2b"
    shortest, longest = DENSE if large else COCO
    pictures = {1: 2, 4: 2, 8: 2} if large and device.type == "cpu" else {1: 16, 4: 8, 8: 4}
    return [Work(samples, count, shortest, longest) for samples, count in pictures.items()]


def pairings_of(name: str, device: torch.device) -> list[Pairing]:
    """Returns the pairings of precisions. Omits bf16 if the hardware does not support it. For a model with bf16
    weights, uses only bf16.
    """
    from tellapart.models.precision import multiplies_in_bf16

    if name == "qwen2-vl-2b":
        return [PAIRINGS[2]]
    if not multiplies_in_bf16(device):
        say("bf16 rows cannot be measured here: no AMX, AVX512_BF16 or CUDA 8.0")
        return [PAIRINGS[0]]
    return list(PAIRINGS)


def rows_of(
    name: str,
    workers: dict[str, Executor],
    work: Work,
    pairings: list[Pairing],
    repeat: int,
    progress: Progress,
    wanted: str,
) -> list[Row]:
    check(name, *workers["theirs"].submit(gap_of, work).result())
    runs: dict[tuple[str, bool], list[Milliseconds]] = {}
    sides = [("theirs", p.theirs_bf16) for p in pairings] + [("ours", p.ours_bf16) for p in pairings]
    for number in range(repeat + 1):  # the first run does not count, because it allocates memory and chooses kernels
        for side, bf16 in dict.fromkeys(sides if number % 2 else sides[::-1]):
            found = workers[side].submit(run_side, side, work, number, bf16).result()
            progress.advance()
            if number:
                runs.setdefault((side, bf16), []).append(found)
    rows = []
    for pairing in pairings:
        ours, theirs = runs["ours", pairing.ours_bf16], runs["theirs", pairing.theirs_bf16]
        for part in (STEP, *PARTS):
            if wanted in title(work, pairing, part):
                goal = GOALS.get((name, work.samples), {}).get(pairing.goal, 0.0) if part == STEP else 0.0
                amounts = [run[part] for run in ours], [run[part] for run in theirs]
                rows.append(Row(title(work, pairing, part), *amounts, goal, "ms"))
    return rows


def title(work: Work, pairing: Pairing, part: str) -> str:
    return f"s={work.samples}, b={work.pictures}, {pairing.label}: {part}"


def check(name: str, gap: float, fp32: bool) -> None:
    """Raises `TellapartError` if the two sides' log-probabilities differ. Does not compare models with bf16 weights."""
    if fp32 and not (math.isfinite(gap) and gap <= TOLERANCE):
        raise TellapartError(
            f"{name}: the two implementations compute different log-probabilities (difference up to {gap:.2g}, "
            f"expected at most {TOLERANCE:g}), so their times cannot be compared"
        )


def device_words(device: torch.device) -> str:
    """Describes the device, its threads, and its matrix instructions."""
    if device.type != "cpu":
        return f"{device} ({torch.cuda.get_device_name(device) if device.type == 'cuda' else device.type})"
    flags = [
        name
        for name, there in (
            ("AMX", torch.cpu._is_amx_tile_supported()),
            ("AVX512_BF16", torch.cpu._is_avx512_bf16_supported()),
            ("AVX512", torch.cpu._is_avx512_supported()),
        )
        if there
    ]
    return f"a CPU with {', '.join(flags) or 'neither AMX nor AVX512'}, {torch.get_num_threads()} threads"
