"""What ``tellapart bags`` shows and writes of mined bags and of a card."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from tellapart.bags.mine import MinedBags
    from tellapart.evaluation.benchmark_card import Card


def summary(mined: MinedBags) -> dict[str, Any]:
    """The mined bags as JSON values."""
    header = mined.file.header
    return {
        "pictures": header.pictures,
        "left_out": header.left_out,
        "scorer": header.scorer,
        "sizes": {
            str(size): {"bags": len(own), "similarity": [own[0].similarity, own[-1].similarity]}
            for size, own in mined.file.of_size().items()
        },
    }


def table(mined: MinedBags) -> Table:
    """The mined bags as a table."""
    from rich import box
    from rich.table import Table

    header = mined.file.header
    copies = "".join(f", {count:,} {what} left out" for what, count in header.left_out.items())
    shown = Table(box=box.SIMPLE_HEAD, title=f"{header.pictures:,} pictures{copies}")
    for column in ("bag", "bags", "pictures", "most alike", "least alike"):
        shown.add_column(column, justify="right")
    for size, own in mined.file.of_size().items():
        alphas = (f"{own[place].similarity:.3f}" for place in (0, -1))
        shown.add_row(str(size), f"{len(own):,}", f"{size * len(own):,}", *alphas)
    return shown


def card_table(card: Card) -> Table:
    """A card as a table."""
    from rich import box
    from rich.table import Table

    from tellapart.evaluation.benchmark_card import COLUMNS, cells

    shown = Table(box=box.SIMPLE_HEAD, title=f"{card.name}: {card.file.header.pictures:,} pictures")
    for column in COLUMNS:
        shown.add_column(column, justify="right")
    for own in card.sizes:
        shown.add_row(*cells(own))
    return shown


def write_card(card: Card, folder: Path) -> None:
    """Write card.md and card.html."""
    from tellapart.bags.file import write_whole
    from tellapart.evaluation.benchmark_card import markdown, page

    write_whole(folder / "card.md", markdown(card))
    write_whole(folder / "card.html", page(card))
