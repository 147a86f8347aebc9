"""``tellapart alt-text``: turns captions into short texts for people who cannot see the pictures."""

from __future__ import annotations

from tellapart.cli.app import MEASURING, App
from tellapart.cli.options import Device, InferencePrecision, Pictures
from tellapart.data.open import open_many
from tellapart.purposes.options import AltTextOptions

app = App()


@app.command("alt-text", rich_help_panel=MEASURING)
def alt_text(
    pictures: Pictures,
    options: AltTextOptions,
    device: Device = "auto",
    precision: InferencePrecision = "auto",
) -> None:
    """Turn captions into short alt text, without filler such as 'a picture of'.

    Writes a file and, if requested, .xmp sidecars or copies of the pictures.
    """
    from tellapart.purposes.write_alt_texts import write_alt_texts

    write_alt_texts(open_many(pictures), pictures, options, device, precision)
