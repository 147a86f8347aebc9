"""Finds a caption's content words.

A content word claims something about the picture. Content words are found either by excluding a closed list of English
function words or with HanTa's tags (the extra ``words``). Neither method depends on a data set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tellapart.errors import need_extra
from tellapart.language.english_words import COLOURS, COPULAS, FUNCTION_WORDS, RELATIONS, TAKE_OBJECTS, word_set
from tellapart.language.inflection import looks_plural, third_person
from tellapart.language.sentences import STOP
from tellapart.language.tagged_words import analyse

Kind = Literal["modifier", "head", "verb", "relation"]
WORD_KINDS: tuple[Kind, ...] = ("modifier", "head", "verb", "relation")


_WORD = re.compile(r"\w+(?:[-'’]\w+| ['’]s\b)*")  # also matches the PTB tokenizer's "farmer 's" as one word
_CLAIM_NOTHING = FUNCTION_WORDS | word_set("""
    i we you me us them see sees seen show shows shown there here what where when how both all next do does did also
    very so then than been am will would can could may might must not no doing whilst toward towards upon past during
    among too quite nearby together away apart forward backwards ahead
""")
_NUMBERS = word_set("two three four")
_OPENING = re.compile(r"^\W*(?:an? |the )?(?:picture|photo|photograph|image|view|close-?up|drawing|clip|video) of\b")

# Closed lists and endings that identify verbs.
_LEMMAS = """
    attempt balance bark bend bite bound bounce carry catch celebrate chase chew climb compete crawl cross crouch dance
    dig dive drag drive eat embrace enter examine exit fetch fly follow gaze get give go grab grin grind grip hang hike
    hit hold hop hug hurdle jog jump kick kiss kneel laugh lay lead lean leap lick lie lift listen look make paddle
    perform perch play point pose practice practise prepare pull push race raise reach read relax rest ride roll row run
    sail scale shake share shoot shovel sing sit sleep slide smell smile smoke sniff splash sprint stand stare stretch
    swim take talk throw toss touch travel trot try tumble use wade wait walk watch wave wear work wrestle write
"""
# Forms in -s that are usually plural nouns in captions ("sails", "waves").
_NOUNS_IN_S = "bites barks bounds hops hurdles paddles perches points races rolls rows sails scales waves works"


_BASE = word_set(_LEMMAS)
# Base forms that are always verbs in captions.
_NO_NOUNS = word_set("sit wear carry eat chase examine enter perform listen swim lie stare gaze look")
_PAST = word_set("sat stood ran swam")
_FINITE = frozenset(map(third_person, _BASE)) - word_set(_NOUNS_IN_S) | _PAST
_NO_PARTICIPLES = word_set("""
    building railing clothing ceiling painting wedding evening morning string spring landing crossing opening awning
    siding sibling duckling lightning pudding icing frosting topping dressing stuffing something nothing anything
    everything being parking flooring lighting bedding meeting gathering offspring covering drawing carving marking
    earring scaffolding swing surrounding hundred naked sacred
""")
_PLURALS = word_set("people men women children kids guys others they who")
_COUNTS = word_set("two three four five six several many")
_BEFORE_VERBS = word_set("and or who which that while as then he she it they")


def is_participle(word: str) -> bool:
    """Returns whether a lower-cased word is a participle, judging by its ending."""
    ending = word.endswith("ing") or (word.endswith("ed") and not word.endswith("eed"))
    return ending and len(word) > 5 and word not in _NO_PARTICIPLES


def verb_place(words: Sequence[str], before: str) -> int | None:
    """Returns the index of the first verb in a run of lower-cased content words, or None.

    before: the function word before the run, or "" if there is none.
    """
    return next((place for place in range(len(words)) if _is_verb(words, place, before)), None)


def _is_verb(words: Sequence[str], place: int, before: str) -> bool:
    word, last = words[place], place == len(words) - 1
    if place == 0:
        ends = last and word.endswith("ing") and is_participle(word)
        after_verb = ends or word in TAKE_OBJECTS | _FINITE | _NO_NOUNS
        return (
            (is_participle(word) and before in COPULAS)
            or (before in _BEFORE_VERBS and after_verb)
            or (before in ("they", "who") and word in _BASE)
        )
    noun = words[place - 1]
    plural = noun in _PLURALS or looks_plural(noun)
    singular = last and before in ("a", "an") and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return (
        (last and is_participle(word))
        or word in TAKE_OBJECTS | _NO_NOUNS
        or singular
        or (word in _FINITE and noun not in _COUNTS)
        or (word in _BASE and (plural or (before == "and" and last)))
    )


@dataclass(frozen=True, slots=True)
class Word:
    """A content word, which spans the characters ``start`` to ``end`` of its caption. A ``relation`` is a spatial
    preposition.
    """

    start: int
    end: int
    kind: Kind


FindWords = Callable[[str], list[Word]]


def content_words(caption: str) -> list[Word]:
    """Finds the content words of an English caption without a tagger.

    These are all words except for function words and an opening such as "a picture of". A word directly before another
    word is its modifier ("red" in "a red star"); other words are heads. Verbs are recognized by their endings and by a
    list of common verbs; other verbs are mistaken for nouns. A predicate ("asleep" in "is asleep") counts as a verb.
    """
    opening = opening_end(caption)
    found: list[Word] = []
    run: list[Word] = []  # adjacent content words, separated only by white space
    before = ""
    for match in _WORD.finditer(caption, opening):
        word = match.group().lower()
        claims = word in _NUMBERS or re.split("['’]", word)[0] not in _CLAIM_NOTHING
        gap = caption[run[-1].end : match.start()] if run else ""
        if run and (not claims or word in RELATIONS or gap.strip()):
            found += _with_kinds(run, caption, before)
            run, before = [], "" if STOP.search(gap) else before
        if word in RELATIONS:
            found.append(Word(*match.span(), "relation"))
        elif claims:
            run.append(Word(*match.span(), "head"))
        if not run and not (word == "and" and found and _is_colour(caption, found[-1])):  # "a black and white dog"
            before = word
    return [*found, *_with_kinds(run, caption, before)]


def _is_colour(caption: str, word: Word) -> bool:
    return caption[word.start : word.end].lower() in COLOURS


def _with_kinds(run: list[Word], caption: str, before: str) -> list[Word]:
    """Classifies adjacent words as modifiers, heads and verbs."""
    words = [caption[word.start : word.end].lower() for word in run]
    place = verb_place(words, before)
    if run and place is None and _is_predicate(words, caption[run[-1].end :], before):
        place = 0
    if place is None:
        return _noun_phrase(run)
    verb = replace(run[place], kind="verb")
    return [*_noun_phrase(run[:place]), verb, *_with_kinds(run[place + 1 :], caption, "")]


def _noun_phrase(run: list[Word]) -> list[Word]:
    return [replace(word, kind="modifier" if place < len(run) - 1 else "head") for place, word in enumerate(run)]


def _is_predicate(words: list[str], after: str, before: str) -> bool:
    """Returns whether a word is a predicate, like "asleep" in "a cat is asleep", but not "left" in "is left of"."""
    return before in COPULAS and len(words) == 1 and words[0] not in COLOURS and not after.startswith(" of ")


def opening_end(caption: str) -> int:
    """Returns the character position at which an opening such as "a picture of" ends, or 0 if there is no opening."""
    opening = _OPENING.match(caption.lower())
    return opening.end() if opening else 0


def tagged_words(caption: str) -> list[Word]:
    """Finds content words with HanTa's tags. Nouns are heads; adjectives, adverbs and numerals are modifiers.

    Spatial prepositions are relations, as in `content_words`. Raises `MissingExtra` if HanTa is not installed.
    """
    check_words("tagger")
    found: list[Word] = []
    place, lower = 0, caption.lower().replace("’", "'")
    for word, lemma, tag in analyse(caption):
        place = max(lower.find(word, place), place)
        span = (place, place + len(word))
        if place < opening_end(caption):
            pass
        elif word in RELATIONS:
            found.append(Word(*span, "relation"))
        elif tag.startswith("N"):
            found.append(Word(*span, "head"))
        elif tag.startswith("VV") and lemma not in _CLAIM_NOTHING:
            found.append(Word(*span, "verb"))
        elif tag.startswith(("AJ", "AV", "CRD")) and lemma not in _CLAIM_NOTHING - _NUMBERS:
            found.append(Word(*span, "modifier"))
        place = span[1]
    return found


def check_words(words: str) -> None:
    """Raises `MissingExtra` if ``words`` is ``tagger`` and HanTa is not installed."""
    if words == "tagger":
        need_extra("words", "content words by a tagger", "HanTa")


WORD_FINDERS: dict[str, FindWords] = {"list": content_words, "tagger": tagged_words}
