"""``tellapart lora``: writes a folder's captions for fine-tuning an image generator."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device, InferencePrecision, Pictures
from tellapart.cli.output import show
from tellapart.data.open import open_many
from tellapart.purposes.lora import WordShare
from tellapart.purposes.options import LoraOptions
from tellapart.utils.tables import table_of

app = App()


@app.command(rich_help_panel=MEASURING)
def lora(
    pictures: Pictures,
    options: LoraOptions,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
) -> None:
    """Make training captions for an image generator: add a trigger word, remove words that most captions share."""
    from tellapart.purposes.write_lora import write_lora

    write_lora(open_many(pictures), pictures, options, device, precision, show_shares)


def show_shares(shares: Sequence[WordShare], captions: int) -> None:
    """Prints how many captions contain each word, and which words are removed."""
    show(None, lambda: share_table(shares, captions), False)


def share_table(shares: Sequence[WordShare], captions: int) -> Table:
    """Returns the table of words and their shares."""
    rows = [
        (one.word, f"{one.count:,}", f"{100 * one.share:.0f}", "removed" if one.left_out else "stays") for one in shares
    ]
    return table_of(("word", "captions", "%", ""), rows, f"words in {captions:,} captions")
