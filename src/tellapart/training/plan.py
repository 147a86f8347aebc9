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
from tellapart.training.picture_survey import check_pictures

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
    objective = objective or default_objective(photos=photos)
    table = objective_table(objective)
    count, longest = check_pictures(pictures, objective, table)
    data, learned_from = split_data(pictures, count)
    if batch_size is not None and batch_size > learned_from:
        raise UsageError(
            f"--batch-size {batch_size} exceeds the number of training pictures: {learned_from:,} of {count:,} "
            f"pictures remain after holding out validation and test pictures; use at most {learned_from:,}"
        )
    parts = parts_of_data(count)
    batch = batch_size or min(BATCH_SIZE, count * (parts - 2) // parts)
    before = None if overwrite else planned(folder)
    if epochs is not None:
        steps = max(1, round(epochs * learned_from / batch))
    steps = steps_after(before, steps, folder)
    if table["kind"] == "reinforce":
        table = {"decoding": SAMPLED, **table}
    captions = batch * table.get("decoding", {}).get("samples", 1)
    references = table["kind"] != "reinforce" and reads_references(table)
    tokens = math.ceil(TOKENS_A_WORD * longest) if references else max_tokens
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
            **training_table(steps, batch, rate or (LORA_RATE if lora else RATE)),
            "gradient_accumulation_steps": before.gradient_accumulation_steps
            if before
            else parts_of_batch(model, captions, tokens),
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


def parts_of_data(count: int) -> int:
    """Returns the number of parts to split the pictures into.

    The last part is the test set, and the second-to-last part is the validation set.
    """
    return 4 if count < 40 else 10 if count <= 10_000 else 50


def split_data(pictures: Sequence[str], count: int) -> tuple[dict[str, list[str]], int]:
    """Returns the table ``data`` and the number of training pictures."""
    parts = parts_of_data(count)
    places = {"train": range(1, parts - 1), "validation": [parts - 1], "test": [parts]}
    data = {name: [part_of(spec, chosen, parts) for spec in pictures] for name, chosen in places.items()}
    # limit=… in a specification applies to each part, so the number is not always (parts − 2) / parts of all pictures.
    return data, len(open_many(data["train"]))


def training_table(steps: int, batch_size: int, learning_rate: float) -> dict[str, Any]:
    """Returns the keys of the ``training`` table that depend on these arguments."""
    return {
        "steps": steps,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "schedule": "linear",
        "warmup": min(10, steps // 10),
        "checkpoint_every": max(1, steps // 6),
    }


def checked(table: dict[str, Any], settings: Sequence[str]) -> Recipe:
    """Applies ``settings`` to a table and validates the table.

    Returns a recipe that selects the checkpoint by the objective's own metric, unless ``settings`` name another metric.
    """
    for setting in settings:
        apply_override(table, setting)
    recipe = check_recipe(table, "finetune")
    if recipe.validation.select is not None:
        return recipe
    # Among look-alikes, recall does not saturate.
    select = "recall@1.lookalike" if recipe.objective.measure == "recall" else recipe.select
    apply_override(table, f"validation.select={select}")
    return check_recipe(table, "finetune")


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


def planned(folder: Path | None) -> Training | None:
    """Returns the training settings of the run in this folder, or None if there is no run."""
    if folder is None or not (folder / "run.json").is_file() or not (folder / "recipe.toml").is_file():
        return None
    return read_recipe(folder / "recipe.toml").training
