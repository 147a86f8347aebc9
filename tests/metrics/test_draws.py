"""One pass over the weights gives what each statistic gives alone, by the plain way."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tellapart.metrics import bleu
from tellapart.metrics.bleu_score import bleu_of, bleu_stats
from tellapart.metrics.corpus_scores import Measurement, Recounted, Sums, merged
from tellapart.metrics.draws import Draws, bootstrap_weights, random_swaps
from tellapart.metrics.intervals import Estimate, Interval
from tellapart.metrics.paired_tests import Difference
from tellapart.metrics.system_statistics import SystemStatistics

N, RESAMPLES, SEED = 90, 120, 3
RNG = np.random.default_rng(0)
WORDS = [f"w{number}" for number in range(30)]


def texts(count: int = N) -> list[str]:
    return [" ".join(RNG.choice(WORDS, RNG.integers(4, 12))) for _ in range(count)]


def vocabulary(rows: list[str]):
    return lambda weight_N: len({w for row, n in zip(rows, weight_N, strict=True) if n for w in row.split()})


def corpus_bleu(rows: list[tuple[str, list[str]]]) -> Sums:
    return Sums(
        bleu_stats([row[0] for row in rows], [row[1] for row in rows]), lambda sums_RC: 100 * bleu_of(sums_RC, 2)
    )


def of_slots(rows: list[tuple[tuple[str, list[str]], ...]]) -> Sums:
    columns = [corpus_bleu(list(column)) for column in zip(*rows, strict=True)]
    return merged(columns)


# The plain way: every statistic alone, a resample at a time.
def plain_interval(statistic, n: int) -> Interval:
    value = statistic(np.ones(n))
    drawn_R = np.array([statistic(w) for block in bootstrap_weights(n, RESAMPLES, SEED) for w in block])
    low, high = np.quantile(drawn_R, [0.025, 0.975])
    return Interval(value, float(low), float(high), n)


def plain_pair(system, base, pooled, n: int) -> Difference:
    observed = system(np.ones(n)) - base(np.ones(n))
    weights = [w for block in bootstrap_weights(n, RESAMPLES, SEED) for w in block]
    drawn_R = np.array([system(w) - base(w) for w in weights])
    low, high = np.quantile(drawn_R, [0.025, 0.975])
    swaps = [s for block in random_swaps(n, RESAMPLES, SEED) for s in block]
    swapped = np.array([pooled(np.concatenate([1 - s, s])) - pooled(np.concatenate([s, 1 - s])) for s in swaps])
    far = int((np.abs(swapped) >= abs(observed) * (1 - 1e-9)).sum())
    p = (1 + far) / (1 + RESAMPLES)
    return Difference(observed, float(low), float(high), n, p)


def close(found, expected) -> None:
    for name in ("value", "low", "high", "n", "p"):
        if hasattr(expected, name):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-9), name


def drawn_tests(measured: dict[str, Measurement]) -> SystemStatistics:
    draws = Draws(RESAMPLES, SEED)
    found = SystemStatistics(draws, measured, [("a", "b")])
    return found


@pytest.fixture(scope="module")
def references() -> list[list[str]]:
    return [texts(5) for _ in range(N)]


def test_bleu_of_two_systems_is_paired_by_sums_as_by_all_captions_counted_anew(references: list[list[str]]) -> None:
    rows = {name: list(zip(texts(), references, strict=True)) for name in "ab"}
    found = drawn_tests({name: Measurement(None, corpus_bleu(own)) for name, own in rows.items()})
    for name, own in rows.items():
        close(found.intervals()[name], plain_interval(corpus_bleu(own), N))
        captions, of_each = zip(*own, strict=True)
        assert found.intervals()[name].value == pytest.approx(100 * bleu(captions, of_each, n=2)[0])
    pooled = corpus_bleu(rows["b"] + rows["a"])
    close(found.differences()["a", "b"], plain_pair(corpus_bleu(rows["b"]), corpus_bleu(rows["a"]), pooled, N))


def test_a_side_with_fewer_captions_of_a_picture_says_them_again(references: list[list[str]]) -> None:
    one = [((text, own),) for text, own in zip(texts(), references, strict=True)]
    two = [
        tuple((text, own) for text in pair)
        for pair, own in zip(zip(texts(), texts(), strict=True), references, strict=True)
    ]
    found = drawn_tests({"a": Measurement(None, of_slots(one)), "b": Measurement(None, of_slots(two))})
    pooled = of_slots(two + [row * 2 for row in one])
    close(found.differences()["a", "b"], plain_pair(of_slots(two), of_slots(one), pooled, N))


def test_means_weights_and_abstentions() -> None:
    weight_N = RNG.integers(1, 4, N)
    means = [{name: RNG.random(N) for name in "ab"} for _ in range(4)]
    means[3]["b"][:7] = np.nan
    draws = Draws(RESAMPLES, SEED)
    weights = [None, None, weight_N, None]
    tests = [
        SystemStatistics(draws, {name: Measurement(own, weight_N=w) for name, own in values.items()}, [("a", "b")])
        for values, w in zip(means, weights, strict=True)
    ]
    for values, w, test in zip(means, weights, tests, strict=True):
        share_N = np.ones(N) if w is None else w
        for name, own in values.items():
            known = ~np.isnan(own)
            of = partial(_mean, own[known], share_N[known])
            drawn_R = [of(x) for block in bootstrap_weights(int(known.sum()), RESAMPLES, SEED) for x in block]
            low, high = np.quantile(drawn_R, [0.025, 0.975])
            found = test.intervals()[name]
            assert (found.low, found.high) == pytest.approx((low, high)) and found.n == share_N[known].sum()
        found_p = test.differences()["a", "b"]
        both = ~np.isnan(values["a"] + values["b"])
        sum_N = ((values["b"] - values["a"]) * share_N)[both]
        flips = [(1 - 2 * s) @ sum_N for block in random_swaps(int(both.sum()), RESAMPLES, SEED) for s in block]
        far = int((np.abs(flips) >= abs(sum_N.sum()) * (1 - 1e-9)).sum())
        assert found_p.p == (1 + far) / (1 + RESAMPLES)


def _mean(value_N: np.ndarray, share_N: np.ndarray, weight_N: np.ndarray) -> float:
    return float(weight_N @ (value_N * share_N) / (weight_N @ share_N))


def test_a_growing_count_is_drawn_by_halves() -> None:
    rows = texts(40)
    draws = Draws(RESAMPLES, SEED)
    drawn_R = Estimate(draws, Recounted([rows], vocabulary)).drawn_R
    value = vocabulary(rows)(np.ones(40))
    assert abs(drawn_R.mean() - value) < 2 and 0 < drawn_R.std() < value / 2


def test_blocks_of_weights_give_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    statistic = Sums(RNG.random((N, 3)), lambda sums: sums[..., 0] / sums[..., 2])
    values = []
    for cells in (2_000_000, 700):
        monkeypatch.setattr("tellapart.metrics.draws._BLOCK_CELLS", cells)
        draws = Draws(RESAMPLES, SEED)
        drawn = Estimate(draws, statistic)
        values.append(drawn.drawn_R)
    np.testing.assert_allclose(values[0], values[1], rtol=1e-12)
    plain = np.concatenate([statistic(block) for block in bootstrap_weights(N, RESAMPLES, SEED)])
    np.testing.assert_allclose(values[1], plain, rtol=1e-12)
