"""Intervals and tests: against closed forms, coverage, and the cases where nothing varies."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import astuple

import numpy as np
import pytest
import scipy.stats
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from statsmodels.stats.multitest import multipletests

from tellapart.metrics import paired_tests
from tellapart.metrics.bleu_score import bleu_of, bleu_stats
from tellapart.metrics.corpus_scores import PERCENT, UNBOUNDED, Recounted, Sums
from tellapart.metrics.draws import Draws, bootstrap_weights, random_swaps
from tellapart.metrics.holm import holm
from tellapart.metrics.intervals import Estimate, Interval, mean_interval
from tellapart.metrics.paired_tests import paired_difference
from tellapart.metrics.result_cells import format_p, places_for

NAN = float("nan")


def resample(corpus, **settings):
    draws = Draws(**settings)
    estimate = Estimate(draws, corpus)
    return estimate


def paired_resampled(system, baseline, **settings):
    draws = Draws(**settings)
    test = paired_tests.PairedTest(draws, Estimate(draws, system), Estimate(draws, baseline), None, UNBOUNDED)
    return test.difference()


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of numpy
        yield


def test_the_interval_of_a_mean_is_the_normal_one_for_many_items():
    value_N = np.random.default_rng(0).normal(5, 2, 4000)
    found = mean_interval(value_N, resamples=4000)
    half = 1.96 * value_N.std() / math.sqrt(4000)
    assert found.value == pytest.approx(value_N.mean()) and found.n == 4000
    assert found.low == pytest.approx(value_N.mean() - half, abs=0.05 * half)
    assert found.high == pytest.approx(value_N.mean() + half, abs=0.05 * half)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    intervals = [mean_interval(rng.random(80) < 0.3, seed=trial, resamples=400) for trial in range(300)]
    assert 0.91 <= np.mean([found.low <= 0.3 <= found.high for found in intervals]) <= 0.98


def test_nan_is_left_out_and_counted():
    assert mean_interval(np.array([1.0, NAN, 1.0])) == Interval(1.0, 1.0, 1.0, 2)
    nothing = mean_interval(np.array([NAN]))
    assert nothing.n == 0 and math.isnan(nothing.value) and math.isnan(nothing.low)
    assert mean_interval(np.zeros(0)).n == 0
    found = paired_difference(np.array([1.0, NAN, 3.0]), np.array([0.0, 1.0, NAN]))
    assert (found.value, found.n) == (1.0, 1)
    assert paired_difference(np.array([NAN]), np.array([1.0])).n == 0


@pytest.mark.parametrize("constant", [0.0, 0.1, 100 / 3])
def test_a_constant_has_an_interval_of_width_zero(constant):
    assert astuple(mean_interval(np.full(37, constant))) == pytest.approx((constant, constant, constant, 37))
    same = paired_difference(np.full(37, constant), np.full(37, constant))
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1)


def test_equal_seeds_draw_equal_intervals():
    value_N = np.random.default_rng(2).random(50)
    assert mean_interval(value_N, seed=4) == mean_interval(value_N, seed=4) != mean_interval(value_N, seed=5)


def test_blocks_do_not_change_the_draws(monkeypatch):
    value_N = np.random.default_rng(2).random(50)
    whole = mean_interval(value_N), paired_difference(value_N, value_N[::-1])
    monkeypatch.setattr("tellapart.metrics.draws._BLOCK_CELLS", 170)
    parts = mean_interval(value_N), paired_difference(value_N, value_N[::-1])
    for part, all_at_once in zip(parts, whole, strict=True):
        assert astuple(part) == pytest.approx(astuple(all_at_once), abs=1e-12, nan_ok=True)


def test_pairing_finds_a_small_shift_that_unpaired_intervals_hide():
    rng = np.random.default_rng(3)
    base_N = rng.normal(0, 10, 200)
    better_N = base_N + 0.5 + rng.normal(0, 1, 200)
    a, b = mean_interval(base_N), mean_interval(better_N)
    found = paired_difference(better_N, base_N)
    assert a.high > b.low and found.low > 0 and found.p < 0.01
    turned = paired_difference(base_N, better_N)
    assert turned.value == -found.value and turned.high == pytest.approx(-found.low)


def test_p_is_that_of_the_full_permutation_test():
    difference_N = np.array([3.0, 1.0, 2.0, -0.5, 4.0, 1.5, 0.5, 2.5])
    sums = [abs(np.dot(signs, difference_N)) for signs in itertools.product([1, -1], repeat=8)]
    exact = np.mean([total >= difference_N.sum() - 1e-9 for total in sums])
    found = paired_difference(difference_N, np.zeros(8), resamples=20_000)
    assert found.p == pytest.approx(exact, abs=0.004)


def test_p_is_even_where_the_systems_do_not_differ():
    rng = np.random.default_rng(4)
    p = [paired_difference(rng.random(60), rng.random(60), resamples=200, seed=k).p for k in range(300)]
    assert np.mean(np.array(p) < 0.05) <= 0.09 and 0.42 < np.mean(p) < 0.58


def _mean_statistic(value_N):
    return Sums(np.stack([value_N, np.ones(len(value_N))], axis=1), lambda sums: sums[..., 0] / sums[..., 1])


def _constant(n):
    return Sums(np.ones((n, 1)), lambda sums: np.full(sums.shape[:-1], 7.0))


def test_a_statistic_that_is_a_mean_agrees_with_the_interval_of_a_mean():
    rng = np.random.default_rng(5)
    a_N, b_N = rng.normal(0, 1, 300), rng.normal(0.3, 1, 300)
    a, b = (_mean_statistic(value_N) for value_N in (a_N, b_N))
    plain = mean_interval(a_N)
    found = resample(a).interval()
    assert (found.value, found.low, found.high) == pytest.approx((plain.value, plain.low, plain.high), abs=0.01)
    pair, other = paired_resampled(b, a), paired_difference(b_N, a_N)
    assert (pair.value, pair.low, pair.high) == pytest.approx((other.value, other.low, other.high), abs=0.02)
    assert pair.p == pytest.approx(other.p, abs=0.01)


def test_the_interval_of_a_count_of_distinct_things_holds_the_count():
    kinds_N = np.random.default_rng(0).zipf(1.5, 100)  # a resample misses some of the rare ones

    def distinct(rows):
        return lambda weight_N: float(len(np.unique(np.array(rows)[weight_N > 0])))

    found = resample(Recounted([list(kinds_N)], distinct)).interval()
    assert found.low < found.value < found.high
    resampled = [distinct(kinds_N)(w) for block in bootstrap_weights(100, 1000, 0) for w in block]
    assert np.quantile(resampled, 0.9) < found.value, "which is why halves are drawn"


def test_a_constant_statistic_has_width_zero_and_no_items_have_no_number():
    assert resample(_constant(5)).interval() == Interval(7.0, 7.0, 7.0, 5)
    assert paired_resampled(_constant(5), _constant(5)).p == 1
    nothing = resample(_constant(0)).interval()
    assert nothing.n == 0 and math.isnan(nothing.value) and math.isnan(nothing.low)


def test_values_that_are_means_of_several_observations_weigh_as_many():
    rng = np.random.default_rng(0)
    weight_N = rng.integers(0, 5, 60)
    value_N = np.where(weight_N > 0, rng.random(60), NAN)
    found = mean_interval(value_N, weight_N=weight_N)
    assert found.n == weight_N.sum() and found.value == pytest.approx(np.nansum(value_N * weight_N) / weight_N.sum())
    assert found.low < found.value < found.high
    assert mean_interval(value_N, weight_N=(weight_N > 0).astype(int)) == mean_interval(value_N)
    pair = paired_difference(value_N, np.zeros(60), weight_N=weight_N)
    assert (pair.value, pair.low, pair.high, pair.n) == (found.value, found.low, found.high, found.n) and pair.p < 0.01


def test_sums_are_resampled_by_matrix_products_as_one_by_one():
    counts_NC = np.random.default_rng(0).integers(0, 9, (40, 3)).astype(float)

    def number(counts_RC):
        return counts_RC[..., 0] * counts_RC[..., 1] / counts_RC[..., 2]

    other_NC = counts_NC[::-1]
    summed, base = Sums(counts_NC, number), Sums(other_NC, number)
    weights = [w for block in bootstrap_weights(40, 1000, 0) for w in block]
    drawn_R = np.array([number(w @ counts_NC) for w in weights])
    np.testing.assert_allclose(resample(summed).drawn_R, drawn_R, rtol=1e-12)
    several = Sums(np.stack([counts_NC, counts_NC], 1), lambda counts_RSC: 2.0 * number(counts_RSC))
    np.testing.assert_allclose(resample(several).drawn_R, 2 * drawn_R, rtol=1e-12)
    found = paired_resampled(summed, base)
    paired_R = drawn_R - [number(w @ other_NC) for w in weights]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(paired_R, [0.025, 0.975])))
    swaps = [s for block in random_swaps(40, 1000, 0) for s in block]
    both = [((1 - s) @ counts_NC + s @ other_NC, s @ counts_NC + (1 - s) @ other_NC) for s in swaps]
    far = sum(abs(number(one) - number(two)) >= abs(found.value) * (1 - 1e-9) for one, two in both)
    assert found.p == (1 + far) / 1001


def test_p_is_never_printed_as_nothing_and_never_as_the_level_below_it():
    printed = [format_p(p) for p in (1.0, 0.05, 0.04995, 1 / 1001, 1 / 10001)]
    assert printed == ["1.000", "0.050", "<0.050", "<0.001", "<0.001"]


def test_p_and_interval_are_computed_independently_and_p_decides():
    after_N = np.zeros(90)
    after_N[:4] = 10.0
    found = paired_difference(after_N, np.zeros(90))
    assert found.low > 0, "four rises are in nearly every resample"
    assert found.p > 0.1 and not found.clear, "and one permutation in eight has all of them on one side"


def test_no_end_of_an_interval_and_no_p_is_set_to_its_limit():
    """An interval that was extended to zero had an end of exactly 0, and p of the bootstrap was cut at 0.05."""
    rng = np.random.default_rng(0)
    pairs = [paired_difference(rng.normal(0.3, 1, 40), rng.normal(0, 1, 40), seed=k) for k in range(300)]
    assert not [found for found in pairs if 0 in (found.low, found.high)]
    assert sum(0.05 <= found.p < 0.051 for found in pairs) < 5
    assert any(found.clear != (found.low > 0 or found.high < 0) for found in pairs), "the two may disagree"


def test_what_is_below_a_millionth_is_equal():
    """BLEU of the COCO tools adds 1e-15 to each count, so that two systems without a match differ by so little."""
    rng = np.random.default_rng(0)
    tiny_N = 1e-13 * rng.random(50)
    found = paired_difference(2 * tiny_N, tiny_N)
    assert (found.value, found.low, found.high, found.p, found.clear) == (0, 0, 0, 1, False)
    small = paired_difference(1e-4 * (1 + rng.random(50)), np.zeros(50))
    assert small.clear and places_for(2, (small.value,)) == 4


def test_an_interval_stays_within_the_range_of_its_statistic():
    """Student's interval of three captions' BLEU reaches beyond 0 and 100."""
    captions = ["a red cube on the tiles", "a red cube on the tiles", "a man"]
    stats_NC = bleu_stats(captions, [["a red cube on the tiles"]] * 3)
    for scale in (1.0, 100.0):
        interval = resample(Sums(stats_NC, lambda sums, scale=scale: scale * bleu_of(sums), (0.0, scale))).interval()
        assert 0 <= interval.low < interval.value < interval.high <= scale
        free = resample(Sums(stats_NC, lambda sums, scale=scale: scale * bleu_of(sums))).interval()
        assert free.low < 0 or free.high > scale, "else this shows nothing"


def test_no_zero_has_a_minus_sign():
    for values in ([-0.0, -0.0], [-1.0, 1.0, -0.0, 0.0] * 20):
        interval = mean_interval(np.array(values))
        assert not [number for number in astuple(interval) if number == 0 and math.copysign(1, number) < 0]


def test_equal_captions_have_no_interval_of_a_scale_s_width() -> None:
    """An unseen hit or miss is possible; CIDEr's 1,000 between two systems that agree everywhere is not an interval."""
    value_N = np.linspace(10, 90, 40)
    equal = paired_difference(value_N, value_N, bounds=(0.0, 1000.0))
    assert (equal.value, equal.low, equal.high, equal.p) == (0, 0, 0, 1)
    hits_N = np.where(value_N > 30, 100.0, 0.0)
    rare = paired_difference(hits_N, hits_N, bounds=(0.0, 100.0))
    assert rare.low < 0 < rare.high


@pytest.mark.parametrize("n", [2, 3, 12, 29])
def test_few_items_have_student_s_interval(n):
    values_2N = np.random.default_rng(n).gamma(2, 1, (2, n))
    theirs = scipy.stats.ttest_1samp(values_2N[0], 0).confidence_interval()
    found = mean_interval(values_2N[0])
    assert (found.low, found.high) == pytest.approx(tuple(theirs), rel=1e-4)
    theirs = scipy.stats.ttest_rel(*values_2N).confidence_interval()
    pair = paired_difference(*values_2N)
    assert (pair.low, pair.high) == pytest.approx(tuple(theirs), rel=1e-4)


def test_one_item_has_no_interval():
    found = mean_interval(np.array([3.0]))
    assert found.value == 3 and math.isnan(found.low) and math.isnan(found.high)


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_p_agrees_with_scipy(shift):
    rng = np.random.default_rng(3)
    a_N, b_N = rng.normal(shift, 1, 60).round(1), rng.normal(0, 1, 60).round(1)  # with ties
    theirs = scipy.stats.permutation_test(
        (a_N, b_N), lambda a, b, axis: (a - b).mean(axis), permutation_type="samples", n_resamples=20_000,
        vectorized=True, rng=0,
    )  # fmt: skip
    assert paired_difference(a_N, b_N, resamples=20_000).p == pytest.approx(theirs.pvalue, abs=0.015)


def test_ties_count_as_in_scipy():
    """Of eight equal differences one permutation in 128 is as far; scipy counts all of them."""
    ones_N = np.ones(8)
    exact = scipy.stats.permutation_test((ones_N, 0 * ones_N), lambda a, b: (a - b).mean(), permutation_type="samples")
    assert paired_difference(ones_N, 0 * ones_N, resamples=20_000).p == pytest.approx(exact.pvalue, abs=0.002)


def test_bleu_s_p_and_interval_agree_with_sacrebleu(monkeypatch):
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(12)]
    references = [" ".join(rng.choice(words, 9)) for _ in range(80)]

    def said(keep):
        return [" ".join(w if rng.random() < keep else rng.choice(words) for w in text.split()) for text in references]

    monkeypatch.setenv("SACREBLEU_SEED", "1")
    systems = {"base": said(0.7), "other": said(0.74)}
    bleu = BLEU(tokenize="none", smooth_method="none", max_ngram_order=2, references=[references])
    named = list(systems.items())
    theirs = PairedTest(named, {"BLEU": bleu}, references=None, test_type="ar", n_samples=10_000)()[1]["BLEU"][1]
    stats = [bleu_stats(captions, [[text] for text in references]) for captions in systems.values()]
    base, other = (Sums(own, lambda sums: 100 * bleu_of(sums, 2)) for own in stats)
    found = paired_resampled(other, base, resamples=10_000)
    assert found.p == pytest.approx(theirs.p_value, abs=0.02)
    low_high = PairedTest(named, {"BLEU": bleu}, references=None, test_type="bs", n_samples=10_000)()[1]["BLEU"]
    interval = resample(other, resamples=10_000).interval()
    assert low_high[1].score == pytest.approx(interval.value, abs=0.01)
    assert (interval.high - interval.low) / 2 == pytest.approx(low_high[1].ci, abs=0.15)


def test_bags_are_resampled_as_bags():
    """A listener that picks one picture of a bag by chance: R@1 of bags hardly varies, and p keeps its level."""
    rng = np.random.default_rng(0)
    bag_N = np.arange(300) // 3

    def one_of_three():
        return 100.0 * (np.arange(300) % 3 == np.repeat(rng.integers(3, size=100), 3))

    by_bag, by_picture = (mean_interval(one_of_three(), unit_N=u, bounds=PERCENT) for u in (bag_N, None))
    assert by_picture.high - by_picture.low > 2.5 * (by_bag.high - by_bag.low) and by_bag.n == 300
    found = []
    for seed in range(400):  # whole bags are told apart or are not
        a_N, b_N = (100.0 * np.repeat(rng.random(100) < 0.5, 3) for _ in range(2))
        found.append([paired_difference(b_N, a_N, unit_N=u, resamples=200, seed=seed).p < 0.05 for u in (bag_N, None)])
    by_bag_share, by_picture_share = np.mean(found, axis=0)
    assert 0.025 <= by_bag_share <= 0.075 and by_picture_share > 0.15


def test_holm_is_statsmodels_holm():
    p = [0.01, 0.04, NAN, 0.03, 0.005, 1.0, 0.04]
    known = [x for x in p if not math.isnan(x)]
    theirs = multipletests(known, method="holm")[1]
    assert [x for x in holm(p) if not math.isnan(x)] == pytest.approx(list(theirs)) and math.isnan(holm(p)[2])
    assert holm([]) == []
