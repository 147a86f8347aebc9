"""The end of a run: captions of the test pictures before and after, measured, with a gallery."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.captioners import Captioner, generate_captions, load_captioner
from tellapart.errors import UsageError
from tellapart.evaluation.evaluate import evaluate, gallery
from tellapart.evaluation.gallery import save_pictures
from tellapart.evaluation.word_values import add_word_values
from tellapart.inference.best_of import BestOf, chosen_captions
from tellapart.metrics.results import Results
from tellapart.scorers import Scorer, load_scorer
from tellapart.training.run_folder import Run, write_json, write_text, writing
from tellapart.training.setup import TrainingSetup
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds


def final_evaluation(setup: TrainingSetup, run: Run) -> Results | None:
    """Write ``captions/``, the gallery and, last, ``results.json``. None where there is nothing to measure.

    ``results.json`` says that the rest is there: a run killed before it is measured again.
    """
    if setup.recipe.data.test is None:
        return None
    captioners = {} if setup.recipe.trains == "scorer" else captioners_of(setup, run)
    systems = captioner_systems(setup, captioners) if captioners else scorer_systems(setup)
    start = next(iter(captioners.values()), None)  # what the run starts from, where it starts from one
    captioners.clear()  # the other one's memory is free from here on
    for name, captions in systems.items():
        lines = (json.dumps({"id": key, "caption": text}, ensure_ascii=False) for key, text in captions.items())
        with writing(run.folder):
            (run.folder / "captions").mkdir(exist_ok=True)
        write_text(run.folder / "captions" / f"{name}.jsonl", "".join(line + "\n" for line in lines))
    scorer = load_scorer(str(run.folder), setup.device) if setup.recipe.trains == "scorer" else setup.scorer
    settings = setup.recipe.evaluation
    features = None if scorer is None else np.asarray(setup.store.features(setup.test_items, scorer.encoder))
    results = evaluate(
        systems,
        items=setup.test_items,
        scorer=scorer,
        image_features=features,
        eval_scorers=load_eval_scorers(setup, settings.eval_scorers),
        human="mean" if setup.recipe.trains == "captioner" and all(i.references for i in setup.test_items) else None,
        lookalike=settings.lookalike,
        seed=setup.recipe.seed,
    )
    if scorer is not None and features is not None and settings.gallery:
        sets = gallery(results, setup.test_items, settings.gallery)
        if start is not None:
            visual = setup.view_of(start).rows(setup.test_items)
            add_word_values(sets, [item.id for item in setup.test_items], scorer, features, start, visual)
        write_gallery(run.folder, sets, setup.test_items)
    write_json(run.folder / "results.json", results.to_json())
    return results


def captioners_of(setup: TrainingSetup, run: Run) -> dict[str, Captioner]:
    """The captioner before (where the run had a start) and after."""
    captioners: dict[str, Captioner] = {}
    if setup.recipe.captioner is not None and setup.recipe.captioner.name is not None:
        captioners["before"] = setup.start()
    captioners["after"] = load_captioner(str(run.folder), setup.device, "fp32")
    return captioners


def captioner_systems(setup: TrainingSetup, captioners: dict[str, Captioner]) -> dict[str, dict[str, str]]:
    """Each captioner's captions of the test pictures, by id; where the decoding asks a scorer, it is [scorer]."""
    decoding = setup.recipe.evaluation.decoding
    items, chooser = setup.test_items, None
    if decoding.asks_scorer:
        assert setup.scorer is not None
        features = np.asarray(setup.store.features(items, setup.scorer.encoder))
        chooser = BestOf.of_features(setup.scorer, [item.id for item in items], features)
    systems = {}
    for name, captioner in captioners.items():
        say(f"captions of {len(items):,} test pictures: {name}")
        visual = setup.view_of(captioner).rows(items)
        seeds = ItemSeeds(tuple(item.id for item in items), setup.recipe.seed)
        if chooser is None:
            texts = generate_captions(captioner, visual, decoding, seeds=seeds)
        else:
            texts = chosen_captions(captioner, visual, decoding, items, chooser, seeds)
        systems[name] = {item.id: text for item, text in zip(items, texts, strict=True)}
    return systems


def scorer_systems(setup: TrainingSetup) -> dict[str, dict[str, str]]:
    """A scorer is measured on what people wrote: the first reference of each picture."""
    if bare := [item.id for item in setup.test_items if not item.references]:
        raise UsageError(
            f"data.test: {len(bare)} of {len(setup.test_items)} pictures have no reference, such as {bare[0]}; "
            "a scorer is measured on references; name other pictures, or leave data.test out"
        )
    return {"first_reference": {item.id: item.references[0] for item in setup.test_items}}


def load_eval_scorers(setup: TrainingSetup, names: tuple[str, ...]) -> dict[str, tuple[Scorer, np.ndarray]]:
    """Further scorers with their features of the test pictures, by short name."""
    found: dict[str, tuple[Scorer, np.ndarray]] = {}
    for name in names:
        short = Path(name).name.removesuffix(".toml")
        if short in found:
            raise UsageError(f"evaluation.eval_scorers: two are called '{short}'; rename one")
        scorer = load_scorer(setup.upstream(name), setup.device)
        found[short] = (scorer, np.asarray(setup.store.features(setup.test_items, scorer.encoder)))
    return found


def write_gallery(folder: Path, sets: dict[str, Any], items: list[Item]) -> None:
    """``gallery.json`` and a small copy of each picture that it shows; of a clip four frames."""
    with writing(folder / "gallery"):
        pictures = save_pictures(folder, sets, items)
    write_json(folder / "gallery.json", {**sets, "pictures": pictures})
