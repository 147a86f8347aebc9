"""Captions of one scene are blended, and added to without losing what people said."""

from __future__ import annotations

import pytest

from tellapart.boost.scene_merging import add, blend


@pytest.mark.parametrize(
    ("captions", "blended"),
    [
        (["a red star", "a star on the lawn"], "a red star on the lawn"),
        (["a red star", "a blue star"], "a red star and a blue star"),
        (["a red star above a heart", "a small heart", "a hollow shape"], "a red star is above a small heart"),
        (["a red star", "a blue thing"], "a red star and a blue thing"),
        (["three shapes on the ice", "a moon"], "a moon and two things on the ice"),
        (["a thing", "a shape on the ice"], "a thing on the ice"),
        (["a star left of a moon", "a moon above a tree", "a tree"], "a star is left of a moon which is above a tree"),
        (["a star above a moon", "a tree left of the star"], "a tree is left of a star which is above a moon"),
        (["a star above a moon", "a tree left of a moon"], "a star is above a moon which is right of a tree"),
    ],
)
def test_blending(captions: list[str], blended: str) -> None:
    assert blend(captions) == blended


@pytest.mark.parametrize(
    ("correct", "new", "added"),
    [
        ("a red star", "a small red star on the ice", "a small red star on the ice"),
        ("a red star on the lawn", "a small blue star on the ice", "a small red star on the lawn"),
        ("a star", "a star left of a green moon", "a star is left of a green moon"),
        ("a red star and a blue thing", "a small blue moon is above a red star",
         "a small blue moon is above a red star"),
        ("a red star above a moon", "a big red heart below a moon", "a big red star is above a moon"),
        ("a star is above a star", "a red star is below a blue star", "a blue star is above a red star"),
    ],
)  # fmt: skip
def test_people_win_conflicts(correct: str, new: str, added: str) -> None:
    assert add(correct, new) == added
