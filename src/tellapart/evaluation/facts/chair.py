"""CHAIR (Rohrbach et al. 2018), the rate of hallucinated objects, and coverage, its counterpart.

With a synonym file (the authors' ``synonyms.txt``), objects are the words in that file, and are found as in the
authors' code: in lower case and singular, two-word objects first. Without such a file, the generic extractor finds
objects. A picture's objects are those in its references and, if COCO's instances file is given, those annotated there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.facts.verdict import Span, Verdict
from tellapart.language.claim_tuples import Synonyms

# The CHAIR authors' rules for COCO (Rohrbach et al. 2018): two-word objects, and modifiers that are not objects
# themselves (a "baby bird" is not a person).
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


def read_synonyms(path: Path) -> Synonyms:
    """Reads a synonym file. Raises `UsageError` if the file cannot be read or a line has no object name."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} ({error}); expected lines such as 'person, girl, boy'") from None
    rows = [[cell.strip().lower() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    if not rows or not all(row[0] for row in rows):
        raise UsageError(f"{path}: expected one object per line: the name, then its synonyms, all separated by commas")
    found: dict[str, str] = {}
    for row in rows:
        for word in row:
            if word:
                found[word] = row[0]  # the last line wins, as in the authors' code
    return Synonyms(found, f"{path.name}@{short_digest(text.encode())}")


def two_words(synonyms: Synonyms) -> dict[str, str]:
    """Maps two-word objects to their names: the CHAIR authors' list for COCO, and all word pairs in the file."""
    found = {pair: pair for pair in (*_TWO_WORDS, *_pairs(synonyms.object_of))}
    found |= {f"{kind} {animal}": animal for animal in _ANIMALS for kind in ("baby", "adult")}
    found |= {f"passenger {vehicle}": vehicle for vehicle in _VEHICLES}
    return found | {"bow tie": "tie", "toilet seat": "toilet", "wine glas": "wine glass"}


def _pairs(words: Iterable[str]) -> list[str]:
    return [word for word in words if word.count(" ") == 1]


ABSENT = "no such object in the references"
_WORD = re.compile(r"[a-z]+(?:[-'][a-z]+)*")
_IRREGULAR = {
    "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose", "knives": "knife",
    "feet": "foot", "teeth": "tooth", "oxen": "ox", "calves": "calf", "halves": "half", "lives": "life",
}  # fmt: skip
Found = tuple[str, int, int]  # an object's name, and its position in the caption


@dataclass
class Chair:
    """Computes CHAIR with one vocabulary. ``instances``: additional objects by picture id."""

    synonyms: Synonyms
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepares the two-word object names."""
        self._pairs = two_words(self.synonyms)

    def objects(self, text: str) -> list[Found]:
        """Returns every object mention in a text with its position, including repeats."""
        words = [(self._singular(match[0]), match.start(), match.end()) for match in _WORD.finditer(text.lower())]
        joined: list[Found] = []
        at = 0
        while at < len(words):
            pair = f"{words[at][0]} {words[at + 1][0]}" if at + 1 < len(words) else ""
            if pair in self._pairs:
                joined.append((self._pairs[pair], words[at][1], words[at + 1][2]))
                at += 2
            else:
                joined.append(words[at])
                at += 1
        names = {name for name, _, _ in joined}
        if {"toilet", "seat"} <= names:  # a toilet seat is not a chair
            joined = [found for found in joined if found[0] != "seat"]
        known = self.synonyms.object_of
        return [(known[name], start, end) for name, start, end in joined if name in known]

    def verify(self, caption: str, references: Sequence[str], picture: str = "") -> Verdict:
        """Verifies the objects in a caption against the picture's objects. Precision is 1 - CHAIR_i, recall is
        coverage.
        """
        there = {name for text in references for name, _, _ in self.objects(text)}
        there |= self.instances.get(picture, frozenset())
        named = self.objects(caption)
        false: list[Span] = [(start, end, ABSENT) for name, start, end in named if name not in there]
        recalled = len(there & {name for name, _, _ in named})
        return Verdict(len(named), len(named) - len(false), len(there), recalled, tuple(false))

    def _singular(self, word: str) -> str:
        """Returns a word's singular if the vocabulary contains that form, otherwise the word unchanged."""
        forms = [word, _IRREGULAR.get(word, word)]
        if word.endswith("ies"):
            forms.append(word[:-3] + "y")
        if word.endswith("es"):
            forms.append(word[:-2])
        if word.endswith("s") and not word.endswith("ss"):
            forms.append(word[:-1])
        known = self.synonyms.object_of
        for form in forms:
            if form in known:
                return form
        parts = {part for pair in self._pairs for part in pair.split()}
        return next((form for form in forms if form in parts), word)
