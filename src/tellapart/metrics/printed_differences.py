"""Formats differences and p-values so that rounding does not change what they say."""

from __future__ import annotations

from collections.abc import Iterable

from tellapart.metrics.paired_tests import ALPHA, EQUAL

PLACES = 6  # decimals that suffice to print no non-zero difference as zero


def places_for(places: int, difference: Iterable[float | None]) -> int:
    """Returns ``places``, or more decimals if a difference's non-zero bound would otherwise be printed as zero."""
    for x in difference:
        while x and places < PLACES and abs(x) >= EQUAL and round(x, places) == 0:
            places += 1
    return places


def format_p(p: float) -> str:
    """Formats a p-value with three decimals: "<0.001" instead of 0, and "<0.050" just below 0.05."""
    if p < 0.001 - 1e-9:
        return "<0.001"
    text = f"{p:.3f}"
    return f"<{text}" if p < ALPHA - 1e-9 and text == "0.050" else text
