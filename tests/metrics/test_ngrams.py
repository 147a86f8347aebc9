"""Counted n-grams: the quick table finds what a dictionary finds, also where keys meet in a slot."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tellapart.metrics.cider import GramTable, Hashed

KEYS = st.lists(st.integers(0, 60) | st.integers(0, 2**62), unique=True, max_size=60)


@settings(max_examples=150, deadline=None)
@given(KEYS, KEYS)
def test_hashed_keys_are_found_and_others_are_not(keys: list[int], others: list[int]) -> None:
    known = {key: 100 + place for place, key in enumerate(keys)}
    table = Hashed(np.array(keys, np.int64), np.array(list(known.values()), np.int64))
    asked = [*others, *keys]
    assert table(np.array(asked, np.int64)).tolist() == [known.get(key, -1) for key in asked]


SENTENCES = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=7), max_size=6)


@settings(max_examples=60, deadline=None)
@given(SENTENCES, SENTENCES, SENTENCES)
def test_a_quickened_table_counts_the_same_and_still_learns(
    first: list[list[str]], then: list[list[str]], asked: list[list[str]]
) -> None:
    plain, quick = GramTable(), GramTable()
    plain.add(first), quick.add(first)
    quick.quicken()
    for sentences in (None, then):
        if sentences is not None:
            plain.add(sentences), quick.add(sentences)
        a, b = plain.look_up(asked), quick.look_up(asked)
        for name in ("sentence_E", "gram_E", "count_E", "length_M"):
            assert (getattr(a, name) == getattr(b, name)).all()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.sampled_from(["a", "b", "c", "1\u00a0½"]), max_size=6), max_size=6))
def test_texts_are_cut_at_once_as_each_alone(sentences: list[list[str]]) -> None:
    """A fraction is one token with a no-break space inside: two words, whichever way texts are cut."""
    texts = [" ".join(words) for words in sentences]
    one, other = GramTable(), GramTable()
    a, b = one.add_texts(texts), other.add([text.split() for text in texts])
    assert list(one.words) == list(other.words)
    for name in ("sentence_E", "gram_E", "count_E", "length_M"):
        assert (getattr(a, name) == getattr(b, name)).all()
