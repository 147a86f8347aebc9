"""``describe=PROMPT``: the references of a picture as one text, of any data set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from tellapart.data import open_data, open_many
from tellapart.data.descriptions import distinct
from tellapart.errors import UsageError

REFERENCES = [
    "A man in a red shirt rides a bike .",
    "The man rides the bike .",  # says less than the first
    "Two people wait!",
    "a man in a red shirt rides a bike",
    "USA flags are waved",
]


@pytest.fixture
def rows(tmp_path: Path) -> str:
    """Three pictures in a JSONL file, whose items are made on demand; the last has no references."""
    records = []
    for number, references in enumerate((REFERENCES, REFERENCES[2:3], [])):
        Image.new("RGB", (6, 4)).save(tmp_path / f"{number}.png")
        records.append({"image": f"{number}.png", "captions": references, "id": str(number)})
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, records)))
    return str(tmp_path / "rows.jsonl")


def test_each_reference_comes_once_and_each_comes_first_once(rows: str) -> None:
    described = open_data(f"{rows}?describe=in this picture")
    assert described[0].references == (
        "in this picture a man in a red shirt rides a bike. Two people wait. USA flags are waved.",
        "in this picture two people wait. USA flags are waved. A man in a red shirt rides a bike.",
        "in this picture USA flags are waved. A man in a red shirt rides a bike. Two people wait.",
    )
    assert described[1].references == ("in this picture two people wait.",) and described[2].references == ()
    assert [item.references for item in described[1:]] == [item.references for item in list(described)[1:]]


def test_both_kinds_are_one_data_set_of_the_same_pictures(rows: str) -> None:
    both = open_many([rows, f"{rows}?describe=describe it:"])
    assert [item.id for item in both] == ["0", "1", "2", "0#description", "1#description", "2#description"]
    assert both[0].picture.key() == both[3].picture.key()
    assert both[4].references == ("describe it: two people wait.",)


def test_a_part_is_of_the_same_pictures(rows: str) -> None:
    plain, described = (open_data(f"{rows}?part=1/2{more}") for more in ("", "&describe=so"))
    assert [f"{item.id}#description" for item in plain] == [item.id for item in described]


def test_what_says_no_more_than_another_is_left_out() -> None:
    assert distinct(["a dog", "the dog", "a brown dog", "cat", "..."]) == ["a brown dog", "cat"]


def test_a_prompt_is_expected(rows: str) -> None:
    with pytest.raises(UsageError, match="expected key=value, got 'describe='"):
        open_data(f"{rows}?describe=")
