"""``kind = "self_distillation"``: what the captioner is sure of, as short as tells the picture apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field, model_validator

from tellapart.models.decoding import Decoding
from tellapart.objectives.registry import OBJECTIVES, ObjectiveEntry, ObjectiveOptions
from tellapart.rewards.base import RunParts, frozen_scorers
from tellapart.utils.options import ModelName

if TYPE_CHECKING:
    from tellapart.objectives.self_distillation import SelfDistillation as SelfDistillationObjective


class SelfDistillation(ObjectiveOptions):
    """Maximum likelihood of short captions out of the words of its own descriptions that the start model is sure of.

    ``prompt`` asks the start model for a description; empty: as it captions anyway. ``confidence``, ``evidence``:
    the least probability of a word that is believed, and its least mutual information with the picture, in nats. Of
    ``candidates`` captions the one is learned that is best by the probability that the scorer picks the picture
    among its ``nearest`` look-alikes, + ``speaker`` · log-probability of the caption under the start model, −
    ``rent`` for each word. ``likelihood``: how much the start model's log-probabilities of the caption for these
    pictures count beside the scorer's logits. ``noun`` stands for one that is in doubt, where the plain caption
    offers none; "" leaves out what is said of such a noun, as photos want it. ``scorers``: several in place of
    [scorer]; for each picture the least sure one counts, of those whose own training did not have it (by the ids of
    their runs' recipes), and look-alikes are the first one's. Controls: ``select`` = "random" takes
    any candidate, ``shuffled_beliefs`` deals out anew which words are believed.
    """

    kind: Literal["self_distillation"]
    prompt: str = ""
    decoding: Decoding = Decoding(kind="greedy", max_tokens=40)
    confidence: float = Field(0.95, gt=0, le=1)
    evidence: float = 0.5
    candidates: int = Field(24, ge=1)
    rent: float = 0.0
    speaker: float = Field(0.005, ge=0)
    likelihood: float = Field(0.0, ge=0)
    noun: str = "thing"
    nearest: int = Field(9, ge=1)
    scorers: tuple[ModelName, ...] = ()
    select: Literal["scorer", "random"] = "scorer"
    shuffled_beliefs: bool = False

    @model_validator(mode="after")
    def has_an_effect(self) -> SelfDistillation:
        if self.decoding.samples > 1:
            raise ValueError("decoding writes several captions, and one description is read; leave samples out")
        if self.scorers and self.select == "random":
            raise ValueError("select = 'random' asks no scorer, so scorers have no effect; leave one of the two out")
        return self

    def needs(self) -> tuple[str, ...]:
        return ("start", "scorer") if self.select == "scorer" and not self.scorers else ("start",)

    def scorer_names(self) -> tuple[str, ...]:
        return self.scorers


def build(options: SelfDistillation, parts: RunParts) -> SelfDistillationObjective:
    from tellapart.objectives.self_distillation import Choice, Describer, Listener
    from tellapart.objectives.self_distillation import SelfDistillation as Objective
    from tellapart.rewards.combine import unseen_by

    plain = parts.start()
    asked = parts.start(options.prompt)
    describer = Describer(plain, asked, options.decoding, pixels=parts.vision_learns, shuffled=options.shuffled_beliefs)
    listener = None
    if options.select == "scorer":
        scorers = frozen_scorers(options.scorers, parts)
        heard = [(scorer, parts.train_features(scorer)) for scorer in scorers]
        visual = parts.train_visual() if options.likelihood else None
        unseen_KN = unseen_by(options.scorers, parts) if options.scorers else None
        listener = Listener(heard, parts.nearest_train(scorers[0], options.nearest), visual, unseen_KN)
    return Objective(
        describer, listener, Choice(**{name: getattr(options, name) for name in Choice.__dataclass_fields__})
    )


OBJECTIVES.register(
    ObjectiveEntry(
        name="self_distillation",
        factory=build,
        help="Its own descriptions, as short as tells the picture apart: only words that it is sure of.",
        options=SelfDistillation,
        needs=("start",),
        label="self-distillation",
        direction="lower",
    )
)
