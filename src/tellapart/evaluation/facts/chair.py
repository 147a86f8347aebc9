"""CHAIR (Rohrbach et al. 2018), the rate of hallucinated objects, and coverage, its counterpart.

With a synonym file (the authors' ``synonyms.txt``), objects are the words in that file, and are found as in the
authors' code: in lower case and singular, two-word objects first. Without such a file, the generic extractor finds
objects. A picture's objects are those in its references and, if COCO's instances file is given, those annotated there.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from tellapart.evaluation.facts.verdict import Verdict
from tellapart.language.synonyms import Synonyms

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


ABSENT = "no such object in the references"
_WORD = re.compile(r"[a-z]+(?:[-'][a-z]+)*")
_IRREGULAR = {
    "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose", "knives": "knife",
    "feet": "foot", "teeth": "tooth", "oxen": "ox", "calves": "calf", "halves": "half", "lives": "life",
}  # fmt: skip
Found = tuple[str, int, int]  # an object's name, and its position in the caption


class Chair:
    """Computes CHAIR with one vocabulary."""

    def __init__(self, synonyms: Synonyms) -> None:
        self._object_of = synonyms.object_of
        # The CHAIR authors' list for COCO, and all word pairs in the file.
        self._pairs = {
            pair: pair for pair in (*_TWO_WORDS, *(word for word in self._object_of if word.count(" ") == 1))
        }
        self._pairs |= {f"{kind} {animal}": animal for animal in _ANIMALS for kind in ("baby", "adult")}
        self._pairs |= {f"passenger {vehicle}": vehicle for vehicle in _VEHICLES}
        self._pairs |= {"bow tie": "tie", "toilet seat": "toilet", "wine glas": "wine glass"}
        self._parts = {part for pair in self._pairs for part in pair.split()}

    def objects(self, text: str) -> list[Found]:
        """Returns every object mention in a text with its position, including repeats."""
        words = [(self._singular(match[0]), match.start(), match.end()) for match in _WORD.finditer(text.lower())]
        joined: list[Found] = []
        while words:
            name, start, end = words.pop(0)
            if words and (pair := f"{name} {words[0][0]}") in self._pairs:
                name, end = self._pairs[pair], words.pop(0)[2]
            joined.append((name, start, end))
        if {"toilet", "seat"} <= {name for name, _, _ in joined}:  # a toilet seat is not a chair
            joined = [found for found in joined if found[0] != "seat"]
        return [(self._object_of[name], start, end) for name, start, end in joined if name in self._object_of]

    def verify(self, caption: str, references: Sequence[str], annotated: Collection[str] = ()) -> Verdict:
        """Verifies the objects in a caption against the picture's objects: those in its references, and those
        ``annotated`` in COCO's instances. Precision is 1 - CHAIR_i, recall is coverage.
        """
        there = {*annotated, *(name for text in references for name, _, _ in self.objects(text))}
        named = self.objects(caption)
        false = tuple((start, end, ABSENT) for name, start, end in named if name not in there)
        recalled = len(there & {name for name, _, _ in named})
        return Verdict(len(named), len(named) - len(false), len(there), recalled, false)

    def _singular(self, word: str) -> str:
        """Returns a word's singular if the vocabulary contains that form, otherwise the word unchanged."""
        forms = [word, _IRREGULAR.get(word, word)]
        for plural, singular in (("ies", "y"), ("es", ""), ("s", "")):
            if word.endswith(plural) and not word.endswith("ss"):
                forms.append(word.removesuffix(plural) + singular)
        return next((form for known in (self._object_of, self._parts) for form in forms if form in known), word)
