"""Parses a judge's answer: JSON, a number, a list, or a letter."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

_LETTER = re.compile(r"\b([A-Z])\b")
_LED = re.compile(r"^\W*(?:[Aa]nswer\W*)?([A-Z])[.)]\W*\w")  # "B. A red car", which repeats the option
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def json_in(text: str) -> Any:
    """Returns the first JSON object or list in an answer, ignoring other text and code fences, or None."""
    decoder = json.JSONDecoder()
    for match in re.finditer(r"[\[{]", text):
        try:
            return decoder.raw_decode(text[match.start() :])[0]
        except (ValueError, RecursionError):
            continue
    return None


def number_in(text: str, low: float, high: float) -> float | None:
    """Returns the number under the key ``"score"``, or the only number in the answer if there is no such key. Returns
    None if the number is not between ``low`` and ``high``.

    Finds the key even in damaged JSON. An answer with several numbers and no key is invalid.
    """
    value = json_in(text)
    found = value.get("score") if isinstance(value, dict) else None
    if isinstance(found, bool) or not isinstance(found, int | float | str):
        rest = text if found is None else ""
        named = re.search(r'"score"\W*?(-?\d+(?:\.\d+)?)', rest)
        numbers = _NUMBER.findall(re.sub(r"(?<=\d)\s*(?:/|(?:out )?of)\s*\d+", "", rest))  # "85/100" is 85
        found = named[1] if named else numbers[0] if len(numbers) == 1 else None
    try:
        number = float(found) if found is not None else None
    except ValueError:
        return None
    return number if number is not None and low <= number <= high else None


def list_in(text: str, count: int | None = None, valid: Callable[[Any], bool] = lambda _: True) -> list[Any] | None:
    """Parses a list of ``count`` (None: any number of) valid values. Returns None for any other answer."""
    value = json_in(text)
    right = isinstance(value, list) and count in (None, len(value)) and all(map(valid, value))
    return value if right else None


def strings_in(text: str) -> list[str] | None:
    """Parses a list of strings and removes duplicates, keeping the order. Returns None for any other answer."""
    value = list_in(text, valid=lambda part: isinstance(part, str))
    return None if value is None else list(dict.fromkeys(part.strip() for part in value if part.strip()))


def flags_in(text: str, count: int) -> list[bool] | None:
    """Parses a list of ``count`` booleans. Returns None for any other answer."""
    return list_in(text, count, lambda part: isinstance(part, bool))


def places_in(text: str, count: int, most: int) -> list[int] | None:
    """Parses a list of ``count`` integers from 0 to ``most``. Returns None for any other answer."""
    return list_in(text, count, lambda part: type(part) is int and 0 <= part <= most)


ANSWERS = ("yes", "no", "not mentioned")


def answers_in(text: str, count: int) -> list[str] | None:
    """Parses a list of ``count`` strings from `ANSWERS`. Returns None for any other answer."""
    said = [str(part).strip().lower().replace("_", " ") for part in list_in(text, count) or ()]
    return said if said and set(said) <= set(ANSWERS) else None


def letter_in(text: str, options: int) -> int | None:
    """Returns the index of the option whose letter the answer gives, or None.

    Later lines take precedence, because models that explain their choice give the letter at the end.
    """
    lines = [line for line in text.strip().splitlines() if line.strip()]
    for line in reversed(lines):
        line = line.upper() if len(line) <= 4 else line
        led = _LED.match(line)
        letters = [led[1]] if led else _LETTER.findall(line)
        if found := [place for letter in letters if (place := ord(letter) - ord("A")) < options]:
            return found[-1]
    return None
