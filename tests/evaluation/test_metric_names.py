"""What people type for a metric, and what they get for a name that is none."""

from __future__ import annotations

import json

import pytest
from command_line import Cli

from tellapart.errors import UsageError
from tellapart.evaluation.chosen_metrics import ALL, needs_of
from tellapart.evaluation.evaluate import evaluate
from tellapart.metrics.metric_names import normalized, resolve
from tellapart.metrics.registry import METRICS, in_order


@pytest.mark.parametrize(
    ("typed", "keys"),
    [
        ("CIDEr", ["cider"]),
        ("CIDEr-D", ["cider"]),
        ("Bleu_4", ["bleu4"]),
        ("BLEU-4", ["bleu4"]),
        ("B@4", ["bleu4"]),
        ("bleu", ["bleu1", "bleu2", "bleu3", "bleu4"]),
        ("ROUGE_L", ["rouge_l"]),
        ("ROUGE-L", ["rouge_l"]),
        ("METEOR", ["meteor"]),
        ("clip-s", ["clipscore"]),
        ("CLIPScore", ["clipscore"]),
        ("RefCLIP-S", ["refclipscore"]),
        ("ClipSc", ["clipsc"]),
        ("P@1", ["recall@1.random100"]),
        ("RD100", ["recall@1.random100-shuffled"]),
        ("R@1", ["recall@1.random100", "recall@1.random100-shuffled", "recall@1.lookalike", "recall@1.emscore"]),
        ("Div-1", ["div1"]),
        ("m-BLEU", ["mbleu"]),
        ("PPL", ["ppl"]),
        ("EMScore", ["emscore_p", "emscore_r", "emscore_f"]),
        ("Lexical Diversity", ["lexical_diversity"]),
    ],
)
def test_metrics_answer_to_the_names_of_the_coco_tools_and_of_the_papers(typed, keys):
    assert resolve(typed, in_order(METRICS.entries())) == keys


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("cedar wood", "; see --metrics list for all metrics"),
        ("sacrebleu-x", "; see --metrics list for all metrics"),
        ("cidre", "; did you mean 'cider'?"),
        ("metor", "; did you mean 'meteor'?"),
        ("halluc", "; did you mean 'hallucination_rate'?"),
        ("attribute_prec", "; did you mean 'attribute_precision'?"),
    ],
)
def test_a_metric_that_is_not_known_gets_a_near_name_or_none(typed, hint):
    with pytest.raises(UsageError) as error:
        evaluate({"a": {"1": "x"}}, metrics=[typed])
    assert str(error.value) == f"unknown metric '{typed}'{hint}"


def test_a_name_for_several_takes_those_that_can_be_had():
    assert list(
        evaluate({"a": {"1": "a dog", "2": "a cat"}}, metrics=["Length", "VOCAB"]).systems["a"]
    ) == ["length", "vocabulary"]  # fmt: skip


def test_no_name_stands_for_two_metrics():
    metrics = METRICS.entries()
    aliases = [alias for metric in metrics for alias in metric.aliases]
    families = {family for metric in metrics for family in metric.families}
    names = [*(normalized(metric.name) for metric in metrics), *aliases, *families]
    assert len(names) == len(set(names))
    assert all(name == normalized(name) for name in (*aliases, *families))


def test_every_metric_has_a_label_and_a_line_of_help():
    assert not [metric.name for metric in METRICS.entries() if not metric.label or not metric.help]


def test_the_list_of_metrics_needs_no_captions(cli: Cli) -> None:
    told = json.loads(cli("eval", "--metrics", "list", "--json").out)["metrics"]
    assert [one["name"] for one in told] == list(in_order(METRICS.entries())) and all(
        one["meaning"] and one["needs"] for one in told
    )
    shown = cli("eval", "--metrics", "LIST")
    assert shown.status == 0 and "refclipscore" in shown.out and "a scorer" in shown.out


def test_the_needs_of_names_are_those_of_their_metrics() -> None:
    """``.oracle`` and ``.best`` need what the metric needs; families and aliases are resolved; ``all`` if asked."""
    assert "references" in needs_of(["CIDEr.oracle"]) and "references" in needs_of(["cider.best"])
    assert "confidences" in needs_of(["Calibration"]) and "confidences" not in needs_of(["calibration_exact"])
    assert "confidences" in needs_of(["all"], ALL) and not needs_of(["all"]) and not needs_of(None, ALL)
