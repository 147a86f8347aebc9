"""The captions of the test pictures, by the captioners before and after training or, for a scorer, their references."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tellapart.captioners import Captioner, generate_captions, load_captioner
from tellapart.errors import UsageError
from tellapart.inference.best_of import BestOf, chosen_captions
from tellapart.models.decoding import Decoding
from tellapart.training.build import TrainingSetup
from tellapart.training.run_files import write_text, writing
from tellapart.training.run_folder import Run
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds


def write_captions(folder: Path, systems: Mapping[str, Mapping[str, str]]) -> None:
    """Writes each system's captions to ``SYSTEM.jsonl``, one ``{"id": …, "caption": …}`` per line."""
    for name, captions in systems.items():
        lines = (json.dumps({"id": key, "caption": text}, ensure_ascii=False) for key, text in captions.items())
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{name}.jsonl", "".join(line + "\n" for line in lines))


def captioners_of(setup: TrainingSetup, run: Run) -> dict[str, Captioner]:
    """Returns the captioner ``before`` training (if the run started from an existing captioner) and ``after`` it."""
    captioners: dict[str, Captioner] = {}
    if setup.recipe.captioner is not None and setup.recipe.captioner.name is not None:
        captioners["before"] = setup.start()
    captioners["after"] = load_captioner(str(run.folder), setup.device, "fp32")
    return captioners


def captioner_systems(
    setup: TrainingSetup, captioners: dict[str, Captioner], items: list[Item], decoding: Decoding, test: str = ""
) -> dict[str, dict[str, str]]:
    """Generates each captioner's captions for the test pictures, by id.

    If the decoding settings require a scorer, uses the recipe's scorer.
    """
    chooser, of_test = None, f" of {test}" if test else ""
    if decoding.asks_scorer:
        assert setup.scorer is not None
        features = np.asarray(setup.store.features(items, setup.scorer.encoder))
        chooser = BestOf.of_features(setup.scorer, [item.id for item in items], features)
    systems = {}
    for name, captioner in captioners.items():
        say(f"captioning {len(items):,} test pictures{of_test}: {name}")
        visual = setup.view_of(captioner).rows(items)
        seeds = ItemSeeds(tuple(item.id for item in items), setup.recipe.seed)
        if chooser is None:
            texts = generate_captions(captioner, visual, decoding, seeds=seeds)
        else:
            texts = chosen_captions(captioner, visual, decoding, items, chooser, seeds)
        systems[name] = {item.id: text for item, text in zip(items, texts, strict=True)}
    return systems


def scorer_systems(items: list[Item], key: str) -> dict[str, dict[str, str]]:
    """Returns the texts on which to evaluate a scorer: each picture's first reference, by id.

    ``key``: the recipe key that errors name.
    """
    if bare := [item.id for item in items if not item.references]:
        raise UsageError(
            f"{key}: {len(bare)} of {len(items)} pictures have no reference (first: {bare[0]}); scorers are "
            f"evaluated on references, so use other pictures, or remove {key}"
        )
    return {"first_reference": {item.id: item.references[0] for item in items}}
