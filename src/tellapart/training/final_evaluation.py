"""Evaluates a finished run: writes captions, results and the gallery for data.test and additional test sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.errors import UsageError
from tellapart.evaluation.candidate_inputs import CandidateInputs
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.gallery import gallery, save_pictures
from tellapart.evaluation.language_model import load_language_model
from tellapart.evaluation.matching import match_files, read_references
from tellapart.evaluation.word_values import add_word_values
from tellapart.metrics.results import Results
from tellapart.scorers import Scorer, load_scorer
from tellapart.training.build import TrainingSetup
from tellapart.training.final_captions import captioner_systems, captioners_of, scorer_systems, write_captions
from tellapart.training.kept_start import kept_start
from tellapart.training.opened_tests import OpenedTest, candidates_of, open_tests
from tellapart.training.run_files import write_json, writing
from tellapart.training.run_folder import Run
from tellapart.types import Item


def final_evaluation(setup: TrainingSetup, run: Run) -> Results | None:
    """Writes ``captions/``, the gallery and ``results.json``. Returns None if there is no test data.

    ``results.json`` is written last and marks the evaluation as complete. If the process was killed before that, the
    evaluation is repeated.
    """
    if setup.recipe.data.test is None:
        return None
    settings, items, learns_scorer = setup.recipe.evaluation, setup.test_items, setup.recipe.trains == "scorer"
    main = OpenedTest("", None, None, items, settings.decoding)
    tests = [main, *open_tests(setup)]
    captioners = {} if learns_scorer else captioners_of(setup, run)
    systems = {}
    for test in tests:
        systems[test.name] = (
            scorer_systems(test.items, test.key)
            if learns_scorer
            else captioner_systems(setup, captioners, test.items, test.decoding, test.name)
        )
        write_captions(run.folder / "captions" / test.name, systems[test.name])
    start = next(iter(captioners.values()), None)  # the captioner before training, if there is one
    captioners.clear()  # frees the memory of the trained captioner
    scorer = load_scorer(str(run.folder), setup.device) if learns_scorer else setup.scorer
    eval_scorers = {} if scorer is None else load_eval_scorers(setup)
    results = measured(setup, systems[""], main, scorer, eval_scorers)
    if scorer is not None and settings.gallery:
        sets = gallery(results, items, settings.gallery)
        if start is not None:
            features = image_features(setup, scorer, items)
            add_word_values(
                sets, [item.id for item in items], scorer, features, start, setup.view_of(start).rows(items)
            )
        write_gallery(run.folder, sets, items)
    for test in tests[1:]:
        results.test_sets[test.name] = measured(setup, systems[test.name], test, scorer, eval_scorers)
    if run.info.get("kept_step") == 0:
        results.notes.insert(0, kept_start(setup.recipe))
    write_json(run.folder / "results.json", results.to_json())
    return results


def check_tests(setup: TrainingSetup) -> None:
    """Raises `UsageError` if the run cannot be evaluated after training. Call it before training."""
    eval_scorer_names(setup)
    for test in open_tests(setup, read=False):
        candidates_of(test)
        if setup.recipe.trains == "scorer":
            scorer_systems(test.items, test.key)


def measured(
    setup: TrainingSetup,
    systems: Mapping[str, Mapping[str, str]],
    test: OpenedTest,
    scorer: Scorer | None,
    eval_scorers: Mapping[str, Scorer],
) -> Results:
    """Evaluates captions for a test set, with its own bags, hard pool and references."""
    settings, on, items = setup.recipe.evaluation, test.on, test.items
    if on is not None and not on.has_pictures:
        scorer, eval_scorers = None, {}
    references, candidates, language_model = None, CandidateInputs(), None
    if scorer is not None:
        candidates = candidates_of(test)
    if on is not None and on.references:
        files = read_references([Path(path) for path in on.references])
        _, references, _ = match_files({}, files, test.dataset, True, 0.0)
    if on is not None and on.language_model is not None:
        language_model = load_language_model(on.language_model, setup.device)
    texts = {item.id: item.references for item in items} if references is None else references
    results = evaluate(
        systems,
        items=items,
        references=references,
        scorer=scorer,
        image_features=None if scorer is None else image_features(setup, scorer, items),
        eval_scorers={name: (each, image_features(setup, each, items)) for name, each in eval_scorers.items()},
        human="mean" if setup.recipe.trains == "captioner" and all(texts.get(item.id) for item in items) else None,
        lookalike=settings.lookalike,
        seed=setup.recipe.seed,
        language_model=language_model,
        candidates=candidates,
    )
    results.notes[:0] = candidates.notes
    return results


def image_features(setup: TrainingSetup, scorer: Scorer, items: list[Item]) -> np.ndarray:
    return np.asarray(setup.store.features(items, scorer.encoder))


def load_eval_scorers(setup: TrainingSetup) -> dict[str, Scorer]:
    """Loads the held-out scorers, and trains those that are recipes. Returns them by short name."""
    names = eval_scorer_names(setup)
    return {short: load_scorer(setup.upstream(name), setup.device) for short, name in names.items()}


def eval_scorer_names(setup: TrainingSetup) -> dict[str, str]:
    """Returns the held-out scorers in the recipe by short name. Raises `UsageError` if two have the same short name."""
    names: dict[str, str] = {}
    for name in setup.recipe.evaluation.eval_scorers:
        short = Path(name).name.removesuffix(".toml")
        if short in names:
            raise UsageError(f"evaluation.eval_scorers contains two scorers named '{short}'; rename one of them")
        names[short] = name
    return names


def write_gallery(folder: Path, sets: dict[str, Any], items: list[Item]) -> None:
    """Writes ``gallery.json``, and a small copy of each picture in the gallery (four frames for a clip)."""
    with writing(folder / "gallery"):
        pictures = save_pictures(folder, sets, items)
    write_json(folder / "gallery.json", {**sets, "pictures": pictures})
