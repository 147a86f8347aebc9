"""The card of a benchmark as one HTML page in the report's style: its bags first, then how alike they are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tellapart.evaluation.benchmark_card import COLUMNS, RECALL_HELP, Card, SizeFacts, cells, facts
from tellapart.report.page import template
from tellapart.report.pictures import Album

KINDS = ("The most alike", "In the middle", "The least alike")
CAPTIONS = 3  # of each picture


@dataclass(frozen=True)
class Shown:
    """A picture of a bag; ``symbol`` is None where it cannot be read."""

    id: str
    symbol: str | None
    captions: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """A bag as the page shows it."""

    kind: str
    similarity: str
    pictures: tuple[Shown, ...]


def page(card: Card) -> str:
    """The card as text of a page that needs nothing beside it: everything escaped, pictures inside."""
    album = Album()
    sizes = [(own, examples(card, own, album), bars(own)) for own in card.sizes]
    entries = facts(card)
    return template(Path(__file__).parent / "card.html").render(
        card=card,
        title=title(card),
        sizes=sizes,
        facts=[(name, text) for name, text in entries if name != "to repeat"],
        columns=COLUMNS,
        recall_help=RECALL_HELP,
        cells=cells,
        sprites=album.sprites(),
    )


def title(card: Card) -> str:
    """What the benchmark is, in one sentence."""
    bags = " and ".join(f"{own.bags:,} of {own.size}" for own in card.sizes)
    return f"{card.name}: bags of look-alikes, {bags} pictures"


def examples(card: Card, own: SizeFacts, album: Album) -> list[Example]:
    """Three bags of a size with their pictures."""
    found = []
    for kind, bag in zip(KINDS, own.examples, strict=False):
        items = [card.items[id_] for id_ in bag.ids]
        shown = tuple(Shown(item.id, album.add_picture(item.picture), item.references[:CAPTIONS]) for item in items)
        found.append(Example(kind, f"{bag.similarity:.3f}", shown))
    return found


def bars(own: SizeFacts) -> list[tuple[str, int, float]]:
    """How many bags are how alike: (from which similarity, bags, share of the longest bar in per cent)."""
    most = max(own.counts) or 1
    return [(f"{edge:.3f}", count, 100 * count / most) for edge, count in zip(own.edges, own.counts, strict=False)]
