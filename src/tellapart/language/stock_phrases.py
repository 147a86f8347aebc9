"""Recognizes refusals, and openings such as "The image shows", in every language of ``stock_phrases.toml``."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files


def refusal(text: str) -> str:
    """Returns the opening words of a refusal, in any language of ``stock_phrases.toml``; "" if it is not a refusal."""
    match = _patterns()[0].match(text.replace("’", "'"))
    return text[: match.end()].strip() if match else ""


def without_opening(sentence: str) -> tuple[str, str]:
    """Splits off an opening such as "The image shows". Returns the rest of the sentence, and the opening or ""."""
    plain = sentence.replace("’", "'")
    for pattern in _patterns()[1]:
        if match := pattern.match(plain):
            start, end = match.span("rest") if pattern.groups else (match.end(), match.end())
            return (sentence[start:end] + sentence[match.end() :]).lstrip(), sentence[: min(start, match.end())].strip()
    return sentence, ""


@lru_cache(maxsize=1)
def _patterns() -> tuple[re.Pattern[str], list[re.Pattern[str]]]:
    """Returns a pattern for all refusals, and patterns for openings: one for each opening with a group ``rest``, then
    one for all other openings.
    """
    table = tomllib.loads((files("tellapart.language") / "stock_phrases.toml").read_text(encoding="utf-8"))

    def expressions(kind: str) -> list[str]:
        return [
            expression.replace("{image}", language["image"]).replace(" ", r"\s")
            for language in table.values()
            for expression in language[kind]
        ]

    def starting(some: list[str]) -> re.Pattern[str]:
        return re.compile(rf"\W*(?:{'|'.join(some)})", re.IGNORECASE)

    openings = expressions("openings")
    framing = [starting([one]) for one in openings if "?P<rest>" in one]
    return starting(expressions("refusals")), [*framing, starting([one for one in openings if "?P<rest>" not in one])]
