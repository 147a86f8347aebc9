"""Which words of a caption are verbs, by closed lists and endings: English without a tagger."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.utils.text import word_set

_LEMMAS = """
    attempt balance bark bend bite bound bounce carry catch celebrate chase chew climb compete crawl cross crouch dance
    dig dive drag drive eat embrace enter examine exit fetch fly follow gaze get give go grab grin grind grip hang hike
    hit hold hop hug hurdle jog jump kick kiss kneel laugh lay lead lean leap lick lie lift listen look make paddle
    perform perch play point pose practice practise prepare pull push race raise reach read relax rest ride roll row run
    sail scale shake share shoot shovel sing sit sleep slide smell smile smoke sniff splash sprint stand stare stretch
    swim take talk throw toss touch travel trot try tumble use wade wait walk watch wave wear work wrestle write
"""
# Of these the form in -s is mostly a plural noun of captions ("sails", "waves", "on a row of rides").
_NOUNS_IN_S = "bites barks bounds hops hurdles paddles perches points races rolls rows sails scales waves works"


def _third_person(lemma: str) -> str:
    if lemma.endswith("y") and lemma[-2] not in "aeiou":
        return f"{lemma[:-1]}ies"
    return f"{lemma}es" if lemma.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{lemma}s"


_BASE = word_set(_LEMMAS)
_NO_NOUNS = word_set("sit wear carry eat chase examine enter perform listen swim lie stare gaze look")  # in captions
_PAST = word_set("sat stood ran swam")
_FINITE = frozenset(map(_third_person, _BASE)) - word_set(_NOUNS_IN_S) | _PAST
# Participles that stand before their object, hardly ever before a noun that they describe.
_TAKE_OBJECTS = word_set("""
    wearing holding carrying riding playing doing performing using chasing throwing catching watching pulling pushing
    eating drinking reading making taking getting having
""")
_NO_PARTICIPLES = word_set("""
    building railing clothing ceiling painting wedding evening morning string spring landing crossing opening awning
    siding sibling duckling lightning pudding icing frosting topping dressing stuffing something nothing anything
    everything being parking flooring lighting bedding meeting gathering offspring covering drawing carving marking
    earring scaffolding swing surrounding hundred naked sacred
""")
_PLURALS = word_set("people men women children kids guys others they who")
_NUMBERS = word_set("two three four five six several many")
COPULAS = word_set("is are was were be been being")
_BEFORE_VERBS = word_set("and or who which that while as then he she it they")


def is_participle(word: str) -> bool:
    """By its ending; in lower case."""
    ending = word.endswith("ing") or (word.endswith("ed") and not word.endswith("eed"))
    return ending and len(word) > 5 and word not in _NO_PARTICIPLES


def verb_place(words: Sequence[str], before: str) -> int | None:
    """Which of several content words in a row, in lower case, is a verb; the first such. None without one.

    before: the function word in front of them, or "".
    """
    return next((place for place in range(len(words)) if _is_verb(words, place, before)), None)


def _is_verb(words: Sequence[str], place: int, before: str) -> bool:
    word, last = words[place], place == len(words) - 1
    if place == 0:
        ends = last and word.endswith("ing") and is_participle(word)
        after_verb = ends or word in _TAKE_OBJECTS | _FINITE | _NO_NOUNS
        return (
            (is_participle(word) and before in COPULAS)
            or (before in _BEFORE_VERBS and after_verb)
            or (before in ("they", "who") and word in _BASE)
        )
    noun = words[place - 1]
    plural = noun in _PLURALS or (noun.endswith("s") and not noun.endswith("ss"))
    singular = last and before in ("a", "an") and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return (
        (last and is_participle(word))
        or word in _TAKE_OBJECTS | _NO_NOUNS
        or singular
        or (word in _FINITE and noun not in _NUMBERS)
        or (word in _BASE and (plural or (before == "and" and last)))
    )
