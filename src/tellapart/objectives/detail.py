"""Trains one captioner with several levels of detail: each weight of the ``speaker`` term has its own prompt.

In an objective that rewards detail, one weight controls how much the captioner says. With `Levels`, this weight has
several values: each step draws one level per picture, conditions the captioner on that level's prompt, and uses that
level's weight. You can then request a level of detail from the trained captioner (`tellapart caption RUN?detail=0.5`).
Prompts need no new weights, so this works for all captioners that accept a prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from pydantic import Field

from tellapart.models.protocols import CaptionerLike
from tellapart.types import Batch, Rollout
from tellapart.utils.option_tables import Strict
from tellapart.utils.rng import ItemSeeds

Write = Callable[[CaptionerLike, "torch.Tensor", ItemSeeds | None], Rollout]


class DetailLevel(Strict):
    """A level of detail. ``prompt``: the level's prompt. ``speaker``: the weight per nat of log-probability under the
    initial model.

    A lower ``speaker`` yields more detail. The level without a prompt is the captioner's default behaviour and uses the
    objective's own ``speaker``.
    """

    prompt: str = ""
    speaker: float | None = Field(None, ge=0)


def level_contradictions(detail: Sequence[DetailLevel], speaker: float) -> Iterator[str]:
    """Yields error messages for inconsistent levels in an objective whose own weight is ``speaker``."""
    prompts = [level.prompt for level in detail]
    if detail and prompts.count("") != 1:
        yield (
            f"detail has {prompts.count('')} levels without a prompt; expected exactly one, the default for "
            'captions without ?detail= and for validation; add {prompt = ""}, which uses the objective\'s speaker '
            "weight, in descending order of the weights"
        )
    for prompt in dict.fromkeys(prompts):
        if prompts.count(prompt) > 1:
            yield f"detail uses the prompt '{prompt}' twice; give each level a different prompt"
    for level in detail:
        if level.prompt and level.speaker is None:
            yield (
                f"detail: the level with the prompt '{level.prompt}' sets no speaker weight; add, for "
                "example, speaker = 0.01"
            )
        if not level.prompt and level.speaker not in (None, speaker):
            yield (
                f"detail: the level without a prompt sets speaker = {level.speaker:g}, but the objective "
                f"sets {speaker:g}; remove speaker from the level"
            )
    prices = price_list(detail, speaker)
    if any(later >= earlier for earlier, later in pairwise(prices)):
        found = ", ".join(f"{price:g}" for price in prices)
        yield (
            f"detail has the speaker weights {found}; expected decreasing weights, so that the least "
            "detailed level comes first"
        )


def price_list(detail: Sequence[DetailLevel], speaker: float) -> list[float]:
    """Returns the ``speaker`` weight of each level, or only the objective's weight if there are no levels."""
    return [speaker if level.speaker is None else level.speaker for level in detail] or [speaker]


def evenly(detail: Sequence[DetailLevel]) -> tuple[tuple[float, str], ...]:
    """Returns (amount, prompt) for each level, with amounts evenly spaced from 0 (least detail) to 1 (most detail)."""
    last = max(1, len(detail) - 1)
    return tuple((place / last, level.prompt) for place, level in enumerate(detail))


class Levels:
    """The prompts of L levels. Assigns a level to each picture in a step."""

    def __init__(self, prompts: Sequence[str] = ("",)) -> None:
        self.prompts = list(prompts)

    def of(self, batch: Batch) -> torch.Tensor:
        """Draws level_B uniformly, from the batch's seeds.

        The levels are therefore the same after resuming, for parts of a batch, and on all ranks.
        """
        if len(self.prompts) == 1:
            return torch.zeros(len(batch.rows_B), dtype=torch.long)
        assert batch.seeds is not None, "Levels of detail require a batch with items"
        return (batch.seeds.uniform("detail", 1)[:, 0] * len(self.prompts)).long()

    def groups(self, learner: CaptionerLike, batch: Batch) -> Iterator[tuple[CaptionerLike, torch.Tensor]]:
        """For each level in the batch, yields the learner with that level's prompt, and the indices of the level's
        pictures.
        """
        level_B = self.of(batch)
        for level, prompt in enumerate(self.prompts):
            if len(places := (level_B == level).nonzero()[:, 0]):
                yield learner.with_prompt(prompt) if prompt else learner, places

    def rollout(self, learner: CaptionerLike, visual: torch.Tensor, batch: Batch, write: Write) -> Rollout:
        """Calls ``write(captioner, visual, seeds)`` for each level's pictures. Returns the captions in batch order."""
        found, rows = list[Rollout](), list[torch.Tensor]()
        for asked, places in self.groups(learner, batch):
            if len(places) == len(batch.rows_B):
                return write(asked, visual, batch.seeds)
            seeds = batch.seeds
            assert seeds is not None, "A batch without items supports only one level of detail"
            seeds = ItemSeeds(tuple(seeds.ids[place] for place in places.tolist()), seeds.seed, seeds.step)
            found.append(write(asked, visual[places.to(visual.device)], seeds))
            rows.append(rows_of(places, found[-1].samples))
        pad, longest = learner.tokenizer.pad_token_id or 0, max(one.tokens_RT.shape[1] for one in found)
        order_R = torch.cat(rows).argsort()

        def joined(parts: Sequence[torch.Tensor], fill: float) -> torch.Tensor:
            rows_RT = torch.cat([F.pad(part, (0, longest - part.shape[1]), value=fill) for part in parts])
            return rows_RT[order_R.to(rows_RT.device)]

        texts = [text for one in found for text in one.texts]
        return Rollout(
            joined([one.tokens_RT for one in found], pad),
            joined([one.valid_RT for one in found], False),
            [texts[row] for row in order_R.tolist()],
            found[0].samples,
        )

    def logits(self, learner: CaptionerLike, visual: torch.Tensor, rollout: Rollout, batch: Batch) -> torch.Tensor:
        """Returns logits_RTV for the captions, each conditioned on its level's prompt."""
        found, rows = list[torch.Tensor](), list[torch.Tensor]()
        for asked, places in self.groups(learner, batch):
            if len(places) == len(batch.rows_B):
                return asked.logits(visual, rollout.tokens_RT, rollout.valid_RT)
            rows.append(rows_of(places, rollout.samples).to(visual.device))
            read = rollout.tokens_RT[rows[-1]], rollout.valid_RT[rows[-1]]
            found.append(asked.logits(visual[places.to(visual.device)], *read))
        return torch.cat(found)[torch.cat(rows).argsort()]


def rows_of(places: torch.Tensor, samples: int) -> torch.Tensor:
    """Returns the rows of the captions for the pictures at these indices: S consecutive rows per picture."""
    return (places[:, None] * samples + torch.arange(samples)).flatten()
