"""``kind = "paid_words"``: each content word is paid for what it is worth, as far as it is believed to be true."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tellapart.rewards.base import REWARDS, Reward, RewardEntry, RewardOptions, RunParts, check_words, frozen_scorers
from tellapart.utils.options import ModelName


class PaidWords(RewardOptions):
    """gate · worth − (1 − gate) · penalty − rent, in nats, on the tokens of each content word.

    ``worth``: factor on how far the scorer's score among the ``nearest`` look-alikes falls when the word's claim is
    taken out, at most ``limit``. The gate is sigmoid(``slope`` · (confidence + ``truth`` · fall among the batch's
    pictures − ``offset``)); confidence is the start model's: its log-probability of the word, the mutual information
    of word and picture, against ``others`` pictures of the batch (0: their average), or ``both``. ``rent`` sets the
    place on the curve of precision against recall.

    ``per`` = "caption" sums the credits of a caption's words. ``shuffled_gates`` deals the gates out anew: a control.
    """

    kind: Literal["paid_words"]
    per: Literal["word", "caption"] = "word"
    rent: float = 0.0
    penalty: float = Field(1.0, ge=0)
    worth: float = Field(1.0, ge=0)
    limit: float = Field(3.0, gt=0)
    slope: float = Field(2.0, gt=0)
    offset: float = -2.5
    truth: float = Field(0.2, ge=0)
    confidence: Literal["both", "pmi", "log_prob"] = "both"
    others: int = Field(0, ge=0)
    nearest: int = Field(9, ge=1)
    replace: Literal["neutral", "delete"] = "neutral"
    words: Literal["list", "tagger"] = "list"
    scorer: ModelName | None = Field(None, description="in place of the recipe's [scorer]")
    shuffled_gates: bool = False

    def needs(self) -> tuple[str, ...]:
        return ("start",) if self.scorer else ("start", "scorer")

    def scorer_names(self) -> tuple[str, ...]:
        return (self.scorer,) if self.scorer else ()

    @property
    def per_token(self) -> bool:
        return self.per == "word"


def build(options: PaidWords, parts: RunParts) -> Reward:
    from tellapart.rewards.caption_words import WORD_FINDERS
    from tellapart.rewards.paid_words import PaidWords as PaidWordsReward
    from tellapart.rewards.paid_words import Price, WordEffects
    from tellapart.rewards.speaker import Speaker

    (scorer,) = frozen_scorers(options.scorer_names(), parts)
    effects = WordEffects(
        scorer,
        parts.train_features(scorer),
        parts.nearest_train(scorer, options.nearest),
        replace=options.replace,
    )
    price = Price(**{name: getattr(options, name) for name in Price.__dataclass_fields__})
    return PaidWordsReward(
        effects,
        Speaker(parts.start(), options.others, pixels=parts.vision_learns),
        price,
        confidence=options.confidence,
        per=options.per,
        find=WORD_FINDERS[options.words],
        shuffled=options.shuffled_gates,
    )


REWARDS.register(
    RewardEntry(
        name="paid_words",
        factory=build,
        help="Each content word is paid for what it is worth among look-alikes, as far as it is believed.",
        options=PaidWords,
        needs=("start", "scorer"),
        label="paid words",
        direction="higher",
        check=check_words,
    )
)
