"""Keys of records that differ only in case: no value that one of them holds is hidden by the other."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tellapart.data.caption_entries import text_value
from tellapart.data.record_keys import find_key, find_value, matching_keys


@pytest.mark.parametrize("empty", ["", None, [], {}])
def test_an_empty_value_hides_no_other(empty: Any) -> None:
    for keys in permutations(("Caption", "caption", "CAPTION ")):
        for filled in keys:
            record = {key: "a cat" if key == filled else empty for key in keys}
            assert find_value(("text", "caption"), record) == "a cat"


def test_the_first_key_of_a_name_wins() -> None:
    assert find_key(("id", "key"), ["KEY", "ID", "id"]) == "ID"
    assert matching_keys(("id", "key"), ["KEY", "ID", "id"]) == ["ID", "id", "KEY"]
    assert find_value(("id",), {"ID": 1, "id": 2}) == 1
    assert find_key(("id",), []) == ""


def test_an_empty_list_hides_no_texts() -> None:
    assert text_value(("captions",), {"Captions": [], "captions": ["a cat"]}) == ["a cat"]
    assert text_value(("captions",), {"captions": ["a cat"], "Captions": []}) == ["a cat"]
    assert text_value(("caption",), {"caption": "", "Caption": "a cat"}) == "", "an empty text is a caption"
