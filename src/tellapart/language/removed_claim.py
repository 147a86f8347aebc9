"""Rewrites a caption without one word's claim, either with a neutral substitute or without the word."""

from __future__ import annotations

from tellapart.language.words import Word


def neutral(caption: str, word: Word) -> str:
    """Removes a word's claim from the caption: drops a modifier or a verb, and replaces a head with "thing" and a
    relation with "and".
    """
    stands_for = {"modifier": "", "head": "thing", "verb": "", "relation": "and"}[word.kind]
    return " ".join(f"{caption[: word.start]}{stands_for}{caption[word.end :]}".split())


def without(caption: str, word: Word) -> str:
    """Returns the caption without the word."""
    return " ".join(f"{caption[: word.start]}{caption[word.end :]}".split())
