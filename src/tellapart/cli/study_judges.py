"""Measures how well metrics agree with people (``study judges``), and ranks systems with a judge (``study arena``)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.options import Json
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.evaluation.human_judgements.agreement_in_file import agreement_with_people
from tellapart.evaluation.judge_inputs import JudgeInputs
from tellapart.evaluation.judges.arena import run_arena
from tellapart.utils.messages import say


def judges(
    file: Annotated[
        Path, typer.Argument(help="Human judgements in a published layout, such as ExpertAnnotations.txt.")
    ],
    *,
    references: Annotated[
        list[Path] | None,
        typer.Option(help="Reference captions, such as Flickr8k.token.txt. Repeatable."),
    ] = None,
    layout: Annotated[str | None, typer.Option(help="Layout of the file, if it is not detected automatically.")] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="Comma-separated metrics. Default: all that the inputs allow. Repeatable."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="Pictures as kind:path, for metrics that require them.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Scorer: folder, run, or hub name (requires --data).")] = None,
    synonyms: Annotated[
        Path | None,
        typer.Option(help=("Objects and their synonyms for CHAIR and facts, in the format of CHAIR's synonyms.txt.")),
    ] = None,
    judge: JudgeInputs,
    resamples: Annotated[int, typer.Option(min=0, help="Number of bootstrap resamples; 0 computes no intervals.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the bootstrap.")] = 0,
    repeats: Annotated[
        int, typer.Option(min=1, help="Number of times the judge answers each question, to estimate its variance.")
    ] = 1,
    as_json: Json = False,
) -> None:
    """Measure how well metrics agree with people: Kendall's tau, Spearman's rho, pairwise accuracy."""

    names = None if metrics is None else [name.strip() for name in ",".join(metrics).split(",") if name.strip()]
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
    captions: Annotated[list[Path], typer.Option(help="Caption file of a system, as for eval. Repeatable.")],
    data: Annotated[str, typer.Option(help="Pictures, as kind:path.")],
    judge: JudgeInputs,
    resamples: Annotated[int, typer.Option(min=1, help="Number of bootstrap resamples.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for the bootstrap.")] = 0,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Compare only the pictures that have a caption in every file.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Rank systems with a judge that compares pairs of captions in both orders (Bradley-Terry)."""

    opened = judge.open()
    if opened is None:
        raise UsageError("an arena requires a judge; add --llm-judge openai:MODEL@http://127.0.0.1:8000/v1")
    found = run_arena(captions, data, opened, resamples=resamples, seed=seed, allow_missing=allow_missing)
    show(found.to_json(), found.table, as_json)
    for note in found.notes:
        say(f"note: {note}")
