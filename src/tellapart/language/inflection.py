"""English articles, plurals and verb forms, by spelling and a short list of irregular nouns."""

from __future__ import annotations

_IRREGULAR = {
    "leaf": "leaves", "fish": "fish", "trout": "trout", "goldfish": "goldfish", "fungus": "fungi", "rhombus": "rhombi",
    "annulus": "annuli", "cumulus": "cumuli", "daisy": "daisies", "half-moon": "half-moons", "lightning": "lightning",
    "valentine": "valentines", "christmas-tree": "christmas-trees",
}  # fmt: skip


def article(word: str) -> str:
    """Returns a word's indefinite article, "a" or "an"."""
    vowel = word[:1].lower() in "aeiou" and not word.lower().startswith(("uni", "one", "eu"))
    return "an" if vowel or word.lower().startswith(("hour", "honest")) else "a"


def plural(noun: str) -> str:
    """Returns a noun's plural. Irregular nouns in `scenes` come from a list; other plurals depend on the noun's
    ending.
    """
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    return noun + ("es" if noun.endswith(("s", "x", "sh", "ch")) else "s")


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


def participle(phrase: str) -> str:
    """Returns a verb phrase's participle: "sliding left" for "slides left", "hopping" for "hops"."""
    verb, _, rest = phrase.partition(" ")
    stem = verb[:-1]
    if verb.endswith(("shes", "ches", "sses")):
        stem = verb[:-2]
    if stem in ("sit", "hop", "run"):
        stem += stem[-1]
    elif stem.endswith("e"):
        stem = stem[:-1]
    return f"{stem}ing {rest}".strip()
