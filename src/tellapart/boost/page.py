"""Renders the page about a boosted data set: lengths, new words and examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tellapart.boost.stages import HUMAN, STAGE_NAMES, TITLES
from tellapart.boost.statistics import Statistics
from tellapart.boost.statistics_text import statistics_rows, summary_lines
from tellapart.boost.types import Boosted
from tellapart.report.album import Album
from tellapart.report.marked_text import Piece, pieces
from tellapart.report.template import template
from tellapart.scenes.marked_captions import mark_caption
from tellapart.utils.outputs import write_output


@dataclass(frozen=True)
class Caption:
    """One stage's caption for an item, split into pieces, some of which are marked.

    why: why there is no caption, or "" if there is one.
    claims: number of true claims and of all claims, if the ground truth is known.
    """

    title: str
    pieces: tuple[Piece, ...] = ()
    why: str = ""
    claims: tuple[int, int] | None = None

    @property
    def false(self) -> tuple[Piece, ...]:
        """The pieces that contain false claims."""
        return tuple(piece for piece in self.pieces if piece.why and not piece.new)


def write_page(statistics: Statistics, path: Path, command: str = "") -> None:
    """Writes the page to ``path`` atomically. ``command``: the command that reproduces it."""
    write_output(path, render(statistics, command))


def render(statistics: Statistics, command: str = "") -> str:
    """Renders the page in the style of the report. Escapes the captions, because they are untrusted."""
    album = Album()
    cards = [
        (done.item, album.add_picture(done.item.picture), [*_captions(statistics, done)]) for done in statistics.shown
    ]
    heads, rows = statistics_rows(statistics)
    return template(Path(__file__).parent / "boost.html").render(
        title=headline(statistics),
        items=statistics.items,
        heads=heads,
        rows=rows,
        histograms={TITLES[kind]: statistics.histogram(kind) for kind in statistics.kinds},
        human=TITLES[HUMAN],
        lines=[*summary_lines(statistics)],
        cards=cards,
        judged=any(caption.claims for _, _, captions in cards for caption in captions),
        analysed=statistics.analyse is not None,
        sprites=album.sprites(),
        command=command,
    )


def headline(statistics: Statistics) -> str:
    """Summarizes the result in one sentence."""
    ends = dict.fromkeys((*statistics.kinds[:1], *statistics.kinds[-1:]))
    means = [f"{statistics.words[kind].mean:.1f} in {'people’s' if kind == HUMAN else TITLES[kind]}" for kind in ends]
    return f"{statistics.items:,} items; mean words per caption: {', '.join(means) or 'none'}"


def _captions(statistics: Statistics, done: Boosted) -> Iterator[Caption]:
    for stage in STAGE_NAMES:
        if text := done.texts.get(stage):
            marked = mark_caption(text, done.item.truth) if done.item.truth is not None else None
            parts = pieces(text, marked.false if marked else (), statistics.new_word_spans(done, stage))
            yield Caption(TITLES[stage], parts, claims=(marked.correct, marked.claims) if marked else None)
        elif why := done.bad.get(stage):
            yield Caption(TITLES[stage], why=why)
