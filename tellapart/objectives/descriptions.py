"""Short captions out of a long description: which phrases and words of it are kept, in English, without a tagger.

Leaving a claim out of a true caption leaves it true. So all that can be said with the words of a true description is
true, and a caption can be chosen by what it is worth.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass, replace

from tellapart.rewards.caption_words import RELATIONS, content_words, word_set

_ARTICLES = ("a", "an")
_DETERMINERS = word_set("a an the his her their its this that these those some another other each two three four")
_PREPOSITIONS = word_set("on in at with to from by into onto against inside outside for at under over behind beside")


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun with what stands before it. Numbers are those of the description's `content_words`.

    ``link``: the preposition before it, empty for none. ``spatial``: the link claims where something is
    (``link_words``: by which of the content words), seen from the phrase before. ``amount``: "group of".
    """

    head: int
    modifiers: tuple[int, ...] = ()
    verb: int | None = None
    determiner: str = ""
    amount: str = ""
    link: str = ""
    link_words: tuple[int, ...] = ()

    @property
    def words(self) -> tuple[int, ...]:
        """The numbers of all its content words."""
        return (*self.link_words, *self.modifiers, self.head, *(() if self.verb is None else (self.verb,)))

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
        link_words: tuple[int, ...] = ()
        for number, word in enumerate(self.words):
            before = self._before(number)
            if word.kind == "relation":
                link, link_words = self.texts[number], (number,)
                continue
            if word.kind == "verb":
                phrases[-1:] = [replace(phrase, verb=number) for phrase in phrases[-1:]]
                continue
            if not modifiers and not amount:
                determiner = before[-1] if before and before[-1] in _DETERMINERS else ""
                ahead = before[-2:-1] if determiner else before[-1:]
                if not link and ahead and ahead[0] in _PREPOSITIONS - RELATIONS:
                    link = ahead[0]
            if word.kind == "modifier":
                modifiers.append(number)
            elif not self.caption[word.end :].startswith(" of "):
                phrases.append(Phrase(number, tuple(modifiers), None, determiner, amount, link, link_words))
                modifiers, determiner, amount, link, link_words = [], "", "", "", ()
            elif determiner in _ARTICLES:
                amount = " ".join([*(self.texts[one] for one in modifiers), self.texts[number], "of"])
                modifiers = []
            else:  # "left of", "to the left of", "in front of"
                link = " ".join(filter(None, [link, determiner, self.texts[number], "of"]))
                link_words, modifiers = (*modifiers, number), []
        return phrases

    def _before(self, number: int) -> list[str]:
        """The function words between this content word and the one before it."""
        start = self.words[number - 1].end if number else 0
        return re.findall(r"\w+", self.caption[start : self.words[number].start].lower())

    def nouns(self, kept: Set[int], noun: str = "thing") -> list[str]:
        """The noun of each phrase of `condensed`."""
        standing = [phrase for phrase in self.phrases if not kept.isdisjoint((phrase.head, *phrase.modifiers))]
        return [self.name(phrase, kept, noun) for phrase in standing]

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
            said = [self.texts[number] for number in phrase.modifiers if number in kept]
            if not said and phrase.head not in kept:
                continue
            said.append(self.name(phrase, kept, noun))
            if phrase.verb is not None and phrase.verb in kept:
                said.append(self.texts[phrase.verb])
            if phrase.amount and phrase.head in kept:
                said.insert(0, phrase.amount)
            if phrase.determiner:
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


def article(word: str) -> str:
    """ "a" or "an" before this word."""
    vowel = word[:1].lower() in "aeiou" and not word.lower().startswith(("uni", "one", "eu"))
    return "an" if vowel or word.lower().startswith(("hour", "honest")) else "a"
