"""Counts what people's captions lose to the rules for openings and refusals: ``python tools/openings.py``."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

from tellapart.data.caption_files import read_reference_file
from tellapart.language.stock_phrases import refusal
from tellapart.purposes.shortening import without_openings

SHOWN = 12  # examples and openings to print


def captions(data: Path) -> dict[str, list[str]]:
    """Returns people's captions by source, from the folder of real data."""
    files = {
        "Flickr8k": data / "flickr8k" / "Flickr8k.token.txt",
        "COCO, Karpathy's test split": data / "annotations" / "coco_karpathy_test.json",
        "Flickr30k, test split": data / "published" / "references_flickr30k_karpathy_test.txt",
        "COCO, 280 photos": data / "coco280" / "captions.json",
    }
    texts = {
        name: [text for own in read_reference_file(file).texts.values() for text in own] for name, file in files.items()
    }
    sets = json.loads((data / "annotations" / "imagecode_valid.json").read_text(encoding="utf-8"))
    return {
        **texts,
        "ImageCoDe, validation": [" ".join(text.split()) for one in sets.values() for text in one.values()],
    }


def main() -> None:
    """Prints a table of the sources, the most frequent openings, and every refusal."""
    openings, refusals, total = Counter[str](), list[str](), [0, 0, 0]
    print("| Captions of people | number | openings removed | refusals |\n|---|---:|---:|---:|")
    for name, texts in captions(Path(os.environ["TELLAPART_DATA"])).items():
        removed = [opening.lower() for text in texts if (opening := without_openings(text)[1])]
        refused = [text for text in texts if refusal(text)]
        print(f"| {name} | {len(texts):,} | {len(removed):,} | {len(refused)} |")
        openings.update(removed)
        refusals += refused
        total = [a + b for a, b in zip(total, (len(texts), len(removed), len(refused)), strict=True)]
    print(f"| all | {total[0]:,} | {total[1]:,} | {total[2]} |\n")
    print(", ".join(f"{opening} ({count})" for opening, count in openings.most_common(SHOWN)))
    print("\n".join(refusals))


if __name__ == "__main__":
    main()
