"""Takes a run from its recipe to its report: trains the recipes that it uses as models, trains, and evaluates."""

from __future__ import annotations

import glob
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.models import collectives, ranks
from tellapart.models.names import RUNS
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe
from tellapart.report import build_report
from tellapart.scorers import Scorer
from tellapart.training.adoption import adopt, recipes_in
from tellapart.training.build import TrainingSetup
from tellapart.training.checks import check_setup
from tellapart.training.final_evaluation import check_tests, final_evaluation
from tellapart.training.fingerprint import content_of
from tellapart.training.loop import fit
from tellapart.training.run_folder import Run, now
from tellapart.utils.messages import say


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

    First trains the recipes that ``recipe`` names as models, unless they are already trained or ``adopted``. Several
    ranks train together (`models.ranks`), but only the main rank writes and evaluates.

    Args:
        folder: the run's folder [default: ``runs/NAME-FINGERPRINT``].
        resume: whether to resume an unfinished run in the folder.
        evaluate: whether to evaluate the result on the test data.
        wait: whether to wait if another process is using the folder.
        adopted: runs to use instead of recipes that are named as models, by recipe name.
        overwrite: whether to remove the run in the folder, after the models have been loaded.
        extend: whether to continue the run in the folder if this recipe trains for more steps.
        summary: a line to print before training.

    Raises:
        UsageError: if the folder contains another run, if it contains an unfinished run and ``resume`` is False, or if
            another process is using it and ``wait`` is False.
    """
    ranks.start()
    recipe = adopt(recipe, adopted or {})
    content = content_of(recipe)
    run = Run(folder or RUNS / f"{recipe.name}-{content.fingerprint}", recipe, content)

    def done() -> bool:
        """Returns True if there is nothing to do. The result is the same on all ranks."""
        if overwrite:
            check_overwrite(run)
            return False
        check_same(run, extend)
        is_done = run.reported if evaluate else run.trained
        return bool(collectives.from_main(is_done and not (extend and run.difference())))

    if not done():
        if wait and folder is None and not run.started:  # a recipe that another recipe names as a model
            tell_of_older(run)
        with run.lock(wait=wait):
            ranks.barrier(f"locking {run.folder} on the main rank", ranks.LONGEST)
            if not overwrite:
                check_resumed(run, resume)
            if not done():  # another process may have finished the run in the meantime
                complete(run, evaluate, adopted or {}, overwrite, summary)
    return run


def check_same(run: Run, extend: bool = False) -> None:
    """Raises `UsageError` if the folder contains a run of a different recipe. ``extend``: see `train`."""
    if run.started and (difference := run.difference(but_length=extend)):
        raise UsageError(
            f"{run.folder} contains a run of a different recipe ({difference}); set another folder with --out, or "
            "add --overwrite"
        )


def check_overwrite(run: Run) -> None:
    """Raises `UsageError` if the folder contains files that do not belong to a run, or a model that this run needs."""
    run.check_clear()
    captioner, folder = run.recipe.captioner, run.folder.resolve()
    for name in (captioner and captioner.name, *(name for _, name in run.recipe.scorers())):
        where = Path((name or "").partition("?")[0]).resolve()
        if name and folder in (where, *where.parents):
            raise UsageError(
                f"--overwrite would remove {run.folder}, but training requires {name} in it; set another --out"
            )


def tell_of_older(run: Run) -> None:
    """If a trained run of the same name in the default folder is not reused because it differs, reports the newest
    such run and how to adopt it.
    """
    candidates = []
    for folder in RUNS.glob(f"{glob.escape(run.recipe.name)}-*"):
        other = Run(folder, run.recipe, run.content)
        if other.trained and other.info.get("name") == run.recipe.name:
            candidates.append((other.info.get("created", ""), folder, other.difference()))
    if candidates:
        _, older, difference = max(candidates)
        say(
            f"training {run.recipe.name}, because {older} differs ({difference}); to use that run instead, add "
            f"--adopt {older}"
        )


def check_resumed(run: Run, resume: bool) -> None:
    """Raises `UsageError` if the folder contains an unfinished run and ``resume`` is False."""
    if run.started and not run.trained and not resume:
        at = run.last()
        raise UsageError(
            f"{run.folder} contains an unfinished run (step {at.step if at else 0} of "
            f"{run.recipe.training.steps}); add --resume to continue it, or set another folder with --out"
        )


def complete(run: Run, evaluate: bool, adopted: Mapping[str, Path], overwrite: bool = False, summary: str = "") -> None:
    """Completes a run: trains, evaluates and writes the report, unless this has already been done.

    ``overwrite``, ``summary``: see `train`.
    """

    longer = run.started and not overwrite and bool(run.difference())  # `check_same` has rejected all other differences
    setup, started = TrainingSetup(run.recipe, partial(upstream, adopted=adopted)), time.monotonic()
    check_setup(setup)
    if evaluate:
        check_tests(setup)
    if overwrite or longer or not run.trained:
        train_upstream(setup)
        _ = setup.learner, setup.scorer  # so that wrong model names are reported before the run begins
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
    run.note(finished=now(), seconds=round(run.info.get("seconds", 0) + time.monotonic() - started, 1))
    if evaluate:
        build_report([run.folder])


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


def train_upstream(setup: TrainingSetup) -> None:
    """Trains all recipes that the run's recipe names as models, on all ranks together.

    Skips held-out scorers, because only the final evaluation needs them.
    """
    for name in recipes_in(setup.recipe, exclude={"evaluation"}):
        setup.upstream(name)


def upstream(name: str, adopted: Mapping[str, Path] | None = None) -> str:
    """Returns the model that a name in a recipe refers to.

    If the name is a recipe, trains the recipe if necessary and returns its run. If another process is training the
    recipe, waits for it. Returns all other names unchanged.
    """
    if not name.endswith(".toml"):
        return name
    run = train(read_recipe(Path(name)), resume=True, evaluate=False, wait=True, adopted=adopted)
    return str(run.folder)
