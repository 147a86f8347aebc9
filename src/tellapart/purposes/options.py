"""The settings of ``tellapart alt-text`` and ``tellapart lora``; the command line is generated from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class SourceOptions:
    """Options for where captions come from, and which texts may be replaced."""

    captions: Annotated[
        Path | None,
        typer.Option(
            help=("Captions of the pictures, in any layout that eval accepts. Default: the captions in the folder."),
            dir_okay=False,
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(help=("Captioner to run on the pictures first: a name or path, or openai:MODEL@URL.")),
    ] = None
    prompt: Annotated[
        str | None, typer.Option(help="Prompt for --model; may contain fields, as for tellapart caption.")
    ] = None
    fields: Annotated[
        Path | None,
        typer.Option(
            help="Table with the values of --prompt's fields for each picture, such as purpose or link.", dir_okay=False
        ),
    ] = None
    decoding: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help=(
                "Decoding settings for --model, such as beams=5, max_tokens=60, consensus=48, samples=3, "
                "temperature=0.7, … Repeatable."
            ),
        ),
    ] = None
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            help="Recaption the pictures (with --model). Hand-written and edited texts are kept.",
        ),
    ] = False
    replace_edited: Annotated[
        bool,
        typer.Option("--replace-edited", help="Replace texts that you wrote, edited or accepted; a backup is kept."),
    ] = False


@dataclass(frozen=True)
class AltTextOptions(SourceOptions):
    """Options of ``tellapart alt-text``."""

    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help=("Output file (.jsonl or .csv), or - for standard output. For a single picture, the default is -."),
        ),
    ] = None
    language: Annotated[
        str, typer.Option(metavar="CODE", help="Language of the captions, written to XMP as xml:lang: de, pt-BR.")
    ] = ""
    characters: Annotated[int, typer.Option(min=20, help="Maximum length of an alt text, in characters.")] = 125
    long: Annotated[bool, typer.Option("--long", help="Also save the full caption if the alt text is shorter.")] = False
    doubtful: Annotated[
        bool,
        typer.Option(
            "--doubtful", help="Mark words for review if --model finds them just as likely for other pictures."
        ),
    ] = False
    embed: Annotated[
        bool, typer.Option("--embed", help="Write alt text to PICTURE.xmp next to each picture (IPTC).")
    ] = False
    copies: Annotated[
        Path | None,
        typer.Option(
            help=(
                "Write copies of the pictures, with alt texts embedded, to this folder. Copies that you changed are "
                "replaced only with --overwrite."
            ),
            file_okay=False,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LoraOptions(SourceOptions):
    """Options of ``tellapart lora``."""

    trigger: Annotated[str, typer.Option(help="Word that the generator should learn.")]
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            help=(
                "Write a single file: .jsonl or .csv (texts only), .parquet or .tar (texts and pictures). Default: "
                "text files next to the pictures, and metadata.jsonl."
            ),
        ),
    ] = None
    extension: Annotated[
        str | None, typer.Option(help="Suffix of the text files: .txt or .caption. Default: .txt.")
    ] = None
    common: Annotated[
        float,
        typer.Option(min=0.1, max=1.0, help=("Remove words that occur in more than this fraction of the captions.")),
    ] = 0.5
    keep: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Comma-separated words that are never removed, such as hat,red.")
    ] = None
    avoid: Annotated[
        str | None, typer.Option(metavar="WORDS", help="Comma-separated words that are always removed.")
    ] = None
    include: Annotated[
        str | None,
        typer.Option(
            metavar="WORDS",
            help="Comma-separated words that are never removed, and are added to captions that lack them.",
        ),
    ] = None
    scorer: Annotated[
        str | None,
        typer.Option(help="Scorer that finds words that fit nearly all pictures, and suggests them for --avoid."),
    ] = None
    prefix: Annotated[str | None, typer.Option(help="Text to add before the trigger.")] = None
    suffix: Annotated[str | None, typer.Option(help="Text to add after each caption.")] = None
    length_mix: Annotated[
        str | None,
        typer.Option(metavar="SHARES", help="Fractions of short, medium and long captions, such as 0.2,0.5,0.3."),
    ] = None
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed for --length-mix. Default: 0.")] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help=("Show which words would be removed, without writing any texts."))
    ] = False
