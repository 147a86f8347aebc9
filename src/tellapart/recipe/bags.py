"""The ``[bags]`` table of a recipe: which look-alikes share a batch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from tellapart.utils.options import FileName, ModelName, Strict

# (from epoch, bag size), as in paper 2, appendix B.3.
BAGCURRI = ((0, 2), (3, 3), (8, 5), (10, 7), (12, 10), (14, 15), (17, 20))

Epoch = Annotated[int, Field(ge=0)]
BagSize = Annotated[int, Field(ge=2)]


class Bags(Strict):
    """For ``training.batches = "bags"``. Without ``size`` or ``schedule`` the bags grow as in paper 2 (BagCurri).

    kind: ``lookalike`` bags are mined; ``random`` ones are their control; ``hard``: shuffled pictures, each to be told
    from its own ``hard`` nearest ones, which are not captioned (paper 3, appendix D.2). schedule: ``[[0, 2], [3, 5]]``
    is bags of 2, and of 5 from the fourth epoch on. scorer: whose features say what looks alike; default the recipe's
    own. captions: ``references``, or a file of captions: then text counts too, as in algorithm 1 of paper 2.
    """

    kind: Literal["lookalike", "hard", "random"] = "lookalike"
    size: BagSize | None = None
    schedule: tuple[tuple[Epoch, BagSize], ...] | None = Field(None, min_length=1)
    hard: int | None = Field(None, ge=1)
    neighbours: int = Field(200, ge=1, description="nearest pictures that a bag may be filled from")
    max_cosine: float | None = Field(None, gt=-1, le=1, description="nearer pictures are taken for near-duplicates")
    scorer: ModelName | None = None
    captions: FileName | None = None

    @model_validator(mode="after")
    def fits_together(self) -> Bags:
        if (self.kind == "hard") != (self.hard is not None):
            raise ValueError("kind 'hard' and the number hard = 5 belong together; give both, or none")
        if sum(given is not None for given in (self.size, self.schedule, self.hard)) > 1:
            raise ValueError("size, schedule and hard each say how large a bag is; give one of them")
        mined = {"scorer", "captions", "max_cosine"} & {key for key, value in self if value is not None}
        if self.kind == "random" and mined:
            raise ValueError(f"{sorted(mined)[0]} is of no use to random bags, which are not mined; leave it out")
        starts = [start for start, _ in self.stages]
        if starts[0] != 0 or starts != sorted(set(starts)):
            raise ValueError("schedule is [[from epoch, bag size], …]: from epoch 0 on, epochs ascending")
        return self

    @property
    def stages(self) -> tuple[tuple[int, int], ...]:
        """(from epoch, bag size)."""
        if self.hard is not None:
            return ((0, self.hard + 1),)
        return ((0, self.size),) if self.size is not None else self.schedule or BAGCURRI

    @property
    def largest(self) -> int:
        return max(size for _, size in self.stages)
