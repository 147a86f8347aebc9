"""Finds contradictions in captions that combine tags ("1girl, red dress, outdoors") with prose."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from tellapart.language.english_words import COLOURS, number_of, word_set
from tellapart.language.inflection import singular

LONGEST_TAG = 3  # maximum number of words in a tag
LEAST_TAGS = 3  # fewer short parts between commas may be an enumeration within a sentence
_NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "several": None, "many": None}
_NO_TAGS = word_set("a an the and or with in on at of is are his her their")
# Pairs of word groups that exclude each other within a picture.
_OPPOSITES = (
    (word_set("indoors indoor"), word_set("outdoors outdoor")),
    (word_set("day daytime daylight"), word_set("night nighttime")),
    (word_set("sunny"), word_set("rainy snowy overcast")),
    (word_set("smiling"), word_set("frowning crying")),
    (word_set("sitting"), word_set("standing lying")),
)


def tags_and_prose(text: str) -> tuple[list[str], str]:
    """Splits a caption into tags (short parts between commas) and prose. If it has no tags, the whole caption
    is prose.
    """
    parts = [part.strip() for part in re.split(r",|\n", text) if part.strip()]
    tags = [part for part in parts if _is_tag(part)]
    if len(tags) < LEAST_TAGS:
        return [], text
    return tags, ", ".join(part for part in parts if not _is_tag(part))


def _is_tag(part: str) -> bool:
    words = part.lower().split()
    return len(words) <= LONGEST_TAG and part[-1] not in ".!?" and words[0] not in _NO_TAGS


def tag_contradictions(tags: Sequence[str], prose: str) -> list[str]:
    """Returns contradictions between tags and prose: different colours or numbers for a noun, opposites, and negations
    ("no hat").
    """
    return list(dict.fromkeys(_contradictions(tags, [word.lower() for word in re.findall(r"[\w'’-]+", prose)])))


def _contradictions(tags: Sequence[str], words: Sequence[str]) -> Iterator[str]:
    # A tag such as ":)" has no words.
    split = {tag: found for tag in tags if (found := re.findall(r"\d+(?=[a-z])|[\w'’-]+", tag.lower()))}
    said = {singular(word) for word in words}
    for tag, (first, *rest) in split.items():
        if first == "no" and rest and singular(rest[-1]) in said and not _is_denied(rest[-1], words):
            yield f"“{tag}”, “{rest[-1]}”"
    for name, values in (("colour", _colours), ("number", _numbers)):
        ours, theirs = values([word for tag in split.values() for word in (*tag, ",")]), values(words)
        for noun in sorted(ours.keys() & theirs.keys()):
            if ours[noun] and theirs[noun] and ours[noun].isdisjoint(theirs[noun]):
                pair = (" or ".join(sorted(some)) for some in (ours[noun], theirs[noun]))
                yield f"{name} of {noun}: {', '.join(pair)}"
    tagged = {word for tag in split.values() if tag[0] != "no" for word in tag}
    for one, other in (*_OPPOSITES, *(pair[::-1] for pair in _OPPOSITES)):
        ours_, theirs_ = sorted(tagged & one), sorted({*words} & other)
        if ours_ and theirs_ and tagged.isdisjoint(other) and one.isdisjoint(words):
            yield f"“{ours_[0]}”, “{theirs_[0]}”"


def _is_denied(noun: str, words: Sequence[str]) -> bool:
    places = [place for place, word in enumerate(words) if singular(word) == singular(noun)]
    return all({"no", "without"} & {*words[max(0, place - 3) : place]} for place in places)


def _colours(words: Sequence[str]) -> dict[str, set[str]]:
    """Returns the colours directly before each noun. A noun without a colour maps to an empty set."""
    found: dict[str, set[str]] = {}
    for place, word in enumerate(words):
        if word not in COLOURS:
            before = {other for other in words[max(0, place - 3) : place] if other in COLOURS}
            near = words[place - 1] in COLOURS if place else False
            found.setdefault(singular(word), set()).update(before if near else ())
    return found


def _numbers(words: Sequence[str]) -> dict[str, set[str]]:
    """Returns the numbers directly before each noun, as digits."""
    found: dict[str, set[str]] = {}
    for before, word in itertools.pairwise(words):
        number = _NUMBERS.get(before, number_of(before))
        if number is not None:
            found.setdefault(singular(word), set()).add(str(number))
    return found
