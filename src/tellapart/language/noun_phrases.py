"""Finds noun phrases, their heads, and complex prepositions, using rules over part-of-speech tags."""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.language.tagged_words import TaggedWord

# Complex prepositions. The nouns in them are not objects.
_SIDES = ("left", "right", "top", "bottom", "side", "back", "front", "middle", "center", "centre", "edge", "end")
_COMPLEX = {
    *(f"{lead}{side} {tail}" for side in _SIDES for lead in ("", "the ", "to the ", "on the ", "at the ", "in the ")
      for tail in ("of", "from", "side of", "hand side of")),
    *(f"{lead} {side} of" for side in _SIDES for lead in ("in", "on", "at", "along", "by")),
    *("next to", "close to", "near to", "adjacent to", "similar to", "due to", "opposite to", "attached to"),
    *("in between", "out of", "away from", "inside of", "outside of", "on to", "up to", "such as", "as well as"),
    *("higher than", "lower than", "larger than", "smaller than", "taller than", "bigger than"),
    *("along with", "together with", "full of", "filled with", "covered in", "surrounded by", "made of"),
}  # fmt: skip
_LONGEST = max(len(phrase.split()) for phrase in _COMPLEX)
RELATIVE = frozenset(("which", "that", "who", "whose", "where"))


def complex_preposition(words: Sequence[TaggedWord], at: int) -> int:
    """Returns the number of words in the complex preposition that starts at ``at``, or 0 if none starts there."""
    for length in range(min(_LONGEST, len(words) - at), 1, -1):
        if " ".join(word.text for word in words[at : at + length]) in _COMPLEX:
            return length
    return 0


def phrase_end(words: Sequence[TaggedWord], at: int) -> int:
    """Returns the furthest possible end of a noun phrase that starts at ``at``, or 0 if no noun phrase starts there."""
    word = words[at]
    if not (word.is_a("AT", "DT0", "DPS", "CRD", "AJ", "NN", "NP") and word.text not in RELATIVE):
        return 0
    end = at + 1
    while end < len(words) and not words[end].after_break and not complex_preposition(words, end):
        if not words[end].is_a(*_INSIDE) and not _adverb_inside(words, end):
            break
        if words[end].is_a("AT", "DPS") and not words[end - 1].is_a("DT0"):
            break
        end += 1
    return end


_INSIDE = ("AT", "DT0", "DPS", "CRD", "ORD", "AJ", "NN", "NP", "VVN", "VVD", "VVG", "VVB", "VVZ")


def _adverb_inside(words: Sequence[TaggedWord], at: int) -> bool:
    """Returns whether the word is an adverb within a phrase, as in "a very large dog"."""
    if not words[at].is_a("AV0", "DT") or at + 1 == len(words):
        return False
    if words[at - 1].is_a("NN"):
        return words[at + 1].is_a("NN1")
    before = words[at - 1].is_a("AT", "DT", "DPS", "CRD", "AJ", "AV0")
    return before and words[at + 1].is_a("AJ", "NN", "AV0", "VVN", "VVD", "VVG")


def content_run(words: Sequence[TaggedWord], start: int, end: int) -> tuple[list[TaggedWord], int, TaggedWord | None]:
    """Returns a phrase's content words, its end, and the verb at the end if the tagger mistook the verb for a noun.

    A verb after a noun is not part of the phrase.
    """
    singular = start > 0 and words[start - 1].text in ("a", "an", "one", "another")
    noun = False
    for at in range(start, end):
        word = words[at]
        following = words[at + 1] if at + 1 < end else None
        if word.is_a("VV"):
            modifies = following is not None and following.is_a("NN", "AJ", "NP", "VVN", "VVD")
            if word.is_a("VVG"):
                modifies = modifies and not noun
            elif noun:
                modifies = modifies and following is not None and following.is_a("NN1", "NN0", "AJ") and singular
            if word.is_a("VVZ", "VVB") or not modifies:
                return list(words[start:at]), at, None
        elif noun and singular and word.is_a("NN2") and words[at - 1].is_a("NN1"):
            return list(words[start:at]), at, word  # in "a disk floats", the second "noun" is a verb
        noun = noun or word.is_a("NN", "NP")
    return list(words[start:end]), end, None


def split_head(run: Sequence[TaggedWord], article: bool) -> tuple[TaggedWord | None, list[TaggedWord]]:
    """Returns the object's noun (or None if there are only adjectives) and the words before the noun.

    After an article, there is always an object, even if the tagger found only adjectives.
    """
    run = [word for place, word in enumerate(run) if not word.is_a("AV0") or _is_attribute(run, place)]
    nouns = [number for number, word in enumerate(run) if word.is_a("NN", "NP")]
    if not nouns and article and run:
        nouns = [len(run) - 1]
    if not nouns:
        return None, list(run)
    last = nouns[-1] if nouns[-1] == len(run) - 1 or nouns[-1] > 0 else len(run) - 1
    head = run[last]
    return head, [word for word in run[:last] if not word.is_a("ORD")] + list(run[last + 1 :])


def _is_attribute(run: Sequence[TaggedWord], place: int) -> bool:
    """Returns whether an adverb is an attribute. It is an attribute before a noun, but not before an adjective."""
    return run[place].text == "little" or (place + 1 < len(run) and run[place + 1].is_a("NN"))
