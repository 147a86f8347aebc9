"""Applies a study's exclusion rule, which is set before the study begins."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from tellapart.study.design import CONTROL, ITEM, Place, Study
from tellapart.study.store import StudyAnswer


def control_errors(study: Study, answers: Sequence[StudyAnswer]) -> int:
    """Counts the control items that were answered incorrectly."""
    trials = [(study.trials[answer.trial], answer) for answer in answers]
    return sum(trial.role == CONTROL and not trial.passes(answer.options) for trial, answer in trials)


def exclusion(study: Study, places: Sequence[Place], answers: Sequence[StudyAnswer]) -> str:
    """Returns the reason for excluding a participant, or "" if the participant's answers count.

    places: the trials that the participant saw, in order.
    answers: the participant's valid answers. The limit on identical answers applies to the displayed options.
    """
    rule = study.settings.exclusion
    reasons = []
    errors = control_errors(study, answers)
    if errors > rule.max_control_errors:
        reasons.append(f"{errors} of {len(study.of_role[CONTROL])} control items wrong")
    items = [answer for answer in answers if study.trials[answer.trial].role == ITEM]
    if items:
        seconds = [answer.seconds for answer in items if answer.seconds is not None]
        if seconds and (median := statistics.median(seconds)) < rule.min_median_seconds:
            reasons.append(f"a median of {median:.1f} s per item")
        displayed = Counter(places[answer.position].displayed(answer.options) for answer in items)
        count = max(displayed.values())
        if count / len(items) > rule.max_same_answer:
            reasons.append(f"the same answer to {count} of {len(items)} items")
    return "; ".join(reasons)
