"""CHAIR (Rohrbach et al. 2018): objects that captions name and pictures do not have; and coverage, its counterpart.

With a file of synonyms (the authors' ``synonyms.txt``), an object is a word of that file, found as the authors' program
finds it: lower case, singular, two-word objects first. Without one, an object is what the generic extractor finds. The
picture's objects are those of its references, and of COCO's instances where a file of them is given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tellapart.errors import UsageError
from tellapart.evaluation.facts.extract import extract
from tellapart.evaluation.facts.synonyms import Synonyms, two_words
from tellapart.evaluation.facts.verdict import Span, Verdict
from tellapart.evaluation.facts.verify_references import name_of
from tellapart.utils.text import parse_json

ABSENT = "no such object in the references"
_WORD = re.compile(r"[a-z]+(?:[-'][a-z]+)*")
_IRREGULAR = {
    "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose", "knives": "knife",
    "feet": "foot", "teeth": "tooth", "oxen": "ox", "calves": "calf", "halves": "half", "lives": "life",
}  # fmt: skip
Found = tuple[str, int, int]  # an object's name, and where the caption names it


@dataclass
class Chair:
    """CHAIR over one vocabulary. ``instances``: objects of a picture by its id, beside those of its references."""

    synonyms: Synonyms = field(default_factory=Synonyms)
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepare the two-word objects."""
        self._pairs = two_words(self.synonyms) if self.synonyms else {}

    def objects(self, text: str) -> list[Found]:
        """Every object that a text names, with its place; one that is named twice is there twice."""
        if self.synonyms:
            return self._listed(text)
        return [
            (name_of(mention, self.synonyms), start, end)
            for mention in extract(text).mentions
            for start, end in mention.spans
        ]

    def verify(self, caption: str, references: Sequence[str], picture: str = "") -> Verdict:
        """A caption's objects against the picture's. Precision is 1 - CHAIR_i, recall is coverage."""
        there = {name for text in references for name, _, _ in self.objects(text)}
        there |= self.instances.get(picture, frozenset())
        named = self.objects(caption)
        false: list[Span] = [(start, end, ABSENT) for name, start, end in named if name not in there]
        recalled = len(there & {name for name, _, _ in named})
        return Verdict(len(named), len(named) - len(false), len(there), recalled, tuple(false))

    def _listed(self, text: str) -> list[Found]:
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
        if {"toilet", "seat"} <= names:  # a toilet seat is no chair
            joined = [found for found in joined if found[0] != "seat"]
        known = self.synonyms.object_of
        return [(known[name], start, end) for name, start, end in joined if name in known]

    def _singular(self, word: str) -> str:
        """The form of a word that the vocabulary has; the word itself where it has none."""
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


def read_instances(path: Path, synonyms: Synonyms) -> dict[str, frozenset[str]]:
    """Objects of every picture of a COCO ``instances_*.json``, by id and by file name. Raises `UsageError`."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        names = {category["id"]: synonyms.canonical(category["name"]) for category in value["categories"]}
        found: dict[int, set[str]] = {}
        for annotation in value["annotations"]:
            found.setdefault(annotation["image_id"], set()).add(names[annotation["category_id"]])
        files = {image["id"]: image.get("file_name", "") for image in value.get("images", ())}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected COCO's instances_*.json") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: is no COCO instances file ({type(error).__name__}: {error})") from None
    by_name: dict[str, frozenset[str]] = {}
    for number in {**files, **found}:  # a picture without annotations has no objects
        file = Path(files.get(number, ""))
        for name in filter(None, (str(number), str(file) if file.name else "", file.name, file.stem)):
            by_name[name] = frozenset(found.get(number, ()))
    return by_name
