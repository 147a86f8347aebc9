"""Analyses the answers of a study: intervals, agreement, exclusion, figures and exports.

Intervals treat both participants and items as samples. The variance uses two-way clustering (Cameron, Gelbach and
Miller 2011): the bootstrap variance over participants, plus that over items, minus that over single answers, which both
contain. Each bootstrap resamples whole clusters with replacement. The interval is Student's t with one degree of
freedom less than the smaller number of clusters. Resampling both at once (Owen's pigeonhole bootstrap) counts the noise
of single ratings three times; for yes/no answers its intervals are up to 1.7 times too wide.

Agreement among any number of raters is Krippendorff's alpha and Fleiss' kappa, from counts of units by options.

The figures are each system's means, differences, agreement and times:

``pick``: the share of answers that are the target (paper 3, Table 6). ``rate``: the mean of each aspect, and F1, the
harmonic mean of a system's mean descriptiveness and mean accuracy, as in paper 1, Table 2.
``compare``: how often a system's caption is more informative (ties count half), and how often it is judged wrong.

Answers are exported as anonymous JSON and CSV.
"""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from tellapart.errors import MissingExtra, UsageError
from tellapart.metrics.results import SystemPair
from tellapart.metrics.statistics import Difference, Interval, bootstrap_weights
from tellapart.study.design import ASPECTS, CONTROL, ITEM, MORE, PRACTICE, WRONG, Study, option_counts, questions
from tellapart.study.session import control_errors, exclusion
from tellapart.study.store import COMPLETE, AnswerStore, Participant, StudyAnswer, moment
from tellapart.utils.files import check_output, write_output
from tellapart.utils.messages import json_value

Floats = npt.NDArray[np.float64]
NAN = float("nan")


@dataclass(frozen=True)
class Ratings:
    """M ratings, each with its participant, item, system and value."""

    participant_M: npt.NDArray[np.int64]
    item_M: npt.NDArray[np.int64]
    system_M: npt.NDArray[np.int64]
    value_M: Floats

    def __len__(self) -> int:
        return len(self.value_M)


@dataclass(frozen=True)
class ClusteredDraws:
    """A statistic, or S of them, in R resamples of participants, items and single answers, and the cluster counts."""

    person_R: Floats
    item_R: Floats
    rating_R: Floats
    clusters: tuple[int, int, int]

    def __getitem__(self, system: int) -> ClusteredDraws:
        """Returns the draws of one system."""
        return ClusteredDraws(self.person_R[:, system], self.item_R[:, system], self.rating_R[:, system], self.clusters)

    def __sub__(self, other: ClusteredDraws) -> ClusteredDraws:
        """Returns the draws of a difference, resample by resample."""
        return ClusteredDraws(
            self.person_R - other.person_R, self.item_R - other.item_R, self.rating_R - other.rating_R, self.clusters
        )

    def standard_error(self) -> float:
        """Computes the two-way clustered standard error, at least that of either clustering. NaN for one cluster."""
        parts = []
        for drawn_R, count in zip((self.person_R, self.item_R, self.rating_R), self.clusters, strict=True):
            known_R = drawn_R[np.isfinite(drawn_R)]
            parts.append(float(known_R.var()) * count / (count - 1) if count > 1 and len(known_R) > 1 else NAN)
        person, item, rating = parts
        return math.sqrt(max(person + item - rating, person, item)) if math.isfinite(sum(parts)) else NAN

    @property
    def freedom(self) -> int:
        """Degrees of freedom."""
        return min(self.clusters[:2]) - 1


def resampled_means(ratings: Ratings, systems: int, resamples: int, seed: int) -> ClusteredDraws:
    """Computes each system's mean in each resample, R×S; NaN if a resample has no rating of it."""
    member_MS = np.eye(systems)[ratings.system_M]
    both_MC = np.concatenate([member_MS * ratings.value_M[:, None], member_MS], 1)
    drawn, clusters = [], []
    answer_M = ratings.participant_M * (ratings.item_M.max(initial=0) + 1) + ratings.item_M  # may rate two systems
    for place, axis_M in enumerate((ratings.participant_M, ratings.item_M, answer_M)):
        names, row_M = np.unique(axis_M, return_inverse=True)
        sums_GC = np.zeros((len(names), 2 * systems))
        np.add.at(sums_GC, row_M, both_MC)
        sums_RC = np.concatenate([w @ sums_GC for w in bootstrap_weights(len(names), resamples, 3 * seed + place)])
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn.append(np.asarray(sums_RC[:, :systems] / sums_RC[:, systems:], float))
        clusters.append(len(names))
    return ClusteredDraws(drawn[0], drawn[1], drawn[2], (clusters[0], clusters[1], clusters[2]))


def means(ratings: Ratings, systems: int) -> Floats:
    """Computes each system's mean, S; NaN for a system without ratings."""
    member_MS = np.eye(systems)[ratings.system_M]
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(ratings.value_M @ member_MS / member_MS.sum(0), float)


def interval(value: float, draws: ClusteredDraws, n: int, confidence: float, bounds: tuple[float, float]) -> Interval:
    """Returns a value with its interval, clipped to the bounds of the scale; NaN if the interval is undefined.

    The interval is undefined if all answers agree, because a spread of 0 does not predict the next participant's
    answer.
    """
    half = student_quantile(confidence, draws.freedom) * draws.standard_error()
    if not math.isfinite(half) or not half:  # max and min would return the bounds
        return Interval(value, NAN, NAN, n)
    return Interval(value, max(bounds[0], value - half), min(bounds[1], value + half), n)


def difference(value: float, draws: ClusteredDraws, n: int, confidence: float) -> Difference:
    """Returns a difference with its interval and two-sided p-value; NaN if they are undefined, see `interval`."""
    error = draws.standard_error()
    if not error or not math.isfinite(error) or draws.freedom < 1:
        return Difference(value, NAN, NAN, n, NAN)
    half = student_quantile(confidence, draws.freedom) * error
    p = 2 * (1 - NormalDist().cdf(_as_normal(abs(value) / error, draws.freedom))) if value else 1.0
    return Difference(value, value - half, value + half, n, p)


def student_quantile(confidence: float, freedom: int) -> float:
    """Returns the half width of a central interval of Student's t by Wallace's (1959) approximation.

    The error is within 1.2 % for at least three degrees of freedom. NaN below one."""
    if freedom < 1:
        return NAN
    z = NormalDist().inv_cdf((1 + confidence) / 2) * (8 * freedom + 3) / (8 * freedom + 1)
    return math.sqrt(freedom * math.expm1(z * z / freedom))


def _as_normal(t: float, freedom: int) -> float:
    """Returns the normal deviate with the tail probability of ``t``; the inverse of `student_quantile`."""
    return (8 * freedom + 1) / (8 * freedom + 3) * math.sqrt(freedom * math.log1p(t * t / freedom))


Level = Literal["nominal", "ordinal", "interval"]


def krippendorff_alpha(count_UV: npt.ArrayLike, level: Level = "nominal") -> float | None:
    """Computes Krippendorff's alpha (2011) with the package krippendorff, for U units and V ordered options.

    Ignores units with one rater. None if no unit has two raters, or all raters chose the same option. Raises
    `MissingExtra`.
    """
    try:
        import krippendorff
    except ModuleNotFoundError:
        raise MissingExtra("study", "Krippendorff's alpha, in the report of a study,") from None

    counts = np.asarray(count_UV, int)
    counts = counts[counts.sum(1) >= 2]
    if not len(counts) or (counts.sum(0) > 0).sum() < 2:
        return None
    values = np.arange(counts.shape[1])
    return float(krippendorff.alpha(value_counts=counts, value_domain=values, level_of_measurement=level))


def fleiss_kappa(count_UV: npt.ArrayLike) -> float | None:
    """Computes Fleiss' kappa (1971): agreement beyond chance on unordered options.

    Fleiss requires the same number of raters for each unit. Otherwise each unit's agreement is over its own pairs of
    raters, and the option shares are over all ratings, which equals his formula for equal numbers. None if no unit has
    two raters, or all raters chose the same option.
    """
    counts = np.asarray(count_UV, float)
    counts = counts[counts.sum(1) >= 2]
    if not len(counts):
        return None
    rater_U = counts.sum(1)
    agreed = float((((counts**2).sum(1) - rater_U) / (rater_U * (rater_U - 1))).mean())
    share_V = counts.sum(0) / counts.sum()
    chance = float((share_V**2).sum())
    return None if np.isclose(chance, 1) else (agreed - chance) / (1 - chance)


def option_counts_of(unit_M: npt.ArrayLike, option_M: npt.ArrayLike, options: int) -> npt.NDArray[np.int64]:
    """Counts how many raters chose each option of each unit: U×V from M ratings."""
    units, row_M = np.unique(np.asarray(unit_M), return_inverse=True)
    counts = np.zeros((len(units), options), np.int64)
    np.add.at(counts, (row_M, np.asarray(option_M)), 1)
    return cast("npt.NDArray[np.int64]", counts)


F1, ACCURACY = "f1", "accuracy"


@dataclass(frozen=True)
class QuestionAgreement:
    """Agreement on one question, over ``units`` with at least two of the ``answers``; None if undefined."""

    question: str
    level: Level
    units: int
    answers: int
    alpha: float | None
    kappa: float | None


@dataclass(frozen=True)
class Person:
    """A participant of the report, without an identifier. Times are minutes and seconds; NaN where unknown."""

    name: str
    status: str
    excluded: str
    items: int
    control_errors: int
    minutes: float
    seconds_per_item: float


@dataclass
class StudyResults:
    """The report's content. ``systems[name][metric]``: percent for ``pick`` and ``compare``, 1 to 5 for ``rate``."""

    study: Study
    systems: dict[str, dict[str, Interval]]
    pairs: list[SystemPair]
    agreement: list[QuestionAgreement]
    people: list[Person]
    stamps: list[tuple[float, str, str]]
    refusals: dict[str, int]
    seconds: tuple[float, float, float]  # quartiles of the seconds per item
    notes: list[str] = field(default_factory=list)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The columns of the table."""
        return METRICS[self.study.kind]

    @property
    def counted(self) -> list[Person]:
        """Returns the people whose answers count."""
        return [one for one in self.people if one.status == COMPLETE and not one.excluded]

    @property
    def signature(self) -> str:
        """Returns how the figures were computed, in one line."""
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
    """Analyses the answers of those who completed and are not excluded. Raises `UsageError` if there are none."""
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
    """Returns everybody who began, in that order, whether they count or not."""
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
    complete = len(answers) == len(places)  # complete answers count even without a click on Finish
    # Uses the current rule, which may have been amended since.
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


# Figures.


def scores(study: Study, answer: StudyAnswer) -> list[tuple[str, int, float]]:
    """Returns the scores of an answer as (metric, system number, value)."""
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
        if study.kind == "compare":  # head to head, not via third systems
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
    """Returns, by metric, the systems' values, their resamples and their numbers of ratings."""
    count, analysis = len(study.systems), study.settings.analysis
    found = ratings_of(study, answers)
    values = {metric: means(ratings, count) for metric, ratings in found.items()}
    drawn = {m: resampled_means(r, count, analysis.resamples, analysis.seed) for m, r in found.items()}
    n = {m: [int(size) for size in np.bincount(r.system_M, minlength=count)] for m, r in found.items()}
    if study.kind == "rate":
        values[F1] = harmonic(values[ASPECTS[0]], values[ASPECTS[1]])
        one, other = drawn[ASPECTS[0]], drawn[ASPECTS[1]]  # the same seeds: resample by resample
        drawn[F1] = ClusteredDraws(
            harmonic(one.person_R, other.person_R),
            harmonic(one.item_R, other.item_R),
            harmonic(one.rating_R, other.rating_R),
            one.clusters,
        )
        n[F1] = n[ASPECTS[0]]
    return values, drawn, n


def harmonic(descriptiveness: Floats, accuracy: Floats) -> Floats:
    """Computes F1 of the two means (paper 1, Table 2): 3.89 and 4.39 give 4.12."""
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
        notes.append(f"So far, {counted} of {study.quota} planned participants count: the results are preliminary.")
    stamps = store.stamps()
    if not stamps:
        notes.append("The design was not registered (stamped) before the study.")
    elif stamps[-1][1] != study.stamp:
        notes.append("The design in this folder differs from the registered one: something was changed afterwards.")
    return notes


JSON_FILE, CSV_FILE, PEOPLE_FILE = "answers.json", "answers.csv", "identifiers.csv"
_MORE = ("first", "same", "second")
_WRONG = ("neither", "first", "second", "both")


def export(study: Study, store: AnswerStore, out: Path, *, with_ids: bool = False) -> dict[str, Any]:
    """Writes ``answers.json`` (design and all answers) and ``answers.csv`` (one row per answer) to ``out``.

    Participants are P1, P2, … and times are relative to their start. with_ids: also writes ``identifiers.csv``, which
    maps them to the platform's identifiers for payment; never publish it.
    """
    for name in (JSON_FILE, CSV_FILE, *([PEOPLE_FILE] if with_ids else [])):
        check_output(out / name)
    people = people_of(study, store)
    status = {one.name: one for one in people}
    rows = _rows(study, store, status)
    document = {
        "kind": study.kind,
        "title": study.settings.title,
        "systems": study.systems,
        "stamp": study.stamp,
        "stamps": [{"at": moment(at), "stamp": stamp, "reason": why} for at, stamp, why in store.stamps()],
        "exclusion": study.settings.exclusion.model_dump(),
        "participants": [asdict(one) for one in people],
        "not_taking_part": store.refusals(),
        "answers": rows,
    }
    write_output(out / JSON_FILE, json.dumps(json_value(document), ensure_ascii=False, indent=1) + "\n")
    write_output(out / CSV_FILE, _csv(rows))
    if with_ids:
        identities = store.identities()
        known = [
            {"participant": f"P{number}", "identifier": own[0], "study": own[1], "session": own[2],
             "status": status[f"P{number}"].status, "excluded": status[f"P{number}"].excluded}
            for number, own in identities.items()
            if f"P{number}" in status  # omits people who have begun since
        ]  # fmt: skip
        write_output(out / PEOPLE_FILE, _csv(known))
    return {"folder": str(out), "answers": len(rows), "participants": len({row["participant"] for row in rows}),
            "identifiers": with_ids}  # fmt: skip


def _rows(study: Study, store: AnswerStore, people: Mapping[str, Person]) -> list[dict[str, Any]]:
    participants = {one.number: one for one in store.participants()}
    found = []
    for answer in store.answers():
        one, trial = participants[answer.participant], study.trials[answer.trial]
        if trial.role == PRACTICE:
            continue
        name = f"P{one.number}"
        place = study.order(one.block, one.ordinal, one.seed)[answer.position]
        shown = study.shown_options(place, answer.options)
        row: dict[str, Any] = {
            "participant": name,
            "counted": name in people and people[name].status == COMPLETE and not people[name].excluded,
            "block": one.block,
            "position": answer.position,
            "role": trial.role,
            "item": trial.unit,
            "system": " / ".join(trial.systems),
            "caption": " / ".join(trial.captions),
            "passed": trial.passes(answer.options) if trial.role != ITEM else None,
            "seconds": None if answer.seconds is None else round(answer.seconds, 2),
            "minute": round((answer.at - one.started) / 60, 2),
            "changed": answer.revision - 1,
        }
        if study.kind == "pick":
            row |= {"correct": answer.options[0] == 0, "place": shown[0] + 1,
                    "picked": trial.pictures[answer.options[0]], "target": trial.pictures[0]}  # fmt: skip
        elif study.kind == "rate":
            row |= {q.name: option + 1 for q, option in zip(questions("rate"), answer.options, strict=True)}
        else:
            row |= {MORE: _MORE[answer.options[0]], WRONG: _WRONG[answer.options[1]], "order_changed": place.flip}
        found.append(row)
    return found


def _csv(rows: list[dict[str, Any]]) -> str:
    """Formats rows as CSV; prefixes texts that a spreadsheet would interpret as formulas with an apostrophe."""
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _plain(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
