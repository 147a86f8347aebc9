"""Descriptions of photos: five references of a picture as one text, cut into phrases sentence by sentence."""

from __future__ import annotations

import pytest

from tellapart.language.condensing import Description
from tellapart.language.words import content_words
from tellapart.objectives.self_distillation import Belief, candidates
from tellapart.utils.rng import ItemSeeds

# What people wrote, as a captioner with word tokens writes it; an indented line: what all its words give, if another.
DESCRIPTIONS = """
a man in a red shirt is riding a bicycle down a dirt track
    a man in a red shirt riding a bicycle down a dirt track
a cyclist wearing a red jersey and a white helmet rides through the woods
    a cyclist wearing a red jersey and a white helmet through the woods
the person in red is biking on a trail
    the person biking in red on a trail
a mountain biker races past some trees
a man on a mountain bike goes over a bump in the forest

two dogs run through the snow
two brown dogs playing with each other in a snowy field
    two brown dogs playing in a snowy field
a pair of dogs chase a ball
one dog is biting the ear of another dog
    one dog biting the ear of another dog
two large tan dogs play on a snow covered hill near a wooden fence

a little girl in a pink dress is climbing a set of stairs
    a little girl in a pink dress climbing a set of stairs
a young child wearing pink climbs up to her wooden playhouse
    a young child wearing pink climbs to her wooden playhouse
a girl goes into a wooden building
the small girl stands outside the door of a cabin
a little girl with blonde hair enters a house

three people are sitting on a bench in front of a large building
    three people sitting on a bench in front of a large building
a group of tourists rest on a stone bench
two women and a man sit and look at a map
    two women and a man sit at a map
some people relax outside a museum
a man in a blue jacket and two women are seated by a building
    a man in a blue jacket and two women by a building

a black and white dog jumps over a red and yellow hurdle
a border collie is leaping over an agility bar
    a border collie leaping over an agility bar
the dog is jumping over a striped pole
    the dog jumping over a striped pole
a dog catches a frisbee in its mouth
a dog with a blue collar leaps into the air

a surfer in a black wetsuit rides a large wave
a man is surfing on a white surfboard
    a man surfing on a white surfboard
a person wearing a wetsuit is standing on a board in the ocean
    a person standing wearing a wetsuit on a board in the ocean
a young man surfs while people watch from the beach
    a young man surfs and people watch from the beach
a wave crashes behind a surfer

a boy jumps into a swimming pool
a child in blue swimming trunks leaps off a diving board
a kid is being splashed by his friend
    a kid splashed by his friend
two boys play in the water of an outdoor pool
the boy wearing goggles swims toward the edge of the pool

a football player in a white uniform is tackled by two players in orange
    a football player tackled in a white uniform by two players in orange
the players run with the ball
a man holding a football tries to run past a defender
football players wearing red helmets stand on the field
a referee watches the game

a woman is asleep on a train
    a woman asleep on a train
a lady with a black hat and a scarf sleeps next to a window
    a lady with a black hat and a scarf next to a window
an old woman wearing glasses reads a newspaper
a woman dressed in black sits with her dog
a lady is resting her head on her hand
    a lady resting her head on her hand

a crowd of people watch a street performer
a man dressed as a clown is juggling three balls
    a man as a clown juggling three balls
people stand around a man who is holding a guitar
    people around a man holding a guitar
a man performs a trick for a group of children
a street musician with a beard plays the guitar while others look on
    a street musician with a beard plays the guitar and others

a climber is hanging from a rope on a steep rock face
    a climber hanging from a rope on a steep rock face
a man with a yellow helmet climbs a cliff
a person scales a rock wall using ropes
a woman in a white shirt is climbing up a mountain
    a woman climbing in a white shirt up a mountain
the rock climber reaches for the next hold
    the rock climber reaches for the hold

a brown dog is carrying a stick out of the water
    a brown dog carrying a stick out of the water
a wet dog with a stick in its mouth runs along the shore
a dog shakes off water on the beach
the dog is running toward the camera
    the dog running toward the camera
a very happy dog plays with a large branch
    a happy dog plays with a large branch
"""


def sentences_of(text: str) -> list[tuple[str, str]]:
    """Each sentence, and what all its words give."""
    found: list[tuple[str, str]] = []
    for line in text.split("\n"):
        found = [*found[:-1], (found[-1][0], line.strip())] if line.startswith(" ") else [*found, (line, line)]
    return found


@pytest.mark.parametrize("text", DESCRIPTIONS.strip().split("\n\n"), ids=lambda text: text.split("\n")[0])
def test_sentences_of_five_references(text: str) -> None:
    sentences = sentences_of(text)
    description = Description(" . ".join(sentence for sentence, _ in sentences))
    phrases = description.by_sentence()
    said = [description.condensed({word for phrase in each for word in phrase.words}) for each in phrases]
    assert said == [expected for _, expected in sentences]


def kinds(caption: str) -> dict[str, str]:
    return {caption[word.start : word.end]: word.kind for word in content_words(caption)}


def test_verbs_and_nouns_that_look_alike() -> None:
    assert kinds("two dogs run past a large building") == {
        "two": "modifier", "dogs": "head", "run": "verb", "large": "modifier", "building": "head",
    }  # fmt: skip
    assert kinds("a boy wearing orange goggles swims")["swims"] == "verb"
    assert kinds("the long run of a man")["run"] == kinds("he rides two rides")["rides"] == "head"
    assert kinds("a cat is asleep and is left of a dog") == {
        "cat": "head", "asleep": "verb", "left": "head", "dog": "head",
    }  # fmt: skip
    assert kinds("the farmer 's market . dogs bark")["farmer 's"] == "modifier"


def believed(text: str, *unsure: str, said: tuple[str, ...] = (), noun: str = "") -> Belief:
    description = Description(text)
    words = frozenset(n for n, word in enumerate(description.texts) if word not in unsure)
    return Belief(description, words, frozenset(n for n in words if description.texts[n] in said), noun, "a plain one")


TWICE = "a man in a red shirt rides a horse . a cowboy with a black hat is on a brown horse in the sand"


def test_a_caption_is_made_of_one_sentence() -> None:
    found = candidates(believed(TWICE), 200, ItemSeeds(("one",), 3))
    assert any("cowboy" in text for text in found) and any("man" in text.split() for text in found)
    assert not [text for text in found if "man" in text.split() and {"cowboy", "hat", "sand"} & set(text.split())]


def test_a_noun_in_doubt_takes_what_is_said_of_it_along() -> None:
    found = candidates(believed(TWICE, "shirt", "cowboy", "man"), 200, ItemSeeds(("one",), 3))
    assert "a black hat and a brown horse and the sand" in found and "a horse" in found
    assert not [text for text in found if {"red", "thing", "in", "on"} & set(text.split())]
    description = Description("a brown dog and a man in a red hat")
    kept = {n for n, word in enumerate(description.texts) if word != "man"}
    assert description.condensed(kept, "") == "a brown dog and a red hat"
    assert Description("a man in a red hat").condensed({1, 2}, "") == "a red hat"


def test_nothing_that_is_believed_leaves_the_plain_caption() -> None:
    nothing = Belief(Description(TWICE), frozenset(), frozenset(), "", "a plain one")
    assert candidates(nothing, 24, ItemSeeds(("one",), 3)) == ["a plain one"]
