"""The blocks of a study, and the participants who hold them.

Blocks are held by reservations, which expire, or by complete answers, and are freed by exclusion.
"""

from __future__ import annotations

from functools import lru_cache

from tellapart.study import store as rows
from tellapart.study.databases import Transaction
from tellapart.study.design import Place, Study
from tellapart.study.exclusion import exclusion
from tellapart.study.store import ACTIVE, COMPLETE, EXPIRED, Participant


class Blocks:
    """The blocks of a study, and the participants who hold them."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self._order = lru_cache(4096)(study.order)

    def free(self, run: Transaction, now: float) -> int | None:
        """Returns the block that lacks most raters; None if all have enough. Active reservations count as raters."""
        sampling = self.study.settings.sampling
        taken = [0] * len(self.study.blocks)
        for one in self.everybody(run, now):
            if self.holds(one, now):
                taken[one.block] += 1
        block = min(range(len(taken)), key=lambda number: (taken[number], number))
        return block if taken[block] < sampling.raters else None

    def everybody(self, run: Transaction, now: float) -> list[Participant]:
        """Returns all participants. Completes those who answered everything but did not click Finish in time.

        The exclusion rule then determines whether their blocks count."""
        return [
            self.complete(run, one, now) if self.is_late(one, now) and self.answered_all(one) else one
            for one in rows.all_participants(run)
        ]

    def answered_all(self, one: Participant) -> bool:
        return one.status == ACTIVE and one.answered == len(self.places(one))

    def is_late(self, one: Participant, now: float) -> bool:
        return now - one.seen > 60 * self.study.settings.recruitment.timeout_minutes

    def holds(self, one: Participant, now: float) -> bool:
        """Returns whether a participant holds a block, with complete answers that count or an active reservation."""
        if one.status == COMPLETE:
            return not (one.excluded and self.study.settings.sampling.replace_excluded)
        if self.answered_all(one):
            return True  # only the click on Finish is missing
        return one.status == ACTIVE and not self.is_late(one, now)

    def complete(self, run: Transaction, one: Participant, now: float) -> Participant:
        return rows.update(run, one, status=COMPLETE, finished=now, excluded=self.reason(run, one))

    def reason(self, run: Transaction, one: Participant) -> str:
        """Returns why the current rule excludes a participant with complete answers; "" if it does not."""
        return exclusion(self.study, self.places(one), rows.standing_answers(run, one.number))

    def apply_rule(self, run: Transaction) -> None:
        """Applies the current exclusion rule to all who completed the study, because it may have been amended since."""
        for one in rows.all_participants(run):
            if one.status == COMPLETE and (reason := self.reason(run, one)) != one.excluded:
                rows.update(run, one, excluded=reason)

    def expire(self, run: Transaction, one: Participant, now: float) -> Participant:
        """Expires a reservation that has run out, or renews it if the block is still free."""
        if one.status != ACTIVE or self.holds(one, now):
            return one
        raters = self.study.settings.sampling.raters
        others = [other for other in self.everybody(run, now) if other.number != one.number]
        if sum(self.holds(other, now) for other in others if other.block == one.block) >= raters:
            return rows.update(run, one, status=EXPIRED, finished=now)
        return one

    def places(self, one: Participant) -> tuple[Place, ...]:
        return self._order(one.block, one.ordinal, one.seed)
