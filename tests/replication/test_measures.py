"""Measures on captions made by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from replication.bootstrap import Statistic
from replication.claim import Arm, Measurement
from replication.lab import Lab
from replication.measures import MEASURES
from replication.test_sets import ArmCaptions, TestSets
from replication.tokens import caption_pair
from tellapart.boost.stages import STAGE_NAMES
from tellapart.scenes import Scenes
from tellapart.scenes.claims import count_claims

SCENES = Scenes(10, split="test", detail=0.9)


def of(measure: str, *texts: str | list[str]) -> Statistic:
    items = [SCENES[n].item() for n in range(len(texts))]
    captions = [[t] if isinstance(t, str) else t for t in texts]
    return MEASURES[measure].factory(ArmCaptions("p", items, captions, TestSets({}), None))


def test_shares_of_words_sum_over_captions() -> None:
    assert of("colours", "a red star", "a crimson and teal shape in a frame").value() == pytest.approx(300 / 11)
    assert of("colours", "Snow-White star").value() == 50  # punctuation is stripped, case is none
    assert of("textures", "a spotted disc", "a disc").value() == 20
    assert of("generic", "a shape", "a red star").value() == 20


def test_a_listener_knows_the_full_description_among_its_look_alikes() -> None:
    told = of("listener", *(scene.description for scene in SCENES))
    vague = of("listener", *("a shape" for _ in SCENES))
    assert told.value() > 95 and vague.value() == pytest.approx(20)  # families of five


def test_cider_of_samples_is_cider_where_all_samples_are_the_same() -> None:
    texts = [scene.references[0] for scene in SCENES]
    once, five = of("cider", *texts).value(), of("sampled-cider", *([text] * 5 for text in texts)).value()
    assert five == pytest.approx(once) and once > 50


def test_near_zero_is_of_captions_without_a_false_claim() -> None:
    right = [scene.references[0] for scene in SCENES]  # each is a reference, so its score is high
    assert of("near-zero", *right).value() == 0
    vague = "a thing"  # true of nothing in particular: claims nothing, and does not count
    assert of("near-zero", *right[:9], vague).value() == 0
    bare = ["a " + scene.facts[0][0] for scene in SCENES]
    assert of("near-zero", *right[:5], *bare[5:]).value() == 40  # one of the five scores 12
    false = "an ultramarine parasol at midnight"
    assert of("near-zero", *right[:9], false).value() == 0


def test_the_sentences_of_figure_5_differ_by_one_true_word() -> None:
    for scene in SCENES:
        rich, plain = (text.split() for text in caption_pair(scene))
        assert rich[1] == scene.objects[0].colour and rich[2:] == plain[1:] and plain[1] in rich
        assert all(
            j.correct == j.claims for j in (count_claims(" ".join(rich), scene), count_claims(" ".join(plain), scene))
        )


def test_boosted_captions_are_an_arm_and_what_they_keep_out_is_measured(tmp_path: Path) -> None:
    arms = {
        arm.name: arm for arm in (Arm("second", reference=1), *(Arm(stage, boosted=stage) for stage in STAGE_NAMES))
    }
    lab = Lab(tmp_path, arms, {"plain": "scenes:plain?split=test&n=40"}, {})
    captions = {name: lab.generate_captions(Measurement(name, "kept-out"), 3) for name in arms}
    assert captions["second"].first_captions == [item.references[1] for item in captions["second"].items]
    assert captions["blend"].first_captions == [texts["blend"] for texts in lab.test_sets.boosted("plain", 3)]
    assert lab.test_sets.boosted("plain", 3) != lab.test_sets.boosted(
        "plain", 4
    )  # another seed is another careless describer
    kept = {name: MEASURES["kept-out"].factory(own).value() for name, own in captions.items()}
    assert kept["describe"] == 0 and kept["second"] == kept["blend"] == 100 and 50 < kept["holistic"] < 100
    assert not list(tmp_path.iterdir())  # nothing is trained or written
