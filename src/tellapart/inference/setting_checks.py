"""Checks that the settings of a captioning run are compatible with each other, with the model and with the output."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tellapart.captions.formats import LOG, METADATA, PRINTED, format_of
from tellapart.data import Dataset
from tellapart.errors import UsageError, need_extra
from tellapart.inference.structured import AnswerSchema
from tellapart.models.decoding import Decoding, check_choice
from tellapart.scorers.base import Scorer


def check_claims(decoding: Decoding, best_of: int | None) -> None:
    """Raises `UsageError` if the settings do not sample several captions, and `MissingExtra` if the claim extractor is
    not installed.
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
            "--decoding paragraphs=keep supports only a single unedited caption; remove --samples and --decoding "
            "confidence"
        )
    if claims:
        check_claims(decoding, best_of)


def check_request(
    decoding: Decoding, best_of: int | None, scorer: Scorer | None, drop_guesses: bool, concurrency: int
) -> None:
    """Raises `UsageError` if a server does not support the settings, or if they are inconsistent."""
    if decoding.kind == "beam":
        raise UsageError(
            "--beams requires a local model, because a server writes greedy or sampled captions; remove --beams"
        )
    if concurrency < 1:
        raise UsageError(f"concurrent requests: expected at least 1, got {concurrency}")
    check_choice(decoding, best_of, scorer is not None)
    check_drop_guesses(drop_guesses, decoding, best_of)


def check_schema(
    name: str, decoding: Decoding, best_of: int | None, schema: AnswerSchema | None, drop_guesses: bool
) -> None:
    """Raises `UsageError` if a schema or a batch endpoint cannot be combined with the other settings."""
    if drop_guesses and "?" in name and "batch=1" in name.partition("?")[2].split("&"):
        raise UsageError(
            "--drop-guesses needs additional requests for each caption and cannot be combined with a batch; remove "
            "--drop-guesses or batch=1"
        )
    if schema is not None and (decoding.kind != "greedy" or best_of or drop_guesses or decoding.confidence):
        raise UsageError(
            "--schema keeps a single unedited answer per picture; remove --samples, --best-of, "
            "--consensus, --drop-guesses and --decoding confidence"
        )


def check_drop_guesses(
    drop_guesses: bool, decoding: Decoding, best_of: int | None, dataset: Dataset | None = None
) -> None:
    """Raises `UsageError` if ``drop_guesses`` cannot work, because there are several samples per picture or fewer than
    two pictures.
    """
    if drop_guesses and best_of is not None:
        raise UsageError(
            "--drop-guesses and --best-of cannot be combined, because --best-of scores captions "
            "before they are edited; remove one of them"
        )
    if drop_guesses and decoding.samples > 1:
        raise UsageError(
            "--drop-guesses and --samples cannot be combined, because only a single caption per "
            "picture can be edited; remove one of them"
        )
    if drop_guesses and dataset is not None and len(dataset) < 2:
        raise UsageError(
            f"--drop-guesses compares each picture with other pictures, but {dataset.spec} contains {len(dataset)}; "
            "remove --drop-guesses"
        )


def refuse(options: Mapping[str, Any], why: str) -> None:
    """Raises `UsageError` if any of these options was given, since it would have no effect."""
    for option, value in options.items():
        if value is not None:
            raise UsageError(f"{option} {why}; remove this option")
