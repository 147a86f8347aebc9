"""Builds run folders as `tellapart train` and `eval` leave them: real pictures, a full log, results, a gallery."""

from __future__ import annotations

import json
import math
import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from explained import info
from PIL import Image, ImageDraw

from tellapart.metrics.metric_info import Candidates
from tellapart.metrics.registry import METRICS as REGISTRY

COLOURS = {"red": "#c8402f", "blue": "#2f5fb3", "green": "#3b8f57", "yellow": "#e3b23c", "purple": "#7b4fa0"}
GROUNDS = {"sand": "#ead9b5", "snow": "#eef2f5", "grass": "#b9d3a0", "night": "#2b3350"}
SHAPES = ("circle", "square", "triangle")
TEXTURES = ("plain", "striped")

METRICS: dict[str, tuple[float, float, float, float]] = {
    # before, after, half an interval, half the difference's interval
    "recall@1.random100": (61.24, 88.35, 2.1, 1.9),
    "recall@1.lookalike": (41.2, 68.04, 4.3, 4.45),
    "recall@1.lookalike@judge": (39.5, 60.1, 4.4, 4.6),
    "listener_accuracy": (38.0, 63.5, 4.4, 4.7),
    "attribute_precision": (96.1, 95.4, 0.9, 1.0),
    "hallucination_rate": (3.1, 5.02, 0.7, 0.8),
    "repetition_rate": (0.4, 0.9, 0.3, 0.62),
    "clipscore": (71.2, 74.8, 0.6, 0.5),
    "bleu4": (21.4, 18.2, 1.1, 0.9),
    "cider": (0.914, 0.733, 0.05, 0.04),
    "length": (8.4, 13.7, 0.2, 0.25),
    "lexical_diversity": (0.071, 0.133, 0.004, 0.005),
    "vocabulary": (118, 207, 0, 0),
}
# Which picture each set's (before, after) captions lead to: 0 is the target.
PICKS = ((3, 0), (2, 0), (0, 0), (0, 4), (1, 1), (4, 2))


def draw(colour: str, shape: str, texture: str, ground: str, second: str, side: int = 64) -> Image.Image:
    """A scene of two objects, drawn large and made small so that its edges are soft."""
    big = 256
    image = Image.new("RGB", (big, big), GROUNDS[ground])
    pen = ImageDraw.Draw(image)
    pen.rectangle((150, 150, 226, 226), fill=COLOURS[second])
    box = (30, 40, 150, 160)
    fill = COLOURS[colour]
    if shape == "circle":
        pen.ellipse(box, fill=fill)
    elif shape == "square":
        pen.rectangle(box, fill=fill)
    else:
        pen.polygon([(90, 40), (30, 160), (150, 160)], fill=fill)
    if texture == "striped":
        for y in range(52, 156, 20):
            pen.line((40, y, 140, y), fill=GROUNDS[ground], width=6)
    return image.resize((side, side), Image.Resampling.LANCZOS)


def results(names: tuple[str, str] = ("before", "after"), shift: float = 0.0) -> dict[str, Any]:
    """A plausible `results.json`; ``shift`` moves the later system's recalls."""
    systems: dict[str, dict[str, Any]] = {names[0]: {}, names[1]: {}}
    pairs = []
    for key, (before, after, half, half_difference) in METRICS.items():
        after = after + shift if key.startswith("recall") else after
        for name, value in zip(names, (before, after), strict=True):
            systems[name][key] = {"value": value, "low": value - half, "high": value + half, "n": 500}
        difference = after - before
        pairs.append({"a": names[0], "b": names[1], "metric": key, "difference": difference,
                      "p": 0.0004 if abs(difference) > half_difference else 0.4,
                      "low": difference - half_difference, "high": difference + half_difference})  # fmt: skip
    people = {"recall@1.random100": 93.1, "recall@1.lookalike": 79.6}
    systems["human"] = {k: {"value": v, "low": v - 2, "high": v + 2, "n": 500} for k, v in people.items()}
    signatures = {key: f"{key}|scorer:mini-clip-5f2a|pool:fixed|boot:1000|seed:7|tellapart:0.1.0" for key in METRICS}
    notes = ["not computed because of missing requirements: recall@5.random100 (at least 100 pictures)"]
    recalls = [key for key in METRICS if key.startswith("recall") or key == "listener_accuracy"]
    sizes = {key: 100 if "random" in key else 10 for key in recalls}
    candidates = {key: {"fewest": size, "most": size, "chance": 100 / size} for key, size in sizes.items()}
    pictures = {"n": 500, "ids": "5ce7e500aa11bb22"}
    described: dict[str, Any] = {key: asdict(info(key)) for key in METRICS}
    for key, size in sizes.items():
        metric = REGISTRY.builtin()[key.partition("@judge")[0]]
        among = Candidates(size, size, 100 / size)
        described[key] = asdict(metric.info(among, "judge" if "@judge" in key else ""))
    parts = {"metrics": described, "systems": systems, "pairs": pairs, "signatures": signatures, "notes": notes}
    return {**parts, "pictures": pictures, "candidates": candidates}


def log_lines(steps: int = 400) -> list[dict[str, Any]]:
    """Training lines with noise that settles, and a validation line at each fiftieth step."""
    noise = random.Random(3)
    lines: list[dict[str, Any]] = []
    best = 0.0
    for step in range(1, steps + 1):
        part = step / steps
        lines.append(
            {
                "step": step,
                "loss": 2.1 * math.exp(-2 * part) + noise.gauss(0.4, 0.12),
                "reward": -2.2 + 1.5 * part + noise.gauss(0, 0.2),
                "learning_rate": 2e-5 * (1 - part),
            }
        )
        if step % max(1, steps // 8) == 0:
            recall = 42 + 30 * part - 22 * max(0.0, part - 0.75) * 2
            validation = {"recall@1.random100": recall + 20, "recall@1.lookalike": recall, "best": recall > best}
            lines.append({"event": "validation", "step": step} | validation)
            best = max(best, recall)
    return lines


def gallery(
    folder: Path, size: int = 5, picks: tuple[tuple[int, int], ...] = PICKS, photos: bool = False
) -> dict[str, Any]:
    """Sets of ``size`` look-alikes; their pictures are written to ``folder``/gallery."""
    (folder / "gallery").mkdir(parents=True, exist_ok=True)
    chance = random.Random(11)
    sets, pictures = [], {}
    for number, taken in enumerate(picks):
        looks = [(c, s, t, g) for c in COLOURS for s in SHAPES for t in TEXTURES for g in GROUNDS]
        base = chance.choice(looks)
        chance.shuffle(looks)
        near = sorted(looks, key=lambda look: sum(a != b for a, b in zip(look, base, strict=True)))
        ids = []
        for i, (colour, shape, texture, ground) in enumerate(near[:size]):
            id = f"scenes/test:{number}-{i}"
            file = f"gallery/{number}-{i}.{'jpg' if photos else 'png'}"
            image = draw(colour, shape, texture, ground, "blue", 640 if photos else 64)
            image.crop((0, 0, 640, 480)).save(folder / file) if photos else image.save(folder / file)
            pictures[id] = file
            ids.append(id)
        target = ids[0]
        ids[0], ids[number % size] = ids[number % size], ids[0]
        own = [id for id in ids if id != target]
        colour, shape, texture, ground = base
        captions = (f"a {shape} next to a box", f"a {texture} {colour} {shape} on {ground}, left above a blue square")
        systems = {}
        for name, caption, place in zip(("before", "after"), captions, taken, strict=True):
            winner = target if place == 0 else own[(place - 1) % len(own)]
            scores = {id: round(chance.uniform(18, 24), 4) for id in ids}
            scores[winner] = round(25 + chance.random() * 3, 4)
            # In every second set a claim of the later system is false.
            start = caption.find("left above") if number % 2 else -1
            false = [] if start < 0 else [[start, start + len("left above"), "not true in the picture"]]
            claims = {"correct": 5 - len(false), "of": 5, "false": false}
            systems[name] = {"caption": caption, "scores": scores, "picked": winner, "claims": claims}
        systems["human"] = systems["after"] | {"caption": f"{colour} {shape} in the {ground}", "claims": None}
        references = [f"a {colour} {shape} with a blue square", f"{texture} {shape}, {ground} behind it"]
        sets.append({"target": target, "candidates": ids, "references": references, "systems": systems})
    return {"sets": sets, "pictures": pictures}


RECIPE = """name = "scenes_reinforce"
seed = 7

[captioner]
name = "mini-clipcap"

[objective]
kind = "reinforce"
reward = "retrieval"
baseline = "running-mean"

[train]
steps = 400
batch_size = 100
learning_rate = 2e-5
"""


def make_run(folder: Path, *, name: str = "scenes_reinforce", shift: float = 0.0, **sample: Any) -> Path:
    """A whole run folder; ``sample`` goes to `gallery`."""
    folder.mkdir(parents=True, exist_ok=True)
    info = {
        "name": name,
        "created": "2026-11-01T14:05:09+00:00",
        "finished": "2026-11-01T14:06:48+00:00",
        "seconds": 99.4,
        "command": "tellapart train recipes/scenes_reinforce.toml --set seed=7",
        "seed": 7,
        "device": "cpu",
        "threads": 2,
        "commit": "a8f38a1",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "transformers": "5.23.0", "tellapart": "0.1.0"},
    }
    write(folder / "run.json", info)
    (folder / "recipe.toml").write_text(RECIPE)
    (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log_lines()))
    write(folder / "results.json", results(shift=shift))
    write(folder / "gallery.json", gallery(folder, **sample))
    return folder


def write(file: Path, content: Any) -> None:
    """``content`` as JSON."""
    file.write_text(json.dumps(content))


def change(file: Path, **entries: Any) -> None:
    """Replace entries of a JSON file."""
    write(file, json.loads(file.read_text()) | entries)
