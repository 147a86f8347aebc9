"""Who holds the blocks of a study: reservations, which expire, and complete answers that are not excluded."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from tellapart.study.databases import Transaction
from tellapart.study.design import Place, Study
from tellapart.study.exclusion import exclusion
from tellapart.study.store import ACTIVE, COMPLETE, Participant, all_participants, answers_of


class Blocks:
    """The blocks of a study, and the participants who hold them. Nothing about this is stored: it follows from the
    answers and from the current exclusion rule, which may have been amended.
    """

    def __init__(self, study: Study) -> None:
        self.study = study
        self._order = lru_cache(4096)(study.order)
        self._excluded: dict[int, str] = {}  # by participant, for those whose answers are final

    def places(self, one: Participant) -> tuple[Place, ...]:
        """Returns what a participant sees, in order."""
        return self._order(one.block, one.ordinal, one.seed)

    def is_final(self, one: Participant, now: float) -> bool:
        """Returns whether a participant finished, or answered everything but did not click Finish in time."""
        answered_all = one.status == ACTIVE and one.answered == len(self.places(one))
        return one.status == COMPLETE or (answered_all and self._is_late(one, now))

    def free(self, run: Transaction, now: float) -> int | None:
        """Returns the block that lacks most raters; None if all have enough. Active reservations count as raters."""
        raters = self._raters(run, now)
        block = min(range(len(self.study.blocks)), key=lambda number: raters[number])
        return block if raters[block] < self.study.settings.sampling.raters else None

    def is_lost(self, run: Transaction, one: Participant, now: float) -> bool:
        """Returns whether a reservation has run out and others have taken its place."""
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
