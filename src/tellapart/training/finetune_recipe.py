"""Plans the recipe that ``finetune`` uses to train a captioner on pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tellapart.data import open_many
from tellapart.errors import UsageError
from tellapart.models.devices import best_device
from tellapart.models.precision import resolve_precision
from tellapart.recipe.overrides import apply_override
from tellapart.recipe.presets import default_objective, objective_table, reads_references
from tellapart.recipe.reading import check_recipe, read_recipe
from tellapart.recipe.schema import Recipe, Training
from tellapart.training.micro_batches import parts_of_batch
from tellapart.training.picture_survey import survey_pictures

CLIP = "openai/clip-vit-base-patch32"  # default scorer: small and widely known
SAMPLED = {"kind": "sample", "temperature": 0.5, "samples": 4}
RATE, LORA_RATE = 3e-5, 3e-4
TOKENS_A_WORD = 1.4  # average number of tokens per English word, including punctuation
STEPS, BATCH_SIZE = 300, 50


def plan(
    model: str,
    pictures: Sequence[str],
    *,
    objective: str | None = None,
    scorer: str | None = None,
    lora: bool = False,
    steps: int | None = None,
    epochs: float | None = None,
    batch_size: int | None = None,
    rate: float | None = None,
    max_tokens: int = 30,
    seed: int = 0,
    settings: Sequence[str] = (),
    folder: Path | None = None,
    overwrite: bool = False,
) -> Recipe:
    """Plans the recipe for a captioner and pictures.

    Holds out a tenth of the pictures for validation, and another tenth for the test set (a quarter each if there are
    fewer than forty pictures, and a fiftieth each if there are more than ten thousand).

    Args:
        objective: name of a preset [default: `default_objective`].
        scorer: name of the scorer [default: ``scenes`` for pictures of the synthetic world, otherwise `CLIP`].
        steps: number of training steps [default: the steps of the run in ``folder``, otherwise `STEPS`].
        epochs: number of passes over the training pictures; replaces ``steps``.
        batch_size: pictures per step, split into micro-batches that fit into memory [default: at most `BATCH_SIZE`].
        settings: additional keys as in ``--set``, which override everything else.
        folder: the run's folder. If it contains a run, the run's precision and number of micro-batches are reused,
            because they affect the result.
        overwrite: whether to ignore the run in ``folder``.

    Raises:
        UsageError: if the objective is unknown, if there are too few pictures, if pictures lack references that the
            objective requires, or if the run in ``folder`` has more steps.
    """
    if steps is not None and epochs is not None:
        raise UsageError("--steps and --epochs both set the length of training; remove one of them")
    photos = not all(spec.startswith("scenes") for spec in pictures)
    table = objective_table(objective := objective or default_objective(photos=photos))
    count, longest = survey_pictures(pictures, objective, table)
    data, parts, learned_from = split_data(pictures, count)
    if batch_size is not None and batch_size > learned_from:
        raise UsageError(
            f"--batch-size {batch_size} exceeds the number of training pictures: {learned_from:,} of {count:,} "
            f"pictures remain after holding out validation and test pictures; use at most {learned_from:,}"
        )
    batch = batch_size or min(BATCH_SIZE, count * (parts - 2) // parts)
    before = None if overwrite else settings_of_run(folder)
    steps = steps_after(before, steps if epochs is None else max(1, round(epochs * learned_from / batch)), folder)
    if table["kind"] == "reinforce":
        table = {"decoding": SAMPLED, **table}
    captions = batch * table.get("decoding", {}).get("samples", 1)
    learned = table["kind"] != "reinforce" and reads_references(table)
    tokens = math.ceil(TOKENS_A_WORD * longest) if learned else max_tokens
    micro_batches = before.gradient_accumulation_steps if before else parts_of_batch(model, captions, tokens)
    decoding = {"kind": "greedy", "max_tokens": max_tokens}
    recipe = {
        "name": "finetune",
        "about": f"{objective} on {' '.join(pictures)}, settings chosen by tellapart finetune.",
        "seed": seed,
        "data": data,
        "captioner": {"name": model} | ({"lora": {}, "train": ["language_model"]} if lora else {}),
        "scorer": {"name": scorer or (CLIP if photos else "scenes")},
        "objective": as_long(table, max_tokens),
        "training": {
            "steps": steps,
            "batch_size": batch,
            "learning_rate": rate or (LORA_RATE if lora else RATE),
            "schedule": "linear",
            "warmup": min(10, steps // 10),
            "checkpoint_every": max(1, steps // 6),
            "gradient_accumulation_steps": micro_batches,
            "precision": before.precision if before else resolve_precision("auto", best_device()),
        },
        "validation": {"every": max(1, steps // 4), "limit": 500, "decoding": decoding},
        "evaluation": {"decoding": decoding, "lookalike": min(10, max(2, count // parts))},
    }
    return checked(recipe, settings)


def steps_after(before: Training | None, steps: int | None, folder: Path | None) -> int:
    """Returns the number of training steps.

    ``before``: the settings of the run in ``folder``, if there is one. Raises `UsageError` if this run has more steps
    than ``steps``.
    """
    if before is not None and steps is not None and steps < before.steps:
        raise UsageError(
            f"{folder} contains a run of {before.steps:,} steps; to continue this run, train for more steps, for "
            f"example --steps {2 * before.steps}; to start over with {steps:,} steps, add --overwrite, or set another "
            "--out"
        )
    return steps or (before.steps if before else STEPS)


def as_long(objective: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """Returns the [objective] table with ``max_tokens`` set for its own samples and for its rewards' samples."""
    longer = {"decoding": {**objective["decoding"], "max_tokens": max_tokens}} if "decoding" in objective else {}
    rewards = [as_long(reward, max_tokens) for reward in objective.get("rewards", ())]
    return {**objective, **longer} | ({"rewards": rewards} if rewards else {})


def part_of(spec: str, chosen: Sequence[int], parts: int) -> str:
    """Returns the specification that selects these parts of the data."""
    if "part=" in spec:
        raise UsageError(f"{spec} already selects a part, but finetune holds parts out itself; remove part=…")
    return f"{spec}{'&' if '?' in spec else '?'}part={','.join(map(str, chosen))}/{parts}"


def settings_of_run(folder: Path | None) -> Training | None:
    """Returns the training settings of the run in this folder, or None if there is no run."""
    if folder is None or not (folder / "run.json").is_file() or not (folder / "recipe.toml").is_file():
        return None
    return read_recipe(folder / "recipe.toml").training


def checked(recipe: dict[str, Any], settings: Sequence[str]) -> Recipe:
    """Applies ``settings`` to a table and validates it. By default, selects the checkpoint by the objective's own
    metric.
    """
    for setting in settings:
        apply_override(recipe, setting)
    planned = check_recipe(recipe, "finetune")
    if planned.validation.select is None:
        # Among look-alikes, recall does not saturate.
        select = "recall@1.lookalike" if planned.objective.measure == "recall" else planned.select
        apply_override(recipe, f"validation.select={select}")
    return check_recipe(recipe, "finetune")


def split_data(pictures: Sequence[str], count: int) -> tuple[dict[str, list[str]], int, int]:
    """Returns the table ``data``, the number of parts, and the number of training pictures.

    The last part is the test set, and the second-to-last part is the validation set.
    """
    parts = 4 if count < 40 else 10 if count <= 10_000 else 50
    places = {"train": range(1, parts - 1), "validation": [parts - 1], "test": [parts]}
    data = {name: [part_of(spec, chosen, parts) for spec in pictures] for name, chosen in places.items()}
    # limit=… in a specification applies to each part, so the number is not always (parts − 2) / parts of all pictures.
    return data, parts, len(open_many(data["train"]))
