"""The papers' objectives on real photos: one start, SMILE, self-retrieval and truthful self-retrieval on Flickr8k.

The recipes ``photos_*`` put new heads and a new decoder on pretrained encoders (`tellapart.models.packages`). Every
system is measured by a held-out scorer with another encoder, trained on other photos. The initial captioner
is measured twice: with beam search, like SMILE and self-retrieval, and with the truthful arm's decoding, which uses a
scorer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from replication import cores
from replication.worker_pool import single_threaded_workers, until_interrupted
from tellapart.data.caption_files import read_caption_file
from tellapart.evaluation.evaluate import evaluate
from tellapart.features.store import FeatureStore
from tellapart.metrics.results import Results
from tellapart.models.devices import resolve_device
from tellapart.recipe.reading import read_recipe
from tellapart.recipe.schema import Recipe
from tellapart.recipe.shipped_recipes import find_recipe
from tellapart.report import build_report
from tellapart.scorers import load_scorer
from tellapart.training.run_folder import Run
from tellapart.training.runs import train, upstream
from tellapart.training.sources import open_specs
from tellapart.utils.messages import say
from tellapart.utils.progress import Progress

START, SMILE, RETRIEVAL, TRUTHFUL = "MLE", "SMILE", "self-retrieval", "truthful"
ALIKE = "MLE, consensus"  # the initial captioner, decoded like the truthful arm
ARMS = {SMILE: "photos_smile", RETRIEVAL: "photos_sr", TRUTHFUL: "photos_truthful"}
LONGEST_FIRST = (TRUTHFUL, RETRIEVAL, SMILE)
METRICS = (
    "recall@1.random100", "recall@1.lookalike", "cider", "facts_precision", "facts_recall",
    "length", "vocabulary", "repetition_rate",
)  # fmt: skip


@dataclass(frozen=True)
class Photos:
    """Result of `run_photos`: ``results`` over all seeds, the ``runs`` of each arm, and the page about them."""

    seeds: tuple[int, ...]
    results: Results
    runs: dict[str, list[Run]]
    page: Path

    def to_json(self) -> dict[str, Any]:
        """Returns the results, with the seeds, the folders of the runs and the page."""
        folders = {arm: [str(run.folder) for run in runs] for arm, runs in self.runs.items()}
        return {**self.results.to_json(), "seeds": self.seeds, "runs": folders, "page": str(self.page)}


def run_photos(seeds: Sequence[int] = (0,), settings: Sequence[str] = (), page: Path | None = None) -> Photos:
    """Trains missing models, evaluates every system with the held-out scorer, and writes the page of the arms.

    seeds: seeds of the arms; scorers and initial captioner use the seeds in their recipes. settings: ``KEY=VALUE`` for
        every arm. page: default ``runs/photos.html``. Interrupted runs resume. Several seeds are evaluated as several
        captions per picture, so values are means over seeds and intervals are over pictures.
    """
    jobs = {(arm, seed): Job(ARMS[arm], (f"seed={seed}", *settings)) for arm in LONGEST_FIRST for seed in seeds}
    recipe = jobs[RETRIEVAL, seeds[0]].recipe()
    assert recipe.scorer is not None and recipe.scorer.name and recipe.captioner is not None
    workers = cores() if resolve_device("auto").type == "cpu" else 1
    first = (str(recipe.captioner.name), recipe.scorer.name, *recipe.evaluation.eval_scorers)  # the longest first
    train_jobs([Job(name, evaluate=False) for name in first], workers)
    train_jobs(list(jobs.values()), workers)
    runs = {arm: [train(jobs[arm, seed].recipe()) for seed in seeds] for arm in ARMS}
    captions = {START: [captions_of(runs[SMILE][0], "before")]}  # all seeds and arms share the initial captioner
    captions |= {ALIKE: [captions_of(run, "before") for run in runs[TRUTHFUL]]}
    captions |= {arm: [captions_of(run, "after") for run in own] for arm, own in runs.items()}
    results = measure(captions, runs[RETRIEVAL][0])
    page = page or Path("runs") / "photos.html"
    build_report([runs[arm][0].folder for arm in ARMS], page)
    return Photos(tuple(seeds), results, runs, page)


@dataclass(frozen=True)
class Job:
    """A run to train: its recipe (name or file) and settings ``KEY=VALUE``. Without ``evaluate``, only the model is
    trained.
    """

    name: str
    settings: tuple[str, ...] = ()
    evaluate: bool = True

    def recipe(self) -> Recipe:
        return read_recipe(find_recipe(self.name), list(self.settings))

    def run(self) -> None:
        if self.evaluate or self.settings:
            train(self.recipe(), resume=True, wait=True, evaluate=self.evaluate)
        else:
            upstream(self.name)


def train_jobs(jobs: Sequence[Job], workers: int) -> None:
    """Trains the runs, ``workers`` at a time. Each run uses one thread, which is faster for such small models."""
    if workers == 1:
        for job in jobs:
            say(f"{job.name}: {' '.join(job.settings)}")
            job.run()
        return
    log = Path("runs") / "photos.log"
    say(f"{', '.join(dict.fromkeys(Path(job.name).stem for job in jobs))}: {workers} at a time; their log: {log}")
    pool = single_threaded_workers(workers, log)
    try:
        with Progress(len(jobs), "runs") as progress:
            for done in as_completed([pool.submit(until_interrupted, job.run) for job in jobs]):
                done.result()
                progress.advance()
    finally:
        pool.shutdown(cancel_futures=True)  # after an error or interruption, start no further runs


def measure(captions: Mapping[str, Sequence[Mapping[str, str]]], run: Run) -> Results:
    """Evaluates the systems and human references on the test photos of ``run``'s recipe, with its held-out scorer.

    captions: one mapping from id to caption per seed, by system. Raises SystemExit if that scorer was the reward
        scorer.
    """
    recipe = run.recipe
    assert recipe.data.test is not None and recipe.scorer is not None
    (judge,) = recipe.evaluation.eval_scorers
    if judge == recipe.scorer.name:
        raise SystemExit("evaluation.eval_scorers contains the scorer that gave the reward; use another one")
    items, scorer = list(open_specs(recipe.data.test)), load_scorer(upstream(judge))
    features = np.asarray(FeatureStore().features(items, scorer.encoder))
    together = {name: {item.id: [one[item.id] for one in own] for item in items} for name, own in captions.items()}
    return evaluate(
        together, items=items, scorer=scorer, image_features=features, metrics=METRICS, human="mean", pairs="all"
    )


def captions_of(run: Run, which: str) -> dict[str, str]:
    """Reads a run's captions by id. ``which``: ``before`` or ``after``."""
    texts = read_caption_file(run.folder / "captions" / f"{which}.jsonl").texts
    return {id_: caption for id_, (caption,) in texts.items()}


def table_lines(found: Photos) -> list[tuple[str, ...]]:
    """Returns the header and one row per metric: the systems' values, and each arm minus the initial captioner with
    equal decoding.
    """
    results = found.results
    names = list(results.systems)
    differences = {(p.a, p.b, p.metric): p.difference for p in results.pairs}
    against = {arm: ALIKE if arm == TRUTHFUL else START for arm in ARMS}  # decoded alike
    lines = [("", *names, *(f"{arm} − {other}, 95%" for arm, other in against.items()))]
    for metric in METRICS:
        cells = [f"{results.systems[name][metric].value:.1f}" for name in names]
        for arm, other in against.items():
            one = differences.get((other, arm, metric))
            cells.append("" if one is None else f"{one.value:+.1f} [{one.low:+.1f}, {one.high:+.1f}]")
        lines.append((results.metrics[metric].label, *cells))
    return lines
