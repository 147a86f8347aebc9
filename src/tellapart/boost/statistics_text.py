"""Presents the statistics of boosted captions as tables, bars and sentences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import rich.table

from tellapart.boost.new_words import NewWords
from tellapart.boost.stages import HUMAN, STAGE_NAMES, TITLES
from tellapart.boost.statistics import Statistics
from tellapart.utils.tables import table_of

# From Table 9 in paper 2 (COCO): mean and standard deviation of the number of words and of CLIP tokens per caption.
PAPER = {
    HUMAN: ("10.5 ±2.4", "13.5 ±2.7"),
    "blend": ("20.1 ±6.0", "25.4 ±7.0"),
    "holistic": ("41.5 ±13.1", "50.2 ±15.4"),
    "describe": ("51.1 ±14.4", "59.2 ±12.8"),
}
BARS = 40  # length of the longest bar, in characters


def statistics_table(statistics: Statistics) -> rich.table.Table:
    """Returns the table for the terminal."""
    return table_of(*statistics_rows(statistics), f"{statistics.items:,} items")


def statistics_rows(statistics: Statistics) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows of a table. For each kind of caption, it shows the number of words and
    tokens, next to the numbers in the paper's Table 9. On `scenes`, it also shows precision and recall.
    """
    columns: dict[str, Callable[[str], str]] = {
        "caption": TITLES.__getitem__,
        "words": lambda kind: str(statistics.words[kind]),
        "paper, COCO": lambda kind: PAPER[kind][0],
    }
    if statistics.count_tokens is not None:
        columns["tokens"] = lambda kind: str(statistics.tokens[kind])
        columns["paper, CLIP"] = lambda kind: PAPER[kind][1]
    if any(statistics.claims.values()):
        columns["precision %"] = lambda kind: _percent(statistics.rate(kind, "correct", "claims"))
        columns["recall %"] = lambda kind: _percent(statistics.rate(kind, "recalled", "attributes"))
    return [*columns], [[cell(kind) for cell in columns.values()] for kind in statistics.kinds]


def statistics_lines(statistics: Statistics) -> Iterator[str]:
    """Yields the lines that follow the table in a terminal: a histogram of lengths, then the summary."""
    for kind in statistics.kinds:
        yield f"words per caption: {TITLES[kind]}"
        rows = statistics.histogram(kind)
        most = max(count for _, count in rows)
        for label, count in rows:
            yield f"  {label:>9} {'█' * math.ceil(BARS * count / most):<{BARS}} {count:,}"
    yield from summary_lines(statistics)


def summary_lines(statistics: Statistics) -> Iterator[str]:
    """Yields one sentence each on new words, bad answers and the describer's errors."""
    if (words := statistics.new_words()) is None:
        yield "to count new words, run: pip install 'tellapart[words]'"
    else:
        yield from _new_word_lines(words, len(statistics.sample))
    for stage, counts in statistics.bad.items():
        if counts:
            reasons = ", ".join(f"{count:,} {why}" for why, count in counts.most_common())
            usable = f"{counts.total():,} of {statistics.items:,} items without a usable answer"
            yield f"{TITLES[stage]}: {usable} ({reasons})"
    if (errors := statistics.errors).made:
        yield (
            f"describer's errors: {errors.made:,}; {errors.contradicted:,} contradict the references, "
            f"of which {errors.kept_out:,} were removed; of the other {errors.made - errors.contradicted:,}, "
            f"{errors.passed_on:,} are in the final caption"
        )


def _new_word_lines(words: NewWords, sample: int) -> Iterator[str]:
    """Yields one sentence for each stage with answers."""
    for stage in filter(words.in_no_reference.__contains__, STAGE_NAMES):
        line = f"{TITLES[stage]}: {_percent(words.in_no_reference[stage].percent)}% of content words are in "
        line += "no reference"
        if stage in words.in_no_source:
            line += f", {_percent(words.in_no_source[stage].percent)}% are in none of its sources"
        yield f"{line} ({sample:,} items)"
    if words.left_out.total:
        yield (
            f"HolisticCap omitted {_percent(words.left_out.percent)}% of the description's "
            f"words that are in no reference ({sample:,} items)"
        )


def _percent(value: float) -> str:
    """Formats a percentage. NaN becomes a dash."""
    return f"{value:.1f}" if math.isfinite(value) else "–"
