"""The exclusion rule of a study, which is set before the study begins."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from tellapart.study.design import CONTROL, ITEM, Place, Study
from tellapart.study.store import StudyAnswer


def control_errors(study: Study, answers: Sequence[StudyAnswer]) -> int:
    """Counts the mistakes on control items."""
    own = [answer for answer in answers if study.trials[answer.trial].role == CONTROL]
    return sum(not study.trials[answer.trial].passes(answer.options) for answer in own)


def exclusion(study: Study, places: Sequence[Place], answers: Sequence[StudyAnswer]) -> str:
    """Returns the reason for excluding a participant who saw ``places`` in this order; "" if the participant counts.

    answers: the valid answers. The rule on identical answers applies to displayed options.
    """
    rule = study.settings.exclusion
    reasons = []
    errors = control_errors(study, answers)
    if errors > rule.max_control_errors:
        reasons.append(f"{errors} of {len(study.of_role[CONTROL])} control items wrong")
    main = [place for place, answer in enumerate(answers) if study.trials[answer.trial].role == ITEM]
    seconds = [own for place in main if (own := answers[place].seconds) is not None]
    if rule.min_median_seconds and seconds and statistics.median(seconds) < rule.min_median_seconds:
        reasons.append(f"a median of {statistics.median(seconds):.1f} s per item")
    if rule.max_same_answer < 1 and main:
        shown = (study.shown_options(places[answers[place].position], answers[place].options) for place in main)
        _, count = Counter(map(tuple, shown)).most_common(1)[0]
        if count / len(main) > rule.max_same_answer:
            reasons.append(f"the same answer to {count} of {len(main)} items")
    return "; ".join(reasons)
