"""Verifies claims against references: a claim is true if one of the picture's references makes the same claim.

Things that no reference mentions count as false even if the picture shows them, so precision is a lower bound. Claims
are compared by lemma. If a synonym file is given, objects are compared by their name in that file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tellapart.evaluation.facts.verdict import Verdict
from tellapart.language.claim_tuples import CLAIM_KINDS, NO_SYNONYMS, Claim, Synonyms, claims_in, claims_of

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

    known = _known(tuple(references), synonyms)
    stated = {claim: places for claim, places in claims_of(caption, synonyms).items() if counts(claim)}
    correct = len(stated.keys() & known)
    false = {(*place, NOT_NAMED) for claim in stated.keys() - known for place in stated[claim]}
    return Verdict(len(stated), correct, sum(map(counts, known)), correct, tuple(sorted(false)))


def _fine_kind(attribute: str) -> str:
    return "count" if attribute.isdigit() else _FINE.get(attribute, "")


@lru_cache(maxsize=100_000)
def _known(references: tuple[str, ...], synonyms: Synonyms) -> frozenset[Claim]:
    return frozenset(claims_in(references, synonyms))


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
    known, made = (
        {claim for claim in claims if claim[0] == kind}
        for claims in (_known(tuple(references), synonyms), claims_of(caption, synonyms))
    )
    alone, others = (tuple(sorted(map(claim_phrase, side))) for side in (made - known, known - made))
    return Unmatched(len(made & known), alone, others)


def claim_phrase(claim: Claim) -> str:
    """Formats the claim as words: "red ball", "ball on grass"."""
    kind, words = claim
    return " ".join(words[::-1] if kind == "attribute" else words)
