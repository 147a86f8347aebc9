"""Renders the page about a boosted data set: lengths, new words and examples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tellapart.boost.statistics import PAPER, ShownItem, Statistics
from tellapart.boost.titles import HUMAN, TITLES, percent
from tellapart.errors import MissingExtra
from tellapart.report.album import Album
from tellapart.report.marked_text import Piece, Span, pieces
from tellapart.report.template import template
from tellapart.scenes.truth import mark_caption
from tellapart.utils.outputs import write_output

_NAMES = {HUMAN: "people’s"}


@dataclass(frozen=True)
class Caption:
    """One stage's caption for an item, as pieces, some of which are marked. ``why``: why there is no caption, if so.

    ``claims``: numbers of (true, all) claims, if the ground truth is known.
    """

    title: str
    pieces: tuple[Piece, ...]
    why: str
    claims: tuple[int, int] | None

    @property
    def false(self) -> tuple[Piece, ...]:
        """The pieces that contain false claims."""
        return tuple(piece for piece in self.pieces if piece.why and not piece.new)


def write_page(statistics: Statistics, path: Path, command: str = "") -> None:
    """Writes the page to ``path`` atomically. ``command``: the command that reproduces it."""
    write_output(path, render(statistics, command))


def render(statistics: Statistics, command: str = "") -> str:
    """Renders the page in the style of the report. Escapes captions, which are untrusted."""
    album = Album()
    new_words = _new_words(statistics)
    cards = [
        (one.item, album.add_picture(one.item.picture), _captions(one, own))
        for one, own in zip(statistics.shown, new_words, strict=True)
    ]
    return template(Path(__file__).parent / "boost.html").render(
        title=headline(statistics),
        statistics=statistics,
        kinds=statistics.kinds,
        titles=TITLES,
        paper=PAPER,
        percent=percent,
        lines=statistics.summary_lines(),
        cards=cards,
        judged=any(caption.claims for _, _, captions in cards for caption in captions),
        analysed=any(own is not None for own in new_words),
        sprites=album.sprites(),
        command=command,
    )


def headline(statistics: Statistics) -> str:
    """Summarizes the result in one sentence."""
    ends = dict.fromkeys((*statistics.kinds[:1], *statistics.kinds[-1:]))
    means = [f"{statistics.words[kind].mean:.1f} in {_NAMES.get(kind, TITLES[kind])}" for kind in ends]
    return f"{statistics.items:,} items; mean words per caption: {', '.join(means) or 'none'}"


def _new_words(statistics: Statistics) -> list[dict[str, list[Span]] | None]:
    """Returns the new words in each shown item, by stage; None if words cannot be analyzed."""
    try:
        return [statistics.new_word_spans(one) for one in statistics.shown]
    except MissingExtra:
        return [None] * len(statistics.shown)


def _captions(one: ShownItem, new_words: dict[str, list[Span]] | None) -> list[Caption]:
    stages = [stage for stage in (*TITLES,)[1:] if one.texts.get(stage) or one.bad.get(stage)]
    return [_caption(one, stage, (new_words or {}).get(stage, [])) for stage in stages]


def _caption(one: ShownItem, stage: str, new: list[Span]) -> Caption:
    text, why = one.texts.get(stage, ""), one.bad.get(stage, "")
    if one.item.truth is None or not text:
        return Caption(TITLES[stage], pieces(text, (), new), why, None)
    marked = mark_caption(text, one.item.truth)
    return Caption(TITLES[stage], pieces(text, marked.false, new), why, (marked.correct, marked.claims))
