"""Checks that a destination can hold the captions that are asked for."""

from __future__ import annotations

from pathlib import Path

from tellapart.captions.formats import LOG, METADATA, PRINTED, format_of
from tellapart.errors import UsageError, need_extra
from tellapart.models.decoding import Decoding


def check_claims(decoding: Decoding, best_of: int | None) -> None:
    """Raises `UsageError` if the settings do not sample several captions, or if the claim extractor is not
    installed.
    """
    need_extra("words", "--claims", "HanTa")
    if best_of is None and (not decoding.draws or decoding.drawn.samples < 2):
        raise UsageError(
            "--claims requires several samples per picture; add --samples 10, --consensus 48 or "
            "--best-of 10 --scorer MODEL"
        )


def check_lines(
    out: Path | None,
    format: str | None,
    decoding: Decoding,
    best_of: int | None,
    *,
    schema: bool = False,
    claims: bool = False,
) -> None:
    """Raises `UsageError` if the format cannot store structured captions, claims or paragraphs."""
    chosen = format_of(out, format) if out != PRINTED else format or "jsonl"
    if (schema or claims) and (chosen != "jsonl" or (out is not None and out.name == METADATA)):
        raise UsageError(f"{'--schema' if schema else '--claims'} requires JSON lines; use -o captions.jsonl")
    if decoding.paragraphs and chosen not in ("jsonl", "txt", LOG):
        raise UsageError(
            "--decoding paragraphs=keep is not supported for this output; use -o captions.jsonl, or "
            "--format txt for a file beside each picture"
        )
    if decoding.paragraphs and (decoding.samples > 1 or decoding.confidence):
        raise UsageError(
            "--decoding paragraphs=keep supports only a single unedited caption; remove --samples and confidence"
        )
    if claims:
        check_claims(decoding, best_of)
