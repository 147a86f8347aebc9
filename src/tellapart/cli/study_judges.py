"""Measures how well metrics agree with people (``study judges``), and ranks systems with a judge (``study arena``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.options import Count, Json
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.agreement_in_file import agreement_with_people
from tellapart.evaluation.judge_options import JudgeOptions
from tellapart.evaluation.judges.arena_of_files import arena_of_files
from tellapart.utils.comma_lists import comma_list
from tellapart.utils.messages import say


def judges(
    file: Path,
    *,
    references: list[Path] | None = None,
    layout: str | None = None,
    metrics: list[str] | None = None,
    data: str | None = None,
    scorer: str | None = None,
    synonyms: Path | None = None,
    judge: JudgeOptions,
    resamples: Annotated[int, typer.Option(min=0)] = 0,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    repeats: Count = 1,
    as_json: Json = False,
) -> None:
    """Measure how well metrics agree with people: Kendall's tau, Spearman's rho, pairwise accuracy.

    Args:
        file: Human judgements in a published layout, such as ExpertAnnotations.txt.
        references: Reference captions, such as Flickr8k.token.txt. Repeatable.
        layout: Layout of the file, if it is not detected automatically.
        metrics: Comma-separated metrics. Default: all that the inputs allow. Repeatable.
        data: Pictures as kind:path, for metrics that require them.
        scorer: Scorer: folder, run, or hub name (requires --data).
        synonyms: Objects and their synonyms for CHAIR and facts, in the format of CHAIR's synonyms.txt.
        resamples: Number of bootstrap resamples; 0 computes no intervals.
        seed: Random seed for the bootstrap.
        repeats: Number of times the judge answers each question, to estimate its variance.
    """
    names = None if metrics is None else comma_list(",".join(metrics))
    found = agreement_with_people(
        file,
        references or (),
        layout,
        names,
        data=data,
        scorer=scorer,
        synonyms=synonyms,
        judge=judge,
        resamples=resamples,
        seed=seed,
        repeats=repeats,
    )
    show(found.to_json(), found.table, as_json)
    for note in found.notes:
        say(f"note: {note}")


def arena(
    captions: Annotated[list[Path], typer.Option()],
    data: Annotated[str, typer.Option()],
    judge: JudgeOptions,
    resamples: Count = 1000,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    allow_missing: bool = False,
    as_json: Json = False,
) -> None:
    """Rank systems with a judge that compares pairs of captions in both orders (Bradley-Terry).

    Args:
        captions: Caption file of a system, as for eval. Repeatable.
        data: Pictures, as kind:path.
        resamples: Number of bootstrap resamples.
        seed: Random seed for the bootstrap.
        allow_missing: Compare only the pictures that have a caption in every file.
    """
    opened = judge.open()
    if opened is None:
        raise UsageError("an arena requires a judge; add --llm-judge openai:MODEL@http://127.0.0.1:8000/v1")
    found = arena_of_files(captions, data, opened, resamples=resamples, seed=seed, allow_missing=allow_missing)
    show(found.to_json(), found.table, as_json)
    for note in found.notes:
        say(f"note: {note}")
