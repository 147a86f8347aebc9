"""Verifies claims against references: a claim is true if one of the picture's references makes the same claim.

Things that no reference mentions count as false even if the picture shows them, so precision is a lower bound. Claims
are compared by lemma. If a synonym file is given, objects are compared by their name in that file.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tellapart.evaluation.facts.verdict import Verdict
from tellapart.language.claim_tuples import CLAIM_KINDS, Claim, claims_in, claims_of
from tellapart.language.synonyms import NO_SYNONYMS, Synonyms

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


def verify_references(
    caption: str, references: Sequence[str], synonyms: Synonyms = NO_SYNONYMS, kinds: Sequence[str] = CLAIM_KINDS
) -> Verdict:
    """Verifies a caption's claims against its references.

    Precision is the share of the caption's distinct claims that a reference makes. Recall is the share of the
    references' distinct facts that the caption states. ``kinds``: which claims count, from `CLAIM_KINDS` and
    `FINE_KINDS`.
    """

    def counts(claim: Claim) -> bool:
        kind, (_, *words) = claim
        return kind in kinds or (kind == "attribute" and _fine_kind(words[0]) in kinds)

    known = claims_of_references(tuple(references), synonyms)
    stated = {claim: places for claim, places in claims_of(caption, synonyms).items() if counts(claim)}
    correct = len(stated.keys() & known)
    false = {(*place, NOT_NAMED) for claim in stated.keys() - known for place in stated[claim]}
    return Verdict(len(stated), correct, sum(map(counts, known)), correct, tuple(sorted(false)))


def _fine_kind(attribute: str) -> str:
    return "count" if attribute.isdigit() else _FINE.get(attribute, "")


@lru_cache(maxsize=100_000)
def claims_of_references(references: tuple[str, ...], synonyms: Synonyms) -> frozenset[Claim]:
    """Returns the distinct claims that any of the references makes."""
    return frozenset(claims_in(references, synonyms))
