"""English articles and forms of words, by spelling."""

from __future__ import annotations


def article(word: str) -> str:
    """Returns a word's indefinite article, "a" or "an"."""
    vowel = word[:1].lower() in "aeiou" and not word.lower().startswith(("uni", "one", "eu"))
    return "an" if vowel or word.lower().startswith(("hour", "honest")) else "a"


def with_article(phrase: str) -> str:
    """Returns the phrase with "a" or "an" before it."""
    return f"{article(phrase)} {phrase}"


def looks_plural(noun: str) -> bool:
    """Returns whether a noun looks like a plural, judging only by the spelling ("things", but not "grass")."""
    return noun.endswith("s") and not noun.endswith("ss")


def singular(noun: str) -> str:
    """Returns a noun's singular ("thing" for "things"), judging only by the spelling."""
    return noun[:-1] if looks_plural(noun) else noun


def third_person(lemma: str) -> str:
    """Returns a verb's third person singular ("carries", "catches")."""
    if lemma.endswith("y") and lemma[-2] not in "aeiou":
        return f"{lemma[:-1]}ies"
    return f"{lemma}es" if lemma.endswith(("s", "sh", "ch", "x", "z", "o")) else f"{lemma}s"
