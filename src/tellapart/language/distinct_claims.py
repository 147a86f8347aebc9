"""Finds the distinct claims in a picture's captions, and the share of the captions that make each claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence

from tellapart.language.claim_tuples import NO_SYNONYMS, Tuple, claims_of
from tellapart.language.claims import extract

Claim = tuple[str, Tuple]  # kind and words


def distinct_claims(caption: str) -> set[Claim]:
    """Extracts the distinct claims (objects, attributes, relations) in a caption. Requires HanTa (extra ``words``)."""
    return {(kind, claim) for kind, claim, _ in claims_of(extract(caption), NO_SYNONYMS)}


def confidences(samples: Sequence[Iterable[Hashable]]) -> dict[Hashable, float]:
    """Computes the confidence q in every claim: the fraction of a picture's samples that make the claim.

    samples: the distinct claims of each sample.
    """
    counts = Counter(claim for claims in samples for claim in claims)
    return {claim: count / len(samples) for claim, count in counts.items()}
