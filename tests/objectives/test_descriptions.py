"""Short captions out of descriptions: phrases of English, and what stands when claims are left out."""

from __future__ import annotations

import pytest

from tellapart.language.condensing import Description
from tellapart.language.inflection import article

SCENE = (
    "a large red ringed diamond is above a small blue star which is left of an orange moon "
    "and everything is on the sand"
)


def numbers(description: Description, *words: str) -> set[int]:
    """The numbers of these content words, each the first that is not taken yet."""
    found: set[int] = set()
    for word in words:
        found.add(next(n for n, text in enumerate(description.texts) if text == word and n not in found))
    return found


@pytest.mark.parametrize(
    ("kept", "caption"),
    [
        (("large", "red", "diamond", "sand"), "a large red diamond on the sand"),
        (("diamond", "above", "star"), "a diamond above a star"),
        (("diamond", "star"), "a diamond and a star"),
        (("blue", "left", "orange", "moon"), "a blue shape left of an orange moon"),
        (("diamond", "above", "left", "moon"), "a diamond and a moon"),  # "left of" was said of the star
        (("sand",), "a shape on the sand"),
        (("orange", "sand"), "an orange shape on the sand"),
        ((), ""),
    ],
)
def test_a_caption_of_the_kept_words_only(kept: tuple[str, ...], caption: str) -> None:
    description = Description(SCENE)
    assert description.condensed(numbers(description, *kept), "shape") == caption


@pytest.mark.parametrize(
    ("text", "kept", "caption"),
    [
        ("two dogs running in the snow", ("two", "dogs", "running", "snow"), "two dogs running in the snow"),
        ("two dogs running in the snow", ("two", "snow"), "two things in the snow"),
        ("a man in a red shirt rides a brown horse", ("man", "red", "horse"), "a man in a red thing and a horse"),
        ("a woman to the left of a tree", ("woman", "tree"), "a woman and a tree"),
        ("a woman to the left of a tree", ("woman", "left", "tree"), "a woman to the left of a tree"),
        ("a dog in front of two red cars", ("dog", "front", "red"), "a dog in front of red things"),
        ("a group of people in a street", ("group", "people", "street"), "a group of people in a street"),
        ("a group of people on an old street", ("people", "old", "street"), "people on an old street"),
        ("a large bowl of soup", ("soup",), "soup"),
        ("a large bowl of soup", ("large", "bowl", "soup"), "a large bowl of soup"),
        ("the cat, a black one, sleeps on the umbrella", ("cat", "umbrella"), "the cat on the umbrella"),
    ],
)  # fmt: skip
def test_english_of_photos(text: str, kept: tuple[str, ...], caption: str) -> None:
    description = Description(text)
    assert description.condensed(numbers(description, *kept)) == caption


def test_all_words_of_a_simple_caption_give_that_caption() -> None:
    for text in ("a large red star on the grass", "a small ring above an orange drop", "two black dogs in the water"):
        description = Description(text)
        assert description.condensed(set(range(len(description.words)))) == text


@pytest.mark.parametrize(
    ("text", "caption"),
    [
        ("a man riding a wave on top of a surfboard", ""),
        ("a woman's hand holding a cup", ""),
        ("a cat sits on a bench next to a dog", ""),
        ("a black and white dog runs in the grass", ""),
        ("A man in a red shirt and blue jeans is sitting on a bench", "a man in a red shirt and blue jeans on a bench"),
        ("In this picture we can see a man in a hat", "a man in a hat"),
        ("a man in a red shirt is holding a cup", "a man in a red shirt holding a cup"),
        ("a man is sitting, a dog", "a man sitting and a dog"),
    ],
)
def test_all_words_of_a_photos_caption(text: str, caption: str) -> None:
    description = Description(text)
    assert description.condensed(set(range(len(description.words)))) == (caption or text)


def test_parts_of_photos_captions_claim_no_more() -> None:
    wave, jeans = Description("a man riding a wave"), Description("a man in a shirt and blue jeans is sitting")
    assert wave.condensed(numbers(wave, "man", "riding")) == "a man"
    assert wave.condensed(numbers(wave, "riding", "wave")) == "a wave"
    assert jeans.condensed(numbers(jeans, "jeans", "sitting")) == "jeans"
    dog = Description("a black and white dog runs")
    assert dog.condensed(numbers(dog, "black", "runs")) == "a black thing runs"


def test_the_noun_that_leads_is_counted() -> None:
    description = Description("a cat on a bench")
    bench = numbers(description, "bench")
    assert description.nouns(bench) == ["thing", "bench"] and description.condensed(bench) == "a thing on a bench"


def test_articles_follow_their_word() -> None:
    assert [article(word) for word in ("orange", "uniform", "honest", "star")] == ["an", "a", "an", "a"]


def test_a_side_is_no_amount() -> None:
    description = Description("a large black dog left of a small cat on the grass")
    assert [description.texts[phrase.head] for phrase in description.phrases] == ["dog", "cat", "grass"]
    assert [phrase.link for phrase in description.phrases] == ["", "left of", "on"]
    assert description.condensed({1, 2, 3, 5, 6}) == "a black dog left of a cat on the grass"
