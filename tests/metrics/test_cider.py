"""CIDEr-D and plain CIDEr: against their definitions word by word; document frequencies and end tokens as chosen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plain_metrics as plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tellapart.errors import UsageError
from tellapart.metrics import CiderD, cider, cider_d, cider_plain
from tellapart.metrics.cider import END, DocumentFrequencies

WORDS = st.sampled_from(["a", "dog", "cat", "on", "the", "mat", "runs", "red"])
SENTENCE = st.lists(WORDS, max_size=9)
HELD = st.lists(SENTENCE, min_size=1, max_size=3)
PICTURES = st.lists(st.tuples(SENTENCE, HELD), min_size=1, max_size=6)

REFERENCES = [
    ["a red dog runs", "the dog is red"],
    ["a cat on the mat"],
    ["two birds in a tree", "birds", "some birds sit in the tree"],
    ["a red car on the street", "the car"],
]
CAPTIONS = ["a red dog", "a cat on the mat", "birds birds birds", "a dog in the street tonight"]
IDS = {
    word: 10 + number
    for number, word in enumerate(["<e>", "a", "red", "dog", "runs", "the", "is", "cat", "on", "mat", "two", "birds"])
}


def ids(text: str) -> list[int]:
    return [IDS.setdefault(word, 1000 + len(IDS)) for word in text.split()]


def cut(references: list[list[str]]) -> list[list[list[str]]]:
    return [[text.split() for text in held] for held in references]


@settings(max_examples=80, deadline=None)
@given(PICTURES)
def test_the_fast_paths_are_the_plain_ones(pictures: list[tuple[list[str], list[list[str]]]]) -> None:
    captions, references = [caption for caption, _ in pictures], [held for _, held in pictures]
    texts, told = [" ".join(c) for c in captions], [[" ".join(r) for r in held] for held in references]
    corpus, values = cider_d(texts, told)
    assert values == pytest.approx(plain.cider(captions, references), abs=1e-9)
    assert corpus == pytest.approx(values.mean())
    assert cider_plain(texts, told)[1] == pytest.approx(plain.cider(captions, references, plain=True), abs=1e-9)
    numbered = CiderD([[ids(text) for text in held] for held in told])
    assert numbered([ids(text) for text in texts]) == pytest.approx(values, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(PICTURES, st.lists(HELD, min_size=1, max_size=5))
def test_frequencies_of_a_training_set(
    pictures: list[tuple[list[str], list[list[str]]]], training: list[list[list[str]]]
) -> None:
    captions, references = [caption for caption, _ in pictures], [held for _, held in pictures]
    scorer = CiderD(
        [[" ".join(r) for r in held] for held in references], idf=[[" ".join(r) for r in held] for held in training]
    )
    wanted = plain.cider(captions, references, documents=training)
    assert scorer([" ".join(c) for c in captions]) == pytest.approx(wanted, abs=1e-9)


def test_one_picture_alone_scores_nothing() -> None:
    assert cider_d(["a dog"], [["a dog"]])[0] == 0


def test_a_caption_that_says_the_references_scores_ten() -> None:
    references = [["one two three four five"], ["six seven eight nine ten"]]
    assert cider_d([held[0] for held in references], references)[1] == pytest.approx([10, 10])


def test_clipping_and_length_penalty_are_what_parts_the_two() -> None:
    long = ["dog " * 9, *CAPTIONS[1:]]
    assert cider_plain(long, REFERENCES)[1][0] > 2 * cider_d(long, REFERENCES)[1][0] > 0


def test_samples_and_pictures() -> None:
    scorer = CiderD(REFERENCES)
    twice = [text for text in CAPTIONS for _ in range(2)]
    assert scorer(twice) == pytest.approx(np.repeat(cider_d(CAPTIONS, REFERENCES)[1], 2))
    assert scorer(["birds", "a cat"], [2, 1]) == pytest.approx(
        [scorer(["x", "x", "birds", "x"])[2], scorer(["x", "a cat", "x", "x"])[1]]
    )
    assert scorer([], []).shape == (0,)


def test_few_of_many_pictures_are_scored_as_among_all() -> None:
    # Below half of the pictures only theirs are looked through.
    many = [*REFERENCES, ["nothing", "."], *([f"picture {number} shows {number}"] for number in range(20))]
    said = [*CAPTIONS, "nothing", *(held[0] for held in many[5:])]
    whole, scorer = cider_d(said, many)[1], CiderD(many)
    for chosen in ([0, 1, 2, 3], [24], [3, 3, 0, 17], [4], list(range(25))):
        assert scorer([said[i] for i in chosen], chosen) == pytest.approx(whole[chosen])
    assert scorer(["dog"], [4]) == 0


@pytest.mark.parametrize("size", [1, 3, 24])
def test_pictures_in_blocks_score_as_all_at_once(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    many = [*REFERENCES, ["1 1/2 dogs", "no-break\u00a0space", ""], *([f"a {n} dog", f"{n}"] for n in range(20))]
    said = [*CAPTIONS, "", *(f"a {n} red dog runs" for n in range(20))]
    whole = [score(said, many)[1] for score in (cider_d, cider_plain)]
    twice = CiderD(many)([*said, *said], [*range(25), *range(25)])
    monkeypatch.setattr(cider, "_PICTURES_AT_ONCE", size)
    for score, value_N in zip((cider_d, cider_plain), whole, strict=True):
        assert score(said, many)[1] == pytest.approx(value_N, abs=1e-12)
    assert CiderD(many)([*said, *said], [*range(25), *range(25)]) == pytest.approx(twice, abs=1e-12)
    assert twice == pytest.approx(np.tile(whole[0], 2), abs=1e-12)


def test_the_batch_as_documents() -> None:
    scorer = CiderD(REFERENCES, idf="batch")
    shown = [0, 3]
    alone = plain.cider([CAPTIONS[i].split() for i in shown], [cut(REFERENCES)[i] for i in shown])
    assert scorer([CAPTIONS[i] for i in shown], shown) == pytest.approx(alone)
    # Samples of the same pictures do not make the pictures more.
    assert scorer([CAPTIONS[i] for i in [0, 0, 3]], [0, 0, 3]) == pytest.approx([alone[0], alone[0], alone[1]])
    assert "idf:batch" in scorer.signature


def test_the_end_token_is_a_word_where_it_is_asked_for() -> None:
    with_end = [[[*words, END] for words in held] for held in cut(REFERENCES)]
    wanted = plain.cider([[*text.split(), END] for text in CAPTIONS], with_end)
    scorer = CiderD(REFERENCES, end=True)
    assert scorer(CAPTIONS) == pytest.approx(wanted)
    assert scorer(CAPTIONS) != pytest.approx(CiderD(REFERENCES)(CAPTIONS))
    assert "end:in" in scorer.signature and "end:out" in CiderD(REFERENCES).signature


@pytest.mark.parametrize("end", [False, True])
def test_rows_of_token_ids_stop_at_the_end_token(end: bool) -> None:
    rows = [ids(text) for text in CAPTIONS]
    stop, width = 5, max(map(len, rows)) + 2
    padded = np.full((len(rows), width), 99)
    for number, row in enumerate(rows):
        padded[number, : len(row) + 1] = [*row, stop]
    told = [[ids(text) for text in held] for held in REFERENCES]
    scorer = CiderD(told, end=end, end_token=stop)
    wanted = CiderD(REFERENCES, end=end)(CAPTIONS)
    assert scorer(padded) == pytest.approx(wanted)
    assert scorer(padded.tolist()) == pytest.approx(wanted)
    assert scorer([np.array(row) for row in padded]) == pytest.approx(wanted)
    unfinished = scorer(rows)
    assert (unfinished == pytest.approx(wanted)) is not end


def test_words_that_no_reference_has_count_for_length_and_norm() -> None:
    scorer = CiderD([[ids(text) for text in held] for held in REFERENCES])
    strange = [ids(text) for text in CAPTIONS]
    strange[0] = [*strange[0], 1_000_000, 1_000_000, 777]
    texts = [f"{CAPTIONS[0]} zz zz yy", *CAPTIONS[1:]]
    assert scorer(strange) == pytest.approx(plain.cider([text.split() for text in texts], cut(REFERENCES)))


@pytest.mark.parametrize("numbers", [False, True])
def test_frozen_frequencies(tmp_path: Path, numbers: bool) -> None:
    training = [*REFERENCES, ["a man on a red horse", "horse"]]
    form = ids if numbers else str
    told, taught = ([[form(text) for text in held] for held in texts] for texts in (REFERENCES, training))
    live = CiderD(told, idf=taught)
    live.frequencies(taught, "five").save(tmp_path / "idf.json")
    frozen = CiderD(told, idf=DocumentFrequencies.load(tmp_path / "idf.json"))
    said = [form(text) for text in CAPTIONS]
    assert frozen(said) == pytest.approx(live(said), abs=1e-12)
    assert frozen(said) != pytest.approx(CiderD(told)(said))
    assert "idf:five,n=5" in frozen.signature


def test_files_that_are_something_else(tmp_path: Path) -> None:
    path = tmp_path / "idf.json"
    with pytest.raises(UsageError, match=r"cannot read document frequencies from .*idf\.json \("):
        DocumentFrequencies.load(path)
    path.write_text('{"a": 1}')
    with pytest.raises(UsageError, match="contains no document frequencies; expected"):
        DocumentFrequencies.load(path)
    CiderD(REFERENCES).frequencies(REFERENCES).save(path)
    path.write_text(path.read_text().replace("corenlp-3.4.1", "other"))
    with pytest.raises(UsageError, match="was counted with tokenizer '"):
        DocumentFrequencies.load(path)


def test_what_does_not_fit_is_said() -> None:
    scorer = CiderD(REFERENCES)
    with pytest.raises(UsageError, match="the same number of captions for each of 4 pictures, got 5 captions"):
        scorer(["a"] * 5)
    with pytest.raises(UsageError, match="Picture numbers must be between 0 and 3; got 0 to 4"):
        scorer(["a", "b"], [0, 4])
    with pytest.raises(UsageError, match="2 captions and 1 picture numbers"):
        scorer(["a", "b"], [0])
    with pytest.raises(UsageError, match="idf is 'corpus'"):
        CiderD(REFERENCES, idf="corpus")
    with pytest.raises(UsageError, match="end=True with token ids requires end_token;"):
        CiderD([[[1, 2]]], end=True)
    with pytest.raises(UsageError, match="document frequencies count texts with the end token, but the"):
        CiderD(REFERENCES, idf=CiderD(REFERENCES, end=True).frequencies(REFERENCES))
