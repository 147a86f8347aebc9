"""The generic extractor on captions as people and models write them."""

from __future__ import annotations

import pytest

from tellapart.language.claims import Extraction, extract

pytest.importorskip("HanTa")


def objects(found: Extraction) -> dict[str, list[str]]:
    return {mention.lemma: [attribute.lemma for attribute in mention.attributes] for mention in found.mentions}


def relations(found: Extraction) -> list[tuple[str, ...]]:
    name = [mention.lemma for mention in found.mentions]
    return [(name[r.subject], r.lemma, *(name[number] for number in r.objects)) for r in found.relations]


def test_a_long_caption() -> None:
    found = extract(
        "The image shows a golden retriever lying on green grass next to a small orange ball. The retriever's collar "
        "is blue. In the background, there are several tall trees and a white fence."
    )
    assert objects(found) == {
        "retriever": ["golden", "lie"],
        "grass": ["green"],
        "ball": ["small", "orange"],
        "collar": ["blue"],
        "tree": ["tall"],
        "fence": ["white"],
    }
    assert ("retriever", "on", "grass") in relations(found) and ("retriever", "have", "collar") in relations(found)


def test_a_verb_is_of_the_subject_of_its_clause() -> None:
    found = extract("A young boy in a red shirt is riding a skateboard near two women.")
    assert objects(found)["boy"] == ["young"] and objects(found)["shirt"] == ["red"]
    assert relations(found)[:2] == [("boy", "in", "shirt"), ("boy", "ride", "skateboard")]
    assert next(mention for mention in found.mentions if mention.lemma == "woman").count == 2


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("a star to the left of a moon", ("star", "to the left of", "moon")),
        ("a dog is in front of the sofa", ("dog", "in front of", "sofa")),
        ("a dog is between a cat and a red house", ("dog", "between", "cat", "house")),
        ("a moon partly hidden by a hut", ("moon", "partly hide by", "hut")),
        ("a cat and a dog sit on a bench", ("dog", "on", "bench")),
    ],
)
def test_relations(caption: str, expected: tuple[str, ...]) -> None:
    assert expected in relations(extract(caption))


@pytest.mark.parametrize(("number", "count"), [("3", 3), ("12", 12), ("2²2", 1), ("²2", 1), ("9" * 20, 1)])
def test_digits_are_a_count_if_they_are_a_number(number: str, count: int) -> None:
    """The tagger takes "2²2" for a number; ``int`` does not."""
    assert [mention.count for mention in extract(f"{number} dogs on a lawn").mentions] == [count, 1]


def test_one_object_has_one_subject_in_two_relations() -> None:
    assert relations(extract("a star left of a moon and above a fish")) == [
        ("star", "left of", "moon"),
        ("star", "above", "fish"),
    ]


def test_the_dog_is_the_dog_that_was_named() -> None:
    found = extract("A brown dog runs. The dog is wet. A dog sleeps.")
    assert [mention.lemma for mention in found.mentions] == ["dog", "dog"]
    assert objects(Extraction(found.mentions[:1], ())) == {"dog": ["brown", "run", "wet"]}
    assert found.mentions[0].spans == [(8, 11), (22, 25)]


def test_places_are_those_of_the_caption() -> None:
    caption = "Two  DOGS, one of them “brown”, near a   fire hydrant.\nA man’s hat!"
    for mention in extract(caption).mentions:
        assert [caption[start:end].lower() for start, end in mention.spans] == [mention.text] * len(mention.spans)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "...",
        "and the other ranks were stopped; saved checkpoints are kept",
        "\ud800",
        "🐶 🐱",
        "a" * 5000,
        "1,000,000 2.5 %",
        "a " * 400,
    ],
)
def test_any_text_is_read(text: str) -> None:
    found = extract(text)
    assert all(0 <= start < end <= len(text) for mention in found.mentions for start, end in mention.spans)
    assert all(-1 < r.subject < len(found.mentions) for r in found.relations)
