"""The distinct claims in a picture's captions: whether each is true, and the share of the captions that make it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from tellapart.language.claim_tuples import claims_in, claims_of

Judged = Mapping[Hashable, bool]  # maps each distinct claim in a caption to whether it is true


def judged_by_references(caption: str, references: Sequence[str]) -> Judged:
    """Checks the claims in a caption against its references: a claim is true if any reference makes it."""
    known = set(claims_in(references))
    return {claim: claim in known for claim in claims_of(caption)}


def confidences(samples: Sequence[Iterable[Hashable]]) -> dict[Hashable, float]:
    """Computes the confidence q in every claim: the fraction of a picture's samples that make the claim.

    samples: the distinct claims of each sample.
    """
    counts = Counter(claim for claims in samples for claim in claims)
    return {claim: count / len(samples) for claim, count in counts.items()}
