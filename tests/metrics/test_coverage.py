"""Intervals hold what they say: over simulated data sets, 95 % of them cover the metric's expected value.

The expected value is that of data sets of the same size. It is estimated by the mean over the simulated data sets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest

from tellapart.evaluation.candidate_sets import lookalike_sets, random_pools, whole_sets
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.facts.verdict import rate_statistic
from tellapart.evaluation.metrics.facts_of_scenes import percentage
from tellapart.evaluation.retrieval import retrieve
from tellapart.metrics.corpus_scores import UNBOUNDED, Bounds, Measurement
from tellapart.metrics.draws import Draws
from tellapart.metrics.intervals import mean_interval
from tellapart.metrics.paired_tests import paired_difference
from tellapart.metrics.registry import METRICS
from tellapart.metrics.results import Results
from tellapart.metrics.system_statistics import SystemStatistics

PICTURES, WORDS = 120, 4000
ZIPF_W = 1 / np.arange(1, WORDS + 1) ** 1.05
ZIPF_W /= ZIPF_W.sum()
Intervals = dict[str, tuple[float, float, float]]  # what was estimated, and its interval


def _texts(rng: np.random.Generator, samples: int = 1, rare: float = 0.0) -> tuple[list[list[str]], list[list[str]]]:
    """Captions and references of pictures: each says some of its picture's words, in the picture's order."""
    captions, references = [], []
    for _ in range(PICTURES):
        size = int(rng.integers(6, 18))
        flat = rng.random() < rare  # rare words come together: pictures are not alike
        scene = rng.integers(WORDS, size=size) if flat else rng.choice(WORDS, size=size, p=ZIPF_W)

        def say(scene: np.ndarray = scene) -> str:
            return " ".join(f"w{word}" for word in scene[rng.random(len(scene)) < 0.7]) or "w0"

        captions.append([say() for _ in range(samples)])
        references.append([say() for _ in range(3)])
    return captions, references


def text_intervals(seed: int) -> Intervals:
    rng = np.random.default_rng(seed)
    captions, references = _texts(rng, samples=2)
    names = ["bleu1", "bleu4", "rouge_l", "cider_plain", "cider", "length", "lexical_diversity", "vocabulary"]
    results = evaluate(
        {name: dict(enumerate_([[texts[k]] for texts in captions])) for k, name in enumerate("ab")},
        references=dict(enumerate_(references)),
        metrics=[*names, "repetition_rate"],
        resamples=300,
        seed=seed,
    )
    return _intervals(results)


def lexical_intervals(seed: int) -> Intervals:
    rng = np.random.default_rng(seed)
    systems = {name: dict(enumerate_(_texts(rng, rare=rare)[0])) for name, rare in (("a", 0.1), ("b", 0.3))}
    return _intervals(evaluate(systems, metrics=["lexical_diversity", "vocabulary"], resamples=300, seed=seed))


def diversity_intervals(seed: int) -> Intervals:
    rng = np.random.default_rng(seed)
    systems = {name: dict(enumerate_(_texts(rng, samples=3, rare=rare)[0])) for name, rare in (("a", 0.1), ("b", 0.3))}
    names = ["div1", "div2", "mbleu", "lexical_diversity", "vocabulary"]
    return _intervals(evaluate(systems, metrics=names, resamples=300, seed=seed))


def retrieval_intervals(seed: int) -> Intervals:
    rng = np.random.default_rng(seed)
    image_ND = rng.normal(size=(400, 12))
    image_ND /= np.linalg.norm(image_ND, axis=1, keepdims=True)
    noise_NS = rng.normal(size=(2, 400, 12))
    overlapping = [rng.choice(400, size=5, replace=False) for _ in range(300)]
    sets = {
        "random100": random_pools(400),
        "lookalike": lookalike_sets(image_ND, 10),
        "bags": whole_sets(np.arange(400).reshape(-1, 5)),
        "overlapping": whole_sets(overlapping),
    }
    found: Intervals = {}
    for name, own in sets.items():
        hit, rank = [], []
        for noise_ND, size in zip(noise_NS, (0.25, 0.35), strict=True):
            text_ND = image_ND + size * noise_ND
            retrieved = retrieve(own, text_ND / np.linalg.norm(text_ND, axis=1, keepdims=True), image_ND)
            hit.append(retrieved.hit(1))
            rank.append(retrieved.rank_N)
        weights = {"weight_N": retrieved.questions_N, "seed": seed}  # as many resamples as by default
        for what, (a_N, b_N) in {"recall": hit, "rank": rank}.items():
            mean, pair = mean_interval(a_N, **weights), paired_difference(b_N, a_N, **weights)
            found[f"{what}.{name}"] = (mean.value, mean.low, mean.high)
            found[f"{what}.{name}, pair"] = (pair.value, pair.low, pair.high)
    return found


def ratio_intervals(seed: int) -> Intervals:
    """Rates (attribute precision and its like), corpus perplexity, and means of skewed values (perplexity)."""
    from tellapart.evaluation.metrics.perplexity import corpus_perplexity

    rng = np.random.default_rng(seed)
    below_N = rng.poisson(2.5, 150).astype(float)
    counts_N2 = np.stack([rng.binomial(below_N.astype(int), rng.beta(8, 2, 150)), below_N], axis=1)
    tokens_N = rng.integers(5, 20, 150).astype(float)
    loss_N2 = np.stack([tokens_N * rng.normal(3, 0.4, 150), tokens_N], axis=1)
    measured = {
        "rate": Measurement(None, percentage(counts_N2)),
        "ppl_corpus": Measurement(None, corpus_perplexity(loss_N2)),
        "ppl": Measurement(np.exp(loss_N2[:, 0] / loss_N2[:, 1])),
        "clipscore": Measurement(250 * np.maximum(rng.normal(0.25, 0.05, 150), 0)),
    }
    draws = Draws(300, seed)
    tests = SystemStatistics(draws, measured, [])
    intervals = tests.intervals()
    return {name: (own.value, own.low, own.high) for name, own in intervals.items()}


def rare_intervals(seed: int) -> Intervals:
    """Every kind of metric at n = 100 where what it counts is rare: nothing happened in many of these data sets.

    Means of hits and misses (recall, CHAIR_s) and of other values (repetition_rate, mean rank, judges' ratings, CIDEr),
    and rates of a corpus (hallucination, facts, CHAIR_i), alone and in pairs.
    """
    rng = np.random.default_rng(seed)
    n, measured, bounds = 100, {}, {}

    def add(name: str, own: Measurement, ends: Bounds) -> None:
        measured.setdefault(name.partition(",")[0], {})[name.partition(",")[2]] = own
        bounds[name.partition(",")[0]] = ends

    for system, share in (("a", 0.01), ("b", 0.03)):
        rare_N = rng.random(n) < share
        add(f"chair_s,{system}", Measurement(100.0 * rare_N), METRICS["chair_s"].bounds)
        add(f"recall,{system}", Measurement(100.0 * ~rare_N), METRICS["recall@1.lookalike"].bounds)
        add(f"mean_rank,{system}", Measurement(1.0 + rare_N * rng.integers(1, 10, n)), (1.0, 10.0))
        add(f"clair,{system}", Measurement(100 - 100 * rare_N * rng.beta(2, 5, n)), METRICS["clair"].bounds)
        add(f"cider,{system}", Measurement(300 * rare_N * rng.beta(2, 5, n)), METRICS["cider"].bounds)
        claims_N = 1 + rng.poisson(2.0, n).astype(float)
        counts_N2 = np.stack([rng.binomial(claims_N.astype(int), 0.4) * rare_N, claims_N], axis=1)
        rate = Measurement(100 * counts_N2[:, 0] / claims_N, percentage(counts_N2))
        add(f"hallucination_rate,{system}", rate, UNBOUNDED)
        facts = np.stack([claims_N - counts_N2[:, 0], claims_N, claims_N, claims_N], axis=1)
        corpus = rate_statistic(facts, 0)
        add(f"facts_precision,{system}", Measurement(100 * facts[:, 0] / claims_N, corpus), UNBOUNDED)
    found: Intervals = {}
    for name, own in measured.items():
        draws = Draws(300, seed)
        tests = SystemStatistics(draws, own, [("a", "b")], bounds[name])
        found |= {f"{name}, {system}": (one.value, one.low, one.high) for system, one in tests.intervals().items()}
        found |= {f"{name}, pair": (d.value, d.low, d.high) for d in tests.differences().values()}
    for share in (0.005, 0.05, 0.2):
        texts = [
            " ".join(words if rng.random() >= share else words[:4] + words[3 : 3 + int(rng.integers(1, 5))])
            for words in ([f"v{k}" for k in rng.choice(500, 12, replace=False)] for _ in range(n))
        ]
        systems = {"a": dict(enumerate_([[text] for text in texts]))}
        own = evaluate(systems, metrics=["repetition_rate"], resamples=300, seed=seed).systems["a"]["repetition_rate"]
        found[f"repetition_rate of {share:.1%}"] = (own.value, own.low, own.high)
    return found


def enumerate_(lists: list[list[str]]) -> list[tuple[str, list[str]]]:
    return [(str(number), texts) for number, texts in enumerate(lists)]


def _intervals(results: Results) -> Intervals:
    found = {
        f"{name}, {system}": (own.value, own.low, own.high)
        for system, metrics in results.systems.items()
        for name, own in metrics.items()
    }
    pairs = {f"{p.metric}, pair": (p.difference.value, p.difference.low, p.difference.high) for p in results.pairs}
    return found | pairs


def coverage(simulate: Callable[[int], Intervals], trials: int) -> dict[str, float]:
    found: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for seed in range(trials):
        for name, interval in simulate(seed).items():
            found[name].append(interval)
    shares = {}
    for name, rows in found.items():
        value_T, low_T, high_T = np.array(rows).T
        if np.ptp(value_T) > 0:  # else there is nothing to be uncertain about
            shares[name] = float(np.mean((low_T <= value_T.mean()) & (value_T.mean() <= high_T)))
    return shares


SIMULATIONS = [text_intervals, lexical_intervals, diversity_intervals, retrieval_intervals, ratio_intervals]


@pytest.mark.slow
@pytest.mark.parametrize("simulate", SIMULATIONS)
def test_intervals_cover_the_expected_value(simulate: Callable[[int], Intervals]) -> None:
    # Recalls near 100 % rest on few misses: the coverage of their intervals is estimated from more data sets.
    shares = coverage(simulate, 600 if simulate is retrieval_intervals else 200)
    assert {name: share for name, share in shares.items() if not 0.91 <= share <= 0.99} == {}


@pytest.mark.long
def test_intervals_cover_the_expected_value_where_it_is_rare() -> None:
    # The exact interval of rare events covers more often than it says: with none of them it reaches to 3.6 in 100.
    assert {name: share for name, share in coverage(rare_intervals, 120).items() if share < 0.9} == {}


def test_every_metric_of_a_share_names_its_bounds() -> None:
    """Without bounds the interval of a rare event is [0, 0]; rates of a corpus have those of their statistic."""
    shares = (
        "% of",
        "probability, in %",
        "mean of 100 /",
        "mean rank of the picture among the",
        "from 1 to 10",
    )
    unbounded = [
        metric.name
        for metric in METRICS.builtin().values()
        if metric.bounds == UNBOUNDED and any(text in metric.help for text in shares)
    ]
    assert unbounded == ["attribute_precision", "attribute_recall", "hallucination_rate", "binding_error_rate"]


@pytest.mark.long
@pytest.mark.parametrize("simulate", [lexical_intervals, retrieval_intervals, ratio_intervals])
def test_intervals_cover_the_expected_value_in_a_few_data_sets(simulate: Callable[[int], Intervals]) -> None:
    # Of thirty intervals that cover in 95 %, fewer than 25 do so once in a thousand times.
    assert {name: share for name, share in coverage(simulate, 30).items() if share < 25 / 30} == {}
