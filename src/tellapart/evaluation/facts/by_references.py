"""Verifies claims against references: a claim is true if one of the picture's references makes the same claim.

Things that no reference mentions count as false even if the picture shows them, so precision is a lower bound. Claims
are compared by lemma. If a synonym file is given, objects are compared by their name in that file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.evaluation.facts.verdict import Span, Verdict
from tellapart.language.claim_tuples import CLAIM_KINDS, NO_SYNONYMS, Synonyms, Tuple, claims_of
from tellapart.language.claims import extract

NOT_NAMED = "not in the references"
_COLOURS = """
red orange yellow green blue purple pink brown black white gray grey gold golden silver tan beige turquoise violet
maroon navy teal blond blonde cream crimson dark-blue light-blue multicolored colorful colourful
"""
_MATERIALS = """
wooden wood metal metallic steel iron plastic glass stone concrete brick leather paper cardboard rubber ceramic cloth
fabric cotton wool woolen denim straw wicker marble sandy snowy grassy rocky muddy
"""
_FINE = dict.fromkeys(_COLOURS.split(), "colour") | dict.fromkeys(_MATERIALS.split(), "material")


def kind_of_attribute(claim: Tuple) -> str:
    """Returns which of `FINE_KINDS` an attribute (object, attribute) belongs to, or ""."""
    word = claim[1]
    return "count" if word.isdigit() else _FINE.get(word, "")


@dataclass(frozen=True)
class Facts:
    """The distinct facts in one or more texts, as tuples: (object), (object, attribute), (object, relation, object)."""

    objects: frozenset[Tuple]
    attributes: frozenset[Tuple]
    relations: frozenset[Tuple]

    def of(self, kind: str) -> frozenset[Tuple]:
        """Returns the tuples of one of `CLAIM_KINDS`."""
        return {"object": self.objects, "attribute": self.attributes, "relation": self.relations}[kind]


def facts_of(texts: Iterable[str], synonyms: Synonyms) -> Facts:
    """Returns the distinct facts in the given texts."""
    found: tuple[set[Tuple], set[Tuple], set[Tuple]] = (set(), set(), set())
    for text in texts:
        for kind, claim, _ in claims_of(extract(text), synonyms):
            found[CLAIM_KINDS.index(kind)].add(claim)
    return Facts(*(frozenset(own) for own in found))


def verify_references(
    caption: str, references: Sequence[str], synonyms: Synonyms = NO_SYNONYMS, kinds: Sequence[str] = CLAIM_KINDS
) -> Verdict:
    """Verifies a caption's claims against its references.

    Precision is the share of the caption's distinct claims that a reference makes. Recall is the share of the
    references' distinct facts that the caption states. ``kinds``: which claims count, from `CLAIM_KINDS` and
    `FINE_KINDS`.
    """

    def counts(kind: str, claim: Tuple) -> bool:
        return kind in kinds or (kind == "attribute" and kind_of_attribute(claim) in kinds)

    known = _known(tuple(references), synonyms.name, synonyms)
    claims = [found for found in claims_of(extract(caption), synonyms) if counts(*found[:2])]
    false: list[Span] = []
    correct = 0
    for kind, claim, places in claims:
        if claim in known.of(kind):
            correct += 1
        else:
            false += [(start, end, NOT_NAMED) for start, end in places]
    expected = sum(counts(kind, claim) for kind in CLAIM_KINDS for claim in known.of(kind))
    return Verdict(len(claims), correct, expected, correct, tuple(sorted(set(false))))


@dataclass(frozen=True)
class Unmatched:
    """Claims of one kind, as text, that appear only in the caption or only in the references.

    matched: the number of distinct claims in both.
    made: the claims only in the caption.
    known: the claims only in the references.
    """

    matched: int
    made: tuple[str, ...]
    known: tuple[str, ...]

    def verdict(self, feature_MD: np.ndarray, row: Mapping[str, int]) -> Verdict:
        """Scores each unmatched claim by its largest cosine (at least 0) with an unmatched claim on the other side.

        feature_MD: L2-normalized features of the claims. row: maps each claim to its row.
        """
        soft_MK = np.zeros((len(self.made), len(self.known)))
        if self.made and self.known:
            soft_MK = feature_MD[[row[text] for text in self.made]] @ feature_MD[[row[text] for text in self.known]].T
        correct = self.matched + float(soft_MK.max(1, initial=0.0).clip(max=1.0).sum())
        recalled = self.matched + float(soft_MK.max(0, initial=0.0).clip(max=1.0).sum())
        return Verdict(self.matched + len(self.made), correct, self.matched + len(self.known), recalled)


def unmatched_claims(caption: str, references: Sequence[str], synonyms: Synonyms, kind: str) -> Unmatched:
    """Returns the claims of one kind (from `CLAIM_KINDS`) that only the caption or only the references make."""
    known = _known(tuple(references), synonyms.name, synonyms).of(kind)
    made = frozenset(claim for own, claim, _ in claims_of(extract(caption), synonyms) if own == kind)
    alone, others = (
        tuple(sorted(claim_phrase(kind, claim) for claim in side)) for side in (made - known, known - made)
    )
    return Unmatched(len(made & known), alone, others)


def claim_phrase(kind: str, claim: Tuple) -> str:
    """Formats the claim as words: "red ball", "ball on grass"."""
    return f"{claim[1]} {claim[0]}" if kind == "attribute" else " ".join(claim)


_CACHE: dict[tuple[tuple[str, ...], str], Facts] = {}


def _known(references: tuple[str, ...], name: str, synonyms: Synonyms) -> Facts:
    key = (references, name)
    if key not in _CACHE:
        if len(_CACHE) > 100_000:
            _CACHE.clear()
        _CACHE[key] = facts_of(references, synonyms)
    return _CACHE[key]
