"""Parses captions into objects with attributes, relations, and the background. Accepts any text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from tellapart.scenes.phrase_senses import Sense, openings, senses
from tellapart.scenes.vocabulary import SIDES

_TOKEN = re.compile(r"[a-z0-9]+(?:[-'][a-z0-9]+)*")
_BREAKS = frozenset(("on", "in", "with", "against", "at", "of", "to", "from"))


Words = tuple[int, ...]  # indices of words in a caption, starting at 0


@dataclass(slots=True)
class Mention:
    """An object that the caption mentions. ``shape`` is empty for "thing", "object" and the like.

    ``values`` maps a slot (colour, size, …) to all values stated for the slot; two different values contradict each
    other. ``words`` maps (slot, value), including ("shape", shape), to the indices of the words that state the value.
    """

    shape: str
    values: dict[str, tuple[str, ...]] = field(default_factory=dict)
    words: dict[tuple[str, str], Words] = field(default_factory=dict, compare=False)

    def signature(self) -> tuple[str, tuple[tuple[str, tuple[str, ...]], ...]]:
        return self.shape, tuple(sorted(self.values.items()))


@dataclass(frozen=True, slots=True)
class ClaimWords:
    """The words that make those claims of a `ParsedCaption` that are not about a single mention. There is one field per
    kind of claim, in the same order as the claims.
    """

    relations: tuple[Words, ...] = ()
    grounds: tuple[Words, ...] = ()
    loose: tuple[Words, ...] = ()
    number: Words = ()


@dataclass(frozen=True, slots=True)
class ParsedCaption:
    """A parsed caption. Relations refer to mentions by index.

    relations: (kind, subject, object) or ("between", subject, one, other).
    grounds: the backgrounds, in order and with repeats.
    loose: attributes that are not bound to an object.
    number: the count in "three things", if the caption mentions no other objects.
    unknown: words outside the vocabulary.
    """

    words: tuple[str, ...]
    mentions: tuple[Mention, ...]
    relations: tuple[tuple[str | int, ...], ...]
    grounds: tuple[str, ...]
    loose: tuple[tuple[str, str], ...]
    number: int | None
    unknown: tuple[str, ...]
    claim_words: ClaimWords = field(default=ClaimWords(), compare=False)

    @property
    def empty(self) -> bool:
        """Returns whether the caption makes no claim."""
        described = any(m.shape or m.values for m in self.mentions)
        return not (described or self.relations or self.grounds or self.loose or self.number)


class _Parser:
    here: Words = ()
    """The words in the current phrase."""
    counted: Words = ()
    """The words that state ``count``."""
    tying: Words = ()
    """The words that state ``relation``."""
    numbering: Words = ()
    definite = False
    count = 0
    number = 0
    predicate = False
    joined = False
    """Whether "and" has just been read."""
    fresh = False
    """Whether a new object is about to be mentioned, as in "and a falling star", where "falling" describes the new
    object.
    """
    current = -1
    """The most recent mention, which a following "is red" or "left of" describes."""
    subject = -1
    """The subject of the last relation. In "a left of b and above c", a is the subject of both relations."""
    relation = ""

    def __init__(self) -> None:
        self.mentions: list[Mention] = []
        self.relations: list[tuple[str | int, ...]] = []
        self.grounds: list[str] = []
        self.loose: list[tuple[str, str]] = []
        self.unknown: list[str] = []
        self.pending: list[tuple[str, str, Words]] = []
        self.claim_words: dict[str, list[Words]] = {"relations": [], "grounds": [], "loose": []}
        self.related: list[int] = []  # the objects of ``relation`` so far; "between" has two

    def flush(self) -> None:
        """Assigns adjectives without a noun to the subject if they follow "is", otherwise to no object."""
        for slot, value, words in self.pending:
            if self.predicate and self.mentions:
                _add_value(self.mentions[self.current], slot, value, words)
            else:
                self.loose.append((slot, value))
                self.claim_words["loose"].append(words)
        self.pending.clear()
        self.count = 0

    def take(self, sense: Sense, word: str, here: Words) -> None:
        kind, self.here = sense.kind, here
        joined, self.joined = self.joined, kind == "and" or (self.joined and kind in ("copula", "verb", "which"))
        if kind in ("article", "number", "group", "and", "relation", "shape", "generic", "copula", "verb", "which"):
            self.fresh = kind in ("article", "number", "group", "and", "relation")
        elif word == "with":
            self.fresh = True
        if kind in ("colour", "size", "texture"):
            self.pending.append((kind, sense.value, here))
        elif kind in ("shape", "generic"):
            self.noun(sense)
        elif kind == "article":
            self.flush()
            self.definite = word == "the"
        elif kind == "motion":
            self.motion(sense.value)
        elif kind == "relation":
            self.flush()
            self.predicate = False
            self.subject = self.subject if joined and self.subject >= 0 and not self.related else self.current
            self.relation, self.related, self.tying = sense.value if self.subject >= 0 else "", [], here
        elif kind == "ground":
            # "green grass": an adjective before the background does not describe an object.
            self.pending.clear()
            self.grounds.append(sense.value)
            self.claim_words["grounds"].append(here)
            self.relation, self.related = "", []
        elif kind in ("number", "group"):
            self.flush()
            self.count, self.counted = int(sense.value or 1), here
        elif kind == "copula":
            self.flush()
            self.predicate = bool(self.mentions)
        elif kind in ("verb", "which") or (kind == "and" and self.predicate) or word in _BREAKS:
            self.flush()

    def motion(self, value: str) -> None:
        if self.mentions and not self.pending and not self.fresh:
            _add_value(self.mentions[self.current], "motion", value, self.here)
        else:
            self.pending.append(("motion", value, self.here))

    def noun(self, sense: Sense) -> None:
        mention = Mention(sense.value)
        if sense.value:
            mention.words["shape", sense.value] = self.here
        for slot, value, words in self.pending:
            _add_value(mention, slot, value, words)
        self.pending.clear()
        self.predicate = False
        at = self.earlier(mention) if self.definite else -1
        self.definite = False
        if at >= 0:
            old = self.mentions[at]
            old.values |= mention.values
            old.words |= {claim: old.words.get(claim, ()) + words for claim, words in mention.words.items()}
        else:
            if not sense.value and not mention.values and self.count > 1 and not self.mentions:
                self.number, self.numbering = self.count, self.counted
            at = len(self.mentions)
            self.mentions.append(mention)
        self.current = at
        self.relate(at)
        for _ in range(self.count - 1):
            # If a caption mentions too many stars, the number before "stars" is marked as false.
            more = mention.words | ({("shape", mention.shape): self.counted} if mention.shape else {})
            self.mentions.append(Mention(mention.shape, dict(mention.values), more))
        self.count = 0

    def relate(self, at: int) -> None:
        self.related += [at] if self.relation else []
        if len(self.related) == (2 if self.relation == "between" else 1):
            self.relations.append((self.relation, self.subject, *self.related))
            self.claim_words["relations"].append(self.tying)
            self.relation, self.related = "", []

    def earlier(self, mention: Mention) -> int:
        """Returns the mention that "the ..." refers to: the last mention of the same shape that does not contradict it,
        or -1.
        """
        for at, old in reversed(list(enumerate(self.mentions))):
            if old.shape == mention.shape and all(old.values.get(s, v) == v for s, v in mention.values.items()):
                return at
        return -1


def _add_value(mention: Mention, slot: str, value: str, words: Words) -> None:
    mention.words[slot, value] = mention.words.get((slot, value), ()) + words
    values = mention.values.get(slot, ())
    if value not in values:
        mention.values[slot] = (*values, value)


def tokens(caption: str) -> tuple[str, ...]:
    """Returns a caption's lower-cased words without punctuation."""
    return tuple(_TOKEN.findall(caption.lower().replace("_", " ")))


def word_spans(caption: str) -> list[tuple[int, int]]:
    """Returns the start and end of each token (see `tokens`) of a caption, in characters."""
    lowered = [character.lower() for character in caption]  # lower-casing may turn one character into two
    where = [at for at, characters in enumerate(lowered) for _ in characters]
    found = _TOKEN.finditer("".join(lowered).replace("_", " "))
    return [(where[match.start()], where[match.end() - 1] + 1) for match in found]


def phrases(words: tuple[str, ...]) -> Iterator[tuple[int, int, Sense | None]]:
    """Yields (start, number of words, sense) for each phrase. The sense is None for a word that is not part of a
    phrase.
    """
    known, starts = senses(), openings()
    at, end = 0, len(words)
    while at < end:
        for length in starts.get(words[at], ()):
            sense = known.get(words[at : at + length])
            if sense is not None and not _cut_short(sense, words, at + length):
                yield at, length, sense
                at += length
                break
        else:
            yield at, 1, None
            at += 1


@lru_cache(maxsize=65536)
def parse_caption(caption: str) -> ParsedCaption:
    """Parses a caption and resolves synonyms. Handles sentences, alt-text and broken output.

    Never raises. The result is cached and must not be modified.
    """
    words, parser = tokens(caption), _Parser()
    for at, length, sense in phrases(words):
        if sense is not None:
            parser.take(sense, words[at], tuple(range(len(words)))[at : at + length])
        elif words[at] == "the":
            parser.flush()
            parser.definite = parser.fresh = True
        elif not words[at].isdigit():
            parser.unknown.extend(words[at : at + length])
    parser.flush()
    whole = parser.number if parser.number == len(parser.mentions) else 0
    return ParsedCaption(
        words,
        tuple(parser.mentions),
        tuple(parser.relations),
        tuple(parser.grounds),
        tuple(parser.loose),
        whole or None,
        tuple(parser.unknown),
        ClaimWords(**{name: tuple(words) for name, words in parser.claim_words.items()}, number=parser.numbering),
    )


def _cut_short(sense: Sense, words: tuple[str, ...], after: int) -> bool:
    """Returns whether a direction belongs to a relation, as in "drifts left of the star", where "left" is not a
    motion.
    """
    return sense.kind == "motion" and after < len(words) and words[after] == "of" and words[after - 1] in SIDES
