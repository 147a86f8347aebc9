"""Short captions out of a long description: which phrases and words of it are kept, in English, without a tagger.

Leaving a claim out of a true caption leaves it true. So all that can be said with the words of a true description is
true, and a caption can be chosen by what it is worth.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, replace

from tellapart.rewards.caption_words import COLOURS, RELATIONS, content_words, word_set

_ARTICLES = ("a", "an")
_DETERMINERS = word_set("a an the his her their its this that these those some another other each two three four")
_PREPOSITIONS = word_set("on in at with to from by into onto against inside outside for at under over behind beside")
_AUXILIARIES = word_set("is are was were")
_OPENING = re.compile(r"^\W*in (?:this|the) (?:picture|photo|photograph|image)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun with what stands before it. Numbers are those of the description's `content_words`.

    ``link``: the preposition before it, or the verb of which it is the object; empty for none. ``spatial``: the link
    claims something (``link_words``: by which of the content words) of this phrase and the one before. ``amount``:
    "group of", by ``amount_words``.
    """

    head: int
    modifiers: tuple[int, ...] = ()
    verb: int | None = None
    determiner: str = ""
    amount: str = ""
    amount_words: tuple[int, ...] = ()
    link: str = ""
    link_words: tuple[int, ...] = ()

    @property
    def words(self) -> tuple[int, ...]:
        """The numbers of all its content words."""
        verb = () if self.verb is None else (self.verb,)
        return (*self.link_words, *self.amount_words, *self.modifiers, self.head, *verb)

    @property
    def spatial(self) -> bool:
        return bool(self.link_words)


class Description:
    """A description cut into phrases. ``texts``: its content words, in the order in which kept words are numbered."""

    def __init__(self, caption: str) -> None:
        self.caption, self.words = caption, content_words(caption)
        self.texts = [caption[word.start : word.end] for word in self.words]
        self.phrases = self._cut()

    def _cut(self) -> list[Phrase]:
        phrases: list[Phrase] = []
        modifiers: list[int] = []
        determiner, amount, link = "", "", ""
        amount_words: tuple[int, ...] = ()
        link_words: tuple[int, ...] = ()
        opening = _OPENING.match(self.caption)
        for number, word in enumerate(self.words):
            if opening and word.start < opening.end():
                continue
            before = self._before(number)
            if word.kind == "relation":
                link, link_words = self.texts[number], (number,)
                continue
            if word.kind == "verb":
                if (whose := _subject(phrases, before)) is not None:
                    phrases[whose] = replace(phrases[whose], verb=number)
                continue
            if not modifiers and not amount:
                determiner = before[-1] if before and before[-1] in _DETERMINERS else ""
                ahead = before[:-1] if determiner else before
                if not link and ahead and ahead[-1] in _PREPOSITIONS - RELATIONS:
                    link = "next to" if ahead[-2:] == ["next", "to"] else ahead[-1]
                verb = next((n for n, phrase in enumerate(phrases) if phrase.verb == number - 1), None)
                if verb is not None and not ahead and "," not in self._gap(number):  # "riding a wave"
                    phrases[verb] = replace(phrases[verb], verb=None)
                    link, link_words = self.texts[number - 1], (number - 1,)
            if word.kind == "modifier" or self._is_first_colour(number):
                modifiers.append(number)
            elif not self.caption[word.end :].startswith(" of "):
                phrases.append(
                    Phrase(number, tuple(modifiers), None, determiner, amount, amount_words, link, link_words)
                )
                modifiers, determiner, amount, amount_words, link, link_words = [], "", "", (), "", ()
            elif determiner in _ARTICLES:
                amount_words, modifiers = (*modifiers, number), []
                amount = f"{self.caption[self.words[amount_words[0]].start : word.end]} of"
            else:  # "left of", "to the left of", "in front of"
                link = " ".join(filter(None, [link, determiner, self.texts[number], "of"]))
                link_words, modifiers = (*modifiers, number), []
        return phrases

    def _before(self, number: int) -> list[str]:
        """The function words between this content word and the one before it."""
        return re.findall(r"\w+", self._gap(number).lower())

    def _gap(self, number: int) -> str:
        """What stands between this content word and the one before it."""
        return self.caption[self.words[number - 1].end if number else 0 : self.words[number].start]

    def _is_first_colour(self, number: int) -> bool:
        """ "black" in "a black and white dog"."""
        after = self.words[number + 1 : number + 2]
        return (
            bool(after)
            and self._gap(number + 1) == " and "
            and self.texts[number] in COLOURS
            and (after[0].kind == "modifier" or self.texts[number + 1] in COLOURS)
        )

    def _modifiers(self, phrase: Phrase, kept: Set[int]) -> list[str]:
        """The kept ones, with "and" where two colours stand so in the description."""
        numbers = [number for number in phrase.modifiers if number in kept]
        joined = {number for number in numbers if self._is_first_colour(number) and number + 1 in numbers}
        return [f"{self.texts[number]} and" if number in joined else self.texts[number] for number in numbers]

    def nouns(self, kept: Set[int], noun: str = "thing") -> list[str]:
        """Each noun of `condensed`."""
        standing = [phrase for phrase in self.phrases if not kept.isdisjoint((phrase.head, *phrase.modifiers))]
        lead = [noun] if standing and standing[0].link and not standing[0].spatial else []
        return lead + [self.name(phrase, kept, noun) for phrase in standing]

    def name(self, phrase: Phrase, kept: Set[int], noun: str) -> str:
        """Its noun where that is kept, else ``noun``, in the plural where it has the noun's form."""
        head = self.texts[phrase.head]
        plural = phrase.determiner not in _ARTICLES and head.endswith("s") and not head.endswith("ss")
        return head if phrase.head in kept else f"{noun}s" if plural else noun

    def condensed(self, kept: Set[int], noun: str = "thing") -> str:
        """A caption of the kept content words only; empty where none is kept.

        A phrase stands where its noun or one of its modifiers does; a noun that is not kept is ``noun``. Relations are
        kept between phrases that stand side by side in both texts, else "and" takes their place.
        """
        parts: list[str] = []
        last = -2
        for place, phrase in enumerate(self.phrases):
            said = self._modifiers(phrase, kept)
            if not said and phrase.head not in kept:
                continue
            said.append(self.name(phrase, kept, noun))
            if phrase.verb is not None and phrase.verb in kept:
                said.append(self.texts[phrase.verb])
            of_amount = bool(phrase.amount) and {phrase.head, *phrase.amount_words} <= kept
            if of_amount:
                said.insert(0, phrase.amount)
            if phrase.determiner and (of_amount or not phrase.amount or phrase.head not in kept):
                said.insert(0, article(said[0]) if phrase.determiner in _ARTICLES else phrase.determiner)
            related = phrase.spatial and last == place - 1 and set(phrase.link_words) <= kept
            if phrase.link and (related or not phrase.spatial):
                parts += [] if parts else [f"{article(noun)} {noun}"]
                parts.append(phrase.link)
            elif parts:
                parts.append("and")
            parts += said
            last = place
        return " ".join(parts)


def _subject(phrases: list[Phrase], before: list[str]) -> int | None:
    """Which phrase a verb is of; None where it may be of several, as in "a man in a shirt and jeans sitting"."""
    free = [n for n, phrase in enumerate(phrases) if not phrase.link]
    if not phrases or (free and free[-1] == len(phrases) - 1 > len(free) - 1):
        return None
    return free[0] if len(free) == 1 and not _AUXILIARIES.isdisjoint(before) else len(phrases) - 1


def singular(noun: str) -> str:
    """ "thing" for "things", by the letters."""
    return noun[:-1] if noun.endswith("s") and not noun.endswith("ss") else noun


def article(word: str) -> str:
    """ "a" or "an" before this word."""
    vowel = word[:1].lower() in "aeiou" and not word.lower().startswith(("uni", "one", "eu"))
    return "an" if vowel or word.lower().startswith(("hour", "honest")) else "a"
