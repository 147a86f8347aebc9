"""The claims in texts as comparable tuples: (object), (object, attribute), (object, relation, object)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tellapart.language.claims import ObjectMention, extract
from tellapart.language.synonyms import NO_SYNONYMS, Synonyms

CLAIM_KINDS = ("object", "attribute", "relation")
Claim = tuple[str, tuple[str, ...]]  # kind and words
Places = tuple[tuple[int, int], ...]  # start and end of the words, in characters
_ABOVE = {"over": "above", "atop": "above", "on top of": "on", "under": "below", "underneath": "below"}
_ABOVE |= {"beneath": "below", "beside": "next to", "near": "next to", "close to": "next to", "alongside": "next to"}
_ABOVE |= {"by": "next to", "upon": "on", "onto": "on", "inside": "in", "into": "in", "inside of": "in"}


def claims_of(text: str, synonyms: Synonyms = NO_SYNONYMS) -> dict[Claim, Places]:
    """Extracts the distinct claims in a text, and all places where it makes them. Requires HanTa (extra ``words``)."""
    extraction = extract(text)
    names = [name_of(mention, synonyms) for mention in extraction.mentions]
    found: dict[Claim, Places] = {}

    def add(kind: str, words: tuple[str, ...], places: Sequence[tuple[int, int]]) -> None:
        found[kind, words] = (*found.get((kind, words), ()), *places)

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
    return found


def claims_in(texts: Iterable[str], synonyms: Synonyms = NO_SYNONYMS) -> list[Claim]:
    """Returns the distinct claims that any of the texts makes, by kind and then in alphabetical order."""
    claims = {claim for text in texts for claim in claims_of(text, synonyms)}
    return sorted(claims, key=lambda claim: (CLAIM_KINDS.index(claim[0]), claim[1]))


def name_of(mention: ObjectMention, synonyms: Synonyms) -> str:
    """Returns an object's name: a compound such as "fire hydrant" if the synonyms contain it, otherwise the noun's
    name.
    """
    for attribute in mention.attributes:
        if (pair := f"{attribute.lemma} {mention.lemma}") in synonyms.object_of:
            return synonyms.canonical(pair)
    return synonyms.canonical(mention.lemma)


def claim_phrase(claim: Claim) -> str:
    """Formats the claim as words: "red ball", "ball on grass"."""
    kind, words = claim
    return " ".join(words[::-1] if kind == "attribute" else words)
