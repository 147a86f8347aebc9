"""Words that name the same object: from a file in the layout of the CHAIR authors' ``synonyms.txt``.

A line is one object: its name, then its synonyms, with commas. "person, girl, boy, man, woman, kid".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tellapart.errors import UsageError

# The CHAIR authors' rules for COCO (Rohrbach et al. 2018): two words that are one object, and words that only say
# which: a "baby bird" is no person.
_TWO_WORDS = [
    "motor bike",
    "motor cycle",
    "air plane",
    "traffic light",
    "street light",
    "traffic signal",
    "stop light",
    "fire hydrant",
    "stop sign",
    "parking meter",
    "suit case",
    "sports ball",
    "baseball bat",
    "baseball glove",
    "tennis racket",
    "wine glass",
    "hot dog",
    "cell phone",
    "mobile phone",
    "teddy bear",
    "hair drier",
    "potted plant",
    "bow tie",
    "laptop computer",
    "stove top oven",
    "home plate",
]
_ANIMALS = ["bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "animal", "cub"]
_VEHICLES = ("jet", "train")


@dataclass(frozen=True)
class Synonyms:
    """``object_of`` maps every word or phrase to the name of its object. ``name``: of the file, for signatures."""

    object_of: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.object_of)

    def canonical(self, lemma: str) -> str:
        """The object's name, or the word itself where the file has none."""
        return self.object_of.get(lemma, lemma)


def read_synonyms(path: Path) -> Synonyms:
    """Synonyms of a file. Raises `UsageError` for a line without a name, and a word with two meanings in one file."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); expected lines such as 'person, girl, boy'") from None
    rows = [[cell.strip().lower() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    if not rows or not all(row[0] for row in rows):
        raise UsageError(f"{path}: expected one object a line, its name and its synonyms with commas")
    found: dict[str, str] = {}
    for row in rows:
        for word in row:
            if word:
                found[word] = row[0]  # the last line holds, as in the authors' program
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return Synonyms(found, f"{path.name}@{digest}")


def two_words(synonyms: Synonyms) -> dict[str, str]:
    """Pairs of words that count as one, by what they stand for: COCO's, and all pairs that the file has."""
    found = {pair: pair for pair in (*_TWO_WORDS, *_pairs(synonyms.object_of))}
    found |= {f"{kind} {animal}": animal for animal in _ANIMALS for kind in ("baby", "adult")}
    found |= {f"passenger {vehicle}": vehicle for vehicle in _VEHICLES}
    return found | {"bow tie": "tie", "toilet seat": "toilet", "wine glas": "wine glass"}


def _pairs(words: Iterable[str]) -> list[str]:
    return [word for word in words if word.count(" ") == 1]
