"""Div-1, Div-2 and mBLEU: by hand, against plain loops, and through files with several captions of a picture."""

from __future__ import annotations

import json
from collections import Counter
from math import exp

import numpy as np
import pytest

from tellapart.data.caption_alignment import align_lists
from tellapart.errors import UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.evaluation.options import EvalOptions
from tellapart.evaluation.run_eval import run_eval
from tellapart.metrics import bleu, cider_d, div1, div2, length, lexical_diversity, mbleu, ptb_tokenize
from tellapart.metrics.corpus_scores import Sums
from tellapart.metrics.diversity import COUNTS, mbleu_of, mbleu_stats

SENTENCE = "a small dog runs on the green grass near one red ball and two blue cats"


def said(rng: np.random.Generator, pictures: int = 12, each: int = 4) -> list[list[str]]:
    """Captions that leave out some words of one long sentence, so that pieces of it are shared."""
    return [
        [" ".join(word for word in SENTENCE.split() if rng.random() > 0.15) for _ in range(each)]
        for _ in range(pictures)
    ]


def test_div_counts_distinct_grams_over_words_by_hand() -> None:
    lists = [["A dog runs.", "a dog sits"], ["a cat", "the bird"]]
    corpus, value_N = div1(lists)
    assert value_N.tolist() == [4 / 6, 4 / 4] and corpus == pytest.approx(5 / 6)
    corpus, value_N = div2(lists)  # a-dog, dog-runs, dog-sits over six WORDS; a-cat, the-bird over four
    assert value_N.tolist() == [3 / 6, 2 / 4] and corpus == 0.5


def test_same_captions_are_not_diverse_and_a_mute_picture_abstains() -> None:
    same = "a dog runs on the grass"
    assert div1([[same] * 5])[0] == pytest.approx(6 / 30) and div2([[same] * 5])[0] == pytest.approx(5 / 30)
    assert mbleu([[same] * 5])[0] == pytest.approx(1)
    corpus, value_N = div1([["", ""], ["a b", "c"]])
    assert np.isnan(value_N[0]) and corpus == 1


def plain_bleu4(captions: list[str], references: list[list[str]]) -> float:
    """Corpus BLEU-4 written out: clipped counts, closest length, no smoothing."""
    matched, total, ours, theirs = [0] * 4, [0] * 4, 0, 0
    for caption, held in zip(captions, references, strict=True):
        words, others = caption.split(), [text.split() for text in held]
        ours += len(words)
        theirs += min((abs(len(other) - len(words)), len(other)) for other in others)[1]
        for n in range(4):
            grams = Counter(tuple(words[i : i + n + 1]) for i in range(len(words) - n))
            best: Counter[tuple[str, ...]] = Counter()
            for other in others:
                best |= Counter(tuple(other[i : i + n + 1]) for i in range(len(other) - n))
            matched[n] += sum((grams & best).values())
            total[n] += sum(grams.values())
    product = np.prod([m / t for m, t in zip(matched, total, strict=True)])
    return float(product**0.25 * min(1.0, exp(1 - theirs / ours)))


def test_mbleu_is_the_mean_of_the_slots_corpus_bleus() -> None:
    lists = said(np.random.default_rng(0), pictures=40)
    slots = [[texts[k] for texts in lists] for k in range(4)]
    others = [[[*texts[:k], *texts[k + 1 :]] for texts in lists] for k in range(4)]
    expected = [plain_bleu4(slot, held) for slot, held in zip(slots, others, strict=True)]
    corpus, value_N = mbleu(lists)
    assert corpus == pytest.approx(np.mean(expected), abs=1e-6) and 0 < corpus < 1
    alone = [bleu([texts[k]], [[*texts[:k], *texts[k + 1 :]]])[0] for k in range(4) for texts in lists[:1]]
    assert value_N[0] == pytest.approx(np.mean(alone))
    assert value_N.mean() != pytest.approx(corpus, abs=1e-3)  # and it is not the mean of the pictures' own


def test_mbleu_is_what_the_coco_tools_say_slot_by_slot(capsys) -> None:
    coco = pytest.importorskip("pycocoevalcap.bleu.bleu")
    lists = said(np.random.default_rng(4), each=5)
    found = [
        coco.Bleu(4).compute_score(
            {n: [*texts[:k], *texts[k + 1 :]] for n, texts in enumerate(lists)},
            {n: [texts[k]] for n, texts in enumerate(lists)},
            verbose=0,
        )[0][3]
        for k in range(5)
    ]
    assert mbleu(lists)[0] == pytest.approx(np.mean(found), abs=1e-9)


def test_mbleu_with_unequal_numbers_of_captions() -> None:
    lists = [["a dog runs on grass", "a dog runs on grass"], ["a cat sits"], ["x y z w", "x y z w", "x y z w v"]]
    corpus, value_N = mbleu(lists)
    assert np.isnan(value_N[1]) and not np.isnan(value_N[[0, 2]]).any()
    slots = [bleu(["a dog runs on grass", "x y z w"], [["a dog runs on grass"], ["x y z w", "x y z w v"]])[0]] * 2
    slots.append(bleu(["x y z w v"], [["x y z w", "x y z w"]])[0])  # third captions: one picture has one
    assert corpus == pytest.approx(np.mean(slots))
    assert np.isnan(mbleu([["a"], ["b"]])[0]) and np.isnan(mbleu([])[0])


def test_the_statistic_agrees_with_captions_drawn_again() -> None:
    rng = np.random.default_rng(1)
    lists = [texts[: 2 + number % 3] for number, texts in enumerate(said(rng))]  # 2, 3 or 4 captions
    statistic = Sums(mbleu_stats(lists), mbleu_of)
    for weight_N in (rng.integers(0, 3, len(lists)), np.arange(len(lists)) < 3, np.arange(len(lists)) < 2):
        drawn = [texts for texts, times in zip(lists, weight_N, strict=True) for _ in range(int(times))]
        assert statistic(np.asarray(weight_N, float)) == pytest.approx(mbleu(drawn)[0])
    assert np.isnan(statistic(np.zeros(len(lists))))


def test_one_text_in_place_of_a_list_is_told() -> None:
    with pytest.raises(UsageError, match="picture 1 has a single string instead of a list"):
        div1([["a dog"], "a cat"])  # type: ignore[list-item]


# Through evaluation and files.


def test_systems_with_several_captions() -> None:
    rng = np.random.default_rng(2)
    lists, fewer = said(rng, each=4), said(rng, each=3)
    ids = [str(n) for n in range(len(lists))]
    systems = {
        "four": dict(zip(ids, lists, strict=True)),
        "three": dict(zip(ids, fewer, strict=True)),
        "one": {key: texts[0] for key, texts in zip(ids, lists, strict=True)},
    }
    results = evaluate(systems, resamples=50)
    found = results.systems
    for metric, corpus in (("div1", div1(lists)[0]), ("div2", div2(lists)[0]), ("mbleu", mbleu(lists)[0])):
        assert found["four"][metric].value == pytest.approx(corpus)
        assert found["four"][metric].low < corpus < found["four"][metric].high
        assert metric not in found["one"]
        pairs = [(pair.a, pair.b) for pair in results.pairs if pair.metric == metric]
        assert pairs == [("four", "three")]
    pair = next(pair for pair in results.pairs if pair.metric == "mbleu")
    assert pair.difference.value == pytest.approx(mbleu(fewer)[0] - mbleu(lists)[0])
    assert pair.difference.low < pair.difference.value < pair.difference.high
    # A metric of one caption is the mean over a picture's captions (paper 4 on CIDEr).
    lengths = [length([texts[k] for texts in lists])[1] for k in range(4)]
    np.testing.assert_allclose(results.values["four"]["length"], np.mean(lengths, axis=0))
    assert found["one"]["length"].value == pytest.approx(lengths[0].mean())
    assert "|captions:3,4|" in results.signatures["length"] and "|captions:3,4" in results.signatures["mbleu"]
    assert "tok:ptb:" in results.signatures["div1"] and results.digits("mbleu") == 2
    assert {"div1", "mbleu"} <= set(json.loads(json.dumps(results.to_json()))["systems"]["three"])
    # A corpus number of captions, too: every slot's own, meaned, and pairs of unequally many slots.
    slots = [[texts[k] for texts in lists] for k in range(4)]
    expected = np.mean([lexical_diversity(slot)[0] for slot in slots])
    assert found["four"]["lexical_diversity"].value == pytest.approx(expected)
    pair = next(p for p in results.pairs if (p.a, p.b, p.metric) == ("four", "three", "lexical_diversity"))
    assert pair.difference.value == pytest.approx(found["three"]["lexical_diversity"].value - expected)


def test_people_are_measured_for_diversity_when_asked() -> None:
    references = {"1": ["a dog", "the dog", "dogs"], "2": ["a cat", "one cat"]}
    systems = {"s": {"1": "a dog", "2": "a cat"}}
    assert "div1" not in evaluate(systems, references=references, human="mean", resamples=9).signatures
    found = evaluate(systems, references=references, human="mean", metrics=["div1"], resamples=9).systems
    assert found["human"]["div1"].value == pytest.approx(div1(list(references.values()))[0])
    assert found.get("s") is None


def test_a_file_with_several_captions_reaches_the_metrics(tmp_path) -> None:
    (tmp_path / "five.jsonl").write_text(
        '{"id": 1, "captions": ["a dog runs", "a dog"]}\n{"id": 2, "captions": ["a cat", "one cat sits"]}\n'
    )
    (tmp_path / "rows.json").write_text(
        json.dumps([{"image_id": i, "caption": t} for i, t in ((1, "a"), (2, "b c"), (2, "d"), (1, "e f"))])
    )
    (tmp_path / "references.json").write_text(json.dumps({"1": "a dog runs", "2": "a cat"}))
    results = run_eval(
        EvalOptions([tmp_path / "five.jsonl", tmp_path / "rows.json"], tmp_path / "references.json", resamples=9)
    )
    assert results.systems["five"]["div1"].value == pytest.approx((3 / 5 + 4 / 5) / 2)
    assert results.systems["rows"]["length"].value == 1.5 and "bleu4" in results.systems["five"]
    assert any("five: 2 captions per picture" in note for note in results.notes)
    with pytest.raises(UsageError, match="'div1' requires several captions per picture; pass a caption file"):
        (tmp_path / "one.txt").write_text("a\nb\n")
        run_eval(EvalOptions([tmp_path / "one.txt"], metrics=["div1"]))


def test_ids_with_unequal_numbers_are_trouble() -> None:
    uneven = {"1": ["a", "b", "c"], "2": ["d", "e"]}
    with pytest.raises(UsageError, match=r"s: 1 ids have more than 2 captions \('1'\).*--allow-missing"):
        align_lists(uneven, uneven, name="s")
    lists, notes = align_lists(uneven, uneven, allow_missing=True)
    assert lists == {"1": ["a", "b"], "2": ["d", "e"]} and len(notes) == 2
    with pytest.raises(UsageError, match=r"1 ids have several captions \('1'\)"):
        align_lists({"1": ["a", "b"], "2": "c"}, ["1", "2"])
    notes = align_lists({"1": ["a", " "], "2": ["c", "d"]}, ["1", "2"])[1]
    assert "captions: 1 of 2 captions are empty and score 0 ('1')" in notes


def test_mbleu_cuts_every_caption_once() -> None:
    # An initial at a line's end looks at the next line: tokenized anew in each list, it would flip.
    lists = [["a Wii U.", "A Wii U.", "a dog"], ["a dog", "a cat", "a dog"]]
    said = iter(ptb_tokenize([text for texts in lists for text in texts]))
    cut = [[next(said) for _ in texts] for texts in lists]
    assert cut[0] == ["a wii u", "a wii u.", "a dog"]
    counts = mbleu_stats(lists).reshape(len(lists), -1, COUNTS + 1)
    for number, texts in enumerate(cut):
        for slot, text in enumerate(texts):
            others = [other.split() for other in texts[:slot] + texts[slot + 1 :]]
            matched = sum(min(text.split().count(w), max(o.count(w) for o in others)) for w in set(text.split()))
            assert counts[number, slot, 6] == matched


def test_the_oracle_is_the_best_of_a_pictures_captions() -> None:
    captions = {"1": ["a dog runs", "a cat", "the dog"], "2": ["a car", "a red car on a road", "the red car"]}
    references = {"1": ["a dog is running", "the dog"], "2": ["a red car on the road", "one car"]}
    results = evaluate(
        {"s": captions}, references=references, metrics=["CIDEr-D.oracle", "bleu4.oracle", "cider"], resamples=20
    )
    slots = [cider_d([texts[k] for texts in captions.values()], list(references.values()))[1] for k in range(3)]
    own = results.systems["s"]
    assert own["cider.oracle"].value == pytest.approx(100 * np.max(slots, axis=0).mean())
    assert own["cider"].value == pytest.approx(100 * np.mean(slots)) and own["cider"].value < own["cider.oracle"].value
    info = results.metrics["cider.oracle"]
    assert info.label == "CIDEr, best caption" and info.direction == "higher"
    assert "best-of-captions,mean-of-pictures|" in results.signatures["cider.oracle"]
    assert "|captions:3|" in results.signatures["cider.oracle"]
    alone = {"s": {key: texts[0] for key, texts in captions.items()}}
    with pytest.raises(UsageError, match=r"'cider\.oracle' requires several captions per picture"):
        evaluate(alone, references=references, metrics=["cider.oracle"], resamples=5)
    with pytest.raises(UsageError, match="lexical_diversity does not score single captions, so it"):
        evaluate({"s": captions}, metrics=["lexical_diversity.oracle"], resamples=5)
    assert not any("oracle" in name for name in evaluate({"s": captions}, resamples=5).systems["s"])
