"""The PTB tokenizer as the COCO tools use it, without Java: Stanford CoreNLP 3.4.1, ``-lowerCase``, their punctuation.

Equal to the tool on every caption of COCO (Karpathy's test split), Flickr8k, Flickr30k, ImageCoDe and the published
systems (some 90,000 texts), which the ``oracle`` tests check. Brackets come out as ``-lrb-``: the COCO tools' list of
punctuation has them in capitals, after lower-casing. A fraction such as ``1 1/2`` and a telephone number are one
token with no-break spaces inside, as there (ROUGE-L then sees one word, BLEU and CIDEr two).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from tellapart.errors import UsageError
from tellapart.metrics.recent import recent

VERSION = "ptb:corenlp-3.4.1,lower,coco-punctuation"  # how signatures call it

_KEPT_CHUNKS = 500_000  # distinct words between blanks, some 100 MB; captions of a task have tens of thousands
# Nearly all of what stands between blanks is a word, a hyphenated word, or one of these with a sign after it.
_PLAIN = re.compile(r"([A-Za-z]{2,}|[a-z]+(?:-[a-z]+)+)[.,!?;\"]?")
# Where a token may reach across a blank: tags, entities, numbers, an initial or "No." that looks at what follows.
_ACROSS = re.compile(
    r"<[/!?A-Za-z]|&|[\d)]\s+[\d(]|(?<![A-Za-z])(?:[A-Za-z]\.\s+[A-Z]|(?i:ca|no|op|pp|art|figs?|nos|prop)\.\s+\d)"
)
_OPEN_END = re.compile(r"(?<![A-Za-z])(?:[A-Za-z]|(?i:ca|no|op|pp|art|figs?|nos|prop))\.\s*$")
_SUSPECT = re.compile(rf"[\d<&]|{_OPEN_END.pattern}")  # a chunk that may be part of either
_LINE_ENDS = str.maketrans(dict.fromkeys("\n\r\x0b\x0c\u2028\u2029", " "))
_INSIDE = str.maketrans({"(": "-lrb-", ")": "-rrb-", " ": "\u00a0", "\t": "\u00a0"})
_STRAIGHT = str.maketrans({"\u2019": "'", "\u0092": "'"})
_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2018\u201b\u0091\u2039", "`"),
        **dict.fromkeys("\u2019\u0092\u203a", "'"),
        **dict.fromkeys("\u201c\u0093\u00ab", "``"),
        **dict.fromkeys("\u201d\u0094\u00bb", "''"),
    }
)
_PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";", ""])


def ptb_tokenize(texts: Sequence[str]) -> list[str]:
    """Each text as the COCO tools tokenise it: tokens in lower case, without punctuation, joined by blanks.

    The tool reads all texts as one, a line each, and in two rare cases a line's end looks at the next line: an
    initial before a word that starts a sentence ("Wii U." before "A man"), and "No." before a number. So the order
    of the texts is part of the input; a line end inside a text counts as a blank.
    """
    tokens_of = _PLAIN_CHUNKS.__getitem__
    found = []
    for number, text in enumerate(texts):
        try:
            found.append("".join(map(tokens_of, text.split()))[:-1])  # type: ignore[arg-type]
        except TypeError:  # a chunk is None: it may be one with its neighbours
            found.append(_looking_around(text, texts[number + 1] if number + 1 < len(texts) else ""))
    return found


class Tokenized(NamedTuple):
    """Captions, and the references of each, as `ptb_tokenize` writes them."""

    captions: list[str]
    references: list[list[str]]


def tokenized(captions: Sequence[str], references: Sequence[Sequence[str]]) -> Tokenized:
    """Both sides tokenised as the COCO tools do: all captions as one text, all references as another."""
    check(captions, references)
    return Tokenized(_tokenized_captions(captions), _tokenized_references(references))


@recent
def _tokenized_captions(captions: Sequence[str]) -> list[str]:
    return ptb_tokenize(captions)


@recent
def _tokenized_references(references: Sequence[Sequence[str]]) -> list[list[str]]:
    flat = iter(ptb_tokenize([text for reference_texts in references for text in reference_texts]))
    return [[next(flat) for _ in reference_texts] for reference_texts in references]


def check(captions: Sequence[Any], references: Sequence[Sequence[Any]] | None) -> None:
    """Raises `UsageError` where the two do not fit: a caption without references cannot be scored."""
    if references is None or len(captions) != len(references):
        count = "no" if references is None else len(references)
        raise UsageError(f"{len(captions)} captions and {count} lists of references; give one list for each caption")
    without = [
        number
        for number, reference_texts in enumerate(references)
        if isinstance(reference_texts, str) or not len(reference_texts)
    ]
    if without:
        raise UsageError(
            f"caption {without[0]} (of {len(without)}) has no list of references; give each at least one, in a list"
        )


def _looking_around(text: str, following: str) -> str:
    if following and _OPEN_END.search(text):
        return _scan(text.translate(_LINE_ENDS), following.translate(_LINE_ENDS))
    if _ACROSS.search(text):
        return _scan(text.translate(_LINE_ENDS), " ")
    return "".join([_CHUNKS[chunk] or "" for chunk in text.split()])[:-1]


class _Chunks(dict[str, str | None]):
    """What stands between blanks, to its tokens with a blank after each; computed when first asked for.

    ``alone`` gives None for a chunk that cannot be cut alone.
    """

    def __init__(self, alone: bool) -> None:
        self.alone = alone

    def __missing__(self, chunk: str) -> str | None:
        if len(self) >= _KEPT_CHUNKS:
            self.clear()
        plain = _PLAIN.fullmatch(chunk)
        if plain is not None and (word := plain[1].lower()) not in _special_words():
            self[chunk] = word + " "
        elif self.alone and _SUSPECT.search(chunk):
            self[chunk] = None
        else:
            self[chunk] = (tokens + " ") if (tokens := _scan(chunk, " ")) else ""
        return self[chunk]


@cache
def _special_words() -> frozenset[str]:
    """Plain words that are more than one token, such as "cannot"."""
    from tellapart.metrics.ptb_rules import SPECIAL_WORDS

    return SPECIAL_WORDS


_PLAIN_CHUNKS, _CHUNKS = _Chunks(alone=True), _Chunks(alone=False)


def _scan(text: str, following: str = "") -> str:
    """The tokens of a text by the rules: the longest match at each place. ``following`` is looked at, not taken."""
    from tellapart.metrics.ptb_rules import RULES, SHAPES

    whole = f"{text}\n{following}" if following else text
    shape = whole if whole.isascii() else whole.translate(SHAPES)
    at, tokens = 0, []
    while at < len(text):
        best, to, end = None, None, at
        if not text[at].isspace():
            for rule, result in RULES:
                match = rule.match(shape, at)
                if match is not None and match.end() > end:
                    best, to, end = match, result, match.end()
        if best is None:  # a blank, or a character that the tool drops
            at += 1
            continue
        token, at = _written(text[at : best.end(1)], to), best.end(1)
        if token not in _PUNCTUATION:
            tokens.append(token)
    return " ".join(tokens)


def _written(token: str, to: str | None) -> str:
    """A matched token as the tool writes it."""
    if to is None:
        if token[0] != "#" and "://" not in token and "@" not in token:
            token = token.replace("\u00ad", "")
        if "/" not in token and "@" not in token:
            token = token.replace("&amp;", "&").replace("&AMP;", "&")
        return token.translate(_INSIDE).lower()
    if to == "straight":
        return token.replace("&apos;", "'").translate(_STRAIGHT).lower()
    if to == "quotes":
        return token.translate(_TYPOGRAPHIC)
    return to
