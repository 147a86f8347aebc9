"""``kind = "pmi"``: pointwise mutual information of caption and picture under the start model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts, check_words


class MutualInformation(RewardOptions):
    """How much likelier the start model finds the caption for its picture than for others of the batch, in nats.

    ``others``: how many other pictures; 0: the average picture.

    ``per``: a number for each caption, or for each content ``word``. ``words``: which words these are, by a closed list
    of English function words, or by the ``tagger`` HanTa (the extra words).
    """

    kind: Literal["pmi"]
    others: int = Field(0, ge=0)
    per: Literal["caption", "word"] = "caption"
    words: Literal["list", "tagger"] = "list"

    @model_validator(mode="after")
    def has_an_effect(self) -> MutualInformation:
        if self.words == "tagger" and self.per == "caption":
            raise ValueError("words says which words count one by one, and per = 'caption'; set per = 'word'")
        return self

    @property
    def per_token(self) -> bool:
        return self.per == "word"


def build(options: MutualInformation, parts: RunParts) -> Reward:
    from tellapart.rewards.caption_words import WORD_FINDERS
    from tellapart.rewards.speaker import MutualInformation as MutualInformationReward
    from tellapart.rewards.speaker import Speaker

    speaker = Speaker(parts.start(), options.others, pixels=parts.vision_learns)
    return MutualInformationReward(speaker, per=options.per, find=WORD_FINDERS[options.words])


REWARDS.register(
    RewardEntry(
        name="pmi",
        factory=build,
        help="How much likelier the start model finds the caption for its picture than for others.",
        options=MutualInformation,
        needs=("start",),
        label="mutual information",
        direction="higher",
        check=check_words,
    )
)
