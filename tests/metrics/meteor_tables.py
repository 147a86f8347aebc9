"""METEOR's files in small: a jar and a gzip file in the real layout, with a few words each."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

FUNCTION_WORDS = ["a", "the", "of", "on", "is", "in", ",", "."]
# base form or word, then its synsets
SYNSETS = {
    "big": "1 2",
    "large": "2 3",
    "dog": "4",
    "frank": "4 5",
    "mouse": "6",
    "rat": "6 7",
    "run": "8",
    "race": "8",
}
IRREGULAR = {"mouse": "mice", "run": "ran"}
# phrase, paraphrase: one way, unless it stands there twice
PARAPHRASES = [
    ("sofa", "couch"),
    ("boat", "ship"),
    ("ship", "boat"),
    ("next to", "beside"),
    ("a lot of", "many"),
    ("beside", "near"),
    ("beside", "at the side of"),
]


def write_tables(folder: Path, paraphrases: list[tuple[str, str]] = PARAPHRASES) -> tuple[Path, Path]:
    """The two files of the package pycocoevalcap that METEOR is read from."""
    folder.mkdir(parents=True, exist_ok=True)
    jar, table = folder / "meteor-1.5.jar", folder / "paraphrase-en.gz"
    texts = {
        "function/english.words": FUNCTION_WORDS,
        "nonbreaking/english.prefixes": ["# titles", "Mr", "vs", "", "No #NUMERIC_ONLY#"],
        "synonym/english.synsets": [line for couple in SYNSETS.items() for line in couple],
        "synonym/english.exceptions": [line for couple in IRREGULAR.items() for line in couple],
    }
    with zipfile.ZipFile(jar, "w") as archive:
        for name, lines in texts.items():
            archive.writestr(name, "\n".join(lines) + "\n")
    lines = [line for phrase, other in paraphrases for line in ("0.1", phrase, other)]
    table.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))
    return jar, table
