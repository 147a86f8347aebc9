"""The marked words: by hand, on any text, and in descriptions of other scenes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_scene import scene

from tellapart.scenes import Scenes
from tellapart.scenes.claims import count_claims
from tellapart.scenes.marked_captions import mark_caption


@pytest.mark.parametrize(
    ("text", "false", "correct", "claims"),
    [
        ("A small RED star left of a heart, on the lawn.", [], 6, 6),
        ("İ Blue star right of two large hearts, on SAND.",
         ["Blue: only true of another object", "right of: not true in the picture", "two: more than the picture shows",
          "large: only true of another object", "SAND: not in the picture"], 3, 8),
        ("a red blue star", ["red: contradicted by another word", "blue: only true of another object"], 1, 3),
        ("three things", ["three: not true in the picture"], 0, 1),
        ("a ring and a ring in the night", ["ring: not in the picture", "ring: not in the picture",
                                            "night: not in the picture"], 0, 3),
        ("", [], 0, 0),
    ],
)  # fmt: skip
def test_the_words_of_false_claims_are_marked(text: str, false: list[str], correct: int, claims: int) -> None:
    marked = mark_caption(text, scene())
    assert (marked.correct, marked.claims) == (correct, claims)
    assert [f"{text[start:end]}: {why}" for start, end, why in marked.false] == false


@given(st.text(alphabet=st.sampled_from([*" ,.İßa", *"two red blue star hearts left of ring on sand"]), max_size=60))
def test_marks_agree_with_the_judge_on_any_text(text: str) -> None:
    marked, judged = mark_caption(text, scene()), count_claims(text, scene())
    assert (marked.claims, marked.correct) == (judged.claims, judged.correct)
    assert bool(marked.false) == (judged.correct < judged.claims)
    ends = [end for span in marked.false for end in span[:2]]
    assert ends == sorted(ends) and all(0 <= end <= len(text) for end in ends)


def test_marks_of_captions_of_other_scenes() -> None:
    """Real captions: a description of one scene read against the next one's truth."""
    for own, other in pairwise(Scenes(60)):
        assert not mark_caption(own.description, own).false
        marked, judged = mark_caption(own.description, other), count_claims(own.description, other)
        assert (marked.claims, marked.correct) == (judged.claims, judged.correct)
        assert bool(marked.false) == (judged.correct < judged.claims)
