"""Several amounts of detail in one captioner: each price of a word has a prompt that asks for it.

An objective that pays for detail has one number that sets how much is said. With `Levels` it has several: for each
picture of a step one is drawn, the captioner reads that level's prompt, and its price counts. What is learned is a
captioner that is told at inference how much to say (`tellapart caption RUN?detail=0.5`). A prompt needs no new weights,
so it serves every captioner that takes one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from pydantic import Field

from tellapart.models.protocols import CaptionerLike
from tellapart.types import Batch, Rollout
from tellapart.utils.options import Strict
from tellapart.utils.rng import ItemSeeds

Write = Callable[[CaptionerLike, "torch.Tensor", ItemSeeds | None], Rollout]


class DetailLevel(Strict):
    """An amount of detail: the ``prompt`` that asks for it, and what a nat of log-probability under the start model
    counts, ``speaker``: the less, the more is said. Without a prompt it is the captioner as it captions anyway, and its
    ``speaker`` the objective's own.
    """

    prompt: str = ""
    speaker: float | None = Field(None, ge=0)


def contradictions(detail: Sequence[DetailLevel], speaker: float) -> Iterator[str]:
    """Yields what is wrong with the levels of an objective whose own price is ``speaker``."""
    prompts = [level.prompt for level in detail]
    if detail and prompts.count("") != 1:
        yield (
            f"detail has {prompts.count('')} levels without a prompt; expected one: captions without ?detail=, which "
            'validation measures; write {prompt = ""} where its price is the objective\'s own'
        )
    for prompt in dict.fromkeys(prompts):
        if prompts.count(prompt) > 1:
            yield f"detail has the prompt '{prompt}' twice; expected one of its own for each level"
    for level in detail:
        if level.prompt and level.speaker is None:
            yield f"the level of detail '{level.prompt}' has no price; write speaker = 0.01, say, beside its prompt"
        if not level.prompt and level.speaker not in (None, speaker):
            yield (
                f"the level of detail without a prompt has speaker = {level.speaker:g}, and the objective {speaker:g}; "
                "leave it out of the level"
            )
    prices = price_list(detail, speaker)
    if any(later >= earlier for earlier, later in pairwise(prices)):
        found = ", ".join(f"{price:g}" for price in prices)
        yield f"detail has the prices {found}; expected falling ones: the level that says least comes first"


def price_list(detail: Sequence[DetailLevel], speaker: float) -> list[float]:
    """Returns the price of each level; without levels the one ``speaker``."""
    return [speaker if level.speaker is None else level.speaker for level in detail] or [speaker]


def evenly(detail: Sequence[DetailLevel]) -> tuple[tuple[float, str], ...]:
    """Returns the levels with their places from 0 (least) to 1 (most), and their prompts."""
    last = max(1, len(detail) - 1)
    return tuple((place / last, level.prompt) for place, level in enumerate(detail))


class Levels:
    """The prompts of L levels, and which of them each picture of a step is given."""

    def __init__(self, prompts: Sequence[str] = ("",)) -> None:
        self.prompts = list(prompts)

    def of(self, batch: Batch) -> torch.Tensor:
        """Returns level_B, drawn evenly from the batch's seeds: the same on resume, in parts, and on every rank."""
        if len(self.prompts) == 1:
            return torch.zeros(len(batch.rows_B), dtype=torch.long)
        assert batch.seeds is not None, "a batch of the training loop has items"
        return (batch.seeds.uniform("detail", 1)[:, 0] * len(self.prompts)).long()

    def groups(self, learner: CaptionerLike, batch: Batch) -> Iterator[tuple[CaptionerLike, torch.Tensor]]:
        """Yields the learner behind the prompt of each level that is drawn, and the places of its pictures."""
        level_B = self.of(batch)
        for level, prompt in enumerate(self.prompts):
            if len(places := (level_B == level).nonzero()[:, 0]):
                yield learner.with_prompt(prompt) if prompt else learner, places

    def rollout(self, learner: CaptionerLike, visual: torch.Tensor, batch: Batch, write: Write) -> Rollout:
        """Returns the captions that ``write(captioner, visual, seeds)`` makes of each level's pictures, in order."""
        found, rows = list[Rollout](), list[torch.Tensor]()
        for asked, places in self.groups(learner, batch):
            if len(places) == len(batch.rows_B):
                return write(asked, visual, batch.seeds)
            seeds = batch.seeds
            assert seeds is not None, "a batch without items has one level"
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
        """Returns logits_RTV of the captions, each behind its level's prompt."""
        found, rows = list[torch.Tensor](), list[torch.Tensor]()
        for asked, places in self.groups(learner, batch):
            if len(places) == len(batch.rows_B):
                return asked.logits(visual, rollout.tokens_RT, rollout.valid_RT)
            rows.append(rows_of(places, rollout.samples).to(visual.device))
            read = rollout.tokens_RT[rows[-1]], rollout.valid_RT[rows[-1]]
            found.append(asked.logits(visual[places.to(visual.device)], *read))
        return torch.cat(found)[torch.cat(rows).argsort()]


def rows_of(places: torch.Tensor, samples: int) -> torch.Tensor:
    """Returns the rows R of the captions of pictures at these places, S of each side by side."""
    return (places[:, None] * samples + torch.arange(samples)).flatten()
