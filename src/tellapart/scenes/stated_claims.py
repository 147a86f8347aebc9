"""Lists a caption's claims about a scene: the words of each, and the fact that it states if it is true."""

from __future__ import annotations

from dataclasses import dataclass

from tellapart.language.distinct_claims import Judged
from tellapart.scenes.checked_claims import Fact, checked_claims
from tellapart.scenes.parser import Words, parse_caption, tokens
from tellapart.scenes.world import Scene


@dataclass(frozen=True, slots=True)
class StatedClaim:
    """A claim in a caption: the indices of its ``words``, and the ``fact`` that it states (None if the claim is
    false).
    """

    words: Words
    fact: Fact | None


def stated_claims(caption: str, scene: Scene) -> list[StatedClaim]:
    """Returns a caption's claims (`checked_claims`). `ClaimCounts.attributes` counts the scene's facts.

    Leaves out claims that, whether true or false, do not state a separate fact: the number of objects, and attributes
    without an object. Also leaves out true relations that follow from other relations. Never raises.
    """
    about_facts = [
        claim
        for claim in checked_claims(parse_caption(caption), scene)
        if claim.bound or claim.kind in ("relation", "ground")
    ]
    true = [StatedClaim(words, fact) for claim in about_facts for words in claim.words for fact in claim.facts]
    false = [StatedClaim(words, None) for claim in about_facts if claim.why for words in claim.words]
    return [claim for claim in true + false if claim.words]


def judged_by_scene(caption: str, scene: Scene) -> Judged:
    """Checks the claims in a caption against a scene.

    The key of a true claim is the fact that it states; the key of a false claim consists of its words.
    """
    words = tokens(caption)
    return {
        claim.fact if claim.fact is not None else ("false", *(words[word] for word in claim.words)): (
            claim.fact is not None
        )
        for claim in stated_claims(caption, scene)
    }
