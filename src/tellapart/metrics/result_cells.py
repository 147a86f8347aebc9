"""Formats results as text: cells with intervals, paired differences, and the notes that explain them."""

from __future__ import annotations

import math
from collections.abc import Iterable

from tellapart.metrics.intervals import BOOTSTRAP, PROCEDURES, RARE, STUDENT, Interval
from tellapart.metrics.paired_tests import ALPHA, EQUAL
from tellapart.metrics.results import Results, SystemPair
from tellapart.metrics.typical_words import WORDS_KEY

PAIR_HEADS = ("metric", "a", "b", "b − a", "95% interval", "p")
HOLM_HEAD = "p (Holm)"
_PROCEDURE_NAMES = {BOOTSTRAP: "bootstrap", STUDENT: "Student's t", RARE: "rare events"}
PLACES = 6  # with this many decimals, no non-zero difference is printed as zero


def places_for(places: int, difference: Iterable[float | None]) -> int:
    """Returns ``places``, or a larger number of decimals if a non-zero difference or bound would otherwise be printed
    as zero.
    """
    for x in difference:
        while x and places < PLACES and abs(x) >= EQUAL and round(x, places) == 0:
            places += 1
    return places


def format_p(p: float) -> str:
    """Formats a p-value with three decimals. Writes "<0.001" instead of 0, and "<0.050" for a value just below 0.05."""
    if p < 0.001 - 1e-9:
        return "<0.001"
    text = f"{p:.3f}"
    return f"<{text}" if p < ALPHA - 1e-9 and text == "0.050" else text


def system_rows(results: Results) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the column heads after the first column, and each metric's cells after its name."""
    heads = ("n", "candidates", "chance") if results.candidates else ()
    settings = [head for head in heads if head not in results.systems]  # chance has its own column
    return [*settings, *results.systems], {
        metric: [
            *_among(results, metric)[: len(settings)],
            *(cell(results, own.get(metric), metric) for own in results.systems.values()),
        ]
        for metric in results.signatures
        if metric != WORDS_KEY  # the word analysis has its own tables
    }


def cell(results: Results, interval: Interval | None, metric: str) -> str:
    """Formats a value with its interval in brackets. Adds the number of pictures if it differs from the table's
    number.
    """
    if interval is None or math.isnan(interval.value):
        return "–"
    digits = results.digits(metric)
    text = f"{interval.value:z.{digits}f}"
    if not math.isnan(interval.low):
        text += f" [{interval.low:z.{digits}f}, {interval.high:z.{digits}f}]"
    usual = _n(results, metric) if results.candidates else len(results.ids)
    return text + (f" n={interval.n}" if interval.n != usual else "")


def _n(results: Results, metric: str) -> int:
    """Returns the number of pictures behind most systems' values."""
    return max((own[metric].n for own in results.systems.values() if metric in own), default=0)


def _among(results: Results, metric: str) -> tuple[str, str, str]:
    """Returns the extra cells of a recall metric: the numbers of pictures and of candidates, and a blind
    guess's score.
    """
    n, candidates = f"{_n(results, metric):,}", results.candidates.get(metric)
    chance = "" if candidates is None else f"{candidates.chance:.{results.digits(metric)}f}"
    return n, "" if candidates is None else str(candidates), chance


def pair_heads(results: Results) -> tuple[str, ...]:
    """Returns the column headings of the paired differences."""
    return (*PAIR_HEADS, HOLM_HEAD) if results.corrected else PAIR_HEADS


def pair_row(results: Results, pair: SystemPair) -> tuple[str, ...]:
    """Returns a pair's difference, its interval, its p-value and, if p-values were corrected, the corrected p-value."""
    difference = pair.difference
    digits = places_for(results.digits(pair.metric) + 1, (difference.value, difference.low, difference.high))
    value = "–" if math.isnan(difference.value) else f"{difference.value:+z.{digits}f}"
    between = "–" if math.isnan(difference.low) else f"{difference.low:+z.{digits}f} … {difference.high:+z.{digits}f}"
    ps = (difference.p, difference.p_holm) if results.corrected else (difference.p,)
    return value, between, *("–" if math.isnan(p) else format_p(p) for p in ps)


def intervals_note(results: Results) -> str:
    """Describes the intervals and how they were computed according to the signatures, e.g. ``95% intervals
    (bootstrap)``.
    """
    parts = (part for signature in results.signatures.values() for part in signature.split("|"))
    values = (part.partition(":")[2].partition(",")[0] for part in parts if part.startswith(f"{PROCEDURES}:"))
    known = {name for value in values for name in value.split("+")}
    names = [text for name, text in _PROCEDURE_NAMES.items() if name in known]
    return "95% intervals" + (f" ({', '.join(names)})" if names else "")


def pairs_note(results: Results) -> str:
    """Returns the footer of the table of paired differences, which explains "better" and "worse"."""
    which = f"{HOLM_HEAD} below {ALPHA}" if results.corrected else f"p below {ALPHA}"
    return (
        f"Better or worse (bold): {which}, by approximate randomization. The intervals are computed "
        "independently and may disagree with p."
    )
