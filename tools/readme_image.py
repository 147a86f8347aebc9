"""Draws the README's image from a run of the demo: two look-alikes with their captions before and after.

tellapart demo --out runs/demo && python tools/readme_image.py runs/demo -o docs/images/look-alikes.png

Refuses images unless both had one caption before, and have two afterwards that are true of their own image alone.
"""

from __future__ import annotations

import argparse
import json
import textwrap
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from tellapart.data import open_data
from tellapart.scenes.claims import count_claims
from tellapart.scenes.listener import listener_probabilities
from tellapart.types import Item

DATA = "scenes:plain?split=test&n=500&seed=11"  # the demo's test images
IDS = ("scenes-plain-test-s11-000222", "scenes-plain-test-s11-000224")
SIDE, MARGIN, WIDTH = 420, 50, 1200
GREY, BLACK, GREEN = "#6b7280", "#111827", "#047857"


def main() -> None:
    """Reads the run's captions and writes the image."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--ids", nargs=2, default=IDS)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    items = {item.id: item for item in open_data(DATA)}
    before, after = (read_captions(arguments.run / "captions" / f"{name}.jsonl") for name in ("before", "after"))
    pair = [items[each] for each in arguments.ids]
    check(pair, [before[item.id] for item in pair], [after[item.id] for item in pair])
    draw(pair, before[pair[0].id], [after[item.id] for item in pair]).save(arguments.out, optimize=True)


def read_captions(path: Path) -> dict[str, str]:
    """Returns id to caption of a file of JSON lines."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row["caption"] for row in rows}


def check(pair: list[Item], before: list[str], after: list[str]) -> None:
    """Raises SystemExit unless the example is what the README says of it."""
    if before[0] != before[1]:
        raise SystemExit(f"different captions before: {before}")
    for item, other, caption in zip(pair, reversed(pair), after, strict=True):
        counts = count_claims(caption, item.picture)
        if counts.correct != counts.claims:
            raise SystemExit(f"{item.id}: '{caption}' has a false claim")
        if listener_probabilities(caption, [item.picture, other.picture])[0] < 0.99:
            raise SystemExit(f"{item.id}: '{caption}' fits the other image as well")


def draw(pair: list[Item], before: str, after: list[str]) -> Image.Image:
    """Returns both images side by side, captions below; words that differ between the captions are green."""
    sheet = Image.new("RGB", (WIDTH, SIDE + 270), "white")
    pen = ImageDraw.Draw(sheet)
    words = [set(caption.split()) for caption in after]
    for column, (item, caption) in enumerate(zip(pair, after, strict=True)):
        left = MARGIN + column * (WIDTH // 2)
        sheet.paste(item.picture.image().resize((SIDE, SIDE), Image.Resampling.LANCZOS), (left, MARGIN // 2))
        top = SIDE + MARGIN
        pen.text((left, top), f"before:  {before}", GREY, ImageFont.load_default(26))
        pen.text((left, top + 50), "after:", GREEN, ImageFont.load_default(26))
        write(pen, (left, top + 88), caption, words[column] - words[1 - column])
    return sheet


def write(pen: ImageDraw.ImageDraw, place: tuple[int, int], caption: str, marked: set[str]) -> None:
    """Writes a caption in lines, word by word."""
    font = ImageFont.load_default(32)
    for row, line in enumerate(textwrap.wrap(caption, 28)):
        left: float = place[0]
        for word in line.split():
            pen.text((left, place[1] + 42 * row), word, GREEN if word in marked else BLACK, font)
            left += pen.textlength(f"{word} ", font)


if __name__ == "__main__":
    main()
