"""Analyses a study's answers: means, differences, agreement and times.

``pick``: the share of answers that pick the target (paper 3, Table 6).
``rate``: the mean of each aspect, and F1, the harmonic mean of a system's mean descriptiveness and mean accuracy (paper
1, Table 2).
``compare``: how often a system's caption is judged more informative (a tie counts half), and how often it is judged
wrong.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import SystemPair
from tellapart.study.design import ITEM, Study
from tellapart.study.intervals import Floats, Ratings, SystemMeans, system_means
from tellapart.study.participation import Person, participations
from tellapart.study.questions import ASPECTS, MORE, QUESTIONS, WRONG
from tellapart.study.rater_agreement import Level, fleiss_kappa, krippendorff_alpha, option_counts_of
from tellapart.study.store import AnswerStore, StudyAnswer

F1, ACCURACY = "f1", "accuracy"
METRICS = {"pick": (ACCURACY,), "rate": (ASPECTS[0], ASPECTS[1], F1, ASPECTS[2]), "compare": (MORE, WRONG)}


@dataclass(frozen=True)
class QuestionAgreement:
    """Agreement on one question. Undefined coefficients are None.

    units: number of items with at least two answers.
    answers: number of answers to these items.
    """

    question: str
    level: Level
    units: int
    answers: int
    alpha: float | None
    kappa: float | None


@dataclass(frozen=True)
class StudyResults:
    """A report's content. ``systems[name][metric]`` is a percentage for ``pick`` and ``compare``, and from 1 to 5 for
    ``rate``.
    """

    study: Study
    systems: dict[str, dict[str, Interval]]
    pairs: list[SystemPair]
    agreement: list[QuestionAgreement]
    people: list[Person]
    stamps: list[dict[str, str]]
    refusals: dict[str, int]
    seconds: list[float]  # quartiles of the time per item

    @property
    def counted(self) -> list[Person]:
        """The people whose answers count."""
        return [one for one in self.people if one.counted]

    @property
    def notes(self) -> list[str]:
        """What readers have to know about the figures."""
        notes, counted = [], len(self.counted)
        if counted < self.study.quota:
            notes.append(
                f"So far, {counted} of {self.study.quota} planned participants count; the results are preliminary."
            )
        if not self.stamps:
            notes.append("The design was not registered (stamped) before the study.")
        elif self.stamps[-1]["stamp"] != self.study.stamp:
            notes.append("The design in this folder differs from the registered one: something was changed afterwards.")
        return notes

    @property
    def signature(self) -> str:
        """Describes in one line how the figures were computed."""
        analysis, rule = self.study.settings.analysis, self.study.settings.exclusion
        return (
            f"study:{self.study.kind}|participants:{len(self.counted)}|"
            f"excluded:{sum(bool(one.excluded) for one in self.people)}|control-errors<={rule.max_control_errors}|"
            f"interval:{analysis.confidence:g},participants x items,{analysis.resamples}r{analysis.seed}|"
            f"stamp:{self.study.stamp[:16]}"
        )


def analyse(study: Study, store: AnswerStore) -> StudyResults:
    """Analyses the answers of participants who completed the study and are not excluded. Raises `UsageError` if there
    are no such answers.
    """
    everybody = participations(study, store)
    answers = [
        answer
        for one in everybody
        if one.person.counted
        for answer in one.answers
        if study.trials[answer.trial].role == ITEM
    ]
    if not answers:
        raise UsageError(
            f"{store.name}: no participant has completed the study without being excluded, so there "
            "is nothing to report"
        )
    means, confidence = means_of(study, answers), study.settings.analysis.confidence
    bounds = (1.0, 5.0) if study.kind == "rate" else (0.0, 100.0)
    seconds = [answer.seconds for answer in answers if answer.seconds is not None]
    return StudyResults(
        study=study,
        systems={
            name: {metric: means[metric].interval(number, confidence, bounds) for metric in METRICS[study.kind]}
            for number, name in enumerate(study.systems)
        },
        pairs=_pairs(study, answers, means),
        agreement=_agreement(study, answers),
        people=[one.person for one in everybody],
        stamps=store.stamps(),
        refusals=store.refusals(),
        seconds=np.percentile(seconds or [math.nan], [25, 50, 75]).tolist(),
    )


def scores(study: Study, answer: StudyAnswer) -> list[tuple[str, str, float]]:
    """Returns an answer's scores as (metric, system, value). Values are from 1 to 5 for ``rate``, otherwise 0, 50 or
    100.
    """
    systems, options = study.trials[answer.trial].systems, answer.options
    if study.kind == "pick":
        return [(ACCURACY, systems[0], 100.0 * (options[0] == 0))]
    if study.kind == "rate":
        return [(aspect, systems[0], 1.0 + option) for aspect, option in zip(ASPECTS, options, strict=True)]
    more, wrong = options
    return [
        (MORE, systems[0], 50.0 * (2 - more)),
        (MORE, systems[1], 50.0 * more),
        (WRONG, systems[0], 100.0 * (wrong in (1, 3))),
        (WRONG, systems[1], 100.0 * (wrong in (2, 3))),
    ]


def means_of(study: Study, answers: Iterable[StudyAnswer]) -> dict[str, SystemMeans]:
    """Returns each metric's means, with the systems in the order of ``study.systems``."""
    rows = defaultdict(list)
    for answer in answers:
        for metric, system, value in scores(study, answer):
            unit = study.trials[answer.trial].unit
            rows[metric].append((answer.participant, unit, study.systems.index(system), value))
    analysis = study.settings.analysis
    means = {}
    for metric, own in rows.items():
        ratings = Ratings(*map(np.array, zip(*own, strict=True)))
        means[metric] = system_means(ratings, len(study.systems), analysis.resamples, analysis.seed)
    if study.kind == "rate":
        one, other = means[ASPECTS[0]], means[ASPECTS[1]]  # the seeds are the same, so the resamples correspond
        means[F1] = replace(
            one, value_S=harmonic(one.value_S, other.value_S), drawn_ARS=harmonic(one.drawn_ARS, other.drawn_ARS)
        )
    return means


def harmonic(descriptiveness: Floats, accuracy: Floats) -> Floats:
    """Computes F1 from the two means (paper 1, Table 2): 3.89 and 4.39 give 4.12."""
    return np.asarray(2 * descriptiveness * accuracy / (descriptiveness + accuracy), float)


def _pairs(study: Study, answers: Sequence[StudyAnswer], means: Mapping[str, SystemMeans]) -> list[SystemPair]:
    """Returns the differences between all pairs of systems. For ``compare``, uses only the comparisons between the two
    systems, and omits pairs that were not compared.
    """
    pairs = []
    for (a, first), (b, second) in combinations(enumerate(study.systems), 2):
        if study.kind == "compare":
            means = means_of(study, [each for each in answers if study.trials[each.trial].systems == (first, second)])
        for metric in METRICS[study.kind] if means else ():
            difference = means[metric].difference(a, b, study.settings.analysis.confidence)
            pairs.append(SystemPair(first, second, metric, difference))
    return pairs


def _agreement(study: Study, answers: Sequence[StudyAnswer]) -> list[QuestionAgreement]:
    level: Level = "ordinal" if study.kind == "rate" else "nominal"
    agreement = []
    for place, question in enumerate(QUESTIONS[study.kind]):
        options = len(question.options) or study.candidates
        count_UV = option_counts_of([a.trial for a in answers], [a.options[place] for a in answers], options)
        several = count_UV[count_UV.sum(1) >= 2]
        alpha, kappa = krippendorff_alpha(count_UV, level), fleiss_kappa(count_UV)
        agreement.append(QuestionAgreement(question.name, level, len(several), int(several.sum()), alpha, kappa))
    return agreement
