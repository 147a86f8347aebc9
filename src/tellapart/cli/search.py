"""``tellapart search``: finds pictures in a folder by words, using captions and a scorer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device, Json, OptionalFile
from tellapart.cli.output import show
from tellapart.errors import UsageError
from tellapart.utils.messages import say
from tellapart.utils.outputs import check_output
from tellapart.utils.tables import table_of
from tellapart.utils.terminal_text import for_terminal

if TYPE_CHECKING:
    from rich.table import Table

    from tellapart.search.index import Hit, SearchFigures
    from tellapart.search.page import QueryHits

app = App()
FIRST = 10
WAYS = {"captions": "captions (BM25)", "pictures": "pictures (scorer)", "both": "both, fused"}


@app.command(rich_help_panel=MEASURING)
def search(
    folder: str,
    query: Annotated[str | None, typer.Argument()] = None,
    captions: Path | None = None,
    scorer: str | None = None,
    count: Annotated[int, typer.Option("--count", "-n", min=1, max=1000)] = 10,
    queries: OptionalFile = None,
    report: OptionalFile = None,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Find pictures by words in their captions (BM25) and, with --scorer, by the pictures themselves.

    Args:
        folder: Folder of pictures, or a data set as kind:path?key=value.
        query: Words to search for.
        captions: Caption file, or a suffix: .txt, .xmp. Default: auto-detected in the folder.
        scorer: Scorer that also compares the words with the pictures.
        count: Number of pictures to show.
        queries: File of queries, each with the picture that it should find (query,picture). Prints R@k.
        report: HTML page to write, showing the pictures found.
    """
    if (query is None) == (queries is None):
        raise UsageError("expected either words to search for, or --queries FILE")
    if device != "auto" and scorer is None:
        raise UsageError("--device requires --scorer; add it, or remove --device")
    if report is not None:
        check_output(report, ".html", ".htm")
    from tellapart.search.page import write_search_page
    from tellapart.search.start import open_index, search_all

    lines: list[str] = []
    index = open_index(folder, captions, scorer, device)
    found = search_all(index, query, queries, count)
    if queries is None:
        hits = found[0].hits
        show([asdict(hit) for hit in hits], lambda: _hits(hits), as_json)
    else:
        figures = index.measure([(one.query, one.picture) for one in found])
        show(_figures(figures, found), lambda: _table(figures), as_json)
        lines = _lines(figures)
        if report is None:
            _suggest_report(figures)
    if report is not None:
        write_search_page(
            report, query or f"{queries and queries.name}: {len(found):,} queries", found, index.items, lines
        )
        say(f"report: {report}")


def _hits(hits: Sequence[Hit]) -> Table | str:
    if not hits:
        return "no caption contains any of these words; add --scorer MODEL to search the pictures as well"
    rows = [
        (str(rank), for_terminal(hit.id), for_terminal(hit.caption), f"{hit.score:.4f}", hit.reasons)
        for rank, hit in enumerate(hits, 1)
    ]
    return table_of(("", "picture", "caption", "score", "ranks"), rows)


def _figures(figures: SearchFigures, found: Sequence[QueryHits]) -> dict[str, Any]:
    """Returns JSON with each method's measures and intervals in percent, and the ranks for each query."""
    values = {
        way: {name: {"value": one.value, "low": one.low, "high": one.high} for name, one in row.items()}
        for way, row in figures.values.items()
    }
    ranks = [
        {"query": one.query, "picture": one.picture, **{way: rank_Q[q] for way, rank_Q in figures.ranks.items()}}
        for q, one in enumerate(found)
    ]
    return {"queries": figures.queries, "pictures": figures.pictures, "values": values, "ranks": ranks}


def _suggest_report(figures: SearchFigures) -> None:
    """Prints how many queries miss their picture, and how to see each query's results."""
    rank_Q = figures.ranks.get("both", figures.ranks["captions"])
    if missed := sum(rank is None or rank > FIRST for rank in rank_Q):
        say(
            f"{missed:,} of {len(rank_Q):,} queries do not find their picture among the first {FIRST}; to see "
            "the results of each query, add --report FILE.html"
        )


def _lines(figures: SearchFigures) -> list[str]:
    """Formats the figures as lines of text for the page."""
    heads, rows = _cells(figures)
    lines = (f"{way}: {', '.join(map(' '.join, zip(heads, values, strict=True)))}" for way, *values in rows)
    return [_title(figures), *lines]


def _title(figures: SearchFigures) -> str:
    return f"{figures.queries:,} queries, {figures.pictures:,} pictures; percentages with 95% intervals"


def _table(figures: SearchFigures) -> Table:
    heads, rows = _cells(figures)
    return table_of(("search by", *heads), rows, _title(figures))


def _cells(figures: SearchFigures) -> tuple[list[str], list[list[str]]]:
    """Returns the names of the measures, and a row for each search method: its name, then values with intervals."""
    rows = [
        [WAYS[way], *(f"{one.value:.1f} [{one.low:.1f}, {one.high:.1f}]" for one in row.values())]
        for way, row in figures.values.items()
    ]
    return list(next(iter(figures.values.values()))), rows
