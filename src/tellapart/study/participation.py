"""Who took part in a study, what they answered, and whose answers count."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.errors import UsageError
from tellapart.study.design import CONTROL, ITEM, Place, Study
from tellapart.study.exclusion import control_errors, exclusion
from tellapart.study.store import COMPLETE, AnswerStore, Participant, StudyAnswer


@dataclass(frozen=True)
class Person:
    """A participant as shown in the report, without an identifier. Unknown times are NaN."""

    name: str
    status: str
    excluded: str
    items: int
    control_errors: int
    minutes: float
    seconds_per_item: float

    @property
    def counted(self) -> bool:
        """Whether the participant's answers count."""
        return self.status == COMPLETE and not self.excluded


@dataclass(frozen=True)
class Participation:
    """What a participant saw and answered."""

    participant: Participant
    places: tuple[Place, ...]
    answers: list[StudyAnswer]
    person: Person


def participations(study: Study, store: AnswerStore) -> list[Participation]:
    """Returns everybody who began, in the order in which they began, whether their answers count or not. Applies the
    current exclusion rule.
    """
    answers_of = defaultdict(list)
    for answer in store.answers():
        answers_of[answer.participant].append(answer)
    everybody = []
    for one in store.participants():
        places, answers = study.order(one.block, one.ordinal, one.seed), answers_of[one.number]
        if any(answer.trial != place.trial for answer, place in zip(answers, places, strict=False)):
            raise UsageError(
                f"the answers of participant {one.number} belong to a different design; restore items.json"
            )
        everybody.append(Participation(one, places, answers, _person(study, one, places, answers)))
    return everybody


def _person(study: Study, one: Participant, places: Sequence[Place], answers: Sequence[StudyAnswer]) -> Person:
    complete = len(answers) == len(places)  # complete answers count even if Finish was not clicked
    roles = [study.trials[answer.trial].role for answer in answers]
    items = (answer for answer, role in zip(answers, roles, strict=True) if role == ITEM)
    seconds = [answer.seconds for answer in items if answer.seconds is not None]
    return Person(
        name=f"P{one.number}",
        status=COMPLETE if complete else one.status,
        excluded=exclusion(study, places, answers) if complete else "",
        items=roles.count(ITEM) + roles.count(CONTROL),
        control_errors=control_errors(study, answers),
        minutes=(max((answer.at for answer in answers), default=math.nan) - one.started) / 60,
        seconds_per_item=statistics.median(seconds) if seconds else math.nan,
    )
