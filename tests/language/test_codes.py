"""Language codes."""

from __future__ import annotations

import pytest

from tellapart.errors import UsageError
from tellapart.language.codes import language_code


@pytest.mark.parametrize(
    ("typed", "code"),
    [("EN", "en"), ("de_AT", "de-AT"), ("pt-br", "pt-BR"), ("SR_latn_rs", "sr-Latn-RS"), ("de-1996", "de-1996")],
)
def test_a_code_is_returned_as_it_is_usually_written(typed: str, code: str) -> None:
    assert language_code(typed) == code


@pytest.mark.parametrize("name", ["german", "", "de-", "de AT", "d", "de/../x"])
def test_what_is_no_code_is_an_error_with_examples(name: str) -> None:
    with pytest.raises(UsageError, match=r"expected a language code such as de or pt-BR$"):
        language_code(name)
