"""Extracts the facts from captions of scenes. Uses no ground truth.

A thing maps slots ("shape", "colour", "size", "texture", "motion") to (value, the word used for it). "Near" counts only
if a pair of things has no other relation. "Between" is ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from tellapart.scenes import vocabulary as v
from tellapart.scenes.parser import parse_caption, phrases, tokens
from tellapart.scenes.phrase_senses import ground_core, senses
from tellapart.scenes.relations import INVERSE
from tellapart.scenes.word_forms import participle, plural

Word = tuple[str, str]  # (value, the word or phrase for it)
Thing = dict[str, Word]


@dataclass
class SceneFacts:
    """A caption's facts.

    relations: maps pairs (i, j) of things to the relation of i to j.
    number: minimum number of things.
    """

    things: list[Thing] = field(default_factory=list)
    relations: dict[tuple[int, int], Word] = field(default_factory=dict)
    ground: Word | None = None
    number: int = 0

    def relate(self, i: int, j: int, relation: Word) -> None:
        """Adds a relation, unless the pair already has an equally specific one."""
        known = self.between(i, j)
        if known is None or (known[0] == "near" != relation[0]):
            self.relations.pop((j, i), None)
            self.relations[i, j] = relation

    def between(self, i: int, j: int) -> Word | None:
        """Returns the relation of i to j, or None. It does not matter which of the two the caption mentions first."""
        if (i, j) in self.relations or (j, i) not in self.relations:
            return self.relations.get((i, j))
        kind, word = self.relations[j, i]
        return (kind, word) if kind == "near" else (INVERSE[kind], v.RELATIONS[INVERSE[kind]][0])


def facts_of(caption: str) -> SceneFacts:
    """Extracts the facts from one caption. Never fails, because phrases that `scenes` does not know are skipped."""
    parsed, used = parse_caption(caption), _used_phrases(caption)

    def word(slot: str, value: str) -> Word:
        return value, used.get((slot, value)) or v.WORDS[slot][value][0]

    facts = SceneFacts(number=len(parsed.mentions))
    for mention in parsed.mentions:
        values = {"shape": (mention.shape,), **mention.values} if mention.shape else mention.values
        facts.things.append({slot: word(slot, stated[0]) for slot, stated in values.items()})
    for kind, *things in parsed.relations:
        if kind != "between" and things[0] != things[1]:
            facts.relate(int(things[0]), int(things[1]), word("relation", str(kind)))
    if parsed.grounds:
        facts.ground = word("ground", parsed.grounds[0])
    return facts


def _used_phrases(caption: str) -> dict[tuple[str, str], str]:
    """Maps each (kind, value) in a caption to the usual form of the first phrase that expresses it."""
    words = tokens(caption)
    used: dict[tuple[str, str], str] = {}
    for at, length, sense in phrases(words):
        if sense is not None and sense.value:
            phrase = " ".join(words[at : at + length])
            used.setdefault((sense.kind, sense.value), _usual_forms().get((sense.kind, phrase), phrase))
    return used


@lru_cache(maxsize=1)
def _usual_forms() -> dict[tuple[str, str], str]:
    """Maps plurals to singulars, participles to finite verbs, and backgrounds to a phrase with its preposition."""
    forms: dict[tuple[str, str], str] = {}
    for key, sense in senses().items():
        if sense.kind == "shape" and not sense.plural:
            forms["shape", plural(" ".join(key))] = " ".join(key)
    for spoken in (phrase for row in v.MOTIONS.values() for phrase in row):
        verb, _, rest = spoken.partition(" ")
        for doing in (participle(verb), verb):
            forms["motion", f"{doing} {rest}".strip()] = spoken
            forms["motion", f"{doing} {rest}wards"] = spoken
    for row in (*v.ALT_WORDS["ground"].values(), *v.GROUNDS.values()):
        forms |= {("ground", ground_core(phrase)): phrase for phrase in reversed(row)}
    return forms
