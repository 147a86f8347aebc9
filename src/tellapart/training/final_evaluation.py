"""Evaluates a finished run: writes captions, results and the gallery for data.test and additional test sets."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.captioners import Captioner, generate_captions, load_captioner
from tellapart.data import Dataset, open_data
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_files import read_bag_sets, read_candidates
from tellapart.evaluation.eval_inputs import CandidateInputs
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.gallery import gallery
from tellapart.evaluation.gallery_pictures import save_pictures
from tellapart.evaluation.language_model import load_language_model
from tellapart.evaluation.matching import match_files, read_references
from tellapart.evaluation.word_values import add_word_values
from tellapart.inference.best_of import BestOf, chosen_captions
from tellapart.metrics.results import Results
from tellapart.models.decoding import Decoding
from tellapart.recipe.schema import TestSet
from tellapart.scorers import Scorer, load_scorer
from tellapart.training.build import TrainingSetup, readable
from tellapart.training.loop import kept_start
from tellapart.training.run_folder import Run, write_json, write_text, writing
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds


def final_evaluation(setup: TrainingSetup, run: Run) -> Results | None:
    """Writes ``captions/``, the gallery and ``results.json``. Returns None if there is no test data.

    ``results.json`` is written last and marks the evaluation as complete. If the process was killed before that, the
    evaluation is repeated.
    """
    if setup.recipe.data.test is None:
        return None
    settings = setup.recipe.evaluation
    tests = {name: open_test(setup, name, on) for name, on in settings.test_sets.items()}
    captioners = {} if setup.recipe.trains == "scorer" else captioners_of(setup, run)

    def written(name: str, items: list[Item], decoding: Decoding) -> dict[str, dict[str, str]]:
        """Generates and writes the captions for a test set. ``name`` is "" for data.test."""
        if captioners:
            systems = captioner_systems(setup, captioners, items, decoding, name)
        else:
            systems = scorer_systems(items, f"evaluation.test_sets.{name}" if name else "data.test")
        write_captions(run.folder / "captions" / name, systems)
        return systems

    systems = written("", setup.test_items, settings.decoding)
    of_tests = {name: written(name, test.items, test.decoding) for name, test in tests.items()}
    start = next(iter(captioners.values()), None)  # the captioner before training, if there is one
    captioners.clear()  # frees the memory of the trained captioner
    scorer = load_scorer(str(run.folder), setup.device) if setup.recipe.trains == "scorer" else setup.scorer
    results = measured(setup, systems, setup.test_items, scorer)
    if scorer is not None and settings.gallery:
        sets = gallery(results, setup.test_items, settings.gallery)
        if start is not None:
            features = np.asarray(setup.store.features(setup.test_items, scorer.encoder))
            visual = setup.view_of(start).rows(setup.test_items)
            add_word_values(sets, [item.id for item in setup.test_items], scorer, features, start, visual)
        write_gallery(run.folder, sets, setup.test_items)
    for name, test in tests.items():
        results.test_sets[name] = measured(setup, of_tests[name], test.items, scorer, test)
    if run.info.get("kept_step") == 0:
        results.notes.insert(0, kept_start(setup.recipe))
    write_json(run.folder / "results.json", results.to_json())
    return results


def write_captions(folder: Path, systems: Mapping[str, Mapping[str, str]]) -> None:
    """Writes each system's captions to ``SYSTEM.jsonl``, one ``{"id": …, "caption": …}`` per line."""
    for name, captions in systems.items():
        lines = (json.dumps({"id": key, "caption": text}, ensure_ascii=False) for key, text in captions.items())
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{name}.jsonl", "".join(line + "\n" for line in lines))


@dataclass(frozen=True)
class OpenedTest:
    """An additional test set. ``items``: the items to caption. ``decoding``: the decoding settings for them."""

    name: str
    on: TestSet
    dataset: Dataset
    items: list[Item]
    decoding: Decoding


def open_test(setup: TrainingSetup, name: str, on: TestSet, *, read: bool = True) -> OpenedTest:
    """Opens a test set from ``evaluation.test_sets``. Raises `UsageError` if a file is missing.

    ``read``: whether to read the pictures and leave out unreadable ones.
    """
    where = f"evaluation.test_sets.{name}"
    for missing, why in on.absent().items():
        raise UsageError(f"{where} requires {missing} ({why}), which does not exist; create it, or remove the test set")
    for path in (*on.bags, *on.references):
        if not Path(path).exists():
            raise UsageError(
                f"{where}: {path} does not exist; expected a file that 'eval' accepts for --bags or --references"
            )
    dataset = open_data(on.data)
    captioned = dataset if on.captioned is None else open_data(on.captioned)
    items = readable(setup, captioned) if read else list(captioned)
    decoding = setup.recipe.evaluation.decoding
    if on.max_tokens is not None:
        decoding = decoding.model_copy(update={"max_tokens": on.max_tokens})
    return OpenedTest(name, on, dataset, items, decoding)


def candidates_of(test: OpenedTest) -> CandidateInputs:
    """Reads a test set's bags and hard pool. Raises `UsageError` if they do not match the captioned pictures."""
    ids = [item.id for item in test.items]
    sets, notes = read_bag_sets([Path(path) for path in test.on.bags], test.dataset)
    try:
        inputs = read_candidates(sets, test.on.distractors, ids, test.dataset, "the recipe's")
    except UsageError as error:
        raise UsageError(f"evaluation.test_sets.{test.name}: {error}") from None
    return replace(inputs, notes=[*notes, *inputs.notes])


def check_tests(setup: TrainingSetup) -> None:
    """Raises `UsageError` if a test set cannot be evaluated after training. Call it before training."""
    for name, on in setup.recipe.evaluation.test_sets.items():
        test = open_test(setup, name, on, read=False)
        candidates_of(test)
        if setup.recipe.trains == "scorer":
            scorer_systems(test.items, f"evaluation.test_sets.{name}")


def measured(
    setup: TrainingSetup,
    systems: Mapping[str, Mapping[str, str]],
    items: list[Item],
    scorer: Scorer | None,
    test: OpenedTest | None = None,
) -> Results:
    """Evaluates captions for data.test, or for an additional test set with its own bags, hard pool and references."""
    settings = setup.recipe.evaluation
    if scorer is not None and test is not None and not test.on.has_pictures:
        scorer = None
    references, candidates, language_model = None, CandidateInputs(), None
    if test is not None:
        candidates = candidates_of(test) if scorer is not None else candidates
        if test.on.references:
            files = read_references([Path(path) for path in test.on.references])
            _, references, _ = match_files({}, files, test.dataset, True, 0.0)
        if test.on.language_model is not None:
            language_model = load_language_model(test.on.language_model, setup.device)
    texts = {item.id: item.references for item in items} if references is None else references
    results = evaluate(
        systems,
        items=items,
        references=references,
        scorer=scorer,
        image_features=None if scorer is None else np.asarray(setup.store.features(items, scorer.encoder)),
        eval_scorers={} if scorer is None else load_eval_scorers(setup, settings.eval_scorers, items),
        human="mean" if setup.recipe.trains == "captioner" and all(texts.get(item.id) for item in items) else None,
        lookalike=settings.lookalike,
        seed=setup.recipe.seed,
        language_model=language_model,
        candidates=candidates,
    )
    results.notes[:0] = candidates.notes
    return results


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


def load_eval_scorers(
    setup: TrainingSetup, names: tuple[str, ...], items: list[Item]
) -> dict[str, tuple[Scorer, np.ndarray]]:
    """Loads the additional scorers and computes their features for the test pictures. Returns both by short name."""
    scorers: dict[str, tuple[Scorer, np.ndarray]] = {}
    for name in names:
        short = Path(name).name.removesuffix(".toml")
        if short in scorers:
            raise UsageError(f"evaluation.eval_scorers contains two scorers named '{short}'; rename one of them")
        scorer = load_scorer(setup.upstream(name), setup.device)
        scorers[short] = (scorer, np.asarray(setup.store.features(items, scorer.encoder)))
    return scorers


def write_gallery(folder: Path, sets: dict[str, Any], items: list[Item]) -> None:
    """Writes ``gallery.json``, and a small copy of each picture in the gallery (four frames for a clip)."""
    with writing(folder / "gallery"):
        pictures = save_pictures(folder, sets, items)
    write_json(folder / "gallery.json", {**sets, "pictures": pictures})


def truncation_lines(scorers: Sequence[Scorer]) -> list[str]:
    """Returns a warning for each scorer that had to truncate captions to its context window."""
    return [
        (
            f"{scorer.cut_texts:,} captions exceed the context window of {scorer.name} ({scorer.window} tokens) and "
            "were truncated before they were scored"
        )
        for scorer in scorers
        if scorer.cut_texts
    ]
