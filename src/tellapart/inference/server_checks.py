"""Checks that a server supports the settings of a run."""

from __future__ import annotations

from tellapart.errors import UsageError
from tellapart.inference.structured import AnswerSchema
from tellapart.models.decoding import Decoding, check_choice
from tellapart.scorers.base import Scorer


def check_request(
    decoding: Decoding, best_of: int | None, scorer: Scorer | None, drop_guesses: bool, concurrency: int
) -> None:
    """Raises `UsageError` if a server does not support the settings, or if they are inconsistent."""
    if decoding.kind == "beam":
        raise UsageError("--beams requires a local model; a server writes greedy or sampled captions; remove it")
    if concurrency < 1:
        raise UsageError(f"concurrent requests: expected at least 1, got {concurrency}")
    check_choice(decoding, best_of, scorer is not None)
    if drop_guesses and (best_of is not None or decoding.samples > 1):
        chosen = "--samples" if best_of is None else "--best-of"
        raise UsageError(f"--drop-guesses and {chosen} cannot be combined; remove one")


def check_schema(
    name: str, decoding: Decoding, best_of: int | None, schema: AnswerSchema | None, drop_guesses: bool
) -> None:
    """Raises `UsageError` if a schema or a batch endpoint cannot be combined with the other settings."""
    if drop_guesses and "?" in name and "batch=1" in name.partition("?")[2].split("&"):
        raise UsageError(
            "--drop-guesses needs additional requests for each caption and cannot be combined with a batch; remove "
            "one of the two"
        )
    if schema is not None and (decoding.kind != "greedy" or best_of or drop_guesses or decoding.confidence):
        raise UsageError(
            "--schema keeps a single unedited answer per picture; remove --samples, --best-of, "
            "--consensus, --drop-guesses and --decoding confidence"
        )
