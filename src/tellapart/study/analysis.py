"""Analyses a study's answers: means, differences, agreement and times, and decides which participants count.

``pick``: the share of answers that pick the target (paper 3, Table 6). ``rate``: the mean of each aspect, and F1, the
harmonic mean of a system's mean descriptiveness and mean accuracy, as in paper 1, Table 2.
``compare``: how often a system's caption is judged more informative (ties count half), and how often wrong.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from tellapart.errors import UsageError
from tellapart.metrics.intervals import Interval
from tellapart.metrics.results import SystemPair
from tellapart.study.design import ASPECTS, CONTROL, ITEM, MORE, WRONG, Study, option_counts, questions
from tellapart.study.exclusion import control_errors, exclusion
from tellapart.study.intervals import ClusteredDraws, Floats, Ratings, difference, interval, means, resampled_means
from tellapart.study.rater_agreement import Level, fleiss_kappa, krippendorff_alpha, option_counts_of
from tellapart.study.store import COMPLETE, AnswerStore, Participant, StudyAnswer

F1, ACCURACY = "f1", "accuracy"


@dataclass(frozen=True)
class QuestionAgreement:
    """Agreement on one question. ``units``: number of items with at least two answers. ``answers``: number of their
    answers. Undefined coefficients are None.
    """

    question: str
    level: Level
    units: int
    answers: int
    alpha: float | None
    kappa: float | None


@dataclass(frozen=True)
class Person:
    """A participant in the report, without an identifier. Times are in minutes and seconds; NaN if unknown."""

    name: str
    status: str
    excluded: str
    items: int
    control_errors: int
    minutes: float
    seconds_per_item: float


@dataclass
class StudyResults:
    """A report's content. ``systems[name][metric]``: percent for ``pick`` and ``compare``, 1 to 5 for ``rate``."""

    study: Study
    systems: dict[str, dict[str, Interval]]
    pairs: list[SystemPair]
    agreement: list[QuestionAgreement]
    people: list[Person]
    stamps: list[tuple[float, str, str]]
    refusals: dict[str, int]
    seconds: tuple[float, float, float]  # quartiles of the time per item, in seconds
    notes: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics in the columns of the table."""
        return METRICS[self.study.kind]

    @property
    def counted(self) -> list[Person]:
        """Returns the people whose answers count."""
        return [one for one in self.people if one.status == COMPLETE and not one.excluded]

    @property
    def signature(self) -> str:
        """Describes in one line how the figures were computed."""
        analysis, rule = self.study.settings.analysis, self.study.settings.exclusion
        return "|".join(
            (
                f"study:{self.study.kind}",
                f"participants:{len(self.counted)}",
                f"excluded:{sum(bool(one.excluded) for one in self.people)}",
                f"control-errors<={rule.max_control_errors}",
                f"interval:{analysis.confidence:g},participants x items,{analysis.resamples}r{analysis.seed}",
                f"stamp:{self.study.stamp[:16]}",
            )
        )


METRICS = {"pick": (ACCURACY,), "rate": (ASPECTS[0], ASPECTS[1], F1, ASPECTS[2]), "compare": (MORE, WRONG)}


def analyse(study: Study, store: AnswerStore) -> StudyResults:
    """Analyzes the answers of those who completed the study and are not excluded. Raises `UsageError` if there are
    none.
    """
    found = _answers_of_people(study, store)
    people = [one for one, _ in found]
    counted = [
        answer
        for one, own in found
        if one.status == COMPLETE and not one.excluded
        for answer in own
        if study.trials[answer.trial].role == ITEM
    ]
    if not counted:
        raise UsageError(
            f"{store.name}: no participant has completed the study without being excluded, so there "
            "is nothing to report"
        )
    systems, pairs = _figures(study, counted)
    seconds = [answer.seconds for answer in counted if answer.seconds is not None]
    return StudyResults(
        study,
        systems,
        pairs,
        _agreement(study, counted),
        people,
        store.stamps(),
        store.refusals(),
        _quartiles(seconds),
        _notes(study, store, people),
    )


def people_of(study: Study, store: AnswerStore) -> list[Person]:
    """Returns all participants, counted or not, in the order in which they began."""
    return [one for one, _ in _answers_of_people(study, store)]


def _answers_of_people(study: Study, store: AnswerStore) -> list[tuple[Person, list[StudyAnswer]]]:
    participants = store.participants()
    of_person: dict[int, list[StudyAnswer]] = {one.number: [] for one in participants}
    for answer in store.answers():
        of_person.setdefault(answer.participant, []).append(answer)
    return [(_person(study, one, of_person[one.number]), of_person[one.number]) for one in participants]


def _person(study: Study, one: Participant, answers: Sequence[StudyAnswer]) -> Person:
    places = study.order(one.block, one.ordinal, one.seed)
    if any(places[answer.position].trial != answer.trial for answer in answers if answer.position < len(places)):
        raise UsageError(f"the answers of participant {one.number} belong to a different design; restore items.json")
    complete = len(answers) == len(places)  # complete answers count even if Finish was not clicked
    # Applies the current rule, which may have been amended since.
    reason = exclusion(study, places, answers) if complete else one.excluded
    seconds = [a.seconds for a in answers if a.seconds is not None and study.trials[a.trial].role == ITEM]
    end = max((answer.at for answer in answers), default=math.nan)
    return Person(
        name=f"P{one.number}",
        status=COMPLETE if complete else one.status,
        excluded=reason,
        items=sum(study.trials[answer.trial].role in (ITEM, CONTROL) for answer in answers),
        control_errors=control_errors(study, answers),
        minutes=(end - one.started) / 60,
        seconds_per_item=statistics.median(seconds) if seconds else math.nan,
    )


def _quartiles(seconds: Sequence[float]) -> tuple[float, float, float]:
    if not seconds:
        return math.nan, math.nan, math.nan
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return float(low), float(middle), float(high)


def scores(study: Study, answer: StudyAnswer) -> list[tuple[str, int, float]]:
    """Returns an answer's (metric, system index, value) scores; values are 1 to 5 for ``rate``, else 0, 50 or 100."""
    trial = study.trials[answer.trial]
    numbers = [study.systems.index(system) for system in trial.systems]
    if study.kind == "pick":
        return [(ACCURACY, numbers[0], 100.0 * (answer.options[0] == 0))]
    if study.kind == "rate":
        return [(aspect, numbers[0], 1.0 + option) for aspect, option in zip(ASPECTS, answer.options, strict=True)]
    more, wrong = answer.options
    first, second = numbers
    return [
        (MORE, first, 50.0 * (2 - more)),
        (MORE, second, 50.0 * more),
        (WRONG, first, 100.0 * (wrong in (1, 3))),
        (WRONG, second, 100.0 * (wrong in (2, 3))),
    ]


def ratings_of(study: Study, answers: Sequence[StudyAnswer]) -> dict[str, Ratings]:
    """Returns the ratings of each metric, with participants and items."""
    units = {unit: number for number, unit in enumerate(sorted({study.trials[a.trial].unit for a in answers}))}
    rows: dict[str, list[tuple[int, int, int, float]]] = {}
    for answer in answers:
        unit = units[study.trials[answer.trial].unit]
        for metric, system, value in scores(study, answer):
            rows.setdefault(metric, []).append((answer.participant, unit, system, value))
    found = {}
    for metric, own in rows.items():
        table = np.array(own, float)
        person, item, system = table[:, :3].astype(np.int64).T
        found[metric] = Ratings(person, item, system, table[:, 3])
    return found


def _figures(study: Study, answers: Sequence[StudyAnswer]) -> tuple[dict[str, dict[str, Interval]], list[SystemPair]]:
    values, drawn, n = _resampled(study, answers)
    confidence = study.settings.analysis.confidence
    bounds = (1.0, 5.0) if study.kind == "rate" else (0.0, 100.0)
    systems = {
        name: {
            metric: interval(float(values[metric][s]), drawn[metric][s], n[metric][s], confidence, bounds)
            for metric in METRICS[study.kind]
        }
        for s, name in enumerate(study.systems)
    }
    pairs = []
    for a, b in combinations(range(len(study.systems)), 2):
        own = values, drawn, n
        names = (study.systems[a], study.systems[b])
        if study.kind == "compare":  # compares head to head, not through other systems
            met = [answer for answer in answers if study.trials[answer.trial].systems == names]
            if not met:
                continue
            own = _resampled(study, met)
        for metric in METRICS[study.kind]:
            value_S, draws, n_S = own[0][metric], own[1][metric], own[2][metric]
            gain = float(value_S[b] - value_S[a])
            found = difference(gain, draws[b] - draws[a], n_S[a] + n_S[b], confidence)
            pairs.append(SystemPair(*names, metric, found))
    return systems, pairs


def _resampled(
    study: Study, answers: Sequence[StudyAnswer]
) -> tuple[dict[str, Floats], dict[str, ClusteredDraws], dict[str, list[int]]]:
    """Returns the systems' values, resampled values and numbers of ratings, by metric."""
    count, analysis = len(study.systems), study.settings.analysis
    found = ratings_of(study, answers)
    values = {metric: means(ratings, count) for metric, ratings in found.items()}
    drawn = {m: resampled_means(r, count, analysis.resamples, analysis.seed) for m, r in found.items()}
    n = {m: [int(size) for size in np.bincount(r.system_M, minlength=count)] for m, r in found.items()}
    if study.kind == "rate":
        values[F1] = harmonic(values[ASPECTS[0]], values[ASPECTS[1]])
        one, other = drawn[ASPECTS[0]], drawn[ASPECTS[1]]  # uses the same seeds, to compare resample by resample
        drawn[F1] = ClusteredDraws(
            harmonic(one.person_R, other.person_R),
            harmonic(one.item_R, other.item_R),
            harmonic(one.rating_R, other.rating_R),
            one.clusters,
        )
        n[F1] = n[ASPECTS[0]]
    return values, drawn, n


def harmonic(descriptiveness: Floats, accuracy: Floats) -> Floats:
    """Computes F1 from the two means (paper 1, Table 2): 3.89 and 4.39 give 4.12."""
    return np.asarray(2 * descriptiveness * accuracy / (descriptiveness + accuracy), float)


def _agreement(study: Study, answers: Sequence[StudyAnswer]) -> list[QuestionAgreement]:
    pictures = len(study.trials[answers[0].trial].pictures)
    found = []
    level: Level = "ordinal" if study.kind == "rate" else "nominal"
    counts = option_counts(study.kind, pictures)
    for place, (question, options) in enumerate(zip(questions(study.kind), counts, strict=True)):
        count_UV = option_counts_of([a.trial for a in answers], [a.options[place] for a in answers], options)
        several = count_UV[count_UV.sum(1) >= 2]
        alpha, kappa = krippendorff_alpha(count_UV, level), fleiss_kappa(count_UV)
        found.append(QuestionAgreement(question.name, level, len(several), int(several.sum()), alpha, kappa))
    return found


def _notes(study: Study, store: AnswerStore, people: Sequence[Person]) -> list[str]:
    notes = []
    counted = sum(one.status == COMPLETE and not one.excluded for one in people)
    if counted < study.quota:
        notes.append(f"So far, {counted} of {study.quota} planned participants count; the results are preliminary.")
    stamps = store.stamps()
    if not stamps:
        notes.append("The design was not registered (stamped) before the study.")
    elif stamps[-1][1] != study.stamp:
        notes.append("The design in this folder differs from the registered one: something was changed afterwards.")
    return notes
