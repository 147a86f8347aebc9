"""Decides which claims in a caption are true, by the caption's references."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from tellapart.language.distinct_claims import distinct_claims

Judged = Mapping[Hashable, bool]  # maps each distinct claim in a caption to whether it is true


def judged_by_references(caption: str, references: Sequence[str]) -> Judged:
    """Checks the claims in a caption against its references: a claim is true if any reference makes it."""
    known = {claim for text in references for claim in distinct_claims(text)}
    return {claim: claim in known for claim in distinct_claims(caption)}
