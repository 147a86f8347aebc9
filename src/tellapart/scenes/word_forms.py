"""Plurals and participles of the words in `vocabulary`."""

from __future__ import annotations

_IRREGULAR = {
    "leaf": "leaves", "fish": "fish", "trout": "trout", "goldfish": "goldfish", "fungus": "fungi", "rhombus": "rhombi",
    "annulus": "annuli", "cumulus": "cumuli", "daisy": "daisies", "half-moon": "half-moons", "lightning": "lightning",
    "valentine": "valentines", "christmas-tree": "christmas-trees",
}  # fmt: skip


def plural(noun: str) -> str:
    """Returns a noun's plural. Irregular nouns come from a list; other plurals depend on the noun's ending."""
    if noun in _IRREGULAR:
        return _IRREGULAR[noun]
    return noun + ("es" if noun.endswith(("s", "x", "sh", "ch")) else "s")


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
