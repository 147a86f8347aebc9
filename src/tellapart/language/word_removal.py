"""Removes words chosen by the user from a caption, without putting a neutral noun in their place."""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import replace

from tellapart.language.english_words import (
    ARTICLES,
    COLOURS,
    COPULAS,
    DETERMINERS,
    PLACES,
    PREPOSITIONS,
    SOFT_AUXILIARIES,
    SOFT_PREPOSITIONS,
    WORD,
    word_set,
)
from tellapart.language.inflection import article
from tellapart.language.phrase_tokens import Token, caption_tokens, split_phrases
from tellapart.language.sentences import sentences
from tellapart.language.word_runs import places_in_phrases, word_runs
from tellapart.language.words import content_words, is_participle

_JOINS = ("and", "or", ",")
_ADJECTIVES = COLOURS | word_set("""
    tan beige golden silver blond blonde dark light pale bright spotted striped young old elderly small little large big
    huge tiny tall short long thin fat wet dry dirty muddy clean furry fluffy hairy curly shaggy bald bearded smiling
    happy
""")  # adjectives that may follow a noun, between commas


def without_words(caption: str, left_out: Set[str], subject: str, sequences: Set[tuple[str, ...]] = frozenset()) -> str:
    """Removes content words, given by key (`word_key`), as far as the caption remains grammatical.

    Removes single modifiers. Removes a phrase after a preposition, a conjunction or a comma, or a participle with its
    object, only if all its words are to be removed. Replaces the noun phrase at the start of a sentence with
    ``subject``. Keeps a noun if its modifiers are kept ("table" in "on a wooden table"), and a phrase if the next
    phrase belongs to it. Drops a sentence of which only the subject remains, unless it is the first sentence. Supports
    only English; `soften` describes the limits.

    Args:
        left_out: the keys of the words to remove.
        subject: the replacement for a removed subject.
        sequences: runs of keys. Their words are removed only where they occur in this order (`word_runs`).
    """
    parts = []
    for number, sentence in enumerate(sentences(caption)):
        made = _without_words(sentence, left_out, subject, sequences)
        if not number or re.sub(r"\W+", " ", made).strip() not in ("", re.sub(r"\W+", " ", subject).strip()):
            parts.append(made)
    return " ".join(parts)


def _without_words(sentence: str, left_out: Set[str], subject: str, sequences: Set[tuple[str, ...]]) -> str:
    words, starts = content_words(sentence), set[int]()
    for run in word_runs(sentence):
        inside = places_in_phrases([key for key, _ in run], sequences)
        starts |= {word.start for place, (key, word) in enumerate(run) if key in left_out or place in inside}
    out = [word.start in starts for word in words]
    if not any(out):
        return sentence
    phrases = _places_joined(split_phrases(_colours_joined(caption_tokens(sentence, words, out))))
    dropped: set[int] = set()
    for place in range(len(phrases) - 1, 0, -1):
        claims = [token for token in phrases[place] if token.kind and token.kind != "relation"]
        if phrases[place][0].lower == "of" and phrases[place - 1][-1].lower in PLACES:  # "the side | of a dog"
            continue
        if claims and all(token.doubted for token in claims) and not _carries(phrases, place, dropped):
            dropped.add(place)
    kept: list[Token] = []
    for place, phrase in enumerate(phrases):
        if place in dropped:
            continue
        if not place and not _carries(phrases, 0, dropped):
            phrase = _with_subject(phrase, subject)
        after = next((phrases[n][0].lower for n in range(place + 1, len(phrases)) if n not in dropped), "")
        phrase = _without_modifiers(phrase, after)
        if place + 1 in dropped and len(phrase) > 1 and phrase[-1].lower in COPULAS:  # "a cat is | on a table"
            phrase = phrase[:-1]
        kept += phrase
    text, stop = _spelled(kept, sentence), sentence[-1:]
    return text + stop if stop in ".!?" and text and text[-1] not in ".!?" else text


def _colours_joined(tokens: list[Token]) -> list[Token]:
    """Merges joined colours such as "black and white" into one modifier, so that they can be removed only together."""
    joined: list[Token] = []
    for token in tokens:
        before = joined[-2:]
        if (
            len(before) == 2
            and before[1].lower in ("and", ",")
            and before[0].lower.split()[-1] in COLOURS
            and token.lower in COLOURS
            and token.kind == "modifier"
        ):
            text = f"{before[0].text} {before[1].text} {token.text}"
            both = before[0].doubted and token.doubted
            joined[-2:] = [Token(text, "modifier", both, before[0].start, token.end)]
        else:
            joined.append(token)
    return joined


def _places_joined(phrases: list[list[Token]]) -> list[list[Token]]:
    """Merges phrases such as "in front of a dog" or "next to a dog", so that they can be removed only as a whole."""
    joined: list[list[Token]] = []
    for phrase in phrases:
        before, begins = (joined[-1] if joined else []), phrase[0].lower if phrase else ""
        if begins == "of" and before and before[0].lower in SOFT_PREPOSITIONS and before[-1].lower in PLACES:
            joined[-1] = [*before[:-1], replace(before[-1], kind=""), *phrase]
        elif begins == "to" and len(before) > 1 and before[-1].lower in ("next", "close"):
            joined[-1:] = [before[:-1], [replace(before[-1], kind=""), *phrase]]
        else:
            joined.append(phrase)
    return joined


def _carries(phrases: list[list[Token]], place: int, dropped: Set[int]) -> bool:
    """Returns whether the next kept phrase belongs to this phrase, as "of wine" belongs to "a glass", or "in a hat" to
    "and a man".
    """
    after = next((phrases[n][0].lower for n in range(place + 1, len(phrases)) if n not in dropped), "")
    if not place:
        return after == "of"
    joined = phrases[place][0].lower in _JOINS
    return bool(after) and after not in _JOINS if joined else after in ("of", "with")


def _with_subject(phrase: list[Token], subject: str) -> list[Token]:
    """Replaces the noun phrase at the start of ``phrase`` with ``subject`` if its noun is to be removed.

    Kept adjectives follow the subject: "NAME, black and white, is running". Any other kept modifier ("two", "fire")
    prevents the replacement.
    """
    head = next((n for n, token in enumerate(phrase) if token.kind == "head"), None)
    if head is None or not phrase[head].doubted:
        return phrase
    before, rest = phrase[:head], phrase[head + 1 :]
    said = [token for token in before if token.kind and not token.doubted]
    if any(not token.kind and token.lower not in DETERMINERS for token in before):
        return phrase
    if not all(_ADJECTIVES.issuperset(re.findall(r"\w+", token.lower.replace(" and ", " "))) for token in said):
        return phrase
    name = Token(subject, "subject", start=phrase[0].start, end=phrase[head].end)
    comma = Token(",", "comma", start=name.end, end=name.end)
    return [name, comma, *said, comma, *rest] if said else [name, *rest]


def _without_modifiers(phrase: list[Token], after: str) -> list[Token]:
    """Drops a phrase's doubted modifiers, and drops a doubted verb before a preposition or at the end of the
    sentence.
    """
    follows = [*(token.lower for token in phrase[1:]), ""]
    kept = [
        token
        for token, next_word in zip(phrase, follows, strict=True)
        if not (token.doubted and token.kind == "modifier") or is_participle(next_word)  # "a girl walking alone"
    ]
    said = [token for token in kept if WORD.match(token.text)]
    ends = not after or after in SOFT_PREPOSITIONS | PREPOSITIONS
    if ends and len(said) > 1 and said[-1].kind == "verb" and said[-1].doubted:
        gone = said[-1:]
        if len(said) > 2 and said[-2].lower in SOFT_AUXILIARIES:
            gone = said[-2:]
        kept = [token for token in kept if token not in gone]
    return kept


def _spelled(tokens: list[Token], sentence: str) -> str:
    """Joins tokens, using the sentence's white space, and adjusts "a" and "an".

    Strips conjunctions and commas at both ends, and before another conjunction or comma.
    """
    kept: list[Token] = []
    for token in reversed(tokens):
        follows = kept[-1].lower if kept else "."
        if token.kind == "comma" and follows == ",":
            kept[-1] = token
        elif token.lower not in _JOINS or follows not in (".", *(() if token.kind == "comma" else _JOINS)):
            kept.append(token)
        elif token.kind != "comma" and kept and not sentence[token.end : kept[-1].start].strip():
            kept.append(token)  # keeps the original spelling "a cap , and shorts"
    tokens = kept[::-1]
    while tokens and (tokens[0].lower in _JOINS or not WORD.match(tokens[0].text)):
        tokens = tokens[1:]
    text, end = "", -1
    for place, token in enumerate(tokens):
        gap = sentence[end : token.start] if 0 <= end <= token.start else "?"
        if gap.strip():  # there was other text between the two tokens
            gap = " " if WORD.match(token.text) else ""
        word = token.text
        if token.lower in ARTICLES and place + 1 < len(tokens) and token.start + len(word) < tokens[place + 1].start:
            word = article(tokens[place + 1].text)
            word = word.capitalize() if token.text[0].isupper() else word
        text += gap + word if text else word
        end = token.end
    begins = bool(tokens) and tokens[0].kind != "subject" and sentence[:1].isupper()
    return text[:1].upper() + text[1:] if begins else text
