"""The offline verifier: a claim is true where a reference of the picture makes it.

What no reference names counts as false though the picture may show it: precision is a lower bound. Lemmas are compared,
and objects by the name that a file of synonyms gives them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tellapart.evaluation.facts.claims import Extraction, Mention
from tellapart.evaluation.facts.extract import extract
from tellapart.evaluation.facts.synonyms import Synonyms
from tellapart.evaluation.facts.verdict import Span, Verdict

NOT_NAMED = "in no reference"
NO_SYNONYMS = Synonyms()
KINDS = ("object", "attribute", "relation")
_ABOVE = {"over": "above", "atop": "above", "on top of": "on", "under": "below", "underneath": "below"}
_ABOVE |= {"beneath": "below", "beside": "next to", "near": "next to", "close to": "next to", "alongside": "next to"}
_ABOVE |= {"by": "next to", "upon": "on", "onto": "on", "inside": "in", "into": "in", "inside of": "in"}

Tuple = tuple[str, ...]


@dataclass(frozen=True)
class Facts:
    """Distinct tuples of one text or more: (object), (object, attribute), (object, relation, object)."""

    objects: frozenset[Tuple]
    attributes: frozenset[Tuple]
    relations: frozenset[Tuple]

    def of(self, kind: str) -> frozenset[Tuple]:
        """The tuples of one of `KINDS`."""
        return {"object": self.objects, "attribute": self.attributes, "relation": self.relations}[kind]


def facts_of(texts: Iterable[str], synonyms: Synonyms) -> Facts:
    """The distinct facts of some texts."""
    found: tuple[set[Tuple], set[Tuple], set[Tuple]] = (set(), set(), set())
    for text in texts:
        for kind, claim, _ in claims_of(extract(text), synonyms):
            found[KINDS.index(kind)].add(claim)
    return Facts(*(frozenset(own) for own in found))


def claims_of(extraction: Extraction, synonyms: Synonyms) -> list[tuple[str, Tuple, tuple[tuple[int, int], ...]]]:
    """(kind, tuple, places) of every claim; one that is made twice is there once, with both places."""
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


def name_of(mention: Mention, synonyms: Synonyms) -> str:
    """What an object is called: by "fire hydrant" where the synonyms have it, else by its noun."""
    for attribute in mention.attributes:
        if (pair := f"{attribute.lemma} {mention.lemma}") in synonyms.object_of:
            return synonyms.canonical(pair)
    return synonyms.canonical(mention.lemma)


def verify_references(
    caption: str, references: Sequence[str], synonyms: Synonyms = NO_SYNONYMS, kinds: Sequence[str] = KINDS
) -> Verdict:
    """A caption's claims against those of its references.

    Precision: the share of distinct claims that some reference makes. Recall: the share of the references' distinct
    facts that the caption states. ``kinds``: which claims count.
    """
    known = _known(tuple(references), synonyms.name, synonyms)
    claims = [claim for claim in claims_of(extract(caption), synonyms) if claim[0] in kinds]
    false: list[Span] = []
    correct = 0
    for kind, claim, places in claims:
        if claim in known.of(kind):
            correct += 1
        else:
            false += [(start, end, NOT_NAMED) for start, end in places]
    expected = sum(len(known.of(kind)) for kind in kinds)
    return Verdict(len(claims), correct, expected, correct, tuple(sorted(set(false))))


_CACHE: dict[tuple[tuple[str, ...], str], Facts] = {}


def _known(references: tuple[str, ...], name: str, synonyms: Synonyms) -> Facts:
    key = (references, name)
    if key not in _CACHE:
        if len(_CACHE) > 100_000:
            _CACHE.clear()
        _CACHE[key] = facts_of(references, synonyms)
    return _CACHE[key]
