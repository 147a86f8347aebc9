"""The options of commands that ask a judge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

LEDGER = Path("judge.ledger.jsonl")

LlmJudge = Annotated[
    str | None,
    typer.Option(help="The model that judges: openai:MODEL@URL (its key from the environment), or local:FOLDER."),
]
JudgeLedger = Annotated[
    Path, typer.Option(help="Where the judge's answers are kept; what is there is not asked again.")
]
JudgePrompts = Annotated[
    Path | None, typer.Option(help="A folder with prompts of your own for the judge: clair.txt, arena.txt, …")
]
