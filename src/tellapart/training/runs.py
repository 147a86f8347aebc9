"""Takes a run from its recipe to its report: trains upstream recipes, trains, and evaluates."""

from __future__ import annotations

import glob
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tellapart.captioners import Captioner, generate_captions, load_captioner
from tellapart.data import Dataset, open_data
from tellapart.errors import UsageError
from tellapart.evaluation.context import CandidateInputs
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.gallery import gallery, save_pictures
from tellapart.evaluation.matching import match_files, read_references
from tellapart.evaluation.result_keys import describe
from tellapart.evaluation.side_files import read_bag_sets, read_inputs
from tellapart.evaluation.text_models import load_language_model
from tellapart.evaluation.word_values import add_word_values
from tellapart.inference.best_of import BestOf, chosen_captions
from tellapart.metrics.results import Results
from tellapart.models import ranks
from tellapart.models.decoding import Decoding
from tellapart.recipe.reading import check_recipe, read_recipe
from tellapart.recipe.schema import Recipe, TestSet
from tellapart.report import build_report
from tellapart.scorers import Scorer, load_scorer
from tellapart.training.build import TrainingSetup, readable
from tellapart.training.checks import check_setup
from tellapart.training.fingerprint import content_of
from tellapart.training.loop import fit, kept_start
from tellapart.training.run_folder import Run, write_json, write_text, writing
from tellapart.types import Item
from tellapart.utils.messages import say
from tellapart.utils.rng import ItemSeeds


def adopt(recipe: Recipe, adopted: Mapping[str, Path]) -> Recipe:
    """Replaces named recipes by the folders of their adopted runs (name to folder) and returns the recipe."""
    if not adopted:
        return recipe
    return check_recipe(recipe.dump(Places(adopted), mode="json", exclude_none=True), recipe.name)


def adoptions(folders: Sequence[Path], recipe: Recipe) -> dict[str, Path]:
    """Returns the runs to adopt, by name.

    Raises `UsageError` for a folder without a trained run, for two runs of the same name, and for a run whose name is
    not used as a model by this recipe or by the recipes that it names.
    """
    adopted: dict[str, Path] = {}
    for folder in folders:
        run = Run(folder, recipe)
        if not run.trained or not run.info.get("name"):
            raise UsageError(f"--adopt {folder} is not a trained run; expected a folder such as runs/NAME-FINGERPRINT")
        name = str(run.info["name"])
        if name in adopted:
            raise UsageError(f"--adopt {folder}: {adopted[name]} is also a run of {name}; remove one of them")
        adopted[name] = folder
    known = named_recipes(recipe)
    for name, folder in adopted.items():
        if name not in known:
            others = f"it uses {', '.join(sorted(known))}" if known else "it uses no other recipe"
            raise UsageError(f"--adopt {folder}: {recipe.name} does not use a recipe '{name}' as a model; {others}")
    return adopted


def named_recipes(recipe: Recipe, known: dict[str, None] | None = None) -> dict[str, None]:
    """Returns the names of the recipes that this one uses as models, directly or indirectly."""
    known, places = {} if known is None else known, Places({})
    recipe.dump(places)
    for path in places.recipes:
        other = read_recipe(Path(path))
        if other.name not in known:  # stops cycles of recipes that name each other
            known[other.name] = None
            named_recipes(other, known)
    return known


class Places:
    """Resolves recipes to their adopted runs and leaves other names unchanged (a `utils.options.Resolver`)."""

    def __init__(self, adopted: Mapping[str, Path]) -> None:
        self.adopted, self.recipes = adopted, list[str]()

    def model(self, name: str) -> str:
        if not name.endswith(".toml"):
            return name
        self.recipes.append(name)
        return str(self.adopted[called]) if (called := read_recipe(Path(name)).name) in self.adopted else name

    def data(self, spec: str) -> str:
        return spec

    def file(self, path: str) -> str:
        return path


RUNS = Path("runs")


def train(
    recipe: Recipe,
    folder: Path | None = None,
    *,
    resume: bool = False,
    evaluate: bool = True,
    wait: bool = False,
    adopted: Mapping[str, Path] | None = None,
    overwrite: bool = False,
    extend: bool = False,
    summary: str = "",
) -> Run:
    """Trains ``recipe``, evaluates the result and writes the report. Returns a finished run unchanged.

    Trains the recipes named as models first, unless they are trained or ``adopted``. Several ranks train together
    (`models.ranks`); only the main rank writes and evaluates.

    Args:
        folder: the run's folder. Default: ``runs/NAME-FINGERPRINT``.
        resume: resumes an unfinished run in the folder.
        evaluate: evaluates the result on the test data.
        wait: waits if another process works on the folder.
        adopted: runs to use in place of recipes named as models, by name.
        overwrite: removes the run in the folder once the models are loaded.
        extend: continues the run in the folder if this recipe trains for more steps.
        summary: a line to print before training.

    Raises:
        UsageError: the folder holds another run, an unfinished run without ``resume``, or is in use without ``wait``.
    """
    ranks.start()
    recipe = adopt(recipe, adopted or {})
    content = content_of(recipe)
    run = Run(folder or RUNS / f"{recipe.name}-{content.fingerprint}", recipe, content)

    def done() -> bool:
        """Returns whether there is nothing to do; the same on all ranks."""
        if overwrite:
            check_overwrite(run)
            return False
        check_same(run, extend)
        is_done = run.reported if evaluate else run.trained
        return bool(ranks.from_main(is_done and not (extend and run.difference())))

    if not done():
        if wait and folder is None and not run.started:  # a recipe that another recipe names as a model
            tell_of_older(run)
        with run.lock(wait=wait):
            ranks.barrier(f"locking {run.folder} on the main rank", ranks.LONGEST)
            if not overwrite:
                check_resumed(run, resume)
            if not done():  # another process may have finished it meanwhile
                complete(run, evaluate, adopted or {}, overwrite, summary)
    return run


def check_same(run: Run, extend: bool = False) -> None:
    """Raises `UsageError` if the folder holds a run of another recipe; see `train` for ``extend``."""
    if run.started and (difference := run.difference(but_length=extend)):
        raise UsageError(
            f"{run.folder} contains a run of a different recipe ({difference}); set another folder with --out, or "
            "add --overwrite"
        )


def check_overwrite(run: Run) -> None:
    """Raises `UsageError` if the folder holds files that are not a run's, or a model that this run needs."""
    run.check_clear()
    captioner, folder = run.recipe.captioner, run.folder.resolve()
    for name in (captioner and captioner.name, *(name for _, name in run.recipe.scorers())):
        where = Path((name or "").partition("?")[0]).resolve()
        if name and folder in (where, *where.parents):
            raise UsageError(f"--overwrite would remove {run.folder}, but training requires {name}; set another --out")


def tell_of_older(run: Run) -> None:
    """Reports a trained run of the same name that is not reused because it differs, and how to adopt it."""
    if (older_with_reason := older_run(run)) is not None:
        older, difference = older_with_reason
        say(
            f"training {run.recipe.name}, because {older} differs ({difference}); to use that run instead, add "
            f"--adopt {older}"
        )


def older_run(run: Run) -> tuple[Path, str] | None:
    """Returns the newest trained run with this recipe's name in the default folder, and its differences."""
    candidates = []
    for folder in RUNS.glob(f"{glob.escape(run.recipe.name)}-*"):
        other = Run(folder, run.recipe, run.content)
        if other.trained and other.info.get("name") == run.recipe.name:
            candidates.append((other.info.get("created", ""), folder, other.difference()))
    return max(candidates)[1:] if candidates else None


def check_resumed(run: Run, resume: bool) -> None:
    """Raises `UsageError` if the folder holds an unfinished run and ``resume`` is False."""
    if run.started and not run.trained and not resume:
        at = run.last()
        raise UsageError(
            f"{run.folder} contains an unfinished run (step {at.step if at else 0} of "
            f"{run.recipe.training.steps}); add --resume to continue it, or set another folder with --out"
        )


def complete(run: Run, evaluate: bool, adopted: Mapping[str, Path], overwrite: bool = False, summary: str = "") -> None:
    """Completes a run: trains, evaluates and reports as necessary. ``overwrite``, ``summary``: see `train`."""

    longer = run.started and not overwrite and bool(run.difference())  # `check_same` rejects all other differences
    setup, started = TrainingSetup(run.recipe, partial(upstream, adopted=adopted)), time.monotonic()
    check_setup(setup)
    if evaluate:
        check_tests(setup)
    if overwrite or longer or not run.trained:
        train_upstream(setup)
        _ = setup.learner, setup.scorer  # reports wrong model names before the run begins
        if summary:
            say(summary)
    ranks.barrier("loading the models")
    if overwrite:
        run.clear()
    elif longer:
        run.extend()
    ranks.barrier("preparing the run's folder")
    if not run.started:
        run.stamp(str(setup.device))
    if not run.trained:
        fit(setup, run)
        for line in truncation_lines(setup.frozen_scorers):
            say(line)
    if evaluate:
        ranks.leave()
    if not ranks.is_main():
        return
    if evaluate and not run.evaluated:
        final_evaluation(setup, run)
    run.finish(seconds=round(run.info.get("seconds", 0) + time.monotonic() - started, 1))
    if evaluate:
        build_report([run.folder], describe=describe)


def train_upstream(setup: TrainingSetup) -> None:
    """Trains every recipe that this one names as a model, on all ranks together.

    Skips held-out scorers, which only the final evaluation needs.
    """
    places = Places({})
    setup.recipe.dump(places, exclude={"evaluation"})
    for name in places.recipes:
        setup.upstream(name)


def upstream(name: str, adopted: Mapping[str, Path] | None = None) -> str:
    """Returns the model behind a name in a recipe: another recipe's result (trained if necessary), or the name.

    Waits if another process is training that recipe.
    """
    if not name.endswith(".toml"):
        return name
    run = train(read_recipe(Path(name)), resume=True, evaluate=False, wait=True, adopted=adopted)
    return str(run.folder)


def final_evaluation(setup: TrainingSetup, run: Run) -> Results | None:
    """Writes ``captions/``, the gallery and ``results.json``. Returns None if there are no test data.

    ``results.json`` is written last and marks the evaluation as complete: a run killed before is evaluated again.
    """
    if setup.recipe.data.test is None:
        return None
    settings = setup.recipe.evaluation
    tests = {name: open_test(setup, name, on) for name, on in settings.test_sets.items()}
    captioners = {} if setup.recipe.trains == "scorer" else captioners_of(setup, run)

    def written(name: str, items: list[Item], decoding: Decoding) -> dict[str, dict[str, str]]:
        """Writes the captions of a test set; ``name`` is "" for data.test."""
        if captioners:
            systems = captioner_systems(setup, captioners, items, decoding, name)
        else:
            systems = scorer_systems(items, f"evaluation.test_sets.{name}" if name else "data.test")
        write_captions(run.folder / "captions" / name, systems)
        return systems

    systems = written("", setup.test_items, settings.decoding)
    of_tests = {name: written(name, test.items, test.decoding) for name, test in tests.items()}
    start = next(iter(captioners.values()), None)  # the captioner before training, if there is one
    captioners.clear()  # frees the other captioner's memory
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
    """Writes each system's captions as ``SYSTEM.jsonl``."""
    for name, captions in systems.items():
        lines = (json.dumps({"id": key, "caption": text}, ensure_ascii=False) for key, text in captions.items())
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / f"{name}.jsonl", "".join(line + "\n" for line in lines))


@dataclass(frozen=True)
class OpenedTest:
    """A further test set. items: the items of ``dataset`` to caption; decoding: how to caption them."""

    name: str
    on: TestSet
    dataset: Dataset
    items: list[Item]
    decoding: Decoding


def open_test(setup: TrainingSetup, name: str, on: TestSet, *, read: bool = True) -> OpenedTest:
    """Opens a test set of ``evaluation.test_sets``; with ``read`` unreadable pictures are left out.

    Raises `UsageError` if a file is missing or a bag names a missing picture.
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
    """Reads the bags and the hard pool of a test set. Raises `UsageError` if they do not match the captions."""
    ids = [item.id for item in test.items]
    sets, notes = read_bag_sets([Path(path) for path in test.on.bags], test.dataset)
    try:
        inputs = read_inputs(sets, test.on.distractors, ids, test.dataset, "the recipe's")
    except UsageError as error:
        raise UsageError(f"evaluation.test_sets.{test.name}: {error}") from None
    return replace(inputs, notes=[*notes, *inputs.notes])


def check_tests(setup: TrainingSetup) -> None:
    """Raises `UsageError` before training if a test set could not be evaluated afterwards."""
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
    """Evaluates captions of data.test, or of a further test set with its bags, hard pool and references."""
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
    """Returns the captioner before (if the run started from one) and after training."""
    captioners: dict[str, Captioner] = {}
    if setup.recipe.captioner is not None and setup.recipe.captioner.name is not None:
        captioners["before"] = setup.start()
    captioners["after"] = load_captioner(str(run.folder), setup.device, "fp32")
    return captioners


def captioner_systems(
    setup: TrainingSetup, captioners: dict[str, Captioner], items: list[Item], decoding: Decoding, test: str = ""
) -> dict[str, dict[str, str]]:
    """Generates each captioner's captions of the test pictures, by id. Decodings with a scorer use [scorer]."""
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
    """Returns the texts to evaluate a scorer on: each picture's first reference, by id. ``key``: data key in errors."""
    if bare := [item.id for item in items if not item.references]:
        raise UsageError(
            f"{key}: {len(bare)} of {len(items)} pictures have no reference, such as {bare[0]}; a scorer is "
            f"evaluated on references, so use other pictures, or remove {key}"
        )
    return {"first_reference": {item.id: item.references[0] for item in items}}


def load_eval_scorers(
    setup: TrainingSetup, names: tuple[str, ...], items: list[Item]
) -> dict[str, tuple[Scorer, np.ndarray]]:
    """Loads further scorers and their features of the test pictures, by short name."""
    scorers: dict[str, tuple[Scorer, np.ndarray]] = {}
    for name in names:
        short = Path(name).name.removesuffix(".toml")
        if short in scorers:
            raise UsageError(f"evaluation.eval_scorers contains two scorers named '{short}'; rename one of them")
        scorer = load_scorer(setup.upstream(name), setup.device)
        scorers[short] = (scorer, np.asarray(setup.store.features(items, scorer.encoder)))
    return scorers


def write_gallery(folder: Path, sets: dict[str, Any], items: list[Item]) -> None:
    """Writes ``gallery.json`` and a small copy of each picture in it; four frames for a clip."""
    with writing(folder / "gallery"):
        pictures = save_pictures(folder, sets, items)
    write_json(folder / "gallery.json", {**sets, "pictures": pictures})


def truncation_lines(scorers: Sequence[Scorer]) -> list[str]:
    """Returns a line for each scorer that truncated captions to its context window."""
    return [
        (
            f"{scorer.cut_texts:,} captions exceed the window of {scorer.name} ({scorer.window} tokens); it scored "
            "only what fits"
        )
        for scorer in scorers
        if scorer.cut_texts
    ]
