"""``tellapart study judges``, metrics against people; ``study arena``, captions against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tellapart.cli.common import App
from tellapart.cli.judge_options import LEDGER, JudgeLedger, JudgePrompts, LlmJudge
from tellapart.cli.output import Json, show
from tellapart.errors import UsageError

app = App()


@app.command()
def judges(
    file: Annotated[
        Path, typer.Argument(help="Human judgements in a published layout, such as ExpertAnnotations.txt.")
    ],
    references: Annotated[
        list[Path] | None,
        typer.Option(help="The pictures' references, and Flickr8k's captions: Flickr8k.token.txt, … Repeatable."),
    ] = None,
    layout: Annotated[str | None, typer.Option(help="The layout, where it is not recognised.")] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="Names, with commas. Default: all that the inputs allow. Repeatable."),
    ] = None,
    data: Annotated[str | None, typer.Option(help="The pictures, as kind:path, for metrics that see them.")] = None,
    scorer: Annotated[str | None, typer.Option(help="Scorer: folder, run, hub name. Needs --data.")] = None,
    synonyms: Annotated[
        Path | None, typer.Option(help="For CHAIR and facts: objects with their synonyms, as in CHAIR's synonyms.txt.")
    ] = None,
    llm_judge: LlmJudge = None,
    ledger: JudgeLedger = LEDGER,
    prompts: JudgePrompts = None,
    resamples: Annotated[
        int, typer.Option(min=0, help="Bootstrap resamples of the pictures behind an interval; 0: none.")
    ] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    as_json: Json = False,
) -> None:
    """How well each metric agrees with people: Kendall's tau, Spearman's rho, accuracy on pairs."""
    from tellapart.evaluation.judges.judge import JudgeInputs
    from tellapart.evaluation.meta.agreement import agreement_with_people
    from tellapart.utils.messages import say

    names = None if metrics is None else [name.strip() for name in ",".join(metrics).split(",") if name.strip()]
    found = agreement_with_people(
        file,
        references or (),
        layout,
        names,
        data=data,
        scorer=scorer,
        synonyms=synonyms,
        judge=JudgeInputs(llm_judge, ledger, prompts),
        resamples=resamples,
        seed=seed,
    )
    show(found.to_json(), found.table, as_json)
    for note in found.notes:
        say(f"note: {note}")


@app.command()
def arena(
    captions: Annotated[list[Path], typer.Option(help="A system's captions, as for eval. Twice or more.")],
    data: Annotated[str, typer.Option(help="The pictures, as kind:path.")],
    llm_judge: LlmJudge = None,
    ledger: JudgeLedger = LEDGER,
    prompts: JudgePrompts = None,
    resamples: Annotated[int, typer.Option(min=1, help="Bootstrap resamples of the pictures.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Compare the ids that all files have.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Captions against each other, by a judge who sees the picture: both orders, strengths by Bradley and Terry."""
    from tellapart.evaluation.judges.arena import run_arena
    from tellapart.evaluation.judges.judge import JudgeInputs
    from tellapart.utils.messages import say

    judge = JudgeInputs(llm_judge, ledger, prompts).open()
    if judge is None:
        raise UsageError("an arena needs a judge; add --llm-judge openai:MODEL@http://127.0.0.1:8000/v1")
    found = run_arena(captions, data, judge, resamples=resamples, seed=seed, allow_missing=allow_missing)
    show(found.to_json(), found.table, as_json)
    for note in found.notes:
        say(f"note: {note}")
