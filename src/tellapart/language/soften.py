"""Removes uncertain words from a caption, or replaces them with neutral nouns."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.language.english_words import (
    ARTICLES,
    NUMBERS,
    SOFT_AUXILIARIES,
    SOFT_DETERMINERS,
    SOFT_PREPOSITIONS,
    WORD,
    word_set,
)
from tellapart.language.inflection import article, looks_plural
from tellapart.language.phrase_tokens import Token, caption_tokens, split_phrases
from tellapart.language.words import content_words

_GENERAL = word_set("thing things object objects item items shape shapes figure figures something stuff")


def soften(caption: str, doubted: Sequence[bool]) -> str:
    """Removes doubted content words, and keeps the caption as grammatical as possible without a tagger.

    doubted: whether each of the caption's `content_words` is doubted.

    Drops doubted modifiers, and drops a phrase after a preposition or "and" if all its words are doubted. Replaces any
    other doubted head with "thing", "things" or "something", and a doubted spatial preposition with "and". Adjusts "a"
    and "an". Keeps general nouns ("shape"), because no other noun claims less.

    Limits: supports only English. A noun before another noun counts as a modifier ("fire truck"). Verbs are recognized
        by their endings and by a list of common verbs; other verbs are mistaken for nouns.
    """
    if not any(doubted):
        return caption
    tokens = caption_tokens(caption, content_words(caption), doubted)
    for token in tokens:
        token.doubted = token.doubted and token.lower not in _GENERAL
    tokens = _of_phrases(tokens)
    kept: list[Token] = []
    for place, phrase in enumerate(split_phrases(tokens)):
        claims = [token for token in phrase if token.kind and token.kind != "relation"]
        if place and claims and all(token.doubted for token in claims):
            continue  # "on the grass", "and a dog", "riding a bike"
        kept += _soften_phrase(phrase)
    text, stop = _joined(kept), caption.rstrip()[-1:]
    return text + stop if stop in ".!?" and not text.endswith(stop) else text


def _of_phrases(tokens: list[Token]) -> list[Token]:
    """Removes doubted nouns before "of": "to the left of a dog" becomes "and a dog", and "a group of dogs" becomes
    "dogs".
    """
    kept: list[Token] = []
    for place, token in enumerate(tokens):
        if token.lower == "of" and kept and kept[-1].kind and kept[-1].doubted:
            while kept and kept[-1].kind:
                kept.pop()
            if kept and kept[-1].lower in SOFT_DETERMINERS:
                kept.pop()
            if kept and kept[-1].lower in SOFT_PREPOSITIONS:
                kept.pop()
                kept += [Token("and")] if kept else []
        elif not (token.lower in ARTICLES and kept[-1:] == [] and place):
            kept.append(token)
    return kept


def _soften_phrase(phrase: list[Token]) -> list[Token]:
    kept: list[Token] = []
    for place, token in enumerate(phrase):
        after = phrase[place + 1] if place + 1 < len(phrase) else None
        if not token.doubted:
            kept.append(token)
        elif token.kind == "relation":
            kept.append(Token("and"))
        elif token.kind == "head":
            kept = _with_neutral_noun(kept, token)
        elif token.kind == "verb" and after is not None and after.lower in SOFT_DETERMINERS | NUMBERS:
            kept.append(Token("with"))
        elif token.kind == "verb" and kept and kept[-1].lower in SOFT_AUXILIARIES:
            kept.pop()
    return kept


def _with_neutral_noun(kept: list[Token], head: Token) -> list[Token]:
    """Appends a neutral noun, which replaces a doubted head, to the tokens before the head."""
    modifiers = len(kept)
    while modifiers and kept[modifiers - 1].kind == "modifier":
        modifiers -= 1
    before = kept[modifiers - 1].lower if modifiers else ""
    counted = any(token.lower in NUMBERS for token in kept[max(modifiers - 1, 0) :])
    if counted or (before not in ARTICLES and looks_plural(head.lower)):
        return [*kept, Token("things")]
    if before in SOFT_DETERMINERS:
        return [*kept, Token("thing")]
    return [*kept[:modifiers], Token("something"), *kept[modifiers:]]  # "something green"


def _joined(tokens: list[Token]) -> str:
    """Joins tokens into a text. Strips and merges conjunctions and commas, and adjusts "a" and "an"."""
    while tokens and (tokens[0].lower in ("and", "or") or not WORD.match(tokens[0].text)):
        tokens = tokens[1:]
    while tokens and tokens[-1].lower in ("and", "or", ","):
        tokens = tokens[:-1]
    text = ""
    for place, token in enumerate(tokens):
        after = tokens[place + 1].lower if place + 1 < len(tokens) else ""
        if token.lower in ("and", "or", ",") and after in ("and", "or", ",", "."):
            continue
        word = token.text
        if token.lower in ARTICLES and after and WORD.match(after):
            word = article(after)
            word = word.capitalize() if token.text[0].isupper() else word
        text += word if not WORD.match(word) or not text else f" {word}"
    return text if any(token.kind or token.text.startswith(("thing", "something")) for token in tokens) else "something"
