"""``tellapart finetune``: a captioner and pictures, and the settings that fit them, as a recipe of the one loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from tellapart.data import open_many
from tellapart.data.dataset import Dataset
from tellapart.errors import PictureError, TellapartError, UsageError
from tellapart.models import ranks
from tellapart.models.device import best_device, resolve_precision
from tellapart.recipe.overrides import apply_override
from tellapart.recipe.presets import objective_table, reads_references
from tellapart.recipe.reading import check_recipe, read_recipe
from tellapart.recipe.schema import Recipe, Training
from tellapart.training.fingerprint import picture_identity
from tellapart.training.run_folder import Run, write_text
from tellapart.types import Item
from tellapart.utils.messages import say

CLIP = "openai/clip-vit-base-patch32"  # the listener where none is named: small, and known to everybody
SAMPLED = {"kind": "sample", "temperature": 0.5, "samples": 4}
RATE, LORA_RATE = 3e-5, 3e-4
TOKENS_A_WORD = 1.4  # about what tokenizers of English make of a caption's words, punctuation counted
STEPS, BATCH = 300, 50
FEWEST = 8  # pictures: two held out for the table, two for validation, and some to learn from
SHARE = 0.4  # of the free memory, for what the backward pass keeps


def plan(
    model: str,
    pictures: Sequence[str],
    *,
    objective: str = "truthful-self-retrieval",
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
    """The recipe for this captioner and these pictures.

    A tenth of the pictures is held out for validation and another for the table before and after (a quarter each where
    there are fewer than forty). ``scorer``: default ``scenes`` for pictures of the synthetic world, else `CLIP`.
    ``batch_size``: pictures a step, by default `BATCH` or what is there; its backward pass goes in as many parts as
    free memory asks for. ``epochs``: passes over the training pictures, in place of ``steps`` (default `STEPS`).
    ``settings``: further keys as ``--set`` has them, which overrule all else. ``folder``: the run's; what free memory
    and hardware decided when it began there is kept, for it is part of what is trained, and so are its steps where none
    are given. ``overwrite``: not so.

    Raises `UsageError` for an unknown objective, too few pictures, pictures without the references that the objective
    reads, and where fewer steps are given than a run in ``folder`` has.
    """
    if steps is not None and epochs is not None:
        raise UsageError("--steps and --epochs both say how long to train; leave one of them out")
    photos = not all(spec.startswith("scenes") for spec in pictures)
    objective_options = objective_table(objective, photos=photos)
    count, bare, longest = survey(pictures)
    if bare and reads_references(objective_options):
        raise UsageError(
            f"{bare:,} of {count:,} pictures have no reference, which objective '{objective}' learns from; "
            "give captions of them, or type --objective self-retrieval"
        )
    parts = 4 if count < 40 else 10 if count <= 10_000 else 50
    train = [part_of(spec, range(1, parts - 1), parts) for spec in pictures]
    learned_from = len(
        open_many(train)
    )  # limit=… in a specification is of each part, so not (parts − 2) / parts of all
    if batch_size is not None and batch_size > learned_from:
        raise UsageError(
            f"--batch-size {batch_size}: of {count:,} pictures {learned_from:,} are left to learn from; "
            "expected at most so many"
        )
    batch = batch_size or min(BATCH, count * (parts - 2) // parts)
    before = None if overwrite else planned(folder)
    if epochs is not None:
        steps = max(1, round(epochs * learned_from / batch))
    if before is not None and steps is not None and steps < before.steps:
        raise UsageError(
            f"{folder} holds a run of {before.steps:,} steps; expected more of them, to go on with it (--steps "
            f"{2 * before.steps}); to begin anew with {steps:,}, type: --overwrite, or another --out"
        )
    steps = steps or (before.steps if before else STEPS)
    rewarded = objective_options["kind"] == "reinforce"
    decoding = {"kind": "greedy", "max_tokens": max_tokens}
    tokens = math.ceil(TOKENS_A_WORD * longest) if reads_references(objective_options) and not rewarded else max_tokens
    test_size = max(2, count // parts)
    table = {
        "name": "finetune",
        "about": f"{objective} on {' '.join(pictures)}, settings by tellapart finetune.",
        "seed": seed,
        "data": {
            "train": train,
            "validation": [part_of(spec, [parts - 1], parts) for spec in pictures],
            "test": [part_of(spec, [parts], parts) for spec in pictures],
        },
        "captioner": {"name": model} | ({"lora": {}, "train": ["language_model"]} if lora else {}),
        "scorer": {"name": scorer or (CLIP if photos else "scenes")},
        "objective": as_long(objective_options | {"decoding": SAMPLED}, max_tokens) if rewarded else objective_options,
        "training": {
            "steps": steps,
            "batch_size": batch,
            "gradient_accumulation_steps": before.gradient_accumulation_steps
            if before
            else parts_of_batch(model, batch * (SAMPLED["samples"] if rewarded else 1), tokens),  # type: ignore[operator]
            "learning_rate": rate or (LORA_RATE if lora else RATE),
            "schedule": "linear",
            "warmup": min(10, steps // 10),
            "precision": before.precision if before else resolve_precision("auto", best_device()),
            "checkpoint_every": max(1, steps // 6),
        },
        "validation": {
            "every": max(1, steps // 4),
            "limit": 500,
            "select": "recall@1.lookalike",
            "decoding": decoding,
        },
        "evaluation": {"decoding": decoding, "lookalike": min(10, test_size)},
    }
    for setting in settings:
        apply_override(table, setting)
    return check_recipe(table, "finetune")


def as_long(objective: Mapping[str, Any], max_tokens: int) -> dict[str, Any]:
    """This table [objective] with ``max_tokens`` of its samples, and of those that its rewards draw."""
    longer = {"decoding": {**objective["decoding"], "max_tokens": max_tokens}} if "decoding" in objective else {}
    rewards = [as_long(reward, max_tokens) for reward in objective.get("rewards", ())]
    return {**objective, **longer} | ({"rewards": rewards} if rewards else {})


def survey(pictures: Sequence[str]) -> tuple[int, int, int]:
    """How many pictures there are, how many have no reference, and the words of the longest reference."""
    dataset = open_many(list(pictures))
    count = len(dataset)
    if count < FEWEST:
        raise UsageError(
            f"{' '.join(pictures)}: {count} pictures; expected at least {FEWEST}, some of them to be held out"
        )
    if (different := different_pictures(dataset)) < FEWEST:
        raise UsageError(
            f"{' '.join(pictures)}: {count} pictures, {different} of them different; expected at least {FEWEST}, for "
            "what is held out must not be a copy of what is learned"
        )
    references = [item.references for item in dataset]
    longest = max((len(text.split()) for texts in references for text in texts), default=0)
    return count, sum(not texts for texts in references), longest


def different_pictures(dataset: Dataset) -> int:
    """How many pictures are no copies of each other, by their bytes; counted to `FEWEST`."""
    found: set[int | str] = set()
    for identity in (picture_identity, key_of):  # by their files' sizes, where these say enough
        found = set()
        for item in dataset:
            found.add(identity(item))
            if len(found) == FEWEST:
                return FEWEST
    return len(found)


def key_of(item: Item) -> str:
    """The picture's content, or its id where it cannot be read: that is told where it is to be encoded."""
    try:
        return item.picture.key()
    except PictureError:
        return item.id


def part_of(spec: str, chosen: Sequence[int], parts: int) -> str:
    """The specification of some of its parts; a bare folder is one of kind ``folder``."""
    if "part=" in spec:
        raise UsageError(f"{spec} has a part of its own, and finetune holds parts out; leave part=… away")
    return f"{spec}{'&' if '?' in spec else '?'}part={','.join(map(str, chosen))}/{parts}"


def planned(folder: Path | None) -> Training | None:
    """The settings of the run in this folder; None where none has begun."""
    if folder is None or not (folder / "run.json").is_file() or not (folder / "recipe.toml").is_file():
        return None
    return read_recipe(folder / "recipe.toml").training


def parts_of_batch(model: str, captions: int, tokens: int) -> int:
    """How many parts the backward pass goes in, so that what it keeps of the language model fits into memory.

    A token keeps some 34 hidden vectors a layer and three rows of scores (Korthikanti et al. 2022, table 2), each of
    four bytes. 1 where the model's size cannot be read before it is loaded.
    """
    from transformers import AutoConfig

    import tellapart.captioners.clipcap  # noqa: F401  (registers its configuration)
    from tellapart.models.loading import checked_model_folder

    bare, _, options = model.partition("?")
    named = dict(parse_qsl(options)).get("language_model", bare)  # of a ClipCap, and of published weights of one
    try:
        text = AutoConfig.from_pretrained(
            checked_model_folder(named, "captioner"), trust_remote_code=False
        ).get_text_config()
        size: int = text.num_hidden_layers * text.hidden_size * 34 + text.vocab_size * 3
    except (OSError, ValueError, AttributeError, TellapartError):
        return 1  # a wrong name is reported when it is loaded
    return max(1, math.ceil(4 * captions * (tokens + 20) * size / (SHARE * free_memory())))


def free_memory() -> int:
    """Bytes, of the GPU where there is one; the main rank's, for all ranks plan the same run."""
    import torch

    if torch.cuda.is_available():
        return int(ranks.from_main(torch.cuda.mem_get_info()[0]))
    import psutil

    return int(ranks.from_main(psutil.virtual_memory().available / ranks.count()))


def summary(recipe: Recipe, out: Path) -> str:
    """What is trained on what, and for how long, in one line."""
    specs = [recipe.data.train, recipe.data.validation, recipe.data.test or ()]
    train, validation, test = (len(open_many([one] if isinstance(one, str) else one)) for one in specs)
    steps, batch = recipe.training.steps, recipe.training.batch_size
    return (
        f"{recipe.about.partition(', settings')[0]}: {train:,} pictures to learn from, {validation:,} for validation, "
        f"{test:,} for the table; {steps:,} steps of {batch:,} pictures; all settings: {out / 'recipe.toml'}"
    )


def run_finetune(
    recipe: Recipe, out: Path, *, hub_id: str | None = None, private: bool = False, overwrite: bool = False
) -> Run:
    """Train the recipe into ``out``, or go on there, also for more steps; put a card beside the model.

    ``hub_id``: upload both. ``overwrite``: remove the run that is there.
    """
    from tellapart.training.hub import check_hub, push_folder
    from tellapart.training.model_card import FILE, model_card
    from tellapart.training.runs import train

    repository = None if hub_id is None else check_hub(hub_id)
    run = train(recipe, out, resume=True, overwrite=overwrite, extend=True, summary=summary(recipe, out))
    if not ranks.is_main():
        return run
    model = run.folder / "model"
    write_text(model / FILE, model_card(run, repository))
    if repository is not None:
        say(f"pushed to {push_folder(model, repository, private=private)}")
    return run
