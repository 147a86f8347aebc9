"""Finds which characters or bytes each token contributes to a text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any

BLANK = "▁"  # SentencePiece's white space


def token_spans(rows: Sequence[Sequence[int]], texts: Sequence[str], tokenizer: Any) -> list[list[tuple[int, int]]]:
    """For each token in each row, returns the span of characters, (start, end), that it contributes to the row's text.

    Decodes every prefix of a row, so it also works for tokenizers that split words, white space, or non-ASCII
    characters (into bytes). A token that does not complete a character has an empty span at its position. If a token
    completes characters and begins another character, its span also includes the character that it begins.
    """
    return [
        [(start, end + (letter and start < end < len(text))) for start, end, letter in row]
        for row, text in zip(_written_spans(rows, texts, tokenizer), texts, strict=True)
    ]


def _written_spans(
    rows: Sequence[Sequence[int]], texts: Sequence[str], tokenizer: Any
) -> list[list[tuple[int, int, bool]]]:
    """For each token, returns the span of the characters that it completes, and whether it begins another character."""
    prefixes = [row[:t] for row in rows for t in range(1, len(row) + 1)]
    decoded = iter(tokenizer.batch_decode(prefixes, skip_special_tokens=True))
    spans = []
    for row, text in zip(rows, texts, strict=True):
        ends, begun = [0], []
        for _ in row:
            written = next(decoded).lstrip()
            ends.append(max(ends[-1], common_start(written, text)))
            begun.append(written.endswith("\ufffd"))  # an incomplete character
        spans.append([(start, end, letter) for (start, end), letter in zip(pairwise(ends), begun, strict=True)])
    return spans


def token_bytes(row: Sequence[int], text: str, tokenizer: Any) -> list[bytes]:
    """Returns the UTF-8 bytes that each token in a row contributes to ``text``. Concatenated, these bytes are the text.

    If several tokens form one character, each token gets one byte of it, except for the last token, which gets the
    rest.
    """
    (spans,) = _written_spans([row], [text], tokenizer)
    found, begun = [], 0  # how many bytes of the next character are already assigned
    for start, end, letter in spans:
        data = text[start:end].encode("utf-8", "surrogatepass")[begun:]
        begun = 0 if start < end else begun
        following = text[end : end + 1].encode("utf-8", "surrogatepass") if letter else b""
        if begun + 1 < len(following):
            data += following[begun : begun + 1]
            begun += 1
        found.append(data)
    return found


def spelled_spans(text: str, pieces: Sequence[bytes]) -> list[tuple[int, int]] | None:
    """Returns each token's span of characters, as `token_spans` does, for tokens that are given as bytes.

    Tokens before the text (such as reasoning) and after it (such as a stop token) have an empty span at the end of the
    text. White space may differ. Returns None if the tokens do not spell the text.
    """
    wanted = [(byte, at) for at, letter in enumerate(text) if not letter.isspace() for byte in _utf8(letter)]
    letters = b"".join(pieces).decode("utf-8", "surrogateescape")
    written = [
        (byte, letter.isspace() or letter == BLANK)
        for letter in letters
        for byte in letter.encode("utf-8", "surrogateescape")
    ]
    first = bytes(byte for byte, space in written if not space).rfind(bytes(byte for byte, _ in wanted))
    if not wanted or first < 0:
        return None
    places, left = [at for _, at in wanted], iter(written)
    spans, passed = [], -first  # number of bytes so far, without white space, relative to the text's first byte
    for piece in pieces:
        chars = []
        for _, space in islice(left, len(piece)):
            inside = 0 <= passed < len(places)
            if not space:
                chars += [places[passed]] if inside else []
                passed += 1
            elif inside and passed and places[passed - 1] + 1 < places[passed]:
                chars.append(places[passed - 1] + 1)
        if chars:
            spans.append((chars[0], chars[-1] + 1))
        else:  # an empty span comes before the text only if nothing but white space precedes it
            at = places[passed] if 0 <= passed < len(places) and (passed or not first) else len(text)
            spans.append((at, at))
    return spans


def _utf8(letter: str) -> bytes:
    return letter.encode("utf-8", "surrogatepass")


def common_start(one: str, other: str) -> int:
    """Returns the length of the common prefix of two texts."""
    if other.startswith(one):
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
