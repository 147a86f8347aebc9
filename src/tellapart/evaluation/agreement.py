"""Measures each metric's agreement with human judgements, as papers on metrics do: rank correlations and pairwise
accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import rich
import rich.table

from tellapart.data import open_data
from tellapart.data.caption_matching import preview_ids
from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.evaluation.chosen_metrics import choose
from tellapart.evaluation.context import EvalContext, EvalInputs
from tellapart.evaluation.judgement_types import Judgements
from tellapart.evaluation.judgements import read_judgements
from tellapart.evaluation.options import JudgeInputs
from tellapart.evaluation.published_agreement import PUBLISHED, published_tau
from tellapart.evaluation.side_files import read_object_inputs
from tellapart.metrics.draws import bootstrap_weights
from tellapart.metrics.registry import Metric
from tellapart.metrics.slots import CaptionSlot
from tellapart.utils.progress import track
from tellapart.utils.tables import table_of

_NAN = float("nan")

# Rank correlations of a metric with human ratings, and its accuracy on pairs.
#
# N captions with scores and ratings; suffix P: pairs.


def scipy_stats() -> Any:
    """Returns `scipy.stats`. Raises `MissingExtra` without scipy."""
    try:
        from scipy import stats
    except ImportError:
        raise MissingExtra("study", "the rank correlation with human judgements") from None
    return stats


def kendall_tau_b(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Computes Kendall's tau-b, -1..1; NaN if all values on one side are equal."""
    return float(scipy_stats().kendalltau(score_N, rating_N).statistic)


def kendall_tau_c(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Computes Kendall's tau-c (Stuart 1953), reported for Flickr8k-Expert and Composite; see `kendall_tau_b`."""
    return float(scipy_stats().kendalltau(score_N, rating_N, variant="c").statistic)


def spearman(score_N: np.ndarray, rating_N: np.ndarray) -> float:
    """Computes Spearman's rho, -1..1, with mean ranks for ties; NaN if all values on one side are equal."""
    if min(np.ptp(score_N), np.ptp(rating_N)) == 0:
        return _NAN
    return float(scipy_stats().spearmanr(score_N, rating_N).statistic)


def pair_accuracy(better_P: np.ndarray, worse_P: np.ndarray) -> float:
    """Computes the share of pairs, 0..1, in which the preferred caption has the higher score; ties count half."""
    if not len(better_P):
        return _NAN
    return float(np.mean((better_P > worse_P) + 0.5 * (better_P == worse_P)))


TAUS = {"b": kendall_tau_b, "c": kendall_tau_c}
ALL = "all"  # mean over the categories of pairs


@dataclass(frozen=True)
class MetricAgreement:
    """One metric's agreement, in percent; None if there are no ratings, or no pairs.

    accuracy: by category of pairs; "all" is the mean over categories.
    low, high: the 95% interval of the tau (or accuracy) that papers report for this set, from resampled pictures.
    n: the number of captions with a value.
    published: the tau of this metric in a published table.
    repeats: the tau for each repeat of a judge; all other fields use the mean over repeats.
    deviation: the standard deviation over repeats of a caption's value, as a root mean square over captions, in the
        metric's unit.
    """

    tau_b: float | None
    tau_c: float | None
    spearman: float | None
    accuracy: dict[str, float]
    n: int
    low: float | None = None
    high: float | None = None
    published: float | None = None
    repeats: tuple[float, ...] = ()
    deviation: float | None = None


@dataclass
class AgreementTable:
    """Each metric's agreement with people, by metric name, and the data it was measured on."""

    judgements: Judgements
    metrics: dict[str, MetricAgreement] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    signatures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"judgements": …, "metrics": {NAME: {"tau_b", "tau_c", …}}, "signatures": …, "notes": […]}``."""
        own = self.judgements
        counts = {
            "layout": own.layout,
            "judges": own.judges,
            "captions": len(own.captions),
            "pictures": len({caption.picture for caption in own.captions}),
            "ratings": own.ratings,
            "pairs": len(own.pairs),
            "tau": own.tau,
        }
        metrics = {name: asdict(found) for name, found in self.metrics.items()}
        return {"judgements": counts, "metrics": metrics, "signatures": self.signatures, "notes": self.notes}

    def table(self) -> rich.table.Table:
        """Returns a table of metrics, sorted by the figure that papers report for this set, from best to worst."""
        own = self.judgements
        title = f"{own.layout}: {len(own.captions):,} captions, {own.ratings:,} ratings, {len(own.pairs):,} pairs"
        names = sorted(self.metrics, key=self._key, reverse=True)
        rows = [(self.labels.get(name, name), *self._cells(self.metrics[name])) for name in names]
        return table_of(("metric", *self._heads()), rows, f"{title}; {own.judges}; ×100")

    def rows(self) -> list[list[str]]:
        """Returns the table's cells as text: the heads, then a row per metric."""
        return [
            ["metric", *self._heads()],
            *([self.labels.get(name, name), *self._cells(found)] for name, found in self.metrics.items()),
        ]

    def _heads(self) -> list[str]:
        taus = ["tau-b", "tau-c", "Spearman"] if self.judgements.ratings else []
        return [
            *taus,
            *(f"pairs {name}".removesuffix(f" {ALL}") for name in self._categories()),
            *(["95%"] if self._resampled() else []),
            *(["published"] if self._published() else []),
            *(["repeats", "SD"] if self._repeated() else []),
            "n",
        ]

    def _cells(self, found: MetricAgreement) -> list[str]:
        taus = [found.tau_b, found.tau_c, found.spearman] if self.judgements.ratings else []
        shown = [*taus, *(found.accuracy.get(name) for name in self._categories())]
        cells = ["–" if value is None or np.isnan(value) else f"{value:.1f}" for value in shown]
        interval = (
            [f"{found.low:.1f} … {found.high:.1f}" if found.low is not None else "–"] if self._resampled() else []
        )
        if self._published():
            interval.append("–" if found.published is None else f"{found.published:.1f}")
        if self._repeated() and found.deviation is None:
            interval += ["–", "–"]
        elif self._repeated():
            interval += [f"{min(found.repeats):.1f} … {max(found.repeats):.1f}", f"{found.deviation:.3g}"]
        return [*cells, *interval, f"{found.n:,}"]

    def _published(self) -> bool:
        return any(found.published is not None for found in self.metrics.values())

    def _repeated(self) -> bool:
        return any(found.deviation is not None for found in self.metrics.values())

    def _resampled(self) -> bool:
        return any(found.low is not None for found in self.metrics.values())

    def _categories(self) -> list[str]:
        return list(next((found.accuracy for found in self.metrics.values()), {}))

    def _key(self, name: str) -> float:
        value = _printed(self.metrics[name], self.judgements.tau)
        return -np.inf if value is None or np.isnan(value) else value


def measure_agreement(
    judgements: Judgements,
    metrics: Sequence[str] | None = None,
    *,
    context: EvalContext | None = None,
    resamples: int = 0,
    seed: int = 0,
    repeats: int = 1,
) -> AgreementTable:
    """Measures the agreement of single-caption metrics with the judgements: all available metrics, or the named ones.

    Each caption is one row, so CIDEr's document frequencies count a picture once per judged caption, as in the
    published figures. The sign of a metric is flipped if lower values are better.

    context: pictures and a scorer, with one row per caption; None: texts only.
    repeats: how often a judge is asked; a caption's value is the mean over repeats.

    Raises `UsageError` for a metric that is not available.
    """
    judgements = judgements.with_pairs_of_ratings()
    captions = [row.caption for row in judgements.captions]
    references = [list(row.references) for row in judgements.captions]
    context = context or EvalContext([str(row) for row in range(len(captions))], None, references)
    # Metrics cache results by slot, so each repeat of a judge has its own slot.
    slots = [CaptionSlot(captions, references) for _ in range(repeats)]
    found = AgreementTable(judgements, notes=list(judgements.notes))
    able, left_out = choose(metrics, context)
    chosen = {name: metric for name, metric in able.items() if not metric.pools}
    found.notes += left_out if metrics is not None else []
    if metrics is None:
        chosen |= _meteor(context, found.notes)
    if metrics is not None and not chosen:
        raise UsageError(f"--metrics contains no metric that scores single captions: {', '.join(metrics)}")
    for name, metric in track(list(chosen.items()), len(chosen), "measuring metrics"):
        value_KN = _repeated_values(metric, context, slots)
        value_N = None if value_KN is None else mean_over_repeats(value_KN)
        tag = metric.tag(context)  # the judge's name and dates
        if value_N is None or np.all(np.isnan(value_N)):
            if metrics is not None:
                found.notes.append(f"{name} does not score single captions and is omitted")
            continue
        name = f"{name}@{tag}" if tag else name
        plain = name.partition("@")[0]
        agreement = _agreement(value_N, judgements, resamples, seed)
        published = published_tau(judgements.table or judgements.layout, plain, judgements.tau)
        found.metrics[name] = replace(agreement, published=published, **_of_repeats(value_KN, judgements))
        found.labels[name] = metric.info(scorer=tag).label
        rule = f"|{judgements.rule}" if judgements.rule else ""
        turned = "|turned-round" if metric.direction == "lower" else ""
        digest = f"|references:{context.references_digest}" if "references" in metric.needs else ""
        found.signatures[name] = (
            f"{name}|{metric.variant(context)}{digest}{turned}|judgements:{judgements.layout}{rule}"
        )
    known = PUBLISHED.get(judgements.table or judgements.layout, {})
    absent = {name: tau for name, tau in known.items() if name not in {key.partition("@")[0] for key in found.metrics}}
    if printed := [f"{name} {tau[judgements.tau]:.1f}" for name, tau in absent.items() if judgements.tau in tau]:
        found.notes.append(f"published but not measured here (tau-{judgements.tau}): {', '.join(printed)}")
    return found


def _repeated_values(metric: Metric, context: EvalContext, slots: Sequence[CaptionSlot]) -> np.ndarray | None:
    """Returns values K×N with a row per repeat of a judge (one per slot), or 1×N for other metrics."""
    if len(slots) == 1 or "judge" not in metric.needs:
        value_N = _values(metric, context, slots[0])
        return None if value_N is None else value_N[None]
    value_KN = []
    for number, slot in enumerate(slots, 1):  # all repeats are sampled in the same way, so no repeat has the number 0
        context.loaded_judge.repeat = number
        if (value_N := _values(metric, context, slot)) is None:
            return None
        value_KN.append(value_N)
    context.loaded_judge.repeat = 0
    return np.stack(value_KN)


def mean_over_repeats(value_KN: np.ndarray) -> np.ndarray:
    """Returns each caption's mean over the repeats in which the judge did not abstain; NaN if there are none."""
    known_KN = ~np.isnan(value_KN)
    count_N = known_KN.sum(0)
    return np.where(count_N > 0, np.where(known_KN, value_KN, 0).sum(0) / np.maximum(count_N, 1), np.nan)


def deviation_over_repeats(value_KN: np.ndarray) -> float:
    """Returns the root mean square, over captions, of the standard deviation over repeats (K − 1 in the denominator).

    Skips captions with fewer than two answers; NaN if none remain.
    """
    known_KN = ~np.isnan(value_KN)
    count_N = known_KN.sum(0)
    square_N = np.where(known_KN, (value_KN - mean_over_repeats(value_KN)) ** 2, 0).sum(0)
    several_N = count_N > 1
    return float(np.sqrt(np.mean(square_N[several_N] / (count_N[several_N] - 1)))) if several_N.any() else _NAN


def _of_repeats(value_KN: np.ndarray | None, judgements: Judgements) -> dict[str, Any]:
    """Returns the reported number for each repeat, and the deviation of a caption's value; empty if there is only one
    repeat.
    """
    if value_KN is None or len(value_KN) < 2:
        return {}
    each = [_printed(_agreement(value_N, judgements, 0, 0), judgements.tau) for value_N in value_KN]
    return {
        "repeats": tuple(_NAN if value is None else value for value in each),
        "deviation": deviation_over_repeats(value_KN),
    }


def _meteor(context: EvalContext, notes: list[str]) -> dict[str, Metric]:
    """Returns METEOR, which all papers report; adds a note if its files are missing."""
    try:
        return choose(["meteor"], context)[0]
    except TellapartError as error:
        notes.append(f"METEOR is omitted: {error}")
        return {}


def _values(metric: Metric, context: EvalContext, slot: CaptionSlot) -> np.ndarray | None:
    value_N = metric.of_slot(context, slot).value_N
    if value_N is None or metric.direction != "lower":
        return value_N
    return -np.asarray(value_N)


def _agreement(value_N: np.ndarray, judgements: Judgements, resamples: int, seed: int) -> MetricAgreement:
    known_N = ~np.isnan(value_N)
    rating_of = [np.array(caption.ratings) for caption in judgements.captions]
    times_N = np.array([len(ratings) for ratings in rating_of])

    def taus(repeat_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the scores and ratings of the captions that have a value; caption n is repeated ``repeat_N[n]``
        times.
        """
        take_N = np.flatnonzero(known_N & (times_N > 0))
        take_M = np.repeat(take_N, repeat_N[take_N])
        if not len(take_M):
            return np.zeros(0), np.zeros(0)
        return np.repeat(value_N[take_M], times_N[take_M]), np.concatenate([rating_of[row] for row in take_M])

    scores, ratings = taus(np.ones(len(value_N), int))
    rated = bool(judgements.ratings) and len(scores) > 1
    whole = MetricAgreement(
        tau_b=100 * kendall_tau_b(scores, ratings) if rated else None,
        tau_c=100 * kendall_tau_c(scores, ratings) if rated else None,
        spearman=100 * spearman(scores, ratings) if rated else None,
        accuracy=_accuracies(value_N, judgements),
        n=int(known_N.sum()),
    )
    if not resamples:
        return whole

    def printed(repeat_N: np.ndarray) -> float:
        if judgements.tau:
            return 100 * TAUS[judgements.tau](*taus(repeat_N))
        return _accuracies(value_N, judgements, repeat_N)[ALL]

    low, high = _interval(judgements, printed, resamples, seed)
    return replace(whole, low=low, high=high)


def _accuracies(value_N: np.ndarray, judgements: Judgements, repeat_N: np.ndarray | None = None) -> dict[str, float]:
    """Returns the accuracy in percent by category, then their mean. Ignores pairs in which a caption has no value."""
    found: dict[str, float] = {}
    for category in dict.fromkeys(pair.category for pair in judgements.pairs):
        rows = [pair for pair in judgements.pairs if pair.category == category]
        better = np.array([value_N[pair.better] for pair in rows])
        worse = np.array([value_N[pair.worse] for pair in rows])
        tied = np.array([pair.tied for pair in rows])
        better, worse = np.where(tied, 0.0, better), np.where(tied, 0.0, worse)
        keep = np.flatnonzero(~np.isnan(better + worse))
        if repeat_N is not None:
            keep = np.repeat(keep, [repeat_N[rows[place].better] for place in keep])
        found[category] = 100 * pair_accuracy(better[keep], worse[keep])
    if not found:
        return {}
    mean = float(np.mean(list(found.values())))
    return {ALL: mean} if list(found) == [""] else {**found, ALL: mean}


def _interval(
    judgements: Judgements, statistic: Callable[[np.ndarray], float], resamples: int, seed: int
) -> tuple[float, float]:
    """Computes the interval from resamples of the pictures, with all their captions."""
    names = list(dict.fromkeys(caption.picture for caption in judgements.captions))
    place = {name: number for number, name in enumerate(names)}
    picture_N = np.array([place[caption.picture] for caption in judgements.captions])
    values = [
        statistic(weight_K[picture_N].astype(int))
        for weight_RK in bootstrap_weights(len(names), resamples, seed)
        for weight_K in weight_RK
    ]
    low, high = np.nanpercentile(values, [2.5, 97.5])
    return float(low), float(high)


def _printed(found: MetricAgreement, tau: str) -> float | None:
    return {"b": found.tau_b, "c": found.tau_c}.get(tau, found.accuracy.get(ALL))


# ``tellapart study judges``: computes a table of metrics from a file of human judgements.


def agreement_with_people(
    file: Path,
    references: Sequence[Path] = (),
    layout: str | None = None,
    metrics: Sequence[str] | None = None,
    *,
    data: str | None = None,
    scorer: str | None = None,
    synonyms: Path | None = None,
    judge: JudgeInputs | None = None,
    resamples: int = 0,
    seed: int = 0,
    repeats: int = 1,
) -> AgreementTable:
    """Reads judgements and measures the agreement of metrics (`measure_agreement`). Raises `UsageError`.

    synonyms: a file of object synonyms, for CHAIR and facts. judge: a model on a server, for metrics like CLAIR.
    """
    if scorer is not None and data is None:
        raise UsageError("a scorer requires pictures; add --data SPEC")
    if repeats > 1 and (judge is None or judge.llm_judge is None):
        raise UsageError("--repeats requires a judge; add --llm-judge openai:MODEL@URL")
    judgements = read_judgements(file, layout, references)
    if data is not None:
        context, notes = _with_pictures(judgements, data, scorer)
    else:
        own = [list(row.references) for row in judgements.captions]
        context, notes = EvalContext([str(row) for row in range(len(own))], None, own), []
    context.inputs = EvalInputs(synonyms=read_object_inputs(synonyms, None)[0], judge=(judge or JudgeInputs()).open())
    found = measure_agreement(judgements, metrics, context=context, resamples=resamples, seed=seed, repeats=repeats)
    found.notes += notes
    if note := context.long_note():
        found.notes.append(note)
    if context.inputs.judge is not None:
        found.notes += context.loaded_judge.notes()
    return found


def _with_pictures(judgements: Judgements, data: str, scorer: str | None) -> tuple[EvalContext, list[str]]:
    """Returns a context with one picture per judged caption, and notes. Raises `UsageError` for missing pictures."""
    dataset = open_data(data)
    known = {name: item for item in dataset for name in _names(item.id, item.picture.name)}
    rows = {
        row.picture: next((known[n] for n in _names(row.picture) if n in known), None) for row in judgements.captions
    }
    if lacking := [name for name, item in rows.items() if item is None]:
        raise UsageError(
            f"{len(lacking):,} of {len(rows):,} judged pictures are not in the data ({preview_ids(lacking)}); "
            "pass --data with the data set that was judged"
        )
    items = {item.id: item for item in rows.values() if item is not None}
    distinct = list(items.values())
    notes: list[str] = []
    from tellapart.evaluation.models import load_scorers

    models, readable = load_scorers([scorer] if scorer else [], distinct, notes)
    if readable is not None and len(readable) < len(distinct):
        raise UsageError(
            f"{len(distinct) - len(readable):,} judged pictures cannot be read; every judged picture must be readable"
        )
    item_N = [rows[row.picture] for row in judgements.captions]
    # Ids identify captions, so a picture has one row per caption.
    own = [replace(item, id=f"{place}") for place, item in enumerate(item_N) if item is not None]
    references = [list(row.references) for row in judgements.captions]
    ids = [item.id for item in own]
    if not models:
        return EvalContext(ids, own, references), notes
    place = {item.id: row for row, item in enumerate(distinct)}
    feature_ND = np.asarray(models[0][1])[[place[item.id] for item in item_N if item is not None]]
    return EvalContext(ids, own, references, models[0][0], feature_ND), notes


def _names(*names: str) -> list[str]:
    files = [PurePosixPath(name.replace("\\", "/")).name for name in names]
    return list(dict.fromkeys([*names, *files, *(file.rpartition(".")[0] or file for file in files)]))
