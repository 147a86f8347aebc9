"""Length, diversity, vocabulary, repetition: hand-computed, and against the published figures."""

from __future__ import annotations

import itertools
import random
import time

import numpy as np
import pytest
from real_data import DATA

from tellapart.data.caption_files import read_caption_file, read_reference_file
from tellapart.metrics import lexical
from tellapart.metrics.registry import METRICS
from tellapart.scenes import Scenes

needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"{DATA} is absent; set TELLAPART_DATA")


def test_length_counts_words_not_punctuation():
    corpus, value_N = lexical.length(["A dog , running .", "", "it's a well-known dog"])
    assert value_N.tolist() == [3, 0, 4] and corpus == pytest.approx(7 / 3)


def test_lexical_diversity_keeps_case_and_strips_punctuation():
    assert lexical.lexical_diversity(["A dog.", "a dog", "Dog!"]) == (4 / 1000, None)  # A, dog, a, Dog


def test_vocabulary_counts_words_used_at_least_five_times_in_lower_case():
    captions = ["A dog runs", "a dog, runs", "a dog", "a Dog", "the dog a", "runs runs"]
    assert lexical.vocabulary(captions) == (2.0, None)  # a: 5, dog: 5, runs: 4


@pytest.mark.parametrize("metric", ["lexical_diversity", "vocabulary"])
def test_statistics_agree_with_counting_the_resampled_captions(metric):
    rng = np.random.default_rng(3)
    names = [f"w{k}" for k in range(60)]
    zipf = 1 / np.arange(1, 61)
    captions = [" ".join(rng.choice(names, 6, p=zipf / zipf.sum())) for _ in range(300)]
    statistic = METRICS[metric].score(captions)
    for weight_N in [np.ones(300), np.bincount(rng.integers(300, size=300), minlength=300), np.arange(300) < 9,
                     np.arange(300) > 290, np.zeros(300)]:  # fmt: skip
        weight_N = np.asarray(weight_N, dtype=float)
        drawn = [caption for caption, times in zip(captions, weight_N, strict=True) for _ in range(int(times))]
        assert statistic(weight_N) == getattr(lexical, metric)(drawn)[0]


@pytest.mark.parametrize(
    ("caption", "percent"),
    [
        ("a man in a red shirt and a red hat", 0),
        ("a black and white dog chases a white cat", 0),
        ("a small red square left of a large red circle on grass", 0),
        ("snow snow snow", 100 * 2 / 3),
        ("Snow, snow.", 50),
        ("square on grass square on grass", 50),
        ("a dog on grass on grass on grass", 100 * 4 / 8),
        ("dog snow brown dog", 25),
        ("a red dog on the grass and a red dog on the snow", 0),
        ("a dog runs in the snow while a dog runs in the snow", 100 * 6 / 13),
        ("a dog and a cat and a bird", 0),
        ("", float("nan")),
        ("...", float("nan")),
    ],
)
def test_repetition_by_hand(caption, percent):
    corpus, value_N = lexical.repetition_rate([caption])
    assert value_N[0] == pytest.approx(percent, nan_ok=True) and corpus == pytest.approx(percent, nan_ok=True)


def test_an_empty_caption_abstains_from_the_mean_of_repetitions():
    assert lexical.repetition_rate(["snow snow", "", "a dog"])[0] == pytest.approx(25)


@pytest.mark.data
@needs_data
def test_capenrich_has_the_length_and_the_diversity_of_table_1_of_paper_1():
    captions = [text for (text,) in read_caption_file(DATA / "published/capenrich_coco.json").texts.values()]
    assert round(lexical.length(captions)[0], 1) == 13.3
    assert round(lexical.lexical_diversity(captions)[0], 1) == 1.5


@pytest.mark.data
@needs_data
@pytest.mark.parametrize("name", ["flickr8k/Flickr8k.token.txt", "annotations/coco_karpathy_test.json"])
def test_people_hardly_repeat_themselves(name):
    captions = [text for texts in read_reference_file(DATA / name).texts.values() for text in texts]
    corpus, value_N = lexical.repetition_rate(captions)
    print(f"{name}: {corpus:.3f} % of the words of {len(captions):,} captions, {np.nansum(value_N > 0):.0f} with any")
    assert 0.01 < corpus < 0.05


@pytest.mark.parametrize("domain", ["plain", "alt"])
def test_a_full_and_true_description_is_no_repetition(domain):
    captions = [scene.description for scene in Scenes(100, domain=domain, split="test")]
    assert lexical.repetition_rate(captions)[0] < 0.5


def test_runs_that_follow_themselves_are_those_of_the_definition():
    rng = random.Random(0)
    for _ in range(400):
        size, kinds = rng.randint(2, 60), rng.choice([1, 2, 3, 8])
        said = [str(rng.randrange(kinds)) for _ in range(size)]
        if rng.random() < 0.5:
            said = (said[: rng.randint(1, size)] * 10)[:size] + said[:3]
        places = itertools.product(range(len(said)), range(1, len(said) // 2 + 1))
        runs = [(at + n, n) for at, n in places if said[at : at + n] == said[at + n : at + 2 * n]]
        repeated = {place for start, n in runs if start + n <= len(said) for place in range(start, start + n)}
        assert lexical._immediate_runs(said) == repeated


def test_fifty_thousand_words_take_seconds():
    rng = random.Random(0)
    for words in (["dog"], [f"w{number}" for number in range(40)]):
        caption = " ".join(rng.choices(words, k=50_000))
        started = time.process_time()
        rate = lexical.repetition_rate([caption])[0]
        assert time.process_time() - started < 20
        assert rate == pytest.approx(100 * (50_000 - len(words)) / 50_000)  # all but the first use of each word
