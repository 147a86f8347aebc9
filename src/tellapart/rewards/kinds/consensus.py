"""``kind = "consensus"``: how many of the start model's own samples say the caption's words."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from tellapart.models.decoding import Decoding
from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts, check_words


class Consensus(RewardOptions):
    """Share of the start model's own samples that say a content word, a mean over those of the caption, in 0 to 1.

    ``decoding``: of these samples, drawn anew for each picture at each step. ``words``: which words count, by a closed
    list of English function words, or by the ``tagger`` HanTa (the extra words).
    """

    kind: Literal["consensus"]
    decoding: Decoding = Decoding(kind="sample", samples=16, temperature=0.6)
    words: Literal["list", "tagger"] = "list"

    @model_validator(mode="after")
    def is_sampled(self) -> Consensus:
        if self.decoding.kind != "sample" or self.decoding.samples < 2:
            raise ValueError(
                f"decoding is {self.decoding.kind} with samples = {self.decoding.samples}; a consensus is among "
                'samples, so set kind = "sample" and samples to at least 2'
            )
        if self.decoding.confidence:
            raise ValueError("decoding.confidence edits captions, and samples count as they are written; leave it out")
        return self


def build(options: Consensus, parts: RunParts) -> Reward:
    from tellapart.rewards.caption_words import WORD_FINDERS
    from tellapart.rewards.consensus import Consensus as ConsensusReward
    from tellapart.rewards.speaker import Speaker

    speaker = Speaker(parts.start(), pixels=parts.vision_learns)
    return ConsensusReward(speaker, options.decoding, find=WORD_FINDERS[options.words])


REWARDS.register(
    RewardEntry(
        name="consensus",
        factory=build,
        help="How many of the start model's own samples say the caption's words.",
        options=Consensus,
        needs=("start",),
        label="consensus",
        direction="higher",
        check=check_words,
    )
)
