"""The settings of ``tellapart caption``; the command line is generated from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tellapart.utils.documentation import page_url


@dataclass(frozen=True)
class CaptionOptions:
    """Options of ``tellapart caption``, except models, pictures and workers."""

    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help=(
                "Output file (.jsonl or .csv; with --workers also .parquet or .tar), or - for standard output. For a "
                "single picture, the default is to print the caption."
            ),
        ),
    ] = None
    format: Annotated[
        str | None,
        typer.Option(
            help=(
                "jsonl, csv, or txt (a .txt file beside each picture; with -o -, plain captions). "
                "Default: inferred from the suffix of --out."
            )
        ),
    ] = None
    prompt: Annotated[
        str | None,
        typer.Option(help="Prompt for the captioner; may contain fields: 'Tags: {tags}. {text}'."),
    ] = None
    fields: Annotated[
        Path | None,
        typer.Option(
            help=("Table (.jsonl, .csv, …) with the values of --prompt's fields for each picture id or file name."),
            dir_okay=False,
        ),
    ] = None
    beams: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=("Number of beams; 1 means greedy decoding. Default: the model's saved setting, otherwise 5."),
        ),
    ] = None
    max_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            help=(
                "Maximum number of tokens per caption. Default: the model's saved setting, otherwise 30; 256 for a "
                "server."
            ),
        ),
    ] = None
    samples: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=2, help=("Write N sampled captions per picture; with --beams, the N best beams.")
        ),
    ] = None
    best_of: Annotated[
        int | None,
        typer.Option(
            "--best-of", metavar="N", min=2, help=("Sample N captions and keep the one that --scorer ranks highest.")
        ),
    ] = None
    consensus: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=3, help=("Sample N captions and keep the one most similar to the others (MBR decoding).")
        ),
    ] = None
    scorer: Annotated[
        str | None, typer.Option(help="Scorer for --best-of or --consensus: folder, run, or hub name.")
    ] = None
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Advanced decoding settings, such as temperature=0.7, confidence=0.4 (drop less probable nouns), "
            f"scorer_weight=0.1, length_penalty_over=all, paragraphs=keep. Repeatable. See {page_url('captioning.md')}",
        ),
    ] = None
    drop_guesses: Annotated[
        bool, typer.Option("--drop-guesses", help="Remove or generalize words that fit other pictures equally well.")
    ] = False
    schema: Annotated[
        Path | None,
        typer.Option(help="JSON file with the schema for structured captions (server models only).", dir_okay=False),
    ] = None
    claims: Annotated[
        bool,
        typer.Option("--claims", help="Add the confidence of each claim, estimated from the samples."),
    ] = False
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=1024,
            help=("Batch size, or maximum number of concurrent requests to a server. Default: 32; 16 for a server."),
        ),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Caption again. Hand-written and edited texts are kept.")
    ] = False
    replace_edited: Annotated[
        bool,
        typer.Option("--replace-edited", help="Replace texts that were written or edited by hand; a backup is kept."),
    ] = False
