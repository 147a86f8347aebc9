"""Determines which participants hold a study's blocks: those with a reservation, which expires, and those whose answers
are complete and not excluded.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from tellapart.study.databases import Transaction
from tellapart.study.design import Place, Study
from tellapart.study.exclusion import exclusion
from tellapart.study.store import ACTIVE, COMPLETE, Participant, all_participants, answers_of


class Blocks:
    """A study's blocks and the participants who hold them. Who holds a block is not stored. It is computed from the
    answers and the current exclusion rule, which may have been amended.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self._order = lru_cache(4096)(study.order)
        self._excluded: dict[int, str] = {}  # from participants whose answers are final to the reason for exclusion

    def places(self, one: Participant) -> tuple[Place, ...]:
        """Returns the trials that a participant sees, in order."""
        return self._order(one.block, one.ordinal, one.seed)

    def is_final(self, one: Participant, now: float) -> bool:
        """Returns whether a participant finished, or answered all items but did not click Finish in time."""
        answered_all = one.status == ACTIVE and one.answered == len(self.places(one))
        return one.status == COMPLETE or (answered_all and self._is_late(one, now))

    def free(self, run: Transaction, now: float) -> int | None:
        """Returns the block that has the fewest raters, or None if all blocks have enough. Active reservations count as
        raters.
        """
        raters = self._raters(run, now)
        block = min(range(len(self.study.blocks)), key=lambda number: raters[number])
        return block if raters[block] < self.study.settings.sampling.raters else None

    def is_lost(self, run: Transaction, one: Participant, now: float) -> bool:
        """Returns whether a participant's reservation has expired and other participants have filled the block."""
        quota = self.study.settings.sampling.raters
        return not self._holds(run, one, now) and self._raters(run, now)[one.block] >= quota

    def _raters(self, run: Transaction, now: float) -> Counter[int]:
        return Counter(one.block for one in all_participants(run) if self._holds(run, one, now))

    def _is_late(self, one: Participant, now: float) -> bool:
        return now - one.seen > 60 * self.study.settings.recruitment.timeout_minutes

    def _holds(self, run: Transaction, one: Participant, now: float) -> bool:
        if not self.is_final(one, now):
            return one.status == ACTIVE and not self._is_late(one, now)
        if one.number not in self._excluded:
            self._excluded[one.number] = exclusion(self.study, self.places(one), answers_of(run, one))
        return not (self._excluded[one.number] and self.study.settings.sampling.replace_excluded)
