"""What text metrics take: captions with their references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tellapart.errors import UsageError

References = Sequence[Sequence[str]]  # each picture's reference texts


def check(captions: Sequence[Any], references: Sequence[Sequence[Any]] | None) -> None:
    """Raises `UsageError` unless every caption has at least one reference."""
    if references is None or len(captions) != len(references):
        count = "no" if references is None else len(references)
        raise UsageError(f"Expected one list of references per caption; got {len(captions)} captions and {count} lists")
    without = [
        number
        for number, reference_texts in enumerate(references)
        if isinstance(reference_texts, str) or not len(reference_texts)
    ]
    if without:
        raise UsageError(
            f"references[{without[0]}]: expected a list with at least one reference; "
            f"{len(without):,} of {len(captions):,} captions have no reference"
        )
