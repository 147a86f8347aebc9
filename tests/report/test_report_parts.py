"""The parts below the page: logs, curves, words, verdicts and sentences."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from explained import made_results
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sample_run import results

from tellapart.metrics.intervals import Interval
from tellapart.metrics.paired_tests import Difference
from tellapart.metrics.results import Results, SystemPair
from tellapart.report.curves import CURVE, Chart, charts, thin
from tellapart.report.folder import read_run
from tellapart.report.headline import headline
from tellapart.report.number_text import format_number
from tellapart.report.page import duration, moment
from tellapart.report.plot import nice_ticks
from tellapart.report.shown_metric import arrange, describe
from tellapart.report.system_comparison import compare


def made(**metrics: tuple[float, float, float]) -> Results:
    """Results of before and after: value, value, half the interval of the difference."""
    keys = {key.replace("R1", "recall@1.lookalike").replace("__", "@"): v for key, v in metrics.items()}
    systems = {name: {k: Interval(v[i]) for k, v in keys.items()} for i, name in enumerate(("before", "after"))}
    pairs = [
        {
            **{"a": "before", "b": "after", "metric": k, "difference": b - a, "low": b - a - h, "high": b - a + h},
            "p": 0.001 if abs(b - a) > h else 0.2,
        }
        for k, (a, b, h) in keys.items()
    ]
    return made_results(systems=systems, pairs=pairs)


def test_the_headline_follows_the_data() -> None:
    assert headline(made(R1=(40, 60, 5), hallucination_rate=(3, 2, 0.5)))[0] == (
        "R@1 among look-alikes rose from 40.0 to 60.0; no other metric clearly got worse."
    )
    fell = made(R1=(60, 40, 5))
    assert "fell from 60.0 to 40.0; no other metric was measured" in headline(fell)[0]
    assert headline(fell)[1] == "−20.0, 95% interval −25.0 to −15.0, p = 0.001"
    unclear = headline(made(R1=(40.5, 41.5, 5), repetition_rate=(1.5, 4.5, 1)))[0]
    assert unclear.startswith("R@1 among look-alikes did not clearly change, 40.5 to 41.5; ")
    assert unclear.endswith("; repetition got worse.")


def test_where_interval_and_p_disagree_p_decides() -> None:
    found = made(R1=(40, 42, 1.6), bleu4=(3e-13, 2e-13, 1e-14))
    found.pairs = [
        replace(pair, difference=replace(pair.difference, p=0.075 if pair.metric != "bleu4" else 0.001))
        for pair in found.pairs
    ]
    comparison = compare(found)
    assert comparison is not None and [c.verdict for c in comparison.changes] == ["unclear", "unclear"]
    assert comparison.changes[0].p_text == "p = 0.075"
    assert headline(found)[0].startswith("R@1 among look-alikes did not clearly change, 40.0 to 42.0; ")
    assert "+0.4 to +3.6, p = 0.075" in headline(found)[1]
    assert headline(found)[0].endswith("no other metric clearly got worse.")


def test_a_gain_that_the_second_scorer_does_not_see_is_doubted_in_the_headline() -> None:
    assert "; a second scorer does not confirm this" in headline(made(R1=(40, 60, 5), R1__judge=(40, 41, 5)))[0]
    assert "second scorer" not in headline(made(R1=(40, 60, 5), R1__judge=(40, 50, 5)))[0]


def test_one_system_alone_is_not_compared() -> None:
    lone = made_results(systems={"human": {"recall@1.random100": Interval(value=88.4, low=86.0, high=90.1)}})
    assert headline(lone)[0] == (
        "R@1 among 100 consecutive pictures is 88.4 for “human”; there is no other system to compare with."
    )
    assert headline(lone)[1] == "95% interval 86.0 to 90.1; 100 candidates, chance 1.0"
    assert compare(lone) is None


def test_a_pair_stored_the_other_way_round_is_turned() -> None:
    source = results()
    turned = json.loads(json.dumps(source))
    for pair in turned["pairs"]:
        pair.update(a="after", b="before", difference=-pair["difference"], low=-pair["high"], high=-pair["low"])
    straight, back = (compare(Results.from_json(r)) for r in (source, turned))
    assert straight == back


def test_other_names_are_compared_as_the_pairs_say_and_yardsticks_never() -> None:
    found = compare(made_results(**results(("mle", "reinforce"))))
    assert found is not None and (found.before, found.after) == ("mle", "reinforce")
    assert [c.metric.key for c in found.of("worse")] == ["hallucination_rate", "bleu4", "cider"]


def test_without_a_paired_test_nothing_is_clear() -> None:
    systems = {"before": {"bleu4": Interval(10, 9, 11)}, "after": {"bleu4": Interval(20, 19, 21)}}
    found = compare(made_results(systems=systems))
    assert found is not None and found.changes[0].verdict == "unclear"


def test_a_corrected_p_decides() -> None:
    found = made(R1=(40, 60, 5))
    found.pairs = [replace(p, difference=replace(p.difference, p=0.02, p_holm=0.08)) for p in found.pairs]
    comparison = compare(Results.from_json(found.to_json()))
    assert comparison is not None and comparison.changes[0].verdict == "unclear"
    assert comparison.changes[0].p_text == "p by Holm = 0.080"


def test_what_the_results_say_of_a_metric_goes_before_the_words_of_the_report() -> None:
    info = {"label": "Shouting", "help": "capital letters per caption", "direction": "lower", "group": "Other"}
    before, after = Interval(value=10, low=9, high=11), Interval(value=5, low=4, high=6)
    results = Results.from_json({"metrics": {"shouting": info, "bleu4": {"label": "BLEU, four"}}})
    results.systems = {"before": {"shouting": before, "bleu4": before}, "after": {"shouting": after, "bleu4": after}}
    fell = Difference(-5, -6, -4, 9, 0.01)
    results.pairs = [SystemPair("before", "after", key, fell) for key in ("shouting", "bleu4")]
    found = compare(results)
    assert found is not None
    shown = {change.metric.key: change for change in found.changes}
    assert shown["shouting"].metric.name == "Shouting" and shown["shouting"].verdict == "better"
    assert shown["bleu4"].metric.name == "BLEU, four" and shown["bleu4"].verdict == "neutral"


def test_metrics_are_described_in_words_and_keep_to_their_second_scorer() -> None:
    assert describe("recall@5.random100").name == "R@5 among 100 consecutive pictures"
    other = describe("recall@1.lookalike@judge-b")
    assert (other.name, other.scorer, other.direction) == ("R@1 among look-alikes, scorer “judge-b”", "judge-b", 1)
    assert describe("clipscore@judge").name == "CLIPScore, scorer “judge”"
    assert (describe("my_own").name, describe("my_own").direction) == ("my own", 0)
    keys = ["length", "recall@1.random100", "recall@1.lookalike", "recall@1.random100@j"]
    assert [m.key for m in arrange(map(describe, keys))] == [keys[1], keys[3], keys[2], keys[0]]


def test_numbers_read_well_and_never_hide_a_difference() -> None:
    assert (
        format_number(-0.04, 1) == "0.0"
        and format_number(-0.04, 2, signed=True) == "−0.04"
        and format_number(1234.6, 0) == "1,235"
    )
    assert format_number(None, 1) == "–" and format_number(float("nan"), 1) == "–"
    close = compare(made(R1=(41.2, 41.52, 0.3)))
    assert close is not None and close.changes[0].interval == "+0.02 to +0.62"  # +0.0 would read as touching zero


def test_rivals_are_compared_by_their_names_and_neither_got_better() -> None:
    rivals = Results.from_json(json.loads(json.dumps(made(R1=(40, 60, 5), hallucination_rate=(2, 3, 0.5)).to_json())
                                          .replace('"before"', '"mle"').replace('"after"', '"ours"')))  # fmt: skip
    assert headline(rivals)[0] == (
        "R@1 among look-alikes: 60.0 (“ours”), 40.0 (“mle”); “ours” is worse in hallucination."
    )
    for key in [*rivals.systems["mle"]]:
        if key.startswith("recall"):
            for found in rivals.systems.values():
                del found[key]
    assert headline(rivals)[0] == "Of 1 measure “ours” is better than “mle” in 0 and worse in 1."


def test_of_three_systems_the_best_is_the_headlines() -> None:
    found = made(R1=(40, 60, 5))
    found.systems = {"a": found.systems["before"], "b": {"recall@1.lookalike": Interval(50)},
                     "c": found.systems["after"]}  # fmt: skip
    [pair] = found.pairs
    found.pairs = [replace(pair, a="a", b="b"), replace(pair, a="a", b="c"), replace(pair, a="b", b="c")]
    comparison = compare(found)
    assert comparison is not None and (comparison.before, comparison.after) == ("a", "c")
    assert headline(found)[0].startswith("R@1 among look-alikes: 60.0 (“c”), 50.0 (“b”), 40.0 (“a”); ")


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # other tests may take the processor's time
@given(st.dictionaries(st.integers(0, 10**6), st.floats(-1e6, 1e6), min_size=1, max_size=400), st.integers(1, 150))
def test_thinning_loses_no_value(series: dict[int, float], points: int) -> None:
    buckets = thin(series, points)
    assert len(buckets) == min(points, len(series))
    assert (buckets[0].first, buckets[-1].last) == (min(series), max(series))
    assert all(a.last < b.first for a, b in pairwise(buckets))
    assert (min(b.low for b in buckets), max(b.high for b in buckets)) == (min(series.values()), max(series.values()))
    assert all(b.low - 1e-6 <= b.mean <= b.high + 1e-6 for b in buckets)


@given(st.floats(-1e5, 1e5), st.floats(1e-3, 1e5))
def test_ticks_are_few_and_inside(low: float, span: float) -> None:
    ticks = nice_ticks(low, low + span)
    assert 2 <= len(ticks) <= 9
    assert all(low - 1e-6 * span <= t <= low + span * (1 + 1e-6) for t in ticks)


def test_a_curve_stays_in_its_frame_and_marks_the_kept_checkpoint() -> None:
    chart = Chart("Validation R@1", {50: 40.0, 100: 68.0, 150: 61.0}, best=100)
    assert [bucket.text for bucket in chart.buckets] == ["step 50: 40", "step 100: 68", "step 150: 61"]
    assert chart.y(68) < chart.y(61) < chart.y(40)  # more is higher on the page
    assert all(0 <= chart.x(b.step) <= CURVE.width and 0 <= chart.y(b.mean) <= CURVE.height for b in chart.buckets)
    assert chart.y(1e6) == CURVE.top and chart.y(-1e6) == CURVE.height - CURVE.bottom
    assert "; the selected checkpoint, step 100, has 68" in chart.summary
    alone = Chart("Loss", {7: 0.0})
    assert alone.x(7) == pytest.approx((44 + CURVE.width - 10) / 2) and not alone.thinned


def log_of(run: Path, *lines: Any) -> Any:
    (run / "log.jsonl").write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return read_run(run).log


def test_the_log_keeps_the_later_line_of_a_step_and_leaves_out_what_is_no_number(run: Path) -> None:
    log = log_of(
        run,
        {"step": 1, "loss": 3.0, "text": "no", "flag": True},
        {"step": 1, "loss": 2.0},
        {"event": "validation", "step": 1, "recall@1": 40.0, "best": True},
        {"event": "validation", "step": 2, "recall@1": 41.0, "best": False},
        {"event": "checkpoint", "step": 2, "loss": 99.0},
        {"step": True, "loss": 98.0},
        {"step": 2, "loss": float("nan")},
        "{ torn",
        [1, 2],
    )
    assert log.training == {"loss": {1: 2.0}}
    assert log.validation == {"recall@1": {1: 40.0, 2: 41.0}}
    assert log.best_step == 1
    assert read_run(run).gaps == [
        "log.jsonl: 1 unreadable line(s) ignored.",
        "log.jsonl: 1 value(s) that are not finite are not drawn.",
    ]


def test_times_are_written_as_people_read_them() -> None:
    assert [duration(s) for s in (3.14, 59.2, 192, 7384)] == ["3.1 s", "59 s", "3 min 12 s", "2 h 3 min"]
    assert moment("2026-11-01T14:05:09Z") == "1 November 2026, 14:05 UTC"
    assert moment("yesterday") == "yesterday"


def test_the_first_curves_are_loss_reward_and_recall_or_else_the_validation_loss(run: Path) -> None:
    first, rest = charts(read_run(run).log)
    assert [c.title for c in first] == ["Loss", "Reward", "Validation R@1 among look-alikes"]
    assert [c.title for c in rest] == ["learning_rate", "Validation R@1 among 100 consecutive pictures"]
    log = log_of(run, {"step": 1, "loss": 3.0}, {"event": "validation", "step": 1, "loss": 2.5, "best": True})
    assert [c.title for c in charts(log)[0]] == ["Loss", "Validation loss"]
    values = {"recall@1.random32": 50.0, "recall@1.lookalike": 40.0, "my_metric": 1.0}  # of only 32 pictures
    rest = charts(log_of(run, {"event": "validation", "step": 1, **values}))[1]
    assert [c.title for c in rest] == ["Validation R@1 among 32 consecutive pictures", "Validation my metric"]
