"""Shortens English descriptions to a subset of their phrases and words, without a tagger.

A true description remains true if a claim is omitted. Therefore, every subset of its words gives a true caption, and
the most informative subset can be selected. Sentences may describe the same things again, like several human captions;
a caption uses one of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from tellapart.language.english import WORD, article, singular, word_set
from tellapart.language.words import (
    COLOURS,
    COPULAS,
    RELATIONS,
    STOP,
    TAKE_OBJECTS,
    Word,
    content_words,
    is_participle,
    sentences,
)

_ARTICLES = ("a", "an")
_DETERMINERS = word_set("""
    a an the his her their its this that these those some another other each both all one two three four
""")
_PREPOSITIONS = word_set("""
    on in at with to from by into onto upon against for up down toward towards past during among as
    inside outside under over behind beside
""")
_PAIRS = (["next", "to"], ["out", "of"])  # two-word prepositions
_LIGHT_VERBS = word_set("do does doing has have having")  # only their object makes a claim
_CONJUNCTIONS = word_set("and but or while whilst as who which that")
_INTENSIFIERS = word_set("very so too quite next")
_AUXILIARIES = word_set("is are was were")
_SIDES = ("left", "right", "front", "top", "back", "ahead")  # a noun before one of these does not modify it
_PLACES = {*_SIDES, *word_set("side middle center centre edge end bottom corner foot out")}
_WHOLE = word_set("everything everyone scene picture")  # "and everything is on the sand" applies to all objects
_OPENING = re.compile(r"^\W*in (?:this|the) (?:picture|photo|photograph|image)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun with the words before it, given as indices of the description's `content_words`.

    link: the preposition before it, or the verb whose object it is; empty for none.
    link_words: content words of the link, if it claims a relation to the previous phrase.
    amount: for example "group of", with the content words ``amount_words``.
    sentence: index of its sentence.
    """

    head: int
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
        """Returns the indices of all its content words."""
        verb = () if self.verb is None else (self.verb,)
        return (*self.link_words, *self.amount_words, *self.modifiers, self.head, *verb)

    @property
    def spatial(self) -> bool:
        """Returns whether the link claims a relation to the previous phrase."""
        return bool(self.link_words)


@dataclass
class _Begun:
    """The part of a phrase that precedes its noun."""

    modifiers: tuple[int, ...] = ()
    determiner: str = ""
    amount: str = ""
    amount_words: tuple[int, ...] = ()
    link: str = ""
    link_words: tuple[int, ...] = ()


class Description:
    """A description split into phrases. ``texts`` are its content words; methods take their indices."""

    def __init__(self, caption: str) -> None:
        self.caption, self.words = caption, content_words(caption)
        self.texts = [caption[word.start : word.end] for word in self.words]
        stops = [stop.start() for stop in STOP.finditer(caption)]
        self.sentences = [sum(stop < word.start for stop in stops) for word in self.words]
        self.phrases = self._cut()

    def by_sentence(self) -> list[list[Phrase]]:
        """Returns the phrases of each sentence, omitting sentences without phrases."""
        numbers = dict.fromkeys(phrase.sentence for phrase in self.phrases)
        return [[phrase for phrase in self.phrases if phrase.sentence == number] for number in numbers]

    def _cut(self) -> list[Phrase]:
        phrases: list[Phrase] = []
        begun = _Begun()
        opening = _OPENING.match(self.caption)
        for number, word in enumerate(self.words):
            if opening and word.start < opening.end():
                continue
            if number and self.sentences[number] != self.sentences[number - 1]:
                begun = _Begun()
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
        """Assigns a verb to its subject. If two verbs are joined by "and", the subject keeps the first."""
        before, sentence = self._before(number), self.sentences[number]
        first = next((n for n, phrase in enumerate(phrases) if phrase.sentence == sentence), len(phrases))
        subject = _subject(phrases[first:], before)
        if subject is not None and not (phrases[first + subject].verb is not None and before[-1:] == ["and"]):
            phrases[first + subject] = replace(phrases[first + subject], verb=number)

    def _join(self, phrases: list[Phrase], begun: _Begun, number: int) -> None:
        """Sets the determiner and link of the phrase that begins with this word."""
        begun.determiner, ahead = _determiner(self._before(number))
        if begun.link and not _CONJUNCTIONS.isdisjoint(ahead):  # "runs around while others look"
            begun.link, begun.link_words = "", ()
        if begun.link and ahead and _PREPOSITIONS.issuperset(ahead):  # "standing around in the water"
            begun.link = " ".join([begun.link, *ahead])
        elif not begun.link:
            begun.link = _preposition(ahead)
        verb = next((n for n, phrase in enumerate(phrases) if phrase.verb == number - 1), None)
        if verb is not None and not ahead and "," not in self._gap(number):  # "riding a wave"
            phrases[verb] = replace(phrases[verb], verb=None)
            begun.link, begun.link_words = self._verb(number - 1), (number - 1,)

    def _grow(self, phrases: list[Phrase], begun: _Begun, number: int) -> _Begun:
        """Adds a word to the phrase, and starts a new phrase if this one is complete."""
        word = self.words[number]
        if word.kind == "modifier" or self._is_first_colour(number):
            begun.modifiers += (number,)
            return begun
        if not self.caption[word.end :].startswith(" of "):
            phrases.append(Phrase(head=number, sentence=self.sentences[number], **vars(begun)))
            return _Begun()
        if begun.modifiers and self.texts[number] in _SIDES:  # "a black dog left of a cat"
            *modifiers, head = begun.modifiers
            begun.modifiers = tuple(modifiers)
            phrases.append(Phrase(head=head, sentence=self.sentences[number], **vars(begun)))
            return _Begun(link=f"{self.texts[number]} of", link_words=(number,))
        words = (*begun.modifiers, number)
        begun.modifiers = ()
        if begun.determiner in _ARTICLES:
            begun.amount, begun.amount_words = f"{self.caption[self.words[words[0]].start : word.end]} of", words
        else:  # "left of", "to the left of", "in front of"
            texts = (self.texts[n] for n in words)
            begun.link, begun.link_words = " ".join(filter(None, [begun.link, begun.determiner, *texts, "of"])), words
        return begun

    def _before(self, number: int) -> list[str]:
        """Returns the function words between this content word and the previous one."""
        return re.findall(r"\w+", self._gap(number).lower())

    def _gap(self, number: int) -> str:
        """Returns the text between this content word and the previous one in its sentence."""
        gap = self.caption[self.words[number - 1].end if number else 0 : self.words[number].start]
        return STOP.split(gap)[-1]

    def _verb(self, number: int) -> str:
        """Returns a verb, with a preceding "and": "and reads" in "sits on a bench and reads"."""
        joined = self._before(number)[-1:] == ["and"]
        return f"and {self.texts[number]}" if joined else self.texts[number]

    def _is_first_colour(self, number: int) -> bool:
        """Returns whether a word is the first of two joined colours: "black" in "a black and white dog"."""
        after = self.words[number + 1 : number + 2]
        return (
            bool(after)
            and self._gap(number + 1) == " and "
            and self.texts[number] in COLOURS
            and (after[0].kind == "modifier" or self.texts[number + 1] in COLOURS)
        )

    def _modifiers(self, phrase: Phrase, kept: Set[int]) -> list[str]:
        """Returns the modifiers to keep, with "and" between two colours if the description has it there."""
        numbers = [number for number in phrase.modifiers if number in kept]
        joined = {number for number in numbers if self._is_first_colour(number) and number + 1 in numbers}
        return [f"{self.texts[number]} and" if number in joined else self.texts[number] for number in numbers]

    def stands(self, phrase: Phrase, kept: Set[int], noun: str) -> bool:
        """Returns whether `condensed` contains the phrase."""
        return not kept.isdisjoint((phrase.head, *phrase.modifiers) if noun else (phrase.head,))

    def nouns(self, kept: Set[int], noun: str = "thing") -> list[str]:
        """Returns the nouns of `condensed`."""
        standing = [phrase for phrase in self.phrases if self.stands(phrase, kept, noun)]
        lead = [noun] if noun and standing and standing[0].link and not standing[0].spatial else []
        return lead + [self.name(phrase, kept, noun) for phrase in standing]

    def name(self, phrase: Phrase, kept: Set[int], noun: str) -> str:
        """Returns the phrase's noun if it is kept, else ``noun``, in the same number."""
        head = self.texts[phrase.head]
        plural = phrase.determiner not in _ARTICLES and head.endswith("s") and not head.endswith("ss")
        return head if phrase.head in kept else f"{noun}s" if plural else noun

    def condensed(self, kept: Set[int], noun: str = "thing", again: Set[int] = frozenset()) -> str:
        """Returns a caption that contains only the kept content words; may be "".

        Keeps a phrase if its noun or one of its modifiers is kept, and replaces a noun that is not kept with ``noun``.
        If ``noun`` is empty, keeps only phrases whose noun is kept. Keeps relations between phrases that are adjacent
        in both texts, and prepositions whose phrase is kept; replaces others with "and".

        again: words omitted because they repeat earlier ones; prepositional phrases that belong to such nouns are kept.
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
                said.insert(0, article(said[0]) if phrase.determiner in _ARTICLES else phrase.determiner)
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
        """Returns whether a prepositional phrase can belong only to this phrase, which is not kept.

        For example, "a dog and a man in a hat" without the man must not become "a dog in a hat", nor "a man in a hat on
        a horse" become "a hat on a horse" if no ``noun`` replaces the man.
        """
        if place < 0 or self.stands(phrase := self.phrases[place], kept, noun):
            return False
        joined = not _CONJUNCTIONS.isdisjoint(self._before(min(phrase.words)))
        return (joined or not noun) and self.texts[phrase.head].lower() not in _WHOLE


def without_repeats(caption: str) -> str:
    """Removes phrases that repeat an earlier phrase word for word, unless they begin with a word such as "another".

    Rebuilds the caption from the other phrases (`Description.condensed`); captions without repeats are unchanged.
    """
    description = Description(caption)
    said: set[tuple[str, ...]] = set()
    again: set[int] = set()
    for phrase in description.phrases:
        words = tuple(description.texts[number].lower() for number in (*phrase.modifiers, phrase.head))
        if words in said and phrase.determiner in ("", *_ARTICLES, "the"):
            again.update(phrase.words)
        said.add(words)
    kept = set(range(len(description.words))) - again
    return description.condensed(kept, "", again) if again else caption


def _determiner(before: list[str]) -> tuple[str, list[str]]:
    """Splits function words into a final determiner ("" for none) and the words before it; ignores "very" and such."""
    while before and before[-1] in _INTENSIFIERS:
        before = before[:-1]
    return (before[-1], before[:-1]) if before and before[-1] in _DETERMINERS else ("", before)


def _preposition(ahead: list[str]) -> str:
    """Returns the preposition or light verb at the end of the function words before a phrase; "" for none."""
    if ahead[-2:] in _PAIRS:
        return " ".join(ahead[-2:])
    return ahead[-1] if ahead and ahead[-1] in (_PREPOSITIONS | _LIGHT_VERBS) - RELATIONS else ""


def _subject(phrases: list[Phrase], before: list[str]) -> int | None:
    """Returns the index of a verb's subject; None if it is ambiguous, as in "a man in a shirt and jeans sitting"."""
    free = [n for n, phrase in enumerate(phrases) if not phrase.link]
    if not phrases or (free and free[-1] == len(phrases) - 1 > len(free) - 1):
        return None
    return free[0] if len(free) == 1 and not _AUXILIARIES.isdisjoint(before) else len(phrases) - 1


# Removal of uncertain words from a caption.
_SOFT_DETERMINERS = word_set("a an the his her their its this that these those some another other each")
_NUMBERS = word_set("two three four five six seven eight nine ten several many some few")
_SOFT_PREPOSITIONS = RELATIONS | word_set(
    "on in at with of to from by into onto against inside outside for as up down out"
)
_GENERAL = word_set("thing things object objects item items shape shapes figure figures something stuff")
_SOFT_AUXILIARIES = word_set("is are was were be being been has have")


@dataclass
class _Token:
    """A word or a run of punctuation. ``kind`` is the kind of a content word, "" for other tokens."""

    text: str
    kind: str = ""
    doubted: bool = False  # content words only
    start: int = -1  # position in the caption, in characters, if known
    end: int = -1

    @property
    def lower(self) -> str:
        return self.text.lower()


def soften(caption: str, doubted: Sequence[bool]) -> str:
    """Removes doubted content words and keeps the caption grammatical, as far as rules without a tagger can.

    doubted: one value for each of `content_words`.

    Drops a doubted modifier, and a phrase after a preposition or "and" if all its words are doubted. Replaces any other
    doubted head with "thing", "things" or "something", and a doubted spatial preposition with "and". Adjusts "a" and
    "an". Keeps general nouns ("shape"), because no other noun claims less.

    Limits: English only. A noun before another noun counts as its modifier ("fire truck"). Verbs are recognized by
    their endings and a list of common ones; others are mistaken for nouns.
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
    """Removes doubted nouns before "of": "to the left of a dog" becomes "and a dog", "a group of dogs" "dogs"."""
    kept: list[_Token] = []
    for place, token in enumerate(tokens):
        if token.lower == "of" and kept and kept[-1].kind and kept[-1].doubted:
            while kept and kept[-1].kind:
                kept.pop()
            if kept and kept[-1].lower in _SOFT_DETERMINERS:
                kept.pop()
            if kept and kept[-1].lower in _SOFT_PREPOSITIONS:
                kept.pop()
                kept += [_Token("and")] if kept else []
        elif not (token.lower in _ARTICLES and kept[-1:] == [] and place):
            kept.append(token)
    return kept


def _phrases(tokens: list[_Token]) -> list[list[_Token]]:
    """Splits tokens into phrases before prepositions, "and", commas, and verbs with an object."""
    phrases: list[list[_Token]] = [[]]
    for place, token in enumerate(tokens):
        has_object = place + 1 < len(tokens) and tokens[place + 1].lower in _SOFT_DETERMINERS | _NUMBERS
        joins = token.lower in ("and", "or", ",")
        begins = joins or token.lower in _SOFT_PREPOSITIONS or (token.kind == "verb" and has_object)
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
        elif token.kind == "verb" and after is not None and after.lower in _SOFT_DETERMINERS | _NUMBERS:
            kept.append(_Token("with"))
        elif token.kind == "verb" and kept and kept[-1].lower in _SOFT_AUXILIARIES:
            kept.pop()
    return kept


def _with_neutral_noun(kept: list[_Token], head: _Token) -> list[_Token]:
    """Appends a neutral noun in place of a doubted head to the tokens before it."""
    modifiers = len(kept)
    while modifiers and kept[modifiers - 1].kind == "modifier":
        modifiers -= 1
    before = kept[modifiers - 1].lower if modifiers else ""
    counted = any(token.lower in _NUMBERS for token in kept[max(modifiers - 1, 0) :])
    if counted or (before not in _ARTICLES and head.lower.endswith("s") and not head.lower.endswith("ss")):
        return [*kept, _Token("things")]
    if before in _SOFT_DETERMINERS:
        return [*kept, _Token("thing")]
    return [*kept[:modifiers], _Token("something"), *kept[modifiers:]]  # "something green"


def _joined(tokens: list[_Token]) -> str:
    """Joins tokens into a text: strips and merges conjunctions and commas, and adjusts "a" and "an"."""
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
        if token.lower in _ARTICLES and after and WORD.match(after):
            word = article(after)
            word = word.capitalize() if token.text[0].isupper() else word
        text += word if not WORD.match(word) or not text else f" {word}"
    return text if any(token.kind or token.text.startswith(("thing", "something")) for token in tokens) else "something"


# Positions at phrase ends, where a caption can be cut.
_CUT_BEFORE = (_SOFT_PREPOSITIONS | _PREPOSITIONS | _CONJUNCTIONS | word_set("or where")) - {"of"}


def phrase_ends(sentence: str) -> list[int]:
    """Returns the positions where a sentence may be cut, in characters, in ascending order; the last is its length.

    It may be cut before a preposition, a conjunction, a comma or a participle with an object, if the word before is a
    noun, or a verb that needs no object. English only; recognizes verbs like `soften`.
    """
    words = content_words(sentence)
    kind_at = {word.end: word.kind for word in words}
    verbs = {word.start for word in words if word.kind == "verb"}
    tokens = list(re.finditer(r"\w+(?:[-'’]\w+)*|[^\w\s]+", sentence))
    ends = []
    for place in range(1, len(tokens)):
        before, token = tokens[place - 1], tokens[place]
        lower, last = token[0].lower(), before[0].lower()
        after = tokens[place + 1][0].lower() if place + 1 < len(tokens) else ""
        has_object = token.start() in verbs and after in _SOFT_DETERMINERS | _NUMBERS
        if not (lower in _CUT_BEFORE or lower[0] in ",;:(–—" or has_object):
            continue
        kind = kind_at.get(before.end())
        paired = last in COLOURS and after in COLOURS  # "a black and white dog"
        if (kind == "head" and not paired) or (kind == "verb" and last not in TAKE_OBJECTS):
            ends.append(before.end())
    return [*ends, len(sentence)]


# Removal of words that the user chose, without a neutral noun in their place.
_JOINS = ("and", "or", ",")
_ADJECTIVES = COLOURS | word_set("""
    tan beige golden silver blond blonde dark light pale bright spotted striped young old elderly small little large big
    huge tiny tall short long thin fat wet dry dirty muddy clean furry fluffy hairy curly shaggy bald bearded smiling
    happy
""")  # adjectives that may follow their noun between commas


def word_key(caption: str, word: Word) -> str:
    """Returns the key under which a content word is counted: lower case, nouns in the singular, by spelling only."""
    text = caption[word.start : word.end].lower()
    return singular(text) if word.kind in ("head", "modifier") else text


LONGEST_PHRASE = 4  # in content words


def word_runs(caption: str) -> list[list[tuple[str, Word]]]:
    """Returns the content words of a caption with their keys, split into runs at stops, commas and relations."""
    runs: list[list[tuple[str, Word]]] = [[]]
    end = 0
    for word in content_words(caption):
        if word.kind == "relation" or re.search(r"[^\w\s'’-]", caption[end : word.start]):
            runs.append([])
        end = word.end
        if word.kind != "relation":
            runs[-1].append((word_key(caption, word), word))
    return [run for run in runs if run]


def places_in_phrases(keys: Sequence[str], phrases: Set[tuple[str, ...]]) -> set[int]:
    """Returns the indices of the words of a run that belong to one of these phrases."""
    spans = ((start, size) for size in range(2, LONGEST_PHRASE + 1) for start in range(len(keys) - size + 1))
    return {
        place
        for start, size in spans
        if tuple(keys[start : start + size]) in phrases
        for place in range(start, start + size)
    }


def without_words(caption: str, left_out: Set[str], subject: str, sequences: Set[tuple[str, ...]] = frozenset()) -> str:
    """Removes content words by key (`word_key`), as far as the caption remains grammatical.

    Removes single modifiers. Removes a phrase after a preposition, a conjunction or a comma, and a participle with its
    object, only if all their words are to be removed. Replaces the noun phrase at the start of a sentence with
    ``subject``. Keeps a noun whose modifiers are kept ("table" in "on a wooden table"), and a phrase that the next one
    belongs to. Drops a sentence if only its subject is left, unless it is the first. English only; `soften` describes
    the limits.

    Args:
        left_out: keys of the words to remove.
        subject: the replacement for a removed subject.
        sequences: runs of keys; their words are removed only where they occur in this order (`word_runs`).
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
    phrases = _places_joined(_phrases(_colours_joined(_placed_tokens(sentence, words, out))))
    dropped: set[int] = set()
    for place in range(len(phrases) - 1, 0, -1):
        claims = [token for token in phrases[place] if token.kind and token.kind != "relation"]
        if phrases[place][0].lower == "of" and phrases[place - 1][-1].lower in _PLACES:  # "the side | of a dog"
            continue
        if claims and all(token.doubted for token in claims) and not _carries(phrases, place, dropped):
            dropped.add(place)
    kept: list[_Token] = []
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


def _placed_tokens(sentence: str, words: Sequence[Word], out: Sequence[bool]) -> list[_Token]:
    known = {word.start: (word.kind, left) for word, left in zip(words, out, strict=True)}
    found = re.finditer(r"\w+(?:[-'’]\w+)*|[^\w\s]+", sentence)
    return [_Token(match[0], *known.get(match.start(), ("", False)), *match.span()) for match in found]


def _colours_joined(tokens: list[_Token]) -> list[_Token]:
    """Merges joined colours such as "black and white" into one modifier, which can be removed only as a whole."""
    joined: list[_Token] = []
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
            joined[-2:] = [_Token(text, "modifier", both, before[0].start, token.end)]
        else:
            joined.append(token)
    return joined


def _places_joined(phrases: list[list[_Token]]) -> list[list[_Token]]:
    """Merges phrases such as "in front of a dog" or "next to a dog", which can be removed only as a whole."""
    joined: list[list[_Token]] = []
    for phrase in phrases:
        before, begins = (joined[-1] if joined else []), phrase[0].lower if phrase else ""
        if begins == "of" and before and before[0].lower in _SOFT_PREPOSITIONS and before[-1].lower in _PLACES:
            joined[-1] = [*before[:-1], replace(before[-1], kind=""), *phrase]
        elif begins == "to" and len(before) > 1 and before[-1].lower in ("next", "close"):
            joined[-1:] = [before[:-1], [replace(before[-1], kind=""), *phrase]]
        else:
            joined.append(phrase)
    return joined


def _carries(phrases: list[list[_Token]], place: int, dropped: Set[int]) -> bool:
    """Returns whether the next phrase that is kept belongs to this one, like "of wine" to "a glass", or "in a hat" to
    "and a man".
    """
    after = next((phrases[n][0].lower for n in range(place + 1, len(phrases)) if n not in dropped), "")
    if not place:
        return after == "of"
    joined = phrases[place][0].lower in _JOINS
    return bool(after) and after not in _JOINS if joined else after in ("of", "with")


def _with_subject(phrase: list[_Token], subject: str) -> list[_Token]:
    """Replaces the noun phrase that starts the phrase with ``subject`` if the phrase's noun is to be removed.

    Adjectives that are kept follow the subject: "NAME, black and white, is running". Other modifiers that are kept
    ("two", "fire") prevent the replacement.
    """
    head = next((n for n, token in enumerate(phrase) if token.kind == "head"), None)
    if head is None or not phrase[head].doubted:
        return phrase
    before, rest = phrase[:head], phrase[head + 1 :]
    said = [token for token in before if token.kind and not token.doubted]
    if any(not token.kind and token.lower not in _DETERMINERS for token in before):
        return phrase
    if not all(_ADJECTIVES.issuperset(re.findall(r"\w+", token.lower.replace(" and ", " "))) for token in said):
        return phrase
    name = _Token(subject, "subject", start=phrase[0].start, end=phrase[head].end)
    comma = _Token(",", "comma", start=name.end, end=name.end)
    return [name, comma, *said, comma, *rest] if said else [name, *rest]


def _without_modifiers(phrase: list[_Token], after: str) -> list[_Token]:
    """Drops a phrase's doubted modifiers, and a doubted verb before a preposition or at the end."""
    follows = [*(token.lower for token in phrase[1:]), ""]
    kept = [
        token
        for token, next_word in zip(phrase, follows, strict=True)
        if not (token.doubted and token.kind == "modifier") or is_participle(next_word)  # "a girl walking alone"
    ]
    said = [token for token in kept if WORD.match(token.text)]
    ends = not after or after in _SOFT_PREPOSITIONS | _PREPOSITIONS
    if ends and len(said) > 1 and said[-1].kind == "verb" and said[-1].doubted:
        gone = said[-1:]
        if len(said) > 2 and said[-2].lower in _SOFT_AUXILIARIES:
            gone = said[-2:]
        kept = [token for token in kept if token not in gone]
    return kept


def _spelled(tokens: list[_Token], sentence: str) -> str:
    """Joins tokens with the white space of the sentence, and adjusts "a" and "an".

    Strips conjunctions and commas at both ends, and before another one.
    """
    kept: list[_Token] = []
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
        if gap.strip():  # other text came between them
            gap = " " if WORD.match(token.text) else ""
        word = token.text
        if token.lower in _ARTICLES and place + 1 < len(tokens) and token.start + len(word) < tokens[place + 1].start:
            word = article(tokens[place + 1].text)
            word = word.capitalize() if token.text[0].isupper() else word
        text += gap + word if text else word
        end = token.end
    begins = bool(tokens) and tokens[0].kind != "subject" and sentence[:1].isupper()
    return text[:1].upper() + text[1:] if begins else text
