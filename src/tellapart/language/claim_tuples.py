"""Converts claims to comparable tuples: (object), (object, attribute), (object, relation, object)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tellapart.language.claims import Extraction, ObjectMention

CLAIM_KINDS = ("object", "attribute", "relation")
Tuple = tuple[str, ...]
_ABOVE = {"over": "above", "atop": "above", "on top of": "on", "under": "below", "underneath": "below"}
_ABOVE |= {"beneath": "below", "beside": "next to", "near": "next to", "close to": "next to", "alongside": "next to"}
_ABOVE |= {"by": "next to", "upon": "on", "onto": "on", "inside": "in", "into": "in", "inside of": "in"}


@dataclass(frozen=True)
class Synonyms:
    """Synonyms from a file. ``object_of`` maps a word or phrase to its object; ``name`` is the file's name, for
    signatures.
    """

    object_of: Mapping[str, str] = field(default_factory=dict)
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.object_of)

    def canonical(self, lemma: str) -> str:
        """Returns the name of a word's object, or the word itself if it is not in the file."""
        return self.object_of.get(lemma, lemma)


NO_SYNONYMS = Synonyms()


def claims_of(extraction: Extraction, synonyms: Synonyms) -> list[tuple[str, Tuple, tuple[tuple[int, int], ...]]]:
    """Returns (kind, tuple, positions) for every distinct claim. The positions are all those where the claim is
    made.
    """
    names = [name_of(mention, synonyms) for mention in extraction.mentions]
    found: dict[tuple[str, Tuple], tuple[tuple[int, int], ...]] = {}

    def add(kind: str, claim: Tuple, places: Sequence[tuple[int, int]]) -> None:
        found[kind, claim] = (*found.get((kind, claim), ()), *places)

    for name, mention in zip(names, extraction.mentions, strict=True):
        add("object", (name,), mention.spans)
        for attribute in mention.attributes:
            if f"{attribute.lemma} {mention.lemma}" != name:
                add("attribute", (name, attribute.lemma), attribute.spans)
        if mention.count_span is not None and mention.count > 1:
            add("attribute", (name, str(mention.count)), [mention.count_span])
    for relation in extraction.relations:
        for number in relation.objects:
            word = _ABOVE.get(relation.lemma, relation.lemma)
            add("relation", (names[relation.subject], word, names[number]), [relation.span])
    return [(kind, claim, places) for (kind, claim), places in found.items()]


def name_of(mention: ObjectMention, synonyms: Synonyms) -> str:
    """Returns an object's name: a compound such as "fire hydrant" if the synonyms contain it, otherwise the noun's
    name.
    """
    for attribute in mention.attributes:
        if (pair := f"{attribute.lemma} {mention.lemma}") in synonyms.object_of:
            return synonyms.canonical(pair)
    return synonyms.canonical(mention.lemma)
