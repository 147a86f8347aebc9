"""Captions that combine tags with prose."""

import pytest

from tellapart.language.tag_contradictions import tag_contradictions, tags_and_prose


def test_tags_are_short_parts_between_commas() -> None:
    assert tags_and_prose("1girl, red dress, outdoors, a woman walks on a beach.") == (
        ["1girl", "red dress", "outdoors"],
        "a woman walks on a beach.",
    )
    prose = "A man in a red hat, a blue shirt, and boots."
    assert tags_and_prose(prose) == ([], prose)


@pytest.mark.parametrize(
    ("tags", "prose", "expected"),
    [
        (["red dress", "outdoors"], "a woman in a blue dress stands in a garden", ["colour of dress: red, blue"]),
        (["red dress"], "a woman in a red dress", []),
        (["red dress"], "a woman in a dress by a blue car", []),
        (
            ["red sock", "red hat", "red dress", "red coat", "red car"],
            "blue socks, blue hats, blue dresses, a blue dress, a blue coat and a blue car",
            [f"colour of {noun}: red, blue" for noun in ("car", "coat", "dress", "hat", "sock")],
        ),
        (["red and white dress"], "a woman in a white dress", []),
        (["two dogs"], "three dogs on a lawn", ["number of dog: 2, 3"]),
        (["2dogs"], "two dogs on a lawn", []),
        (["02 dogs"], "two dogs on a lawn", []),
        (["2 dogs"], f"{'9' * 5000} dogs on a lawn", []),
        (["outdoors"], "a man sits indoors by a window", ["“outdoors”, “indoors”"]),
        (["night"], "a street by day, and at night", []),
        ([":)", "no hat", "^^"], "a man wearing a hat", ["“no hat”, “hat”"]),
        (["no hat"], "a man without a hat", []),
    ],
)
def test_contradictions_between_tags_and_prose(tags: list[str], prose: str, expected: list[str]) -> None:
    assert tag_contradictions(tags, prose) == expected
