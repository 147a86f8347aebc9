"""A run from its recipe to its report: train, evaluate, and the runs that it starts from."""

from __future__ import annotations

import glob
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.models import ranks
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe
from tellapart.training.adopt import adopt
from tellapart.training.checks import check_setup
from tellapart.training.display import truncation_lines
from tellapart.training.fingerprint import content_of, fingerprint_of_0_1
from tellapart.training.loop import fit
from tellapart.training.run_folder import Run
from tellapart.training.setup import TrainingSetup
from tellapart.utils.messages import say

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
    """Train what ``recipe`` says into ``folder`` (default ``runs/NAME-FINGERPRINT``), measure, report.

    Recipes named as models are trained first, where they have not been, or stand for the runs that are ``adopted`` in
    their place, by their names. A finished run is returned as it is. Where another process works on the folder,
    ``wait`` for it. Several ranks train together (`models.ranks`); the main one alone writes and measures.
    ``overwrite``: remove the run that lies in the folder, once the models are loaded. ``extend``: where this recipe
    trains for more steps than that run, go on with it. ``summary``: a line that is shown before training begins.
    Raises `UsageError` where the folder holds another run, or an unfinished one and ``resume`` is False, and where
    another process works on it and ``wait`` is False.
    """
    ranks.start()
    recipe = adopt(recipe, adopted or {})
    content = content_of(recipe)
    run = Run(folder or RUNS / f"{recipe.name}-{content.fingerprint}", recipe, content)

    def done() -> bool:
        """Whether nothing is to do; on all ranks alike."""
        if overwrite:
            check_overwrite(run)
            return False
        check_same(run, extend)
        is_done = run.reported if evaluate else run.trained
        return bool(ranks.from_main(is_done and not (extend and run.difference())))

    if not done():
        if folder is None and not run.started:
            tell_of_older(run, is_upstream=wait)
        with run.lock(wait=wait):
            ranks.barrier(f"the main rank locks {run.folder}", ranks.LONGEST)
            if not overwrite:
                check_resumed(run, resume)
            if not done():  # another process may have done it while this one waited
                complete(run, evaluate, adopted or {}, overwrite, summary)
    return run


def check_same(run: Run, extend: bool = False) -> None:
    """Raises `UsageError` where the folder holds a run of another recipe; see `train` for ``extend``."""
    if run.started and (difference := run.difference(but_length=extend)):
        raise UsageError(
            f"{run.folder} holds a run of another recipe ({difference}); type: --out with another folder, or "
            "--overwrite"
        )


def check_overwrite(run: Run) -> None:
    """Raises `UsageError` where the folder holds more than a run, or a model that this run needs."""
    run.check_clear()
    captioner, folder = run.recipe.captioner, run.folder.resolve()
    for name in (captioner and captioner.name, *(name for _, name in run.recipe.scorers())):
        where = Path((name or "").partition("?")[0]).resolve()
        if name and folder in (where, *where.parents):
            raise UsageError(f"--overwrite removes {run.folder}, and {name} is needed to train; type: another --out")


def tell_of_older(run: Run, is_upstream: bool) -> None:
    """One line where a trained run of this name is there that is not used, for it was made of something else."""
    if (found := older_run(run)) is None:
        return
    older, difference = found
    if is_upstream:
        why = difference or "tellapart 0.1 recorded neither data nor weights"
        say(
            f"{run.recipe.name} is trained now, for {older} is of something else ({why}); "
            f"to use that run, type: --adopt {older}"
        )
    elif not difference:
        say(f"{older} is this recipe's run by tellapart 0.1; to go on with it, type: --resume --out {older}")


def older_run(run: Run) -> tuple[Path, str] | None:
    """The newest trained run of this recipe's name in the default folder, and how it differs."""
    found = []
    for folder in RUNS.glob(f"{glob.escape(run.recipe.name)}-*"):
        other = Run(folder, run.recipe, run.content)
        if other.trained and other.info.get("name") == run.recipe.name:
            found.append((other.info.get("created", ""), folder, other.difference()))
    return max(found)[1:] if found else None


def check_resumed(run: Run, resume: bool) -> None:
    """Raises `UsageError` where the folder holds an unfinished run and nobody asked to go on with it."""
    if run.started and not run.trained and not resume:
        at = run.last()
        raise UsageError(
            f"{run.folder} holds an unfinished run (step {at.step if at else 0} of {run.recipe.training.steps}); "
            "type: the same command with --resume, or --out with another folder"
        )


def complete(run: Run, evaluate: bool, adopted: Mapping[str, Path], overwrite: bool = False, summary: str = "") -> None:
    """What is still to do of a run: train, measure, report. ``overwrite``, ``summary``: see `train`."""
    from tellapart.evaluation.selection import describe
    from tellapart.report import build_report
    from tellapart.training.final_evaluation import final_evaluation

    goes_on = run.started and run.is_of_0_1 and not overwrite
    longer = run.started and not overwrite and bool(run.difference())  # `check_same` lets nothing else through
    find = partial(upstream_of_0_1, run) if goes_on else partial(upstream, adopted=adopted)
    setup, started = TrainingSetup(run.recipe, find), time.monotonic()
    check_setup(setup)
    if overwrite or longer or not run.trained:
        setup.resolve()
        setup.load()  # a name that is no model's is an error before there is a run
        if summary:
            say(summary)
    ranks.barrier("the models are loaded")
    if overwrite:
        run.clear()
    elif longer:
        run.extend()
    ranks.barrier("the run's folder is ready")
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


def upstream(name: str, adopted: Mapping[str, Path] | None = None) -> str:
    """The model behind a name in a recipe: another recipe's result (trained now if need be), or the name.

    Where another process trains that recipe, this one waits.
    """
    if not name.endswith(".toml"):
        return name
    run = train(read_recipe(Path(name)), resume=True, evaluate=False, wait=True, adopted=adopted)
    return str(run.folder)


def upstream_of_0_1(run: Run, name: str) -> str:
    """The model behind a name in the recipe of a run that 0.1 began: the one that it began with.

    A held-out scorer, which only the final evaluation needs, may be trained now. Raises `UsageError` where another
    recipe's run is gone: today's would be another model.
    """
    if not name.endswith(".toml"):
        return name
    recipe = read_recipe(Path(name))
    folder = RUNS / f"{recipe.name}-{fingerprint_of_0_1(recipe)}"
    if (folder / "model" / "config.json").is_file():
        return str(folder)
    if name in run.recipe.evaluation.eval_scorers:
        return upstream(name)
    raise UsageError(
        f"{run.folder} was begun by tellapart 0.1 with {folder}, which is not there; put it back, or type: --out with "
        "another folder, to train anew"
    )
