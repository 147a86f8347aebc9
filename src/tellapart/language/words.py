"""Finds the content words of a caption and the tokens of each.

A content word claims something about the picture. It is found by excluding a closed list of English function words, or
by HanTa's tags (the extra ``words``); neither method depends on a data set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Literal, Protocol

from tellapart.errors import need_extra
from tellapart.language.english import FUNCTION_WORDS, analyser, third_person, word_set
from tellapart.types import Rollout

if TYPE_CHECKING:
    import torch

Kind = Literal["modifier", "head", "verb", "relation"]
KINDS: tuple[Kind, ...] = ("modifier", "head", "verb", "relation")
NO_WORD = -1
BLANK = "▁"  # SentencePiece's white space


_WORD = re.compile(r"\w+(?:[-'’]\w+| ['’]s\b)*")  # also matches the PTB tokenizer's "farmer 's" as one word
STOP = re.compile(r"[.!?]+(?=\s|$)")  # the end of a sentence
# Prepositions that claim where something is; the other function words claim nothing.
RELATIONS = word_set("""
    over under above below behind beside beneath underneath between across along around through near off inside outside
""")
_CLAIM_NOTHING = FUNCTION_WORDS | word_set("""
    i we you me us them see sees seen show shows shown there here what where when how both all next do does did also
    very so then than been am will would can could may might must not no doing whilst toward towards upon past during
    among too quite nearby together away apart forward backwards ahead
""")
_NUMBERS = word_set("two three four")
COLOURS = word_set("black white red blue green yellow brown gray grey orange pink purple")
_OPENING = re.compile(r"^\W*(?:an? |the )?(?:picture|photo|photograph|image|view|close-?up|drawing|clip|video) of\b")

# Verbs, by closed lists and endings.
_LEMMAS = """
    attempt balance bark bend bite bound bounce carry catch celebrate chase chew climb compete crawl cross crouch dance
    dig dive drag drive eat embrace enter examine exit fetch fly follow gaze get give go grab grin grind grip hang hike
    hit hold hop hug hurdle jog jump kick kiss kneel laugh lay lead lean leap lick lie lift listen look make paddle
    perform perch play point pose practice practise prepare pull push race raise reach read relax rest ride roll row run
    sail scale shake share shoot shovel sing sit sleep slide smell smile smoke sniff splash sprint stand stare stretch
    swim take talk throw toss touch travel trot try tumble use wade wait walk watch wave wear work wrestle write
"""
# Forms in -s that are mostly plural nouns in captions ("sails", "waves").
_NOUNS_IN_S = "bites barks bounds hops hurdles paddles perches points races rolls rows sails scales waves works"


_BASE = word_set(_LEMMAS)
# Base forms that are always verbs in captions.
_NO_NOUNS = word_set("sit wear carry eat chase examine enter perform listen swim lie stare gaze look")
_PAST = word_set("sat stood ran swam")
_FINITE = frozenset(map(third_person, _BASE)) - word_set(_NOUNS_IN_S) | _PAST
# Participles that usually precede their object, rather than a noun that they modify.
TAKE_OBJECTS = word_set("""
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
_COUNTS = word_set("two three four five six several many")
COPULAS = word_set("is are was were be been being")
_BEFORE_VERBS = word_set("and or who which that while as then he she it they")


def is_participle(word: str) -> bool:
    """Returns whether a lower-cased word is a participle, by its ending."""
    ending = word.endswith("ing") or (word.endswith("ed") and not word.endswith("eed"))
    return ending and len(word) > 5 and word not in _NO_PARTICIPLES


def verb_place(words: Sequence[str], before: str) -> int | None:
    """Returns the index of the first verb in a run of lower-cased content words, or None.

    before: the function word before the run, or "".
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
    plural = noun in _PLURALS or (noun.endswith("s") and not noun.endswith("ss"))
    singular = last and before in ("a", "an") and word.endswith("s") and not word.endswith(("ss", "us", "is"))
    return (
        (last and is_participle(word))
        or word in TAKE_OBJECTS | _NO_NOUNS
        or singular
        or (word in _FINITE and noun not in _COUNTS)
        or (word in _BASE and (plural or (before == "and" and last)))
    )


def sentences(text: str) -> list[str]:
    """Splits a text into sentences, each with its final punctuation."""
    ends = [stop.end() for stop in STOP.finditer(text)]
    parts = [text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    return [part for part in parts if part]


@dataclass(frozen=True, slots=True)
class Word:
    """A content word: characters ``start`` to ``end`` of its caption. A ``relation`` is a spatial preposition."""

    start: int
    end: int
    kind: Kind


class DecodesTokens(Protocol):
    """The tokenizer methods that the alignment needs."""

    def batch_decode(self, rows: Sequence[Sequence[int]], *, skip_special_tokens: bool) -> list[str]: ...


FindWords = Callable[[str], list[Word]]


def content_words(caption: str) -> list[Word]:
    """Finds the content words of an English caption without a tagger.

    These are all words except function words and an opening such as "a picture of". A word directly before another is
    its modifier ("red" in "a red star"); others are heads. Verbs are recognised by their endings and a list of common
    ones; others are mistaken for nouns. A predicate ("asleep" in "is asleep") counts as a verb.
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
    """Returns whether a word is a predicate: "asleep" in "a cat is asleep", but not "left" in "is left of"."""
    return before in COPULAS and len(words) == 1 and words[0] not in COLOURS and not after.startswith(" of ")


def opening_end(caption: str) -> int:
    """Returns the end of an opening such as "a picture of", in characters; 0 without one."""
    opening = _OPENING.match(caption.lower())
    return opening.end() if opening else 0


def tagged_words(caption: str) -> list[Word]:
    """Finds content words by HanTa's tags: nouns are heads; adjectives, adverbs and numerals are modifiers.

    Spatial prepositions are relations, as in `content_words`. Raises `MissingExtra` if HanTa is not installed.
    """
    check_words("tagger")
    found: list[Word] = []
    place, lower = 0, caption.lower().replace("’", "'")
    for word, lemma, tag in analyser()(caption):
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


def neutral(caption: str, word: Word, noun: str = "thing") -> str:
    """Removes a word's claim from the caption: drops a modifier or verb, replaces a head by ``noun`` and a relation by
    "and".
    """
    stands_for = {"modifier": "", "head": noun, "verb": "", "relation": "and"}[word.kind]
    return " ".join(f"{caption[: word.start]}{stands_for}{caption[word.end :]}".split())


def without(caption: str, word: Word) -> str:
    """Returns the caption without the word."""
    return " ".join(f"{caption[: word.start]}{caption[word.end :]}".split())


def token_spans(
    rows: Sequence[Sequence[int]], texts: Sequence[str], tokenizer: DecodesTokens
) -> list[list[tuple[int, int]]]:
    """Returns the span of characters, (start, end), that each token of each row contributes to its text.

    Decodes every prefix of a row, so it also works for tokenizers that split words, non-ASCII characters (into bytes)
    or white space. A token that completes no character has an empty span at its position. The span of a token that
    completes characters and begins another includes that one, too.
    """
    return [
        [(start, end + (letter and start < end < len(text))) for start, end, letter in row]
        for row, text in zip(_written_spans(rows, texts, tokenizer), texts, strict=True)
    ]


def _written_spans(
    rows: Sequence[Sequence[int]], texts: Sequence[str], tokenizer: DecodesTokens
) -> list[list[tuple[int, int, bool]]]:
    """Returns the span of complete characters of each token, and whether the token begins another character."""
    prefixes = [row[:t] for row in rows for t in range(1, len(row) + 1)]
    decoded = iter(tokenizer.batch_decode(prefixes, skip_special_tokens=True))
    spans = []
    for row, text in zip(rows, texts, strict=True):
        ends, begun = [0], []
        for _ in row:
            written = next(decoded).lstrip()
            ends.append(max(ends[-1], common_start(written, text)))
            begun.append(written.endswith("\ufffd"))  # an incomplete character
        spans.append([(start, end, letter) for (start, end), letter in zip(pairwise(ends), begun, strict=True)])
    return spans


def token_bytes(row: Sequence[int], text: str, tokenizer: DecodesTokens) -> list[bytes]:
    """Returns the UTF-8 bytes of ``text`` that each token of a row contributes; concatenated, they are the text.

    If several tokens form one character, each but the last gets one byte of it, and the last gets the rest.
    """
    (spans,) = _written_spans([row], [text], tokenizer)
    found, begun = [], 0  # number of bytes of the next character that are already assigned
    for start, end, letter in spans:
        data = text[start:end].encode("utf-8", "surrogatepass")[begun:]
        begun = 0 if start < end else begun
        following = text[end : end + 1].encode("utf-8", "surrogatepass") if letter else b""
        if begun + 1 < len(following):
            data += following[begun : begun + 1]
            begun += 1
        found.append(data)
    return found


def spelled_spans(text: str, pieces: Sequence[bytes]) -> list[tuple[int, int]] | None:
    """Returns the span of characters of each token, as `token_spans` does, for tokens given as bytes.

    Tokens before the text (reasoning) and after it (a stop token) have an empty span at its end. White space may
    differ. Returns None if the tokens do not spell the text.
    """
    wanted = [(byte, at) for at, letter in enumerate(text) if not letter.isspace() for byte in _utf8(letter)]
    letters = b"".join(pieces).decode("utf-8", "surrogateescape")
    written = [
        (byte, letter.isspace() or letter == BLANK)
        for letter in letters
        for byte in letter.encode("utf-8", "surrogateescape")
    ]
    first = bytes(byte for byte, space in written if not space).rfind(bytes(byte for byte, _ in wanted))
    if not wanted or first < 0:
        return None
    places, left = [at for _, at in wanted], iter(written)
    spans, passed = [], -first  # number of bytes so far, without white space, relative to the text's first byte
    for piece in pieces:
        chars = []
        for _, space in islice(left, len(piece)):
            inside = 0 <= passed < len(places)
            if not space:
                chars += [places[passed]] if inside else []
                passed += 1
            elif inside and passed and places[passed - 1] + 1 < places[passed]:
                chars.append(places[passed - 1] + 1)
        if chars:
            spans.append((chars[0], chars[-1] + 1))
        else:  # an empty span lies before the text only if nothing but white space precedes it
            at = places[passed] if 0 <= passed < len(places) and (passed or not first) else len(text)
            spans.append((at, at))
    return spans


def _utf8(letter: str) -> bytes:
    return letter.encode("utf-8", "surrogatepass")


def common_start(one: str, other: str) -> int:
    """Returns the length of the common prefix of two texts."""
    if other.startswith(one):
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def words_of_tokens(
    rollout: Rollout, tokenizer: DecodesTokens, find: FindWords
) -> tuple[list[list[Word]], torch.Tensor]:
    """Returns the content words of each caption, and word_RT, the index of each token's word, or `NO_WORD`.

    See `word_of_span` for the word that a token belongs to.
    """
    import torch

    word_RT = torch.full(rollout.tokens_RT.shape, NO_WORD, dtype=torch.long)
    rows = [tokens[valid].tolist() for tokens, valid in zip(rollout.tokens_RT, rollout.valid_RT, strict=True)]
    unique = {tuple(row): text for row, text in zip(rows, rollout.texts, strict=True)}
    spans = dict(zip(unique, token_spans(list(unique), list(unique.values()), tokenizer), strict=True))
    found = {text: find(text) for text in dict.fromkeys(rollout.texts)}
    for r, (row, text) in enumerate(zip(rows, rollout.texts, strict=True)):
        for t, span in enumerate(spans[tuple(row)]):
            word_RT[r, t] = word_of_span(span, found[text])
    return [found[text] for text in rollout.texts], word_RT


def word_of_span(span: tuple[int, int], words: Sequence[Word]) -> int:
    """Returns the index of the word that a token with this span of characters belongs to, or `NO_WORD`.

    This is the first word that overlaps the span; for an empty span, the word that contains its position.
    """
    start, end = span
    for number, word in enumerate(words):
        overlaps = start < word.end and word.start < end
        if overlaps or (start == end and word.start <= start < word.end):
            return number
    return NO_WORD


WORD_FINDERS: dict[str, FindWords] = {"list": content_words, "tagger": tagged_words}
