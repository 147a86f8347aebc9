"""Options in a model's name: their values are read as they were written."""

from __future__ import annotations

import pytest

from tellapart.inference.options import CaptionOptions
from tellapart.inference.plan import plan_captions
from tellapart.models.encoded_options import quoted, unquoted, without_option


@pytest.mark.parametrize("value", ["a%20b", "100% & more", "%26", "%2526"])
def test_a_value_of_a_local_model_is_read_as_it_was_written(value: str) -> None:
    assert unquoted(quoted(value)) == value
    assert without_option(f"NAME?a=1&key={quoted(value)}&b=2", "key") == ("NAME?a=1&b=2", value)


def test_a_folder_of_features_may_have_a_name_with_percent_signs() -> None:
    plan = plan_captions("scenes?features=a%20b&stop=.", CaptionOptions())
    assert (plan.model, plan.features) == ("scenes?stop=.", "a%20b")


@pytest.mark.parametrize(
    ("name", "rest", "value"),
    [
        ("openai:m@http://h/v1?ledger=a%20b&timeout=3", "openai:m@http://h/v1?timeout=3", "a b"),
        ("openai:m@http://h/v1?ledger=a", "openai:m@http://h/v1", "a"),
        ("openai:m@http://h/v1?ledgers=a", "openai:m@http://h/v1?ledgers=a", None),
        ("openai:m", "openai:m", None),
    ],
)
def test_a_value_of_a_server_is_percent_encoded(name: str, rest: str, value: str | None) -> None:
    assert without_option(name, "ledger") == (rest, value)
