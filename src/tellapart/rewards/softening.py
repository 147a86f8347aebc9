"""A caption without the words that are doubted, still English, by rules without a tagger."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.rewards.caption_words import RELATIONS, content_words
from tellapart.utils.text import word_set

_WORD = re.compile(r"\w+(?:[-'’]\w+)*")
_ARTICLES = ("a", "an")
_DETERMINERS = word_set("a an the his her their its this that these those some another other each")
_NUMBERS = word_set("two three four five six seven eight nine ten several many some few")
_PREPOSITIONS = RELATIONS | word_set("on in at with of to from by into onto against inside outside for as up down out")
_GENERAL = word_set("thing things object objects item items shape shapes figure figures something stuff")
_AUXILIARIES = word_set("is are was were be being been has have")


@dataclass
class _Token:
    """A word or a run of punctuation. ``kind``: that of a content word, or empty. Doubted content words only."""

    text: str
    kind: str = ""
    doubted: bool = False

    @property
    def lower(self) -> str:
        return self.text.lower()


def soften(caption: str, doubted: Sequence[bool]) -> str:
    """The caption without its doubted content words, still grammatical as far as rules without a tagger can see.

    doubted: one for each of `content_words`. A doubted modifier is left out; so is a phrase after a preposition or
    "and" where every word of it is doubted. Any other doubted head becomes "thing", "things" or "something", a doubted
    spatial preposition "and". "a" and "an" follow the next word. General nouns ("shape") stay: no other word says less.

    Limits: English only. A noun before another noun counts as its modifier ("fire truck"). Verbs are known by
    their endings and a list of common ones; others are taken for nouns.
    """
    if not any(doubted):
        return caption
    tokens = _of_phrases(_tokens(caption, doubted))
    kept: list[_Token] = []
    for place, phrase in enumerate(_phrases(tokens)):
        claims = [token for token in phrase if token.kind and token.kind != "relation"]
        if place and claims and all(token.doubted for token in claims):
            continue  # "on the grass", "and a dog", "riding a bike"
        kept += _soften_phrase(phrase)
    text, stop = _joined(kept), caption.rstrip()[-1:]
    return text + stop if stop in ".!?" and not text.endswith(stop) else text


def _tokens(caption: str, doubted: Sequence[bool]) -> list[_Token]:
    words = {word.start: (word, doubt) for word, doubt in zip(content_words(caption), doubted, strict=True)}
    tokens = []
    for match in re.finditer(r"\w+(?:[-'’]\w+)*|[^\w\s]+", caption):
        word, doubt = words.get(match.start(), (None, False))
        general = match.group().lower() in _GENERAL
        tokens.append(_Token(match.group(), word.kind if word else "", doubt and not general))
    return tokens


def _of_phrases(tokens: list[_Token]) -> list[_Token]:
    """'to the left of a dog' becomes 'and a dog', 'a group of dogs' 'dogs', where 'left' or 'group' is doubted."""
    kept: list[_Token] = []
    for place, token in enumerate(tokens):
        if token.lower == "of" and kept and kept[-1].kind and kept[-1].doubted:
            while kept and kept[-1].kind:
                kept.pop()
            if kept and kept[-1].lower in _DETERMINERS:
                kept.pop()
            if kept and kept[-1].lower in _PREPOSITIONS:
                kept.pop()
                kept += [_Token("and")] if kept else []
        elif not (token.lower in _ARTICLES and kept[-1:] == [] and place):
            kept.append(token)
    return kept


def _phrases(tokens: list[_Token]) -> list[list[_Token]]:
    """Cut before prepositions, "and", and a verb in -ing that has an object."""
    phrases: list[list[_Token]] = [[]]
    for place, token in enumerate(tokens):
        has_object = place + 1 < len(tokens) and tokens[place + 1].lower in _DETERMINERS | _NUMBERS
        joins = token.lower in ("and", "or", ",")
        begins = joins or token.lower in _PREPOSITIONS or (token.kind == "verb" and has_object)
        follows_one = bool(phrases[-1]) and any(each.kind for each in phrases[-1])
        if begins and follows_one:
            phrases.append([])
        phrases[-1].append(token)
    return phrases


def _soften_phrase(phrase: list[_Token]) -> list[_Token]:
    kept: list[_Token] = []
    for place, token in enumerate(phrase):
        after = phrase[place + 1] if place + 1 < len(phrase) else None
        if not token.doubted:
            kept.append(token)
        elif token.kind == "relation":
            kept.append(_Token("and"))
        elif token.kind == "head":
            kept = _with_neutral_noun(kept, token)
        elif token.kind == "verb" and after is not None and after.lower in _DETERMINERS | _NUMBERS:
            kept.append(_Token("with"))
        elif token.kind == "verb" and kept and kept[-1].lower in _AUXILIARIES:
            kept.pop()
    return kept


def _with_neutral_noun(kept: list[_Token], head: _Token) -> list[_Token]:
    """What stands before a doubted head, and a noun in its place."""
    modifiers = len(kept)
    while modifiers and kept[modifiers - 1].kind == "modifier":
        modifiers -= 1
    before = kept[modifiers - 1].lower if modifiers else ""
    counted = any(token.lower in _NUMBERS for token in kept[max(modifiers - 1, 0) :])
    if counted or (before not in _ARTICLES and head.lower.endswith("s") and not head.lower.endswith("ss")):
        return [*kept, _Token("things")]
    if before in _DETERMINERS:
        return [*kept, _Token("thing")]
    return [*kept[:modifiers], _Token("something"), *kept[modifiers:]]  # "something green"


def _joined(tokens: list[_Token]) -> str:
    """The words as a text: no "and" or comma at either end, none twice, "a" or "an" as the next word wants."""
    while tokens and (tokens[0].lower in ("and", "or") or not _WORD.match(tokens[0].text)):
        tokens = tokens[1:]
    while tokens and tokens[-1].lower in ("and", "or", ","):
        tokens = tokens[:-1]
    text = ""
    for place, token in enumerate(tokens):
        after = tokens[place + 1].lower if place + 1 < len(tokens) else ""
        if token.lower in ("and", "or", ",") and after in ("and", "or", ",", "."):
            continue
        word = token.text
        if token.lower in _ARTICLES and after and _WORD.match(after):
            word = _article(token, after)
        text += word if not _WORD.match(word) or not text else f" {word}"
    return text if any(token.kind or token.text.startswith(("thing", "something")) for token in tokens) else "something"


def _article(token: _Token, after: str) -> str:
    vowel = after[0] in "aeiou" and not after.startswith(("uni", "one", "eu"))
    right = "an" if vowel or after.startswith(("hour", "honest")) else "a"
    return right.capitalize() if token.text[0].isupper() else right
