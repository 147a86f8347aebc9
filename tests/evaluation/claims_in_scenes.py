"""The claims of the generic extractor in the vocabulary of scenes: what they miss of the exact parser's is its error.

Words are looked up in the world's vocabulary; unknown words ("sits", "thing") make no checkable claim.
"""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.language.claims import Attribute, Extraction, extract
from tellapart.scenes.parser import ClaimWords, Mention, ParsedCaption, tokens
from tellapart.scenes.phrase_senses import Sense, senses

_SLOTS = ("colour", "size", "texture", "motion")


def as_parsed(caption: str) -> ParsedCaption:
    """Extracts a caption's claims and translates them to the world's vocabulary."""
    reading = _Reading()
    relations = reading.read(extract(caption))
    mentions, grounds, loose = reading.mentions, reading.grounds, reading.loose
    no_words = ClaimWords(((),) * len(relations), ((),) * len(grounds), ((),) * len(loose))  # the words do not count
    number = reading.number
    return ParsedCaption(
        tokens(caption), tuple(mentions), relations, tuple(grounds), tuple(loose), number, (), no_words
    )


class _Reading:
    def __init__(self) -> None:
        self.mentions: list[Mention] = []
        self.grounds: list[str] = []
        self.loose: list[tuple[str, str]] = []
        self.number: int | None = None
        self.place: dict[int, int] = {}  # maps the extraction's mentions to ours

    def read(self, extraction: Extraction) -> tuple[tuple[str | int, ...], ...]:
        for number, mention in enumerate(extraction.mentions):
            self.add_mention(number, mention.text, mention.attributes, mention.count)
        for attribute in extraction.loose:
            self.add_loose(attribute)
        relations: list[tuple[str | int, ...]] = []
        for relation in extraction.relations:
            ends = [self.place.get(number, -1) for number in (relation.subject, *relation.objects)]
            kind = _relation(relation.text.split())
            if kind and -1 not in ends and len(set(ends)) == len(ends) and len(ends) == 2 + (kind == "between"):
                relations.append((kind, *ends))
        return tuple(relations)

    def add_mention(self, number: int, text: str, attributes: Sequence[Attribute], count: int) -> None:
        found = Mention("")
        for part in (text, *(part for attribute in attributes for part in _parts(attribute))):
            sense = _sense(part)
            if sense is None or (sense.kind == "shape" and found.shape not in ("", sense.value)):
                continue
            if sense.kind == "ground":
                self.grounds.append(sense.value)
                return  # "green grass": an attribute of the ground does not describe an object
            if sense.kind == "shape":
                found.shape = sense.value
            elif sense.kind in _SLOTS:
                found.values[sense.kind] = tuple(dict.fromkeys((*found.values.get(sense.kind, ()), sense.value)))
        generic = (sense := _sense(text)) is not None and sense.kind == "generic"
        if not found.shape and not generic:  # "a small red": bound to no object
            self.loose += [(kind, value) for kind, values in found.values.items() for value in values]
            return
        if generic and not found.shape and not found.values and count > 1 and not self.mentions:
            self.number = count
        self.place[number] = len(self.mentions)
        self.mentions += [Mention(found.shape, dict(found.values)) for _ in range(max(1, count))]
        if self.number is not None and self.number != len(self.mentions):
            self.number = None

    def add_loose(self, attribute: Attribute) -> None:
        for part in _parts(attribute):
            sense = _sense(part)
            if sense is not None and sense.kind in _SLOTS:
                self.loose.append((sense.kind, sense.value))
            elif sense is not None and sense.kind == "shape":
                self.mentions.append(Mention(sense.value))


def _parts(attribute: Attribute) -> list[str]:
    """Returns an attribute as written, "slides left", or only the verb of an unknown action."""
    if not attribute.action or _sense(attribute.text) is not None:
        return [attribute.text]
    return attribute.text.split()[:1]


def _sense(phrase: str) -> Sense | None:
    return senses().get(tuple(phrase.split()))


def _relation(words: Sequence[str]) -> str:
    """Returns the relation named by the longest phrase among the words, or ""."""
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            phrase = tuple(word for word in words[start : start + length] if word != "the")
            for form in (tuple(words[start : start + length]), phrase):
                sense = senses().get(form)
                if sense is not None and sense.kind == "relation":
                    return sense.value
    return ""
