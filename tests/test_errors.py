"""The lines that errors become."""

from __future__ import annotations

import pytest

from tellapart.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("no such file\nsecond line"), "no such file"),
        (ValueError("\n  damaged\n"), "damaged"),
        (ValueError(""), "ValueError"),
        (ValueError("\n"), "ValueError"),
    ],
)
def test_an_error_becomes_the_first_line_of_its_message_or_its_class(error: Exception, line: str) -> None:
    assert first_line(error) == line
