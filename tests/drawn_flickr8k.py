"""Drawn pictures with five captions each, in Flickr8k's own file layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image, ImageDraw

COLOURS = ("red", "green", "blue", "yellow")
PLACES = ("grass", "snow", "water")
SIZES = {"train": 48, "dev": 8, "test": 100}


def five_references(colour: str, place: str) -> list[str]:
    return [
        f"A dog with a {colour} collar runs through the {place} .",
        f"A {colour} ball is in the {place} .",
        f"Two people in {colour} jackets are standing in the {place} , a dog behind them .",
        f"a dog with a {colour} collar runs through the {place}",  # the first once more
        f"The brown dog is running after a {colour} ball .",
    ]


def write_flickr8k(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes $TELLAPART_DATA with Flickr8k's files, of small 3:2 pictures, and returns its folder of Flickr8k."""
    folder = tmp_path / "data" / "flickr8k"
    (folder / "images").mkdir(parents=True)
    lines: list[str] = []
    for split, size in SIZES.items():
        names = [f"{split}_{number:03}.jpg" for number in range(size)]
        for number, name in enumerate(names):
            colour, place = COLOURS[number % 4], PLACES[number % 3]
            picture = Image.new("RGB", (48, 32), ("green", "white", "navy")[number % 3])
            ImageDraw.Draw(picture).ellipse((4 + number % 20, 8, 24 + number % 20, 28), fill=colour)
            picture.save(folder / "images" / name)
            lines += [f"{name}#{k}\t{text}" for k, text in enumerate(five_references(colour, place))]
        (folder / f"Flickr_8k.{split}Images.txt").write_text("\n".join(names) + "\n")
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.setenv("TELLAPART_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return folder
