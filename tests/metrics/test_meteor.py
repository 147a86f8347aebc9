"""METEOR: its stages and formula on small tables, its search by brute force, and all of it against COCO's jar."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_tools import needs_tools
from command_line import Cli
from hostile import SENTENCE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from meteor_tables import write_tables
from test_overlap import PUBLISHED, published

from tellapart.errors import MissingExtra, TellapartError, UsageError
from tellapart.evaluation.evaluate import evaluate
from tellapart.metrics import meteor, meteor_score, meteor_tables, ptb_tokenize
from tellapart.metrics.corpus_scores import Sums
from tellapart.metrics.meteor_score import (
    Match,
    align,
    covered,
    meteor_counts,
    meteor_of,
    meteor_stats,
    normalise,
    score,
)

pytest.importorskip("snowballstemmer", reason="the extra 'meteor' is not installed")
needs_package = pytest.mark.skipif(
    importlib.util.find_spec("pycocoevalcap") is None, reason="METEOR's tables are in pycocoevalcap: pip install it"
)
METEORS = [27.50, 18.43, 13.29]  # of the rows of PUBLISHED, as the papers print them


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of a few words, in a cache of its own."""
    sources = write_tables(tmp_path / "tables")
    monkeypatch.setattr(meteor_tables, "_sources", lambda: sources)
    monkeypatch.setenv("TELLAPART_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "meteor"


def one(caption: str, *references: str) -> list[float]:
    return meteor_counts([caption], [list(references)])[0].tolist()


def stages(caption: str, reference: str) -> list[float]:
    """Words that each stage matched, in the caption and in the reference."""
    counts = one(caption, reference)
    return [sum(counts[place : place + 3 : 2]) for start in range(4, 20, 4) for place in (start, start + 1)]


# -- formula


def test_the_formula_by_hand(small: Path) -> None:
    # "a dog" of "a dog runs": P = 1, R = (.25 + .75)/(.25 + 1.5), one chunk of two words.
    precision, recall = 1.0, 1.0 / 1.75
    mean = precision * recall / (0.85 * precision + 0.15 * recall)
    corpus, (value,) = meteor(["a dog"], [["a dog runs"]])
    assert value == corpus == pytest.approx(mean * (1 - 0.6 * (1 / 2) ** 0.2))
    # A stem counts 0.6; matched words are the mean of both sides.
    assert meteor(["trombones"], [["trombone"]])[0] == pytest.approx(0.6 * (1 - 0.0))
    assert meteor(["trombones x"], [["trombone"]])[0] == pytest.approx(
        (p := 0.3) * (r := 0.6) / (0.85 * p + 0.15 * r) * (1 - 0.6 * 1.0)
    )


def test_an_equal_caption_scores_one_and_nothing_in_common_zero(small: Path) -> None:
    corpus, (value,) = meteor(["a dog on the sofa"], [["a dog on the sofa"]])
    assert corpus == value == 1
    assert meteor(["cat"], [["the sky"]])[0] == 0
    assert meteor(["", "cat"], [["a dog"], [""]])[1].tolist() == [0, 0]
    assert np.isnan(meteor([], [])[0])


def test_the_best_reference_counts_and_the_first_of_several(small: Path) -> None:
    assert meteor(["a dog"], [["the sky", "a dog", "dog"]])[0] == 1
    assert one("x", "y", "y z", "z")[:2] == [1, 1]  # all score 0
    assert one("a b", "c b", "b c d", "d b")[1] == 2
    # Both weigh 1.5 and match one word; the second one only looks as if it could match two.
    assert one("cat", "cat a a a", "cat cat")[1] == 4


def test_the_corpus_number_comes_from_sums(small: Path) -> None:
    captions = ["a dog runs", "the big trombones of a dog", "x", "a cat on the sofa"]
    references = [["a dog runs"], ["a large trombone of the dog", "dog"], ["y z"], ["a cat on the couch is big"]]
    counts_NC = meteor_counts(captions, references)
    summed = counts_NC.sum(0)
    summed[20] -= 1  # the first caption equals its reference: no chunk to be punished for
    corpus, values = meteor(captions, references)
    assert corpus == pytest.approx(score(summed.tolist())) and corpus != pytest.approx(values.mean(), abs=1e-3)
    often = [2, 0, 3, 1]
    repeated = [number for number, times in enumerate(often) for _ in range(times)]
    whole = meteor([captions[i] for i in repeated], [references[i] for i in repeated])[0]
    statistic = Sums(meteor_stats(captions, references), meteor_of)
    assert statistic(np.array(often, float)) == pytest.approx(whole)
    assert statistic(np.ones(4)) == pytest.approx(corpus)


# -- stages: what matches


@pytest.mark.parametrize(
    ("caption", "reference", "matched"),
    [
        ("dog", "dog", [1, 1, 0, 0, 0, 0, 0, 0]),
        ("trombones", "trombone", [0, 0, 1, 1, 0, 0, 0, 0]),
        ("big", "large", [0, 0, 0, 0, 1, 1, 0, 0]),
        ("mice", "rat", [0, 0, 0, 0, 1, 1, 0, 0]),  # an irregular form
        ("rats", "mouse", [0, 0, 0, 0, 1, 1, 0, 0]),  # a base form by rule
        ("franked", "dog", [0, 0, 0, 0, 1, 1, 0, 0]),  # the base form of a word that no table has
        ("dog", "mouse", [0, 0, 0, 0, 0, 0, 0, 0]),
        ("sofa", "couch", [0, 0, 0, 0, 0, 0, 1, 1]),
        ("couch", "sofa", [0, 0, 0, 0, 0, 0, 1, 1]),  # the table has it the other way
        ("next to", "beside", [0, 0, 0, 0, 0, 0, 2, 1]),
        ("many dog", "a lot of dog", [1, 1, 0, 0, 0, 0, 1, 3]),
        ("next x to", "beside", [0, 0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_what_matches(small: Path, caption: str, reference: str, matched: list[int]) -> None:
    assert stages(caption, reference) == matched


def test_a_pair_that_stands_in_the_table_both_ways_is_two_matches(small: Path) -> None:
    # Two matches are a choice, and in the search a paraphrase of one word does not pay for a chunk of its own.
    assert stages("boat", "ship") == [0] * 8
    assert stages("the boat", "the ship") == [1, 1, 0, 0, 0, 0, 1, 1]


# -- the search


def test_what_has_no_rival_is_taken_as_it_is() -> None:
    stem: Match = (1, 2, 1, 0, 1)
    assert align([[stem], []], 3) == [stem]


def test_a_choice_pays_in_whole_words() -> None:
    stem, synonym = (1, 0, 1, 0, 1), (2, 0, 1, 0, 1)
    assert align([[stem, synonym]], 1) == []  # ⌊0.6⌋ = ⌊0.8⌋ = 0 words, one chunk
    assert align([[stem, synonym], [(0, 1, 1, 1, 1)]], 2) == [stem, (0, 1, 1, 1, 1)]  # in another's chunk
    assert align([[(0, 0, 1, 0, 1), (0, 1, 1, 0, 1)]], 2) == [(0, 0, 1, 0, 1)]
    assert align([[(3, 0, 2, 0, 1), (3, 0, 1, 0, 1)]], 2) == [(3, 0, 2, 0, 1)]  # ⌊1.2⌋ words in the caption


def test_the_distance_of_what_is_passed_over_counts() -> None:
    # Caption "q", references' words 0 and 2 are "q": the first is taken, unless passing it over is free.
    def place(word: int) -> int:
        return align([[(0, word, 1, 0, 1)], [], [(0, word, 1, 2, 1)]], 4)[0][3]

    assert [place(word) for word in range(4)] == [2, 0, 0, 0]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_the_search_finds_the_most_words_in_the_fewest_chunks(data: st.DataObject) -> None:
    caption, reference = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    spans = [
        (first, size, at, width)
        for first, size in itertools.product(range(caption), (1, 2))
        for at, width in itertools.product(range(reference), (1, 2))
        if first + size <= caption and at + width <= reference
    ]
    some = data.draw(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(spans)), max_size=5))
    matches = sorted((stage, *span) for stage, span in some)
    rows = [[match for match in matches if match[3] == at] for at in range(reference)]
    # Words of both sides that only one match covers are taken for granted.
    sides = [[(side, place) for side, begin, end in _sides(match) for place in range(begin, end)] for match in matches]
    granted = {
        number
        for number, cells in enumerate(sides)
        if all(sum(cell in other for other in sides) == 1 for cell in cells)
    }
    best = min(
        (_worth([matches[number] for number in chosen]), 0)
        for count in range(len(matches) + 1)
        for chosen in itertools.combinations(range(len(matches)), count)
        if granted <= set(chosen) and len({c for n in chosen for c in sides[n]}) == sum(len(sides[n]) for n in chosen)
    )[0]
    assert _worth(align(rows, caption)) == best


def _sides(match: Match) -> list[tuple[int, int, int]]:
    _, first, size, at, width = match
    return [(0, first, first + size), (1, at, at + width)]


def _worth(taken: list[Match]) -> tuple[int, int]:
    taken = sorted(taken, key=lambda match: match[3])
    words = sum(covered(match[0], match[side]) for match in taken for side in (2, 4))
    ends = {(match[1] + match[2], match[3] + match[4]) for match in taken}
    return -words, sum((match[1], match[3]) not in ends for match in taken)


def test_beyond_forty_paths_the_search_forgets(small: Path) -> None:
    # The jar's own answers. Of n stems that could be taken in two places, a path may begin at each of 2n: from n = 20
    # on these, and the path that takes none, are more than forty, and the last of them is forgotten.
    words = [f"{begin}lorf{end}x" for begin in "bgkpt" for end in "aeiou"]
    for count, found in ((19, 0), (20, 20)):
        said = " ".join(f"{word}s" for word in words[:count])
        assert stages(f"{said} k {said}", " ".join(words[:count]))[2] == found


def test_a_paraphrase_pays_for_half_of_its_words() -> None:
    assert [covered(3, words) for words in range(1, 8)] == [0, 1, 1, 2, 2, 3, 3]
    five: Match = (3, 0, 5, 0, 1)
    two: list[Match] = [(0, 0, 1, 0, 1), (0, 1, 1, 1, 1)]  # two words each side in one chunk are more than five and one
    assert align([[five, two[0]], [two[1]]], 5) == two


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from("abcx"), min_size=1, max_size=90), st.lists(st.sampled_from("abcd"), max_size=5))
def test_matches_that_no_path_can_keep_change_nothing(caption: list[str], reference: list[str]) -> None:
    rows: list[list[Match]] = [
        [(0, place, 1, at, 1) for place, other in enumerate(caption) if other == word]
        + [(1, place, 1, at, 1) for place, other in enumerate(caption) if other == "x"]
        + [(3, place, 2, at, 1) for place in range(len(caption) - 1) if word == "a"]
        for at, word in enumerate(reference)
    ]
    usual = align(rows, len(caption))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meteor_score, "_MOST_ALIKE", 10_000)
        assert align(rows, len(caption)) == usual


# -- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a man 's hat", "a|man|'|s|hat"),
        ("do n't", "do|n|'t"),
        ("cloud-wreathed a-b-c", "cloud|wreathed|a|b-c"),
        ("a t.v. on", "a|tv|on"),
        ("the end .", "the|end|."),
        ("etc. x", "etc.|x"),
        ("mr. 5", "mr|.|5"),
        ("Mr. 5", "mr.|5"),
        ("No. 5", "no.|5"),
        ("fork/knife 1,000 a,b", "fork|/|knife|1,000|a|,|b"),
        ("1\u00a01/2 5:30", "1|1|/|2|5|:|30"),
        ("-lrb- x -rrb-", "-lrb-|x|-rrb-"),
        ("naïve 日本 é", "naïve|日|本|é"),
        ("x—y a–b", "x|—|y|a|-|b"),
        ("...", "..."),
        ("", ""),
    ],
)
def test_normalisation(text: str, words: str) -> None:
    assert "|".join(normalise(text, {"Mr", "etc"}, {"No"})) == words


# -- index


def test_the_index_is_built_once_and_mended_where_it_is_damaged(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meteor_tables.open_tables()
    (folder,) = small.iterdir()
    written = folder.stat().st_mtime_ns
    monkeypatch.setattr(meteor_tables, "_write", lambda *_: pytest.fail("built again"))
    meteor_tables.open_tables()
    assert folder.stat().st_mtime_ns == written
    monkeypatch.undo()


def test_a_damaged_index_is_built_again(small: Path) -> None:
    first = meteor_tables.open_tables().paraphrases.value.copy()
    (folder,) = small.iterdir()
    for name in ("paraphrases.value.npy", "meta.json"):
        file = folder / name
        file.write_bytes(file.read_bytes()[:-20])
        again = meteor_tables.open_tables()
        assert (again.paraphrases.value == first).all() and again.function_words
    assert [path.name for path in small.iterdir()] == [folder.name]


def test_a_build_that_fails_leaves_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(TellapartError, match=r"No space left on device\); set TELLAPART_CACHE"):
        meteor_tables.open_tables()
    assert not small.exists()


def test_other_tables_are_another_index(small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert meteor(["sofa"], [["bench"]])[0] == 0
    other = write_tables(tmp_path / "other", [("sofa", "bench")])
    monkeypatch.setattr(meteor_tables, "_sources", lambda: other)
    assert meteor(["sofa"], [["bench"]])[0] == pytest.approx(0.6)
    assert len(list(small.iterdir())) == 2


def test_the_index_is_of_the_cache_and_what_else_lies_there_is_not(small: Path, cli: Cli) -> None:
    meteor_tables.open_tables()
    held = sum(file.stat().st_size for file in meteor_tables.index_folder().iterdir())
    (small / ".making-killed").mkdir()
    (small / "my-own").mkdir()
    told = json.loads(cli("cache", "--json").out)
    assert held > 0 and told["meteor_bytes"] == told["bytes"] == held
    assert "METEOR's tables" in cli("cache").out
    assert json.loads(cli("cache", "--empty", "--json").out)["freed_bytes"] == held
    assert [path.name for path in small.iterdir()] == ["my-own"]
    assert json.loads(cli("cache", "--json").out)["bytes"] == 0


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"tellapart\[meteor\]"):
        meteor(["a"], [["a"]])
    with pytest.raises(MissingExtra, match="METEOR"):
        evaluate({"s": {"1": "a"}}, references={"1": ["a"]}, metrics=["meteor"], resamples=2)


def test_a_stemmer_that_stems_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import snowballstemmer

    class Newer:
        def stemWord(self, word: str) -> str:
            return word

    monkeypatch.setattr(snowballstemmer, "stemmer", lambda language: Newer())
    with pytest.raises(TellapartError, match=r"snowballstemmer>=2\.2,<3"):
        meteor_tables.english_stemmer.__wrapped__()


# -- command


def test_evaluation_prints_it_times_a_hundred_with_a_signature(small: Path) -> None:
    captions = {"1": "a dog runs on grass", "2": "a cat on a red sofa"}
    references = {"1": ["a dog runs on the grass", "dog"], "2": ["a cat on a couch", "the cat"]}
    results = evaluate({"s": captions}, references=references, metrics=["meteor"], resamples=50)
    interval = results.systems["s"]["meteor"]
    corpus = meteor(list(captions.values()), list(references.values()))[0]
    assert interval.value == pytest.approx(100 * corpus) and interval.low <= interval.value <= interval.high
    assert results.signatures["meteor"].startswith("meteor|1.5|en,norm|") and "tok:ptb" in results.signatures["meteor"]
    with pytest.raises(UsageError, match="1 captions and 2 lists"):
        meteor(["a"], [["a"], ["b"]])


def test_it_does_not_load_torch() -> None:
    script = "import tellapart.metrics.meteor_score, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# -- the real tables, and the jar


@needs_package
@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize(("row", "value"), list(zip(PUBLISHED, METEORS, strict=True)))
def test_the_published_rows(row: tuple[Any, ...], value: float) -> None:
    assert 100 * meteor(*published(*row[:2]))[0] == pytest.approx(value, abs=0.02)


class Jar:
    """pycocoevalcap's METEOR, on texts that its tokenizer has cut."""

    def __init__(self) -> None:
        from pycocoevalcap.meteor.meteor import Meteor

        self._tool = Meteor()

    def __call__(self, captions: list[str], references: list[list[str]]) -> tuple[float, np.ndarray]:
        told = iter(ptb_tokenize([text for held in references for text in held]))
        gts = {number: [next(told) for _ in held] for number, held in enumerate(references)}
        res = {number: [text] for number, text in enumerate(ptb_tokenize(captions))}
        corpus, values = self._tool.compute_score(gts, res)
        return corpus, np.array(values)


@pytest.fixture(scope="module")
def jar() -> Iterator[Jar]:
    yield Jar()


@needs_tools
@pytest.mark.oracle
@pytest.mark.data
@pytest.mark.long
@pytest.mark.parametrize("row", PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_every_published_caption_is_scored_as_the_jar_does(row: tuple[Any, ...], jar: Jar) -> None:
    captions, references = published(*row[:2])
    told, ours = jar(captions, references), meteor(captions, references)
    assert ours[0] == pytest.approx(told[0], abs=1e-9)
    assert np.abs(ours[1] - told[1]).max() < 1e-9


HURTING: list[tuple[list[str], list[list[str]]]] = [
    ([""], [["a dog"]]),
    (["a dog", "x"], [[""], ["x"]]),
    (["", "a dog"], [["", "a"], ["a dog", ""]]),
    (["dog"], [["dogs"]]),
    ([".", "!!!", "a (dog) [here] {now}"], [["..."], ["! ?"], ["a (dog)", "a {dog} now"]]),
    (["word " * 300, "a b"], [["word " * 7, "x"], ["a b c d"]]),
    (["a dog and a cat on the mat of a man " * 30], [["the man has a dog on a mat and the cat of a man " * 25]]),
    (["a 😀 dog", "日本語 の 猫", "naïve Привет"], [["a dog 😀"], ["日本語 猫", "cat"], ["naive", "привет naïve"]]),
    (['it\'s http://a.b/c "so" 1 1/2', "I don't"], [["it is 1 1/2 so"], ["i do not", "don't i"]]),
    (["a t.v. at 5:30 p.m.", "the U.S. no. 5"], [["tv at 5 pm"], ["the us number 5", "no. 5 in the u.s."]]),
    (["a young man's hot-dog stand"], [["the stand of a young man with hot dogs", "a hot dog"]]),
]


@needs_tools
@pytest.mark.oracle
@pytest.mark.long
@pytest.mark.parametrize(("captions", "references"), HURTING)
def test_input_that_hurts_is_scored_as_the_jar_does(captions: list[str], references: list[list[str]], jar: Jar) -> None:
    told, ours = jar(captions, references), meteor(captions, references)
    assert ours[1] == pytest.approx(told[1], abs=1e-9)
    assert ours[0] == pytest.approx(told[0], abs=1e-9)


# Words that meet in all stages, so that there is much to choose from.
_CROWD_TEXT = """year years yearly late later tardy dog dogs big large a a a the of on in is next to beside many lot
front boat ship ran running run race man men person people street road photo picture sitting seated"""
_CROWDED = st.lists(st.sampled_from(_CROWD_TEXT.split()), max_size=12).map(" ".join)


@needs_tools
@pytest.mark.oracle
@pytest.mark.long
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_CROWDED, st.lists(_CROWDED, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_any_choice_is_made_as_the_jar_makes_it(jar: Jar, pairs: list[tuple[str, list[str]]]) -> None:
    _as_the_jar(jar, pairs)


@needs_tools
@pytest.mark.oracle
@pytest.mark.long
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(SENTENCE, st.lists(SENTENCE, min_size=1, max_size=3)), min_size=1, max_size=4))
def test_any_sentence_is_scored_as_the_jar_does(jar: Jar, pairs: list[tuple[str, list[str]]]) -> None:
    _as_the_jar(
        jar, [(caption, [*references, caption[::-1], caption[: len(caption) // 2]]) for caption, references in pairs]
    )


def _as_the_jar(jar: Jar, pairs: list[tuple[str, list[str]]]) -> None:
    captions, references = [caption for caption, _ in pairs], [held for _, held in pairs]
    told, ours = jar(captions, references), meteor(captions, references)
    assert ours[1] == pytest.approx(told[1], abs=1e-9)
    assert ours[0] == pytest.approx(told[0], abs=1e-9)


def _paraphrases() -> list[tuple[str, str]]:
    """Pairs of the real table, as many of each pair of lengths, up to seven words."""
    by_size: dict[tuple[int, int], list[tuple[str, str]]] = {}
    with gzip.open(meteor_tables._sources()[1], "rt", encoding="utf-8") as lines:
        for _ in itertools.islice(lines, 150_000):
            pair = next(lines).strip(), next(lines).strip()
            if all(word.isalpha() and word.isascii() for word in " ".join(pair).split()):
                by_size.setdefault((len(pair[0].split()), len(pair[1].split())), []).append(pair)
    rng = random.Random(0)
    return [pair for pairs in by_size.values() for pair in rng.sample(pairs, min(20, len(pairs)))]


@needs_tools
@pytest.mark.oracle
@pytest.mark.long
def test_paraphrases_that_compete_are_chosen_as_the_jar_chooses_them(jar: Jar) -> None:
    rng, context = random.Random(0), ["a", "the", "cake", "dog", "is", "on", "of", "in", "made", "man", "red"]

    def some() -> str:
        return " ".join(rng.choices(context, k=rng.randint(0, 3)))

    captions, references = ["a cake is a dog"], [["a cake is made up of a dog"]]
    for one, other in _paraphrases():
        said, told = rng.sample([one, other], 2)
        before, after, again = some(), some(), rng.choice(said.split())
        captions.append(f"{before} {said} {after}")
        references.append([f"{before} {told} {after} {rng.choice(['', again])}", f"{some()} {told} {again} {after}"])
    assert len(captions) > 500
    told_corpus, told_values = jar(captions, references)
    corpus, values = meteor(captions, references)
    assert values.tolist() == told_values.tolist()  # to the last digit
    assert corpus == told_corpus
    assert values[0] == pytest.approx(0.3399, abs=1e-4)


@needs_tools
@pytest.mark.oracle
@pytest.mark.long
def test_references_that_score_alike_are_chosen_by_the_last_digit(jar: Jar) -> None:
    """Equal in exact arithmetic, so that the order of the jar's sums decides whose counts go into the corpus."""
    rng, words = random.Random(0), ["a", "the", "dog", "dogs", "big", "large", "man", "men", "on", "in"]
    captions, references = [], []
    for _ in range(600):
        caption = rng.choices(words, k=rng.randint(3, 7))
        captions.append(" ".join(caption))
        references.append([" ".join(rng.choices(words, k=rng.randint(2, 7))) for _ in range(5)])
    told_corpus, told_values = jar(captions, references)
    corpus, values = meteor(captions, references)
    assert values.tolist() == told_values.tolist()
    assert corpus == told_corpus


# -- length


@pytest.mark.long
def test_captions_of_twenty_thousand_words_take_seconds(small: Path) -> None:
    rng, words = random.Random(0), ["a", "dog", "dogs", "the", "big", "large", "boat", "ship", "is", "on", "of"]
    long = " ".join(rng.choices(words, k=20_000))
    other = " ".join(rng.choices(words, k=20_000))
    for caption, reference in ((long, "the big dog is on a ship"), ("the big dog is on a ship", long), (long, other)):
        started = time.process_time()
        value = meteor([caption], [[reference]])[0]
        assert 0 < value < 1 and time.process_time() - started < 6
