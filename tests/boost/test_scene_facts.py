"""The facts of captions of scenes, read and phrased again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from scene_rates import corpus_rates

from tellapart.boost.scene_facts import SceneFacts, facts_of
from tellapart.boost.scene_sentence import sentence_of
from tellapart.scenes import Scenes
from tellapart.scenes.claims import count_claims

SCENES = list(Scenes(200, seed=31))


def values(facts: SceneFacts) -> list[Mapping[str, str]]:
    return sorted(({slot: word[0] for slot, word in t.items()} for t in facts.things), key=lambda t: sorted(t.items()))


@pytest.mark.parametrize("frames", [1, 8])
def test_what_is_said_again_reads_as_the_same_facts(frames: int) -> None:
    for scene in Scenes(150, seed=4, frames=frames):
        for text in (scene.description, *scene.references):
            facts = facts_of(text)
            again = facts_of(sentence_of(facts))
            named = [thing for thing in values(facts) if thing]
            assert [thing for thing in values(again) if thing] == named, (text, sentence_of(facts))
            assert again.ground == facts.ground
            assert len(again.things) == max(len(facts.things), facts.number) or not facts.things


def test_a_full_description_said_again_is_as_true_and_as_full() -> None:
    judged = [count_claims(sentence_of(facts_of(scene.description)), scene) for scene in SCENES]
    assert corpus_rates(judged)["attribute_precision"] == corpus_rates(judged)["attribute_recall"] == 100


def test_words_stay_those_that_were_used() -> None:
    text = "a tiny ruby pine sliding left above two spotted daisies on the lawn"
    assert sentence_of(facts_of(text)) == (
        "a tiny ruby pine that slides left is above a spotted daisy and a spotted daisy on the lawn"
    )
