"""The settings of ``tellapart caption``, from which the command line is generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from tellapart.errors import UsageError
from tellapart.utils.documentation import page_url


@dataclass(frozen=True)
class CaptionOptions:
    """The options of ``tellapart caption``, except for models, pictures and workers.

    Args:
        out: Output file (.jsonl or .csv; with --workers also .parquet or .tar), or - for standard output. By default, a
            single picture's caption is printed.
        format: jsonl, csv, or txt (a .txt file beside each picture; with -o -, plain captions). Default: inferred from
            the suffix of --out.
        prompt: Prompt for the captioner. May contain fields, as in 'Tags: {tags}. {text}'.
        fields: Table (.jsonl, .csv, …) with values for --prompt's fields, by picture id or file name.
        beams: Number of beams; 1 means greedy decoding. Default: the model's saved setting, or 5.
        max_tokens: Maximum number of tokens per caption. Default: the model's saved setting, or 30; 256 for a server
            model.
        samples: Write N sampled captions per picture, or with --beams, the N best beams.
        best_of: Sample N captions and keep the best according to --scorer.
        consensus: Sample N captions and keep the caption most similar to the rest (MBR decoding).
        scorer: Scorer for --best-of or --consensus: folder, run, or hub name.
        drop_guesses: Remove or generalize words that fit other pictures equally well.
        schema: JSON schema file for structured captions (server models only).
        claims: Add each claim's confidence, estimated from the samples.
        batch_size: Batch size, or maximum number of concurrent requests for a server model. Default: 32, or 16 for a
            server model.
        overwrite: Recaption all pictures. Keeps hand-written and edited captions.
        replace_edited: Replace hand-written and edited captions, after backing them up. Captions written by tellapart
            need --overwrite.
    """

    out: Annotated[str | None, typer.Option("--out", "-o")] = None
    format: str | None = None
    prompt: str | None = None
    fields: Annotated[Path | None, typer.Option(dir_okay=False)] = None
    beams: Annotated[int | None, typer.Option(min=1)] = None
    max_tokens: Annotated[int | None, typer.Option(min=1)] = None
    samples: Annotated[int | None, typer.Option(metavar="N", min=2)] = None
    best_of: Annotated[int | None, typer.Option(metavar="N", min=2)] = None
    consensus: Annotated[int | None, typer.Option(metavar="N", min=3)] = None
    scorer: str | None = None
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Advanced decoding settings, such as temperature=0.7, confidence=0.4 (drop less probable nouns), "
            f"scorer_weight=0.1, length_penalty_over=all, paragraphs=keep. Repeatable. See {page_url('captioning.md')}",
        ),
    ] = None
    drop_guesses: bool = False
    schema: Annotated[Path | None, typer.Option(dir_okay=False)] = None
    claims: bool = False
    batch_size: Annotated[int | None, typer.Option(min=1, max=1024)] = None
    overwrite: bool = False
    replace_edited: bool = False


def refuse(options: Mapping[str, Any], why: str) -> None:
    """Raises `UsageError` if any of these options was given, since it would have no effect."""
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option} {why}; remove this option")
