"""New words, and errors of a describer against the truth."""

from __future__ import annotations

import dataclasses

import pytest

from tellapart.boost.describer_errors import Errors, describer_errors
from tellapart.boost.new_words import NewWordShare, content_words, new_words
from tellapart.language.tagged_words import analyse
from tellapart.scenes import Object, Scene

SCENE = Scene(
    "own",
    (Object("star", "red", "small", "plain", 25, 25), Object("moon", "blue", "large", "dotted", 103, 25)),
    "grass",
    0,
)
TRUE = "a small plain red star is left of a large dotted blue moon on the grass"


def test_new_words_are_content_words_by_lemma() -> None:
    pytest.importorskip("HanTa")
    sources = ["A man is reaching up with tennis racquets.", "Two men on a court"]
    text = "A man reaches up with a red tennis racquet on the courts and was wearing shorts."
    assert new_words(text, sources, analyse) == ["red", "wearing", "shorts"]
    assert len(content_words(text, analyse)) == 8
    assert new_words(text, [], analyse) == ["man", "reaches", "red", "tennis", "racquet", "courts", "wearing", "shorts"]
    share = NewWordShare(1, 2)
    share.add(["red"], ["a"] * 6)
    assert share == NewWordShare(2, 8) and share.percent == 25
    assert NewWordShare().percent != NewWordShare().percent


@pytest.mark.parametrize(
    ("described", "holistic", "references", "errors"),
    [
        (TRUE, TRUE, ["a red star"], Errors(0, 0, 0, 0)),
        # a wrong colour that people name: kept out, or not
        (TRUE.replace("red", "green"), TRUE, ["a red star"], Errors(1, 1, 1, 0)),
        (TRUE.replace("red", "green"), TRUE.replace("red", "green"), ["a red star"], Errors(1, 1, 0, 0)),
        # nobody names it: it passes
        (TRUE.replace("red", "green"), TRUE.replace("red", "green"), ["a star"], Errors(1, 0, 0, 1)),
        # "a red shape" is true of the star alone, so it contradicts too
        (TRUE.replace("red", "green"), TRUE, ["a red shape"], Errors(1, 1, 1, 0)),
        (TRUE.replace("grass", "snow"), TRUE, ["a star", "a star on the lawn"], Errors(1, 1, 1, 0)),
        (TRUE.replace("star", "heart"), TRUE, ["a star"], Errors(1, 1, 1, 0)),
        (
            TRUE.replace("small", "large").replace("dotted", "striped"),
            TRUE.replace("dotted", "striped"),
            ["a small star and a moon"],
            Errors(2, 1, 1, 1),
        ),
    ],
)
def test_what_becomes_of_errors(described: str, holistic: str, references: list[str], errors: Errors) -> None:
    assert describer_errors({"describe": described, "holistic": holistic}, references, SCENE) == errors


def test_a_value_that_another_object_has_does_not_contradict() -> None:
    twin = dataclasses.replace(SCENE, objects=(SCENE.objects[0], dataclasses.replace(SCENE.objects[1], colour="red")))
    described = TRUE.replace("red", "green").replace("blue", "red")  # "a red shape" is still true of the moon
    assert describer_errors({"describe": described, "holistic": described}, ["a red shape"], twin) == Errors(1, 0, 0, 1)


def test_errors_add_up() -> None:
    assert Errors(1, 2, 3, 4) + Errors(10, 20, 30, 40) == Errors(11, 22, 33, 44)
