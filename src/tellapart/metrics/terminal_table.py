"""Results as tables in a terminal: systems by metric, paired differences, and typical words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import rich.console
import rich.text
from rich import box
from rich.table import Table

from tellapart.metrics.result_cells import PAIR_HEADS, intervals_note, pair_heads, pair_row, pairs_note, system_rows
from tellapart.metrics.results import Results, SystemPair
from tellapart.metrics.typical_words import POS, WORDS_KEY, Association


def terminal_table(
    results: Results,
    *,
    without: Sequence[str] = (),
    only: Sequence[str] | None = None,
    signatures: bool = False,
    title: str = "",
) -> rich.console.Group:
    """Returns a table with a row per metric, a column per system, and 95% intervals, followed by the paired
    differences.

    without: systems, such as baselines, whose pairs are omitted.
    only: show only these metrics, and a line that says how many other metrics were measured.
    signatures: print the signatures of the shown metrics below the notes.
    title: text for the title; the ``test_sets`` follow, each under its name.
    """
    keys = [key for key in results.signatures if key != WORDS_KEY]
    shown = [key for key in keys if only is None or key in only]
    parts: list[Any] = [_systems_table(results, shown, title)]
    pairs = [pair for pair in results.pairs if not {pair.a, pair.b} & set(without) and pair.metric in shown]
    if pairs:
        parts.append(_pairs_table(results, pairs))
    if results.words:
        parts += [_words_table(results.words, pos) for pos in POS]
    parts.extend(rich.text.Text(f"note: {note}", style="yellow") for note in results.notes)
    if signatures:
        parts.extend(rich.text.Text(f"{key}: {results.signatures[key]}", style="dim", overflow="fold") for key in shown)
    if more := len(keys) - len(shown):
        were = "metrics were" if more > 1 else "metric was"
        parts.append(rich.text.Text(f"{more} more {were} measured; add --metrics all to show them"))
    parts += [
        terminal_table(inner, without=without, only=only, signatures=signatures, title=name)
        for name, inner in results.test_sets.items()
    ]
    return rich.console.Group(*parts)


def _systems_table(results: Results, shown: Sequence[str], title: str) -> Table:
    title = f"{title and f'{title}: '}{len(results.ids)} pictures; {intervals_note(results)}"
    table = Table(box=box.SIMPLE_HEAD, title=title)
    table.add_column("metric")
    heads, rows = system_rows(results)
    for name in heads:
        table.add_column(name, justify="right", overflow="fold")
    for metric in shown:
        table.add_row(metric, *rows[metric])
    return table


def _pairs_table(results: Results, pairs: Sequence[SystemPair]) -> Table:
    title = "paired differences over pictures (b − a)"
    table = Table(box=box.SIMPLE_HEAD, title=title, caption=pairs_note(results), caption_justify="left")
    for name in PAIR_HEADS[:3]:
        table.add_column(name, overflow="fold")
    for name in pair_heads(results)[3:]:
        table.add_column(name, justify="right")
    for pair in pairs:
        style = "bold" if pair.difference.clear else None
        table.add_row(pair.metric, pair.a, pair.b, *pair_row(results, pair), style=style)
    return table


def _words_table(words: Mapping[str, Sequence[Association]], pos: str) -> Table:
    title = f"{pos}s most associated with each system (local mutual information)"
    # Rich folds a title at the table's width.
    table = Table(box=box.SIMPLE_HEAD, title=title, min_width=len(title))
    own = {system: [word for word in found if word.pos == pos] for system, found in words.items()}
    for system in words:
        table.add_column(system, overflow="fold")
    for row in range(max((len(found) for found in own.values()), default=0)):
        table.add_row(
            *[f"{found[row].lemma} {found[row].count:,}" if row < len(found) else "" for found in own.values()]
        )
    return table
