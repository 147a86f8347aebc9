"""Extracts captions from a record's value: a text, a list, a conversation, or one of these printed as a string."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import tokenize
from collections.abc import Mapping
from typing import Any, NamedTuple

from tellapart.data.dropped import EMPTY, MISSING, drop
from tellapart.data.empty_captions import has_text, stands_for_nothing
from tellapart.data.file_names import is_file_name
from tellapart.data.record_keys import VIZWIZ_FLAGS, find_key, find_value
from tellapart.data.row_errors import RowError
from tellapart.errors import UsageError
from tellapart.language.answers import answer_text
from tellapart.utils.strict_json import parse_json
from tellapart.utils.untrusted_text import clean_line

_NESTED_KEYS = (
    *("raw", "caption", "generated_text", "text", "content", "en", "response", "prediction", "body", "message"),
    *("parts", "output", "result", "value"),
)
_SPOKEN_KEYS = ("content", "parts", "output")  # keys of a server's answer, whose parts are joined into one caption
_UNSPOKEN_TYPES = ("thinking", "redacted_thinking", "reasoning")  # content parts outside the caption
_TASK = re.compile(r"^<\w+>$")  # Florence-2 writes {"<CAPTION>": text}
_ASSISTANT_ROLES = ("gpt", "assistant", "model", "bot")
_MAX_DEPTH = 8  # maximum nesting of lists and objects in a value
# Matches a printed list or dictionary, but neither "[sic] a dog" nor a model's "[unk]".
_LIST = re.compile(
    r"""[\[{]\s*["'\[{]|\(\s*["'\[{].*\)$|(?:array|list|dict|tuple|set)\("""
    r"""|\[(?!\w+\]$)(?:[^\[\]]*|.*["'].*)\]$|\{(?!\w+\}$)[^{}]*\}$""",
    re.DOTALL,
)


class CaptionText(NamedTuple):
    """A caption as written.

    error: set if the text looks like a list, a dictionary or a file name.
    flag: VizWiz's flag of the record, such as ``is_rejected``; empty if there is none.
    """

    text: str
    error: RowError | None = None
    flag: str = ""


def with_flags(texts: list[CaptionText], record: Mapping[str, Any], where: str) -> list[CaptionText]:
    """Returns a record's texts, with flags for those that VizWiz excludes.

    ``is_rejected`` marks spam, and ``is_precanned`` marks canned text for unrecognizable pictures. A flag is one value
    for all texts, or a list (possibly printed as a string) with one value per text. Raises `RowError` if the lengths
    differ.
    """
    for flag in VIZWIZ_FLAGS:
        value = find_value((flag,), record)
        if isinstance(value, str) and value.lstrip().startswith("["):
            value = _parsed(value)
        values = value if isinstance(value, list | tuple) else [value] * len(texts)
        if len(values) != len(texts):
            raise RowError(
                where, f"'{flag}' has {len(values)} values for {len(texts)} captions; expected one per caption"
            )
        texts = [
            text._replace(flag=flag) if str(one).strip().lower() in ("true", "1", "1.0") else text
            for text, one in zip(texts, values, strict=True)
        ]
    return texts


def caption_texts(value: Any, where: str, depth: int = 0) -> list[CaptionText]:
    """Returns the captions in a value.

    A value is a text, a list, ``{"raw": text}``, the turns of a conversation, or any of these printed as a string by
    JSON, Python or NumPy. Raises a `UsageError` whose message begins with ``where``.
    """

    def inside(part: Any) -> list[CaptionText]:
        return caption_texts(part, where, depth + 1)

    def joined(parts: Any) -> list[CaptionText]:
        return [CaptionText(" ".join(text.text for text in inside(parts)))]

    if value is None or (isinstance(value, float) and value != value):  # pandas writes NaN for an empty cell
        return []
    if isinstance(value, str):
        return _texts_of_cell(value, where, depth)
    if isinstance(value, list | tuple) and depth < _MAX_DEPTH:
        if not value or not all(isinstance(turn, Mapping) and {"from", "role"} & turn.keys() for turn in value):
            return [text for part in value for text in inside(part)]
        for turn in value:  # LLaVA's {"from": "gpt", "value"}, or {"role": "assistant", "content"}
            if str(turn.get("from", turn.get("role"))).lower() in _ASSISTANT_ROLES:
                return joined(turn.get("value", turn.get("content")))
        raise UsageError(f"{where}: the conversation has no answer; expected a turn by 'gpt' or 'assistant'")
    if isinstance(value, Mapping) and depth < _MAX_DEPTH:
        answers = value.get("choices") or value.get("candidates")  # OpenAI's and Gemini's names
        if isinstance(answers, list) and answers:
            texts = inside(answers[0])
            said = [answer_text(text.text) or "" for text in texts]  # parsed like an answer to `caption`
            return [text if one == text.text else CaptionText(one) for text, one in zip(texts, said, strict=True)]
        if len(value) == 1 and _TASK.match(str(next(iter(value)))):
            return inside(next(iter(value.values())))
        if spoken := next((value[key] for key in _SPOKEN_KEYS if _is_spoken(value.get(key))), None):
            return joined([piece for piece in spoken if piece.get("type") not in _UNSPOKEN_TYPES])
        inner = find_value(_NESTED_KEYS, value)
        if inner is not None or find_key(_NESTED_KEYS, value):
            return with_flags(inside("" if inner is None else inner), value, where)
    raise UsageError(f"{where}: expected the caption to be a string, got {type(value).__name__}")


def _is_spoken(value: Any) -> bool:
    """Returns whether a value is a list of content parts: objects with a ``type`` or ``text`` key."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(piece, Mapping) and {"type", "text"} & piece.keys() for piece in value)
    )


def _texts_of_cell(text: str, where: str, depth: int) -> list[CaptionText]:
    cell = text.strip()
    if stands_for_nothing(cell):
        drop(MISSING, where)
        return []
    if is_file_name(cell) and len(cell.split()) == 1:
        return [CaptionText(text, RowError(where, f"expected a caption, got the file name {cell[:60]!r}"))]
    if not _LIST.match(cell):
        return [CaptionText(text)]
    value = _parsed(cell)
    if isinstance(value, list | tuple | dict) and depth < _MAX_DEPTH:
        with contextlib.suppress(UsageError):
            return caption_texts(value, where, depth + 1)
    why = (
        f"the caption {cell[:60]!r} looks like a list or a dictionary but cannot be parsed; "
        'expected a string, or a JSON list of strings: ["a dog", "the dog"]'
    )
    return [CaptionText(text, RowError(where, why))]


def _parsed(text: str) -> Any:
    """Parses a text as JSON, or as printed by Python or NumPy. Returns None if that fails."""
    try:
        return parse_json(text)
    except json.JSONDecodeError:
        pass
    except ValueError:  # a duplicate key, or nested too deeply
        return None
    try:
        return ast.literal_eval(_with_commas(text))
    except (ValueError, TypeError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError):
        return None


def _with_commas(text: str) -> str:
    """Inserts the commas that NumPy omits between the elements of an array.

    Without them, Python would concatenate adjacent strings. Raises ValueError if only some of the commas are missing.
    """
    pieces: list[str] = []
    levels: list[tuple[str, set[str]]] = [("", set())]  # open brackets, and the separators of their elements
    ended = False  # whether an element has just ended
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        piece = "None" if token.string == "nan" else token.string.strip()
        if not piece:
            continue
        opens, closes = piece in ("[", "{", "("), piece in ("]", "}", ")")
        begins = opens or token.type in (tokenize.STRING, tokenize.NUMBER, tokenize.NAME)
        bracket, separators = levels[-1]
        if piece == "," or (begins and ended):
            separators.add("," if piece == "," else " ")
        if begins and ended:
            pieces.append(",")
        if " " in separators and (bracket != "[" or "," in separators):
            raise ValueError("strings side by side")
        if opens:
            levels.append((piece, set()))
        if closes and len(levels) > 1:
            levels.pop()
        pieces.append(piece)
        ended = closes or (begins and not opens)
    return " ".join(pieces)


def clean_captions(captions: Any, where: str, record: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Returns the captions in a value (`caption_texts`), each on one line and stripped.

    Drops empty captions and those that a VizWiz flag in ``record`` excludes, and counts them in
    `tellapart.data.dropped`. Raises a `UsageError` whose message begins with ``where``.
    """
    found = with_flags(caption_texts(captions, where), record or {}, where)
    if error := next((text.error for text in found if text.error and not text.flag), None):
        raise error
    texts = []
    for text, _, flag in found:
        line = clean_line(text)
        if reason := flag or ("" if has_text(line) else EMPTY):
            drop(reason, where)
        else:
            texts.append(line)
    return tuple(texts)
