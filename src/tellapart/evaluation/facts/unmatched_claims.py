"""Scores claims that only a caption or only its references make by their similarity, as CAPTURE does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tellapart.evaluation.facts.by_references import claims_of_references
from tellapart.evaluation.facts.verdict import Verdict
from tellapart.language.claim_tuples import claim_phrase, claims_of
from tellapart.language.synonyms import Synonyms


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
        for claims in (claims_of_references(tuple(references), synonyms), claims_of(caption, synonyms))
    )
    alone, others = (tuple(sorted(map(claim_phrase, side))) for side in (made - known, known - made))
    return Unmatched(len(made & known), alone, others)
