"""Evaluation end to end: files to numbers, pairs, signatures, gallery; and every wrong request's one line."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scene_rates
from command_line import Cli
from PIL import Image
from real_data import DATA
from rich.console import Console

from tellapart import __version__
from tellapart.data import open_data
from tellapart.errors import UsageError
from tellapart.evaluation.candidate_sets import lookalike_sets
from tellapart.evaluation.context import EvalContext
from tellapart.evaluation.digests import short_digest
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.formats import latex, markdown, table
from tellapart.evaluation.gallery import caption_gallery, gallery
from tellapart.evaluation.matching import name_systems, read_references
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.retrieval import retrieve
from tellapart.evaluation.run_eval import check_options, run_eval
from tellapart.metrics.metric import Metric
from tellapart.metrics.registry import METRICS
from tellapart.metrics.result_cells import intervals_note, system_rows
from tellapart.metrics.results import Results
from tellapart.metrics.slots import CaptionSlot
from tellapart.metrics.terminal_table import terminal_table
from tellapart.report.comparable import differences
from tellapart.scenes import listener, scene_graph
from tellapart.scenes.claims import count_claims

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent; set TELLAPART_DATA")
COLOURS = ("red", "green", "blue", "white", "black", "brown", "grey", "pink", "gold", "violet", "orange", "cyan")


class ColourScorer:
    """A scorer whose features are written down: a text is the sum of its colours, a picture is its colours."""

    name = "models/colours"
    scale = 10.0
    cut_texts = 0
    window = 77
    encoder = SimpleNamespace(fingerprint="0123456789abcdef")

    def lengths(self, texts):
        return [len(text.split()) for text in texts]

    def text_features(self, texts):
        import torch

        counts = torch.tensor([[text.split().count(colour) for colour in COLOURS] for text in texts]).float()
        return torch.nn.functional.normalize(counts + 1e-9, dim=-1)


@pytest.fixture
def world():
    """120 pictures of two colours; system 'plain' names the first, 'rich' both, with a mistake in every fifth."""
    rng = np.random.default_rng(0)
    pairs = rng.permutation([(a, b) for a in range(12) for b in range(12) if a != b])[:120]
    colours = [(int(a), int(b)) for a, b in pairs]
    image_ND = np.array([[1.0 if c == a else 0.5 if c == b else 0.0 for c in range(12)] for a, b in colours])
    image_ND = image_ND + rng.normal(0, 0.05, image_ND.shape)
    plain = {f"p{n}": f"a {COLOURS[a]} thing" for n, (a, b) in enumerate(colours)}
    rich = {
        f"p{n}": f"a {COLOURS[a]} {COLOURS[a]} and {COLOURS[b]} thing" if n % 5 else "a thing of white white and green"
        for n, (a, b) in enumerate(colours)
    }
    return SimpleNamespace(
        systems={"plain": plain, "rich": rich},
        image_ND=(image_ND / np.linalg.norm(image_ND, axis=1, keepdims=True)).astype(np.float32),
        references={key: [text, text + " there", "a thing"] for key, text in plain.items()},
    )


def test_text_metrics_need_captions_only():
    results = evaluate({"a": {"1": "a red dog", "2": "a dog"}, "b": {"2": "dog dog", "1": "a dog"}})
    found = results.to_json()
    assert list(found["systems"]) == ["a", "b"]
    names = set(found["systems"]["a"])
    assert names >= {"length", "lexical_diversity", "vocabulary", "repetition_rate"}
    assert not any(METRICS[name].needs for name in names)
    length = found["systems"]["a"]["length"]
    assert (length["value"], length["low"], length["n"]) == (2.5, 0, 2) and length["high"] > 8  # t of one degree
    assert found["systems"]["b"]["repetition_rate"]["value"] == 25
    pair = next(pair for pair in found["pairs"] if pair["metric"] == "length")
    assert (pair["a"], pair["b"], pair["difference"], pair["n"]) == ("a", "b", -0.5, 2)  # b minus a, picture by picture
    assert results.values["b"]["length"].tolist() == [2, 2] and results.captions["b"] == ["a dog", "dog dog"]
    json.dumps(found, allow_nan=False)


def test_captions_without_ids_are_one_line():
    with pytest.raises(UsageError, match=r"the captions of 'b' are a list; expected a mapping of ids to captions"):
        evaluate({"a": {"1": "a dog"}, "b": ["a dog"]})  # type: ignore[dict-item]


def test_scorer_metrics_by_hand(world):
    scorer = ColourScorer()
    results = evaluate(world.systems, scorer=scorer, image_features=world.image_ND, chance=True, lookalike=5)
    for name, captions in world.systems.items():
        text_ND = scorer.text_features(captions.values()).numpy()
        score_NN = text_ND @ world.image_ND.T
        rank_N = [(score_NN[n, :100] > score_NN[n, n] + 1e-6).sum() for n in range(100)]
        found = results.systems[name]
        assert found["recall@1.random100"].value == pytest.approx(100 * np.mean(np.array(rank_N) < 1))
        assert found["recall@5.random100"].value == pytest.approx(100 * np.mean(np.array(rank_N) < 5))
        assert found["recall@1.random100"].n == 100 and found["recall@1.lookalike"].n == 120
        assert found["clipscore"].value == pytest.approx(250 * np.mean(np.maximum(np.diag(score_NN), 0)), rel=1e-5)
    assert results.systems["chance"]["recall@1.random100"].value == pytest.approx(1)
    assert "recall@5.random100-shuffled" not in results.signatures, "tokens per caption in the scorer's"
    assert results.systems["chance"]["recall@1.lookalike"].value == pytest.approx(20)
    assert "clipscore" not in results.systems["chance"]
    assert not any("chance" in (pair.a, pair.b) for pair in results.pairs)


def test_clipscore_is_never_negative_and_reads_the_prefix(world):
    class Recording(ColourScorer):
        seen: list[str] = []  # noqa: RUF012

        def text_features(self, texts):
            self.seen.extend(texts)
            return super().text_features(texts)

    scorer = Recording()
    results = evaluate(
        {"plain": world.systems["plain"]}, scorer=scorer, image_features=-world.image_ND, metrics=["clipscore"]
    )
    assert results.systems["plain"]["clipscore"].value == 0
    assert set(scorer.seen) == {f"A photo depicts a {colour} thing" for colour in COLOURS}


def test_signatures_name_what_matters(world):
    results = evaluate(
        world.systems, scorer=ColourScorer(), image_features=world.image_ND, references=world.references,
        human="first", lookalike=5, resamples=50, seed=3,
    )  # fmt: skip
    end = f"|tellapart:{__version__}|human:first|intervals:rare-events,50@3"
    signature = results.signatures
    assert signature["recall@1.random100"] == (
        f"recall@1|pools:random100-consecutive|order:{short_digest(results.ids)}|ties:hit|scorer:colours@01234567" + end
    )
    # Whoever reads the pictures in another order has other pools: another signature.
    turned = {name: dict(reversed(own.items())) for name, own in world.systems.items()}
    other = evaluate(
        turned, scorer=ColourScorer(), image_features=world.image_ND[::-1], metrics=["recall@1.random100"],
        resamples=50, seed=3,
    )  # fmt: skip
    assert other.signatures["recall@1.random100"] != signature["recall@1.random100"].replace("|human:first", "")
    assert "pools:lookalike5|ties:hit|scorer:colours@01234567" in signature["recall@1.lookalike"]
    assert signature["clipscore"].startswith("clipscore|2.5max(cos,0)x100|prefix:A photo depicts|scorer:colours@")
    assert set(signature) == set(results.systems["plain"])


def test_the_intervals_follow_the_seed_and_the_resamples(world):
    def low(**settings):
        return evaluate(world.systems, metrics=["length"], **settings).systems["rich"]["length"]

    assert low(seed=1) == low(seed=1) and low(seed=1, resamples=40) != low(seed=1)


def test_the_best_caption_is_the_one_that_the_scorer_prefers(world):
    """``METRIC.best`` is the metric of best-of-n, also where a corpus number is no mean, and for a held-out scorer."""
    systems = {"s": {key: [world.systems[name][key] for name in ("plain", "rich")] for key in world.references}}
    settings = {"image_features": world.image_ND, "references": world.references, "resamples": 20, "lookalike": 5}
    names = ["bleu4", "vocabulary", "recall@1.lookalike", "clipscore"]

    class Second(ColourScorer):
        name = "second"
        encoder = SimpleNamespace(fingerprint="fedcba9876543210")

    turned_ND = np.ascontiguousarray(world.image_ND[:, ::-1])
    held_out = {"second": (Second(), turned_ND)}
    results = evaluate(
        systems, scorer=ColourScorer(), metrics=[f"{name}.best" for name in names], eval_scorers=held_out, **settings
    )
    scorer, keys = ColourScorer(), list(world.references)
    score_SN = [
        np.einsum("nd,nd->n", scorer.text_features([systems["s"][key][k] for key in keys]).numpy(), world.image_ND)
        for k in range(2)
    ]
    chosen = {key: systems["s"][key][k] for key, k in zip(keys, np.argmax(score_SN, axis=0), strict=True)}
    assert len({systems["s"][key].index(text) for key, text in chosen.items()}) == 2
    alone = evaluate({"s": chosen}, scorer=scorer, metrics=names, eval_scorers=held_out, **settings)
    for name in (*names, "clipscore@second"):
        base, at, second = name.partition("@second")
        assert results.systems["s"][f"{base}.best{at}{second}"] == alone.systems["s"][name], name
    assert "|best-by:colours@01234567|" in results.signatures["clipscore.best@second"]
    with pytest.raises(UsageError, match=r"metric 'BLEU-4\.best' requires pictures"):
        evaluate(systems, references=world.references, metrics=["BLEU-4.best"])
    assert not any(name.endswith(".best") for name in evaluate(systems, scorer=scorer, **settings).systems["s"])


def test_human_is_a_reference_held_against_the_others(monkeypatch):
    references = {"1": ["one", "one two three"], "2": ["a", "a b", "a b c d e f"]}
    systems = {"s": {"1": "x", "2": "x"}}

    def length(human):
        return (
            evaluate(systems, references=references, metrics=["length"], human=human).values["human"]["length"].tolist()
        )

    assert length("first") == [1, 1]
    assert length("mean") == [2, 3]  # a picture's own mean, whatever the others have
    assert length("random")[0] in (1, 3) and length("random") == length("random")

    METRICS.builtin()
    monkeypatch.setitem(METRICS._entries, "held", Metric(name="held", factory=count_of_references))
    results = evaluate(systems, references=references, metrics=["held"], human="first")
    assert results.values["s"]["held"].tolist() == [2, 3] and results.values["human"]["held"].tolist() == [1, 2]
    alone = evaluate(systems, references={"1": ["one"], "2": ["a", "b"]}, metrics=["held"], human="first")
    assert "human" not in alone.systems and "only one" in alone.notes[0]


def count_of_references(captions, references):
    counts = np.array([len(held) for held in references], dtype=float)
    return counts.mean(), counts


def test_human_mean_of_a_corpus_metric_is_the_mean_over_reference_slots():
    references = {"1": ["a b", "a"], "2": ["c", "a"]}
    results = evaluate({"s": {"1": "x", "2": "x"}}, references=references, metrics=["lexical_diversity"], human="mean")
    assert results.systems["human"]["lexical_diversity"].value == pytest.approx((3 + 1) / 2 / 1000)
    pair = results.pairs[0]
    assert pair.difference.value == pytest.approx(0.001) and pair.b == "human"


def test_a_second_scorer_judges_the_same_lookalike_sets(world):
    class Second(ColourScorer):
        name = "second"

        def text_features(self, texts):
            return super().text_features(texts).flip(-1)

    noise = np.random.default_rng(1).normal(0, 0.4, world.image_ND.shape)
    seen_ND = (world.image_ND[:, ::-1] + noise).astype(np.float32)  # so that its own neighbours would be others
    results = evaluate(
        world.systems, scorer=ColourScorer(), image_features=world.image_ND, lookalike=5,
        eval_scorers={"second": (Second(), seen_ND)},
    )  # fmt: skip
    found = results.systems["rich"]
    assert "length@second" not in found and found["clipscore@second"].value != found["clipscore"].value
    signature = results.signatures["recall@1.lookalike@second"]
    assert "mined-by:colours@" in signature and "|scorer:second@" in signature
    text_ND = Second().text_features(world.systems["rich"].values()).numpy()
    expected_N = retrieve(lookalike_sets(world.image_ND, 5), text_ND, seen_ND).hit(1)
    np.testing.assert_array_equal(results.values["rich"]["recall@1.lookalike@second"], 100 * expected_N)


def test_paired_differences_agree_with_the_values(world):
    results = evaluate(world.systems, scorer=ColourScorer(), image_features=world.image_ND)
    pair = next(pair for pair in results.pairs if pair.metric == "recall@1.lookalike")
    difference_N = results.values["rich"]["recall@1.lookalike"] - results.values["plain"]["recall@1.lookalike"]
    assert pair.difference.value == pytest.approx(difference_N.mean()) and pair.difference.n == 120
    assert pair.difference.low < pair.difference.value < pair.difference.high and pair.difference.p < 0.01


def test_the_gallery_has_wins_losses_misses_and_hits(world):
    results = evaluate(world.systems, scorer=ColourScorer(), image_features=world.image_ND, references=world.references)
    found = gallery(results, k=20)
    assert json.loads(json.dumps(found)) == found and len(found["sets"]) == 20
    kinds = {}
    for one in found["sets"]:
        assert one["candidates"][0] == one["target"] and len(one["candidates"]) == 10
        assert one["references"] == world.references[one["target"]]
        for name, answer in one["systems"].items():
            assert answer["caption"] == world.systems[name][one["target"]]
            best = max(answer["scores"].values())
            assert answer["scores"][answer["picked"]] == pytest.approx(best, abs=2e-4)
        hits = tuple(one["systems"][name]["picked"] == one["target"] for name in ("plain", "rich"))
        kinds[hits] = kinds.get(hits, 0) + 1
    assert set(kinds) == {(False, True), (True, False), (False, False), (True, True)}
    assert kinds[False, True] > kinds[True, True]
    assert len({one["target"] for one in found["sets"]}) == 20
    assert gallery(evaluate(world.systems)) == {"sets": []}


def test_too_few_pictures_for_a_pool_are_said_not_hidden(world):
    systems = {"plain": dict(list(world.systems["plain"].items())[:60])}
    results = evaluate(systems, scorer=ColourScorer(), image_features=world.image_ND[:60])
    assert "recall@1.random100" not in results.systems["plain"] and "recall@1.lookalike" in results.systems["plain"]
    assert any("recall@1.random100" in note and "(at least 100 pictures" in note for note in results.notes)
    with pytest.raises(UsageError, match=r"'recall@1.random100' requires at least 100 pictures"):
        evaluate(systems, scorer=ColourScorer(), image_features=world.image_ND[:60], metrics=["recall@1.random100"])


def test_a_recall_that_every_caption_reaches_is_left_out(world):
    """R@5 among five candidates or fewer is always 100."""
    for lookalike, count in ((3, 120), (5, 120), (10, 5)):
        systems = {"plain": dict(list(world.systems["plain"].items())[:count])}
        options = {"scorer": ColourScorer(), "image_features": world.image_ND[:count], "lookalike": lookalike}
        results = evaluate(systems, **options)
        assert "recall@1.lookalike" in results.systems["plain"] and "recall@5.lookalike" not in results.systems["plain"]
        assert any("recall@5.lookalike (look-alike sets of more than 5" in n for n in results.notes)
        with pytest.raises(UsageError, match=r"'recall@5.lookalike' requires look-alike sets of more than 5 pictures"):
            evaluate(systems, **options, metrics=["recall@5.lookalike"])


@pytest.mark.parametrize(
    ("metric", "says"),
    [
        ("lenght", "unknown metric 'lenght'; did you mean 'length'?"),
        ("recall@1.lookalike", "metric 'recall@1.lookalike' requires pictures; add --data SPEC"),
        ("clipscore", "add --data SPEC"),
    ],
)
def test_a_metric_that_cannot_be_had_says_what_to_add(metric, says):
    with pytest.raises(UsageError) as error:
        evaluate({"a": {"1": "x"}}, metrics=["length", metric])
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"systems": {}}, "add --captions FILE"),
        ({"systems": {"a": {}}}, "no pictures to evaluate"),
        ({"systems": {"human": {"1": "x"}}}, "' is reserved for a reference system; rename"),
        (
            {"systems": {"a": {"1": "x"}, "b": {"2": "x"}}},
            "cover different pictures: 1 pictures have no caption ('1'), 1",
        ),
        ({"systems": {"a": {"1": "x"}}, "human": "first"}, "--human scores references; add --references"),
        ({"systems": {"a": {"1": "x"}}, "human": "last", "references": {"1": ["y"]}}, "one of first, random, mean"),
    ],
)
def test_wrong_requests(arguments, says):
    with pytest.raises(UsageError) as error:
        evaluate(**arguments)
    assert says in str(error.value) and "\n" not in str(error.value)


def test_a_corpus_number_that_is_no_mean_must_bring_its_statistic(world):
    metric = Metric(name="odd", factory=not_a_mean)
    with pytest.raises(Exception, match="register its statistic"):
        metric.measure(EvalContext(["1", "2"]), [CaptionSlot(["a", "b c"], [["a"], ["b"]])])


def not_a_mean(captions, references):
    return 7.0, np.array([1.0, 2.0])


def test_the_table_shows_every_system_metric_and_difference(world):
    results = evaluate(
        world.systems, scorer=ColourScorer(), image_features=world.image_ND, chance=True, references=world.references
    )
    console = Console(width=160, record=True, file=open(os.devnull, "w"))  # noqa: PTH123, SIM115
    console.print(terminal_table(results))
    text = console.export_text()
    assert all(name in text for name in ("plain", "rich", "chance", *results.signatures))
    found = results.systems["rich"]["length"]
    assert f"{found.value:.1f} [{found.low:.1f}, {found.high:.1f}]" in text
    (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["recall@1.random100"]][:1]
    assert row[1:3] == ["100", "100"], "pictures asked for, candidates"
    assert system_rows(results)[0] == ["n", "candidates", "plain", "rich", "chance"], "one column of chance"
    (row,) = [line.split() for line in text.splitlines() if line.split()[:1] == ["recall@5.lookalike"]][:1]
    assert row[1:3] == ["120", "10"] and "50.0" in row
    pair = next(pair for pair in results.pairs if pair.metric == "recall@1.lookalike")
    assert f"{pair.difference.value:+.2f}" in text


def test_results_say_which_pictures_and_among_how_many_candidates(world):
    """So that two results can be told to be of the same test, whatever the order of their pictures."""

    def found(systems, image_ND):
        return json.loads(json.dumps(evaluate(systems, scorer=ColourScorer(), image_features=image_ND).to_json()))

    value = found(world.systems, world.image_ND)
    assert value["candidates"]["recall@1.lookalike"] == {"fewest": 10, "most": 10, "chance": 10.0}
    assert value["candidates"]["recall@1.random100"] == {"fewest": 100, "most": 100, "chance": 1.0}
    assert "clipscore" not in value["candidates"]
    assert Results.from_json(value).to_json() == value
    turned = {name: dict(reversed(own.items())) for name, own in world.systems.items()}
    assert found(turned, world.image_ND[::-1])["pictures"] == value["pictures"]
    fewer = {name: dict(list(own.items())[:-1]) for name, own in world.systems.items()}
    assert found(fewer, world.image_ND[:-1])["pictures"] != value["pictures"]
    few = {name: dict(list(own.items())[:4]) for name, own in world.systems.items()}
    assert found(few, world.image_ND[:4])["candidates"]["recall@1.lookalike"] == {
        "fewest": 4, "most": 4, "chance": 25.0,
    }  # fmt: skip


# The exact truth of scenes.


def test_truth_metrics_are_those_of_the_truth_itself():
    items = list(open_data("scenes:plain?split=test&n=40&family=4"))
    true = {item.id: item.truth.description for item in items}
    said = {item.id: item.references[0] for item in items}
    false = dict(zip(true, list(true.values())[1:] + list(true.values())[:1], strict=True))  # of another picture
    results = evaluate({"true": true, "said": said, "false": false}, items=items)
    for name, captions in (("true", true), ("said", said), ("false", false)):
        judged = [count_claims(captions[item.id], item.truth) for item in items]
        each = scene_rates.caption_rates(judged)
        for metric, value in scene_rates.corpus_rates(judged).items():
            if metric != "repetition_rate":  # lexical here: it is measured on real pictures, too
                assert results.systems[name][metric].value == pytest.approx(value)
                np.testing.assert_allclose(results.values[name][metric], each[metric])
    assert results.systems["true"]["attribute_recall"].value == 100
    assert results.systems["true"]["scene_graph_f"].value == 100
    graph_N = [100 * scene_graph.scene_graph_f(item.references[0], item.truth).f for item in items]
    assert results.values["said"]["scene_graph_f"] == pytest.approx(graph_N) and 5 < np.mean(graph_N) < 95
    assert results.systems["false"]["hallucination_rate"].low > 0
    pair = next(pair for pair in results.pairs if (pair.b, pair.metric) == ("said", "attribute_recall"))
    assert pair.difference.high < 0 and pair.difference.p < 0.01


@pytest.mark.long
def test_what_kind_of_claim_is_forgotten_on_scenes(cli: Cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where --captioner writes its captions
    spec = "scenes:plain?split=test&n=40"
    page = tmp_path / "page.html"
    told = cli("eval", "--data", spec, "--captioner", "scenes", "--human", "mean", "--report", page, "--json")
    found = json.loads(told.out)
    for system, row in found["systems"].items():
        kinds = ("object", "colour", "size", "texture", "relation", "ground")
        recall = {kind: row[f"attribute_recall_{kind}"]["value"] for kind in kinds}
        # People and the terse captioner say where it is, and leave out how things look.
        assert recall["ground"] > max(recall["size"], recall["texture"]), (system, recall)
        assert {kind for kind in kinds if row[f"attribute_precision_{kind}"]["value"] is not None} >= {"ground"}
    assert "attribute_recall_motion" not in row and "attribute_recall_count" not in row
    assert found["metrics"]["attribute_recall_colour"]["group"] == "By type of claim"
    text = page.read_text(encoding="utf-8")
    assert "By type of claim" in text and "colour: recall" in text


def test_captions_that_claim_nothing_have_no_rate():
    items = list(open_data("scenes:plain?split=test&n=6"))
    results = evaluate({"mute": {item.id: "" for item in items}, "odd": {item.id: "hm" for item in items}}, items=items)
    found = results.to_json()
    assert found["systems"]["mute"]["attribute_precision"]["value"] is None
    assert found["systems"]["mute"]["attribute_recall"]["value"] == 0
    assert found["systems"]["mute"]["repetition_rate"]["n"] == 0
    json.dumps(found, allow_nan=False)
    terminal_table(results)


def test_the_gallery_marks_what_captions_claim_falsely_where_the_truth_is_known():
    items = list(open_data("scenes:plain?split=test&n=12&family=4"))
    systems = {"own": {i.id: i.truth.description for i in items}, "one": {i.id: "a red star and a ring" for i in items}}
    image_ND = np.random.default_rng(0).normal(size=(12, len(COLOURS))).astype(np.float32)
    image_ND /= np.linalg.norm(image_ND, axis=1, keepdims=True)
    results = evaluate(systems, items=items, scorer=ColourScorer(), image_features=image_ND)
    truths = {item.id: item.truth for item in items}
    sets = json.loads(json.dumps(gallery(results, items)))["sets"]
    for one in sets:
        own, other = one["systems"]["own"]["claims"], one["systems"]["one"]["claims"]
        assert own["correct"] == own["of"] > 4 and own["false"] == []
        judged = count_claims("a red star and a ring", truths[one["target"]])
        assert (other["correct"], other["of"]) == (judged.correct, judged.claims)
        assert all(
            "a red star and a ring"[start:end] in ("red", "star", "ring", "red star")
            for start, end, _ in other["false"]
        )
    assert sum(len(one["systems"]["one"]["claims"]["false"]) for one in sets) > 12
    plain = caption_gallery(evaluate(systems, items=items, metrics=["length"]), items)["sets"]
    assert plain[0]["systems"]["own"]["claims"]["false"] == [], "pictures without a scorer, too"
    assert all("claims" not in answer for one in gallery(results)["sets"] for answer in one["systems"].values())


def test_the_listener_hears_the_truth_among_lookalikes():
    items = list(open_data("scenes:plain?split=test&n=40&family=4"))
    pixels = np.stack([np.asarray(item.picture.image(), dtype=np.float32).ravel() for item in items])
    image_ND = pixels - pixels.mean(0)
    image_ND /= np.linalg.norm(image_ND, axis=1, keepdims=True)
    systems = {"true": {i.id: i.truth.description for i in items}, "mute": {i.id: "" for i in items}}
    results = evaluate(
        systems, items=items, scorer=ColourScorer(), image_features=image_ND, metrics=["listener_accuracy"],
        chance=True, lookalike=4, eval_scorers={"second": (ColourScorer(), image_ND)},
    )  # fmt: skip
    sets = lookalike_sets(image_ND, 4)
    expected = listener.listener_accuracy(
        list(systems["true"].values()), [[items[m].truth for m in members] for members in sets.sets]
    )
    found = results.systems
    assert found["true"]["listener_accuracy"].value == pytest.approx(expected[0]) and expected[0] > 90
    assert found["mute"]["listener_accuracy"].value == found["chance"]["listener_accuracy"].value == 25
    assert list(results.signatures) == ["listener_accuracy"]  # a second scorer has no say in it
    assert "mined-by:colours@" in results.signatures["listener_accuracy"]


def test_truth_needs_scenes():
    with pytest.raises(UsageError, match="requires pictures with known ground truth; add --data scenes:…"):
        evaluate({"a": {"1": "x"}}, metrics=["attribute_recall"])


# Files, as the command gives them.


@pytest.fixture
def files(tmp_path):
    (tmp_path / "before.txt").write_text("a dog\na cat\na bird\n")
    (tmp_path / "after.txt").write_text("a red dog\na cat\nbirds\n")
    (tmp_path / "references.txt").write_text("a dog\tthe dog\na cat\tone cat\na bird\tbirds\n")
    return tmp_path


def test_run_eval_names_systems_after_their_files(files):
    results = run_eval(
        EvalOptions([files / "before.txt", files / "after.txt"], files / "references.txt", human="first")
    )
    assert list(results.systems) == ["before", "after", "human"] and results.ids == ["1", "2", "3"]
    assert results.values["after"]["length"].tolist() == [3, 2, 1]
    assert {(pair.a, pair.b) for pair in results.pairs} == {("before", "after"), ("before", "human")}
    every = run_eval(
        EvalOptions([files / "before.txt", files / "after.txt"], files / "references.txt", human="first", pairs="all")
    )
    assert {(pair.a, pair.b) for pair in every.pairs} - {(pair.a, pair.b) for pair in results.pairs} == {
        ("after", "human")
    }
    with pytest.raises(UsageError, match="pairs is 'some'; expected one of first, all"):
        run_eval(EvalOptions([files / "before.txt"], files / "references.txt", pairs="some"))


def test_equal_stems_are_told_apart_by_their_folders(files):
    for folder in ("x", "y"):
        (files / folder).mkdir()
        (files / folder / "captions.txt").write_text("a dog\n")
    paths = [files / folder / "captions.txt" for folder in ("x", "y")]
    assert list(run_eval(EvalOptions(paths)).systems) == ["x/captions", "y/captions"]
    with pytest.raises(UsageError, match="same name"):
        run_eval(EvalOptions([paths[0], paths[0]]))


def test_what_does_not_match_is_an_error_or_a_note(files):
    texts = {"1": "a dog", "2": "a cat", "3": "a bird"}
    for name, count in (("whole", 3), ("short", 2), ("references", 3)):
        (files / f"{name}.json").write_text(json.dumps(dict(list(texts.items())[:count])))
    paths = [files / "whole.json", files / "short.json"]
    with pytest.raises(UsageError, match=r"short: 1 pictures in the ref.* have no caption \('3'\).*--allow-missing"):
        run_eval(EvalOptions(paths, files / "references.json"))
    results = run_eval(EvalOptions(paths, files / "references.json", allow_missing=True))
    assert results.ids == ["1", "2"] and any("short: 1 pictures" in note for note in results.notes)
    assert results.to_json()["notes"] == results.notes


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scorer": "scenes"}, "add --data SPEC"),
        ({"eval_scorers": ["scenes"]}, "also pass --scorer MODEL"),
        ({"scorer": "scenes", "eval_scorers": ["a/clip", "b/clip"]}, "--eval-scorer is given two scorers named 'clip'"),
        ({"query_encoder": "e5", "metrics": ["capture_like"]}, "query_encoder requires queries or soft claims"),
        ({"metrics": ["recall@1.lookalike"]}, "add --data SPEC"),
        ({"metrics": ["recal@1.lookalike"]}, "did you mean 'recall@1.lookalike'?"),
        ({"resamples": 0}, "expected at least 1"),
        ({"human": "first"}, "add --references FILE"),
    ],
)
def test_wrong_options(files, settings, says):
    with pytest.raises(UsageError) as error:
        run_eval(EvalOptions([files / "before.txt"], **settings))
    assert says in str(error.value)


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """24 pictures with references, one of them broken, and a small new scorer of transformers on disk."""
    import torch

    from tellapart.recipe.schema import NewScorer
    from tellapart.training.new_models import build_scorer

    folder = tmp_path_factory.mktemp("photos")
    rng = np.random.default_rng(0)
    rows = []
    for n in range(24):
        pixels = np.kron(rng.integers(0, 255, (4, 4, 3), dtype=np.uint8), np.ones((8, 8, 1), dtype=np.uint8))
        Image.fromarray(pixels).save(folder / f"{n}.png")
        rows.append({"id": str(n), "image": f"{n}.png", "captions": [f"picture {n} of noise", "noise"]})
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "captions.jsonl").write_text(
        "".join(json.dumps({"id": row["id"], "caption": row["captions"][0]}) + "\n" for row in rows)
    )
    torch.manual_seed(0)
    texts = [text for row in rows for text in row["captions"]]
    for name, width in (("scorer", 16), ("judge", 24)):
        new = NewScorer(
            width=width, text_width=32, text_layers=1, text_heads=2, projection=16, image_size=32, min_count=1
        )
        build_scorer(new, texts, name).save(folder / name)
    return folder


def test_run_eval_with_real_pictures_and_real_scorers(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path))
    results = run_eval(EvalOptions(
        [photos / "captions.jsonl"], data=f"jsonl:{photos / 'data.jsonl'}", scorer=str(photos / "scorer"),
        eval_scorers=[str(photos / "judge")], human="mean", chance=True, lookalike=4,
    ))  # fmt: skip
    found = results.systems["captions"]
    assert {"recall@1.lookalike", "clipscore", "recall@1.lookalike@judge", "length"} <= set(found)
    assert found["recall@1.lookalike"].n == 24 and "recall@5.lookalike" not in found
    assert results.systems["chance"]["recall@1.lookalike"].value == 25
    assert not math.isnan(results.systems["human"]["clipscore"].value)
    shown = gallery(results, results.extra["items"], k=6)["sets"]
    assert len(shown) == 6 and set(shown[0]["systems"]) == {"captions", "human"}
    assert len(set(shown[0]["candidates"])) == 4


def test_a_broken_picture_is_left_out_and_named(photos, tmp_path, monkeypatch):
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path))
    whole = (photos / "5.png").read_bytes()
    (photos / "5.png").write_bytes(whole[:60])
    try:
        results = run_eval(EvalOptions(
            [photos / "captions.jsonl"], data=f"jsonl:{photos / 'data.jsonl'}", scorer=str(photos / "scorer"),
            metrics=["clipscore"],
        ))  # fmt: skip
    finally:
        (photos / "5.png").write_bytes(whole)
    assert results.systems["captions"]["clipscore"].n == 23 and "5" not in results.ids
    assert any("5.png" in note and "1 of 24" in note for note in results.notes)


def test_data_and_a_reference_file_must_match(photos):
    (photos / "few.jsonl").write_text('{"id": "3", "references": ["noise"]}\n')
    command = ([photos / "captions.jsonl"], photos / "few.jsonl", f"jsonl:{photos / 'data.jsonl'}")
    with pytest.raises(UsageError, match="23 pictures in the data have no reference"):
        run_eval(EvalOptions(*command, min_overlap=0))
    with pytest.raises(UsageError, match="references and the data have only 1 of 24 ids"):
        run_eval(EvalOptions(*command, allow_missing=True))
    results = run_eval(EvalOptions(*command, allow_missing=True, min_overlap=0))
    assert results.ids == ["3"] and any("23 pictures" in note for note in results.notes)


def test_a_picture_without_a_reference_in_the_data_is_left_out_where_metrics_need_one(photos):
    rows = [json.loads(line) for line in (photos / "data.jsonl").read_text().splitlines()]
    rows[3]["captions"] = []
    (photos / "one-less.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = {"captions": [photos / "captions.jsonl"], "data": f"jsonl:{photos / 'one-less.jsonl'}"}
    with pytest.raises(UsageError, match=r"the data: 1 pictures have no reference \('3'\).*--allow-missing"):
        run_eval(EvalOptions(**command, metrics=["length", "cider"]))
    results = run_eval(EvalOptions(**command, metrics=["length", "cider"], human="first", allow_missing=True))
    assert results.systems["captions"]["length"].n == results.systems["human"]["cider"].n == 23
    assert "the data: 1 pictures have no reference ('3')" in results.notes
    without = run_eval(EvalOptions(**command, metrics=["length"], allow_missing=True))
    assert without.systems["captions"]["length"].n == 24  # no metric reads references


def test_a_blank_reference_is_none_and_a_picture_without_one_is_named(tmp_path):
    captions, references = tmp_path / "captions.jsonl", tmp_path / "references.jsonl"
    texts = {"1": "a dog runs on grass", "2": "a cat sleeps on a sofa", "3": "a bus on a street"}
    said = {"1": ["a dog runs on the grass"], "2": ["a cat on a sofa"], "3": ["a red bus in the street"]}
    captions.write_text("".join(json.dumps({"id": key, "caption": text}) + "\n" for key, text in texts.items()))

    def cider(known, **settings):
        references.write_text("".join(json.dumps({"id": k, "captions": v}) + "\n" for k, v in known.items()))
        return run_eval(EvalOptions([captions], references, metrics=["cider"], **settings))

    whole = cider(said).systems["captions"]["cider"].value
    padded = {key: [*texts, "", " "] for key, texts in said.items()}
    for found in (cider(padded), evaluate({"captions": texts}, references=padded, metrics=["cider"])):
        assert found.systems["captions"]["cider"].value == whole
        assert "references: ignoring 6 empty references ('1', '2', '3')" in found.notes
    for nothing in ([], [""], ["  "]):
        with pytest.raises(UsageError, match="references: 1 entries have no text \\('3'\\)"):
            cider({**said, "3": nothing})
        found = cider({**said, "3": nothing}, allow_missing=True)
        assert found.ids == ["1", "2"] and any("entries have no text" in note for note in found.notes)


def test_empty_captions_score_zero_and_are_named(tmp_path):
    said = {str(n): f"a dog runs on grass number {n}" for n in range(8)}
    (tmp_path / "said.json").write_text(json.dumps({**said, "3": "", "5": " "}))
    (tmp_path / "told.json").write_text(json.dumps(said))
    names = ["bleu4", "cider", "rouge_l", "meteor", "length", "facts_precision", "repetition_rate"]
    found = run_eval(EvalOptions([tmp_path / "said.json"], tmp_path / "told.json", metrics=names))
    assert found.notes == ["said: 2 of 8 captions are empty and score 0 ('3', '5')"]
    for name in ("cider", "rouge_l", "meteor", "length"):
        assert found.values["said"][name][[3, 5]].tolist() == [0, 0], name
        assert (found.values["said"][name][[0, 1, 2]] > 0).all(), name


@pytest.mark.parametrize("references", [{"1": ["a dog runs", "the dog"]}, {key: ["a dog runs"] for key in "12"}])
def test_a_cider_without_document_frequencies_is_explained_once(references):
    said = {"system": dict.fromkeys(references, "a dog runs"), "other": dict.fromkeys(references, "a dog")}
    found = evaluate(said, references=references, metrics=["cider", "cider_plain"], resamples=5)
    assert found.systems["system"]["cider"].value == 0
    assert [note.partition(":")[0] for note in found.notes if "every n-gram" in note] == ["cider, cider_plain"]
    if len(references) > 1:
        other = evaluate(said, references={**references, "1": ["a cat"]}, metrics=["cider"], resamples=5)
        assert not any("every n-gram" in note for note in other.notes)


@pytest.mark.parametrize("order", [["lines.txt", "ids.jsonl"], ["ids.jsonl", "lines.txt"]])
def test_references_with_and_without_ids_are_not_joined(tmp_path, order):
    (tmp_path / "lines.txt").write_text("a dog runs\na cat\n")
    (tmp_path / "ids.jsonl").write_text('{"id": "x", "captions": ["a dog"]}\n{"id": "y", "captions": ["a pet"]}\n')
    with pytest.raises(UsageError, match="txt: the 2 entries have no ids, but those of"):
        read_references([tmp_path / name for name in order])
    assert read_references([tmp_path / "lines.txt"] * 2).texts == {"1": ["a dog runs"] * 2, "2": ["a cat"] * 2}


def test_options_of_metrics_that_nobody_named_are_refused(tmp_path):
    (tmp_path / "captions.jsonl").write_text('{"id": "1", "caption": "a dog"}\n')
    (tmp_path / "synonyms.txt").write_text("dog, puppy\n")
    with pytest.raises(
        UsageError, match="synonyms is only used by metrics that must be requested by name; add --metrics chair_i"
    ):
        run_eval(EvalOptions([tmp_path / "captions.jsonl"], synonyms=tmp_path / "synonyms.txt"))
    with pytest.raises(UsageError, match="--llm-judge is only used by metrics that must be requested by name; add "):
        run_eval(EvalOptions([tmp_path / "captions.jsonl"], llm_judge="openai:m@http://127.0.0.1:9/v1"))


@pytest.mark.parametrize("metric", ["all", "Capture-Soft", "capture_soft.oracle"])
def test_a_query_encoder_serves_soft_claims_in_any_spelling(metric):
    check_options(EvalOptions(query_encoder="e5", metrics=[metric]))


def test_a_wrong_metric_is_told_before_anything_is_loaded(photos):
    data = f"jsonl:{photos / 'data.jsonl'}"
    with pytest.raises(UsageError, match="unknown metric 'lenght'"):
        run_eval(
            EvalOptions(
                [photos / "captions.jsonl"], data=data, scorer=str(photos / "no-such-scorer"), metrics=["lenght"]
            )
        )
    with pytest.raises(UsageError, match="add --scorer MODEL"):
        run_eval(EvalOptions([photos / "captions.jsonl"], data=data, metrics=["recall@1.lookalike"]))


def test_text_metrics_load_neither_torch_nor_scipy(files):
    code = (
        "import sys; from pathlib import Path; from tellapart.evaluation.run_eval import run_eval;"
        "from tellapart.metrics.terminal_table import terminal_table;"
        "from tellapart.evaluation.options import EvalOptions;"
        f"options = EvalOptions([Path({str(files / 'before.txt')!r})], Path({str(files / 'references.txt')!r}));"
        "terminal_table(run_eval(options));"
        "print([name for name in ('torch', 'transformers', 'scipy', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.data
@needs_data
def test_published_captions_give_the_figures_of_the_papers():
    captions = [DATA / f"published/clipcap_{name}_on_coco.txt" for name in ("coco", "concap")]
    results = run_eval(EvalOptions(captions, DATA / "published/references_coco_karpathy_test.txt", resamples=100))
    rich = run_eval(
        EvalOptions(
            [DATA / "published/capenrich_coco.json"], DATA / "annotations/coco_karpathy_test.json", resamples=100
        )
    )
    found = rich.systems["capenrich_coco"]
    assert (round(found["length"].value, 1), round(found["lexical_diversity"].value, 1)) == (
        13.3,
        1.5,
    )  # SMILE, table 1
    assert found["length"].n == 5000
    pair = next(pair for pair in results.pairs if pair.metric == "vocabulary")
    assert pair.difference.value == 217 and pair.difference.low > 0 and pair.difference.p < 0.02


@pytest.mark.parametrize(
    "key",
    ["div1", "div2", "mbleu", "clipsc", "refclipscore", "emscore_p", "emscore_r", "emscore_f", "ppl", "ppl_corpus"],
)
def test_the_report_explains_the_metric(key):
    assert METRICS.builtin()[key].info().label and METRICS.builtin()[key].info().help


def test_peoples_references_are_measured_alone(cli: Cli) -> None:
    """Of data that are references alone, such as boosted captions: each against the picture's others."""
    data = "scenes:plain?split=test&n=12"
    done = cli("eval", "--data", data, "--human", "mean", "--metrics", "length,bleu4", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)["systems"]
    assert list(found) == ["human"] and found["human"]["length"]["n"] == 12
    assert "Missing option '--captions'" in cli("eval", "--data", data).err


def test_captions_of_two_runs_are_told_apart_by_their_folders() -> None:
    """A run keeps ``captions/before.jsonl`` and ``captions/after.jsonl``, whatever it is called."""
    runs = [Path(f"runs/{run}/captions/{stage}.jsonl") for run in ("sr", "mle") for stage in ("before", "after")]
    assert list(name_systems(runs)) == [
        "sr/captions/before",
        "sr/captions/after",
        "mle/captions/before",
        "mle/captions/after",
    ]
    assert list(name_systems(runs[:2])) == ["before", "after"]
    assert list(name_systems([Path("a/x.jsonl"), Path("b/x.csv")])) == ["a/x", "b/x"] and name_systems([]) == {}
    for twice in ([runs[0], runs[0]], [Path("x.csv"), Path("x.jsonl")]):
        with pytest.raises(UsageError, match="two caption files have the same name"):
            name_systems(twice)


def test_the_same_captions_more_often_or_in_another_order_do_not_differ() -> None:
    """An unseen event cannot be: the interval of the difference is [0, 0], not one of the metric's range."""
    texts = {str(n): ["a dog on the grass", f"a cat on sofa {n}"] for n in range(40)}
    others = {key: own[::-1] * 2 for key, own in texts.items()}
    results = evaluate({"a": texts, "b": others}, metrics=["repetition_rate", "vocabulary", "length"])
    assert {pair.metric for pair in results.pairs} == {"repetition_rate", "vocabulary", "length"}
    for pair in results.pairs:
        difference = pair.difference
        assert (difference.value, difference.low, difference.high, difference.p) == (0, 0, 0, 1), pair.metric


def test_the_signature_depends_on_the_references_and_not_on_their_order() -> None:
    """Metrics with references have a hash of them; others, such as length, keep theirs."""
    systems = {"own": {"1": "a dog runs", "2": "a cat sleeps"}}
    references = {"1": ["a dog is running", "the dog"], "2": ["a cat naps"]}
    turned = {key: texts[::-1] for key, texts in reversed(references.items())}
    fewer, other = references | {"1": ["the dog"]}, references | {"2": ["a dog naps"]}

    def signatures(references: dict[str, list[str]], metric: str = "cider") -> str:
        return evaluate(systems, references=references, metrics=[metric], resamples=20).signatures[metric]

    first = signatures(references)
    assert re.search(r"\|references:[0-9a-f]{8}\|", first) and signatures(turned) == first
    assert len({first, signatures(fewer), signatures(other)}) == 3
    swapped = {"1": references["2"], "2": references["1"]}
    assert signatures(swapped) != first, "the same texts of other pictures"
    assert signatures(references, "length") == signatures(other, "length")
    runs = [
        Results.from_json(evaluate(systems, references=r, metrics=["cider"], resamples=20).to_json())
        for r in (references, other, turned)
    ]
    assert [reason.partition(" (")[0] for reason in differences(runs[0], runs[1], "cider")] == ["the references"]
    assert not differences(runs[0], runs[2], "cider")


def test_tables_name_the_procedures_of_their_intervals(world: SimpleNamespace) -> None:
    """Bootstrap percentiles, Student's t for few pictures, bounds for rare events; none for a single picture."""
    many = evaluate(world.systems, metrics=["length"], resamples=50)
    assert intervals_note(many) == "95% intervals (bootstrap)" and many.signatures["length"].endswith("bootstrap,50@0")

    few = {str(n): "a dog " + "runs " * n for n in range(1, 9)}
    results = evaluate({"few": few}, metrics=["length"], resamples=50)
    assert intervals_note(results) == "95% intervals (Student's t)"
    for text in (markdown(results), latex(results).replace("\\%", "%"), table(results)):
        assert "95% intervals (Student's t)" in " ".join(text.split()) and "bootstrap" not in text
    assert intervals_note(Results.from_json(results.to_json())) == intervals_note(results)

    mostly = {str(n): "a dog runs" for n in range(60)} | {"0": "a dog dog dog dog runs"}
    results = evaluate({"mostly": mostly}, metrics=["repetition_rate", "length"], resamples=50)
    assert "rare-events" in results.signatures["repetition_rate"]
    assert "rare events" in intervals_note(results)
    alone = evaluate({"one": {"1": "a dog"}}, metrics=["length"], resamples=50)
    assert intervals_note(alone) == "95% intervals" and "|intervals:none," in alone.signatures["length"]
