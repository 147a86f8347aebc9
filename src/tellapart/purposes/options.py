"""The settings of ``tellapart alt-text`` and ``tellapart lora``; the command line is generated from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class SourceOptions:
    """Options for the source of captions, and for what may be replaced."""

    captions: Annotated[
        Path | None,
        typer.Option(
            help="Captions of the pictures, in any layout that eval reads. Default: those in the folder.",
            dir_okay=False,
        ),
    ] = None
    model: Annotated[
        str | None, typer.Option(help="Caption the pictures first: a captioner's name, or openai:MODEL@URL.")
    ] = None
    prompt: Annotated[str | None, typer.Option(help="Prompt of --model; may have fields, as in caption.")] = None
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Decoding of --model: beams=5, max_tokens=60, consensus=48, samples=3, temperature=0.7, … Repeatable.",
        ),
    ] = None
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite", help="Caption again (--model), and replace copies. Texts that a person wrote or edited stay."
        ),
    ] = False
    replace_edited: Annotated[
        bool,
        typer.Option("--replace-edited", help="Replace texts that a person wrote or edited; a backup is kept."),
    ] = False


@dataclass(frozen=True)
class AltTextOptions(SourceOptions):
    """Options of ``tellapart alt-text``."""

    out: Annotated[
        str | None,
        typer.Option("--out", "-o", help="Write to alt.jsonl or alt.csv; - prints. Default: print a single text."),
    ] = None
    language: Annotated[
        str, typer.Option(metavar="CODE", help="Language of the captions, kept as xml:lang in XMP: de, pt-BR.")
    ] = ""
    characters: Annotated[int, typer.Option(min=20, help="Maximum characters of an alt text.")] = 125
    long: Annotated[bool, typer.Option("--long", help="Also keep the whole caption where it says more.")] = False
    doubtful: Annotated[
        bool,
        typer.Option("--doubtful", help="Mark words that --model finds as likely in other pictures, for review."),
    ] = False
    embed: Annotated[
        bool, typer.Option("--embed", help="Write alt texts to PICTURE.xmp beside each picture (IPTC).")
    ] = False
    copies: Annotated[
        Path | None,
        typer.Option(help="Write copies of the pictures, alt texts inside, to this folder.", file_okay=False),
    ] = None


@dataclass(frozen=True)
class LoraOptions(SourceOptions):
    """Options of ``tellapart lora``."""

    trigger: Annotated[str | None, typer.Option(help="Word that the generator is to learn. Required.")] = None
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help="Write one file: .jsonl, .csv, or with the pictures .parquet, .tar. "
            "Default: text files beside the pictures, and metadata.jsonl.",
        ),
    ] = None
    extension: Annotated[
        str | None, typer.Option(help="Suffix of the text files: .txt or .caption. Default: .txt.")
    ] = None
    common: Annotated[
        float, typer.Option(min=0.1, max=1.0, help="Leave out what more than this share of the captions says.")
    ] = 0.5
    keep: Annotated[str | None, typer.Option(metavar="WORDS", help="Never leave out these words: hat,red.")] = None
    avoid: Annotated[str | None, typer.Option(metavar="WORDS", help="Always leave out these words.")] = None
    include: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Never leave out these words, and add them where missing.")
    ] = None
    prefix: Annotated[str | None, typer.Option(help="Text before the trigger.")] = None
    suffix: Annotated[str | None, typer.Option(help="Text after each caption.")] = None
    length_mix: Annotated[
        str | None,
        typer.Option(metavar="SHARES", help="Fractions of short, medium and long captions, e.g. 0.2,0.5,0.3."),
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of --length-mix. Default: 0.")] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be left out, and write no text.")] = False
