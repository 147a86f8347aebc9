"""Shortens English descriptions to a subset of their phrases and words, without a tagger.

A true description remains true if a claim is omitted. Therefore, every subset of its words gives a true caption, and
the most informative subset can be selected. If several sentences describe the same things, as several human captions
do, a caption uses one of these sentences.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

from tellapart.language.english_words import (
    ARTICLES,
    COLOURS,
    CONJUNCTIONS,
    DETERMINERS,
    PREPOSITIONS,
    RELATIONS,
    SIDES,
    word_set,
)
from tellapart.language.inflection import article, looks_plural
from tellapart.language.sentences import STOP
from tellapart.language.words import content_words

_PAIRS = (["next", "to"], ["out", "of"])  # two-word prepositions
_LIGHT_VERBS = word_set("do does doing has have having")  # verbs of which only the object makes a claim
_INTENSIFIERS = word_set("very so too quite next")
_AUXILIARIES = word_set("is are was were")
_WHOLE = word_set("everything everyone scene picture")  # "and everything is on the sand" applies to all objects
_OPENING = re.compile(r"^\W*in (?:this|the) (?:picture|photo|photograph|image)\b", re.IGNORECASE)


@dataclass(slots=True)
class Phrase:
    """A noun with the words before it, given as indices into the description's `content_words`.

    link: the preposition before the phrase, or the verb of which the phrase is the object; may be empty.
    link_words: the link's content words, if the link claims a relation to the previous phrase.
    amount: for example "group of", with the content words ``amount_words``.
    sentence: the index of the phrase's sentence.
    """

    head: int = -1
    modifiers: tuple[int, ...] = ()
    verb: int | None = None
    determiner: str = ""
    amount: str = ""
    amount_words: tuple[int, ...] = ()
    link: str = ""
    link_words: tuple[int, ...] = ()
    sentence: int = 0

    @property
    def words(self) -> tuple[int, ...]:
        """Returns the indices of all content words in the phrase."""
        verb = () if self.verb is None else (self.verb,)
        return (*self.link_words, *self.amount_words, *self.modifiers, self.head, *verb)

    @property
    def spatial(self) -> bool:
        """Returns whether the link claims a relation to the previous phrase."""
        return bool(self.link_words)


class Description:
    """A description split into phrases. ``texts`` contains its content words; methods take indices into ``texts``."""

    def __init__(self, caption: str) -> None:
        self.caption, self.words = caption, content_words(caption)
        self.texts = [caption[word.start : word.end] for word in self.words]
        stops = [stop.start() for stop in STOP.finditer(caption)]
        self.sentences = [sum(stop < word.start for stop in stops) for word in self.words]
        self.phrases = self._cut()

    def by_sentence(self) -> list[list[Phrase]]:
        """Returns each sentence's phrases. Omits sentences without phrases."""
        numbers = dict.fromkeys(phrase.sentence for phrase in self.phrases)
        return [[phrase for phrase in self.phrases if phrase.sentence == number] for number in numbers]

    def _cut(self) -> list[Phrase]:
        phrases: list[Phrase] = []
        begun = Phrase()  # the part of a phrase before its noun
        opening = _OPENING.match(self.caption)
        for number, word in enumerate(self.words):
            if opening and word.start < opening.end():
                continue
            if number and self.sentences[number] != self.sentences[number - 1]:
                begun = Phrase()
            if word.kind == "relation":
                begun.link, begun.link_words = self.texts[number], (number,)
            elif word.kind == "verb":
                self._give_verb(phrases, number)
            else:
                if not begun.modifiers and not begun.amount:
                    self._join(phrases, begun, number)
                begun = self._grow(phrases, begun, number)
        return phrases

    def _give_verb(self, phrases: list[Phrase], number: int) -> None:
        """Assigns a verb to its subject. If "and" joins two verbs, the subject keeps the first verb."""
        before, sentence = self._before(number), self.sentences[number]
        first = next((n for n, phrase in enumerate(phrases) if phrase.sentence == sentence), len(phrases))
        subject = _subject(phrases[first:], before)
        if subject is not None and not (phrases[first + subject].verb is not None and before[-1:] == ["and"]):
            phrases[first + subject].verb = number

    def _join(self, phrases: list[Phrase], begun: Phrase, number: int) -> None:
        """Sets the determiner and the link of the phrase that begins with this word."""
        begun.determiner, ahead = _determiner(self._before(number))
        if begun.link and not CONJUNCTIONS.isdisjoint(ahead):  # "runs around while others look"
            begun.link, begun.link_words = "", ()
        if begun.link and ahead and PREPOSITIONS.issuperset(ahead):  # "standing around in the water"
            begun.link = " ".join([begun.link, *ahead])
        elif not begun.link:
            begun.link = _preposition(ahead)
        acting = next((phrase for phrase in phrases if phrase.verb == number - 1), None)
        if acting is not None and not ahead and "," not in self._gap(number):  # "riding a wave"
            acting.verb = None
            begun.link, begun.link_words = self._verb(number - 1), (number - 1,)

    def _grow(self, phrases: list[Phrase], begun: Phrase, number: int) -> Phrase:
        """Adds a word to the current phrase. If that completes the phrase, starts a new phrase."""
        word = self.words[number]
        if word.kind == "modifier" or self._is_first_colour(number):
            begun.modifiers += (number,)
            return begun
        if not self.caption[word.end :].startswith(" of "):
            begun.head, begun.sentence = number, self.sentences[number]
            phrases.append(begun)
            return Phrase()
        if begun.modifiers and self.texts[number] in SIDES:  # "a black dog left of a cat"
            *modifiers, begun.head = begun.modifiers
            begun.modifiers, begun.sentence = tuple(modifiers), self.sentences[number]
            phrases.append(begun)
            return Phrase(link=f"{self.texts[number]} of", link_words=(number,))
        words = (*begun.modifiers, number)
        begun.modifiers = ()
        if begun.determiner in ARTICLES:
            begun.amount, begun.amount_words = f"{self.caption[self.words[words[0]].start : word.end]} of", words
        else:  # "left of", "to the left of", "in front of"
            texts = (self.texts[n] for n in words)
            begun.link, begun.link_words = " ".join(filter(None, [begun.link, begun.determiner, *texts, "of"])), words
        return begun

    def _before(self, number: int) -> list[str]:
        """Returns the function words between this content word and the previous content word."""
        return re.findall(r"\w+", self._gap(number).lower())

    def _gap(self, number: int) -> str:
        """Returns the text between this content word and the previous content word in the same sentence."""
        gap = self.caption[self.words[number - 1].end if number else 0 : self.words[number].start]
        return STOP.split(gap)[-1]

    def _verb(self, number: int) -> str:
        """Returns a verb, including a preceding "and": for "sits on a bench and reads", returns "and reads"."""
        joined = self._before(number)[-1:] == ["and"]
        return f"and {self.texts[number]}" if joined else self.texts[number]

    def _is_first_colour(self, number: int) -> bool:
        """Returns whether a word is the first of two joined colours, like "black" in "a black and white dog"."""
        after = self.words[number + 1 : number + 2]
        return (
            bool(after)
            and self._gap(number + 1) == " and "
            and self.texts[number] in COLOURS
            and (after[0].kind == "modifier" or self.texts[number + 1] in COLOURS)
        )

    def _modifiers(self, phrase: Phrase, kept: Set[int]) -> list[str]:
        """Returns the modifiers to keep. Puts "and" between two colours if the description does."""
        numbers = [number for number in phrase.modifiers if number in kept]
        joined = {number for number in numbers if self._is_first_colour(number) and number + 1 in numbers}
        return [f"{self.texts[number]} and" if number in joined else self.texts[number] for number in numbers]

    def stands(self, phrase: Phrase, kept: Set[int], noun: str) -> bool:
        """Returns whether the result of `condensed` contains the phrase."""
        return not kept.isdisjoint((phrase.head, *phrase.modifiers) if noun else (phrase.head,))

    def nouns(self, kept: Set[int], noun: str = "thing") -> list[str]:
        """Returns the nouns in the result of `condensed`."""
        standing = [phrase for phrase in self.phrases if self.stands(phrase, kept, noun)]
        lead = [noun] if noun and standing and standing[0].link and not standing[0].spatial else []
        return lead + [self.name(phrase, kept, noun) for phrase in standing]

    def name(self, phrase: Phrase, kept: Set[int], noun: str) -> str:
        """Returns the phrase's noun if it is kept, otherwise ``noun`` in the same number (singular or plural)."""
        head = self.texts[phrase.head]
        plural = phrase.determiner not in ARTICLES and looks_plural(head)
        return head if phrase.head in kept else f"{noun}s" if plural else noun

    def condensed(self, kept: Set[int], noun: str = "thing", again: Set[int] = frozenset()) -> str:
        """Returns a caption that contains only the kept content words. The caption may be "".

        Keeps a phrase if its noun or one of its modifiers is kept, and replaces a noun that is not kept with ``noun``.
        If ``noun`` is empty, keeps only phrases whose noun is kept. Keeps relations between phrases that are adjacent
        in both texts, and prepositions whose phrase is kept. Replaces all other links with "and".

        again: words that are omitted because they repeat earlier words. If such a word is a noun, the prepositional
            phrases that belong to it are kept.
        """
        parts: list[str] = []
        last, of = -2, -1  # of: the last phrase to which prepositional phrases may belong
        for place, phrase in enumerate(self.phrases):
            of = of if phrase.link else place
            if not self.stands(phrase, kept, noun):
                continue
            said = [*self._modifiers(phrase, kept), self.name(phrase, kept, noun)]
            if phrase.verb is not None and phrase.verb in kept:
                said.append(self._verb(phrase.verb))
            of_amount = bool(phrase.amount) and {phrase.head, *phrase.amount_words} <= kept
            if of_amount:
                said.insert(0, phrase.amount)
            if phrase.determiner and (of_amount or not phrase.amount or phrase.head not in kept):
                said.insert(0, article(said[0]) if phrase.determiner in ARTICLES else phrase.determiner)
            related = phrase.spatial and last == place - 1 and set(phrase.link_words) <= kept
            if phrase.link and (related or not (phrase.spatial or (parts and self._is_lost(of, kept | again, noun)))):
                parts += [f"{article(noun)} {noun}"] if noun and not parts else []
                parts += [phrase.link] if parts else []
            elif parts:
                parts.append("and")
            parts += said
            last = place
        return " ".join(parts)

    def _is_lost(self, place: int, kept: Set[int], noun: str) -> bool:
        """Returns whether a prepositional phrase belongs to the phrase at ``place`` although that phrase is dropped.

        For example, if the man is dropped from "a dog and a man in a hat", the result must not be "a dog in a hat". If
        he is dropped from "a man in a hat on a horse" and no ``noun`` replaces him, it must not be "a hat on a horse".
        """
        if place < 0 or self.stands(phrase := self.phrases[place], kept, noun):
            return False
        joined = not CONJUNCTIONS.isdisjoint(self._before(min(phrase.words)))
        return (joined or not noun) and self.texts[phrase.head].lower() not in _WHOLE


def without_repeats(caption: str) -> str:
    """Removes phrases that repeat an earlier phrase word for word, unless they begin with a word such as "another".

    Rebuilds the caption from the remaining phrases (`Description.condensed`). A caption without repeats is unchanged.
    """
    description = Description(caption)
    said: set[tuple[str, ...]] = set()
    again: set[int] = set()
    for phrase in description.phrases:
        words = tuple(description.texts[number].lower() for number in (*phrase.modifiers, phrase.head))
        if words in said and phrase.determiner in ("", *ARTICLES, "the"):
            again.update(phrase.words)
        said.add(words)
    kept = set(range(len(description.words))) - again
    return description.condensed(kept, "", again) if again else caption


def _determiner(before: list[str]) -> tuple[str, list[str]]:
    """Splits function words into a final determiner (or "") and the words before it. Ignores intensifiers such as
    "very".
    """
    while before and before[-1] in _INTENSIFIERS:
        before = before[:-1]
    return (before[-1], before[:-1]) if before and before[-1] in DETERMINERS else ("", before)


def _preposition(ahead: list[str]) -> str:
    """Returns the preposition or light verb at the end of the function words before a phrase, or ""."""
    if ahead[-2:] in _PAIRS:
        return " ".join(ahead[-2:])
    return ahead[-1] if ahead and ahead[-1] in (PREPOSITIONS | _LIGHT_VERBS) - RELATIONS else ""


def _subject(phrases: list[Phrase], before: list[str]) -> int | None:
    """Returns the index of a verb's subject, or None if the subject is ambiguous, as in "a man in a shirt and jeans
    sitting".
    """
    free = [n for n, phrase in enumerate(phrases) if not phrase.link]
    if not phrases or (free and free[-1] == len(phrases) - 1 > len(free) - 1):
        return None
    return free[0] if len(free) == 1 and not _AUXILIARIES.isdisjoint(before) else len(phrases) - 1
