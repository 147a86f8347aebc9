"""Simplifies captions to the subject, or to subject, verb and object (paper 1, section 3.4 and figure 4b).

The paper derives Simplest-COCO ("a girl") and Simpler-COCO ("a man working") from COCO's captions with spaCy's parser.
Here, HanTa tags the words, and the rules in `tellapart.language.claims` parse them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tellapart.language.claims import Extraction, Relation, extract
from tellapart.language.inflection import with_article
from tellapart.language.tagged_words import TaggedWord, sentences
from tellapart.utils.progress import Progress

Keep = Literal["subject", "svo"]


@dataclass(frozen=True)
class Simplified:
    """Simplified captions.

    texts: simplified captions by id.
    captions: the number of captions before simplification.
    dropped: the number of captions without a subject, which ``texts`` omits.
    """

    texts: dict[str, list[str]]
    captions: int
    dropped: int

    @property
    def words(self) -> float:
        """Returns the mean length in words."""
        lengths = [len(text.split()) for own in self.texts.values() for text in own]
        return sum(lengths) / len(lengths) if lengths else 0.0


def simplify_all(texts: Mapping[str, Sequence[str]], keep: Keep) -> Simplified:
    """Simplifies every caption, keeping the order of ids and captions. Drops ids for which no caption remains."""
    found: dict[str, list[str]] = {}
    with Progress(len(texts), "ids") as progress:
        for id_, own in texts.items():
            if short := [one for text in own if (one := simplify(text, keep))]:
                found[id_] = short
            progress.advance()
    captions = sum(map(len, texts.values()))
    return Simplified(found, captions, captions - sum(map(len, found.values())))


def simplify(caption: str, keep: Keep) -> str:
    """Returns a phrase such as "a girl" (for "subject"), or "a man riding a wave" or "a dog running" (for "svo").
    Returns "" if the caption mentions no object.

    The verb keeps its form, and "is" and "are" are dropped. For a caption without a verb, returns only the subject.
    """
    extraction = extract(caption)
    if not extraction.mentions:
        return ""
    words = [word for sentence in sentences(caption) for word in sentence]
    subject = _with_article(extraction, 0, words)
    if keep == "subject":
        return subject
    return " ".join((subject, *_predicate(extraction, words)))


def _predicate(extraction: Extraction, words: Sequence[TaggedWord]) -> Iterator[str]:
    """Yields the subject's first verb, and the verb's object if it has one."""
    action = next((one for one in extraction.mentions[0].attributes if one.action), None)
    relation = next((one for one in extraction.relations if one.subject == 0 and _verb(one, words)), None)
    if relation is not None and (action is None or relation.span < action.spans[0]):
        yield str(_verb(relation, words))
        yield _with_article(extraction, relation.objects[0], words)
    elif action is not None:
        yield _verbs_between(words, *action.spans[0]) or action.text


def _verb(relation: Relation, words: Sequence[TaggedWord]) -> str:
    """Returns a relation's verb if it has a direct object, otherwise "" (for "on" and for "sitting on")."""
    inside = [word for word in words if relation.span[0] <= word.start and word.end <= relation.span[1]]
    return inside[-1].text if inside and _is_verb(inside[-1]) else ""


def _verbs_between(words: Sequence[TaggedWord], start: int, end: int) -> str:
    return " ".join(word.text for word in words if start <= word.start and word.end <= end and _is_verb(word))


def _is_verb(word: TaggedWord) -> bool:
    return word.is_a("VV", "VD", "VH") or (word.is_a("AJ0", "NN1") and word.text.endswith("ing"))


def _with_article(extraction: Extraction, number: int, words: Sequence[TaggedWord]) -> str:
    """Returns a mention's noun, with "a" or "an" if it is singular."""
    mention = extraction.mentions[number]
    start, end = mention.spans[0]
    at = next((n for n in reversed(range(len(words))) if start <= words[n].start and words[n].end <= end), None)
    noun = mention.text.split()[-1] if at is None else words[at].text
    if mention.count > 1 or (at is not None and _is_plural(words, at)):
        return noun
    return with_article(noun)


def _is_plural(words: Sequence[TaggedWord], at: int) -> bool:
    """Returns whether a noun is plural, according to its tag. "a" or "an" before the phrase overrides a wrong tag."""
    lead = at
    while lead and words[lead - 1].is_a("AJ", "NN", "VVG", "VVN", "AV"):
        lead -= 1
    if lead and words[lead - 1].text in ("a", "an"):
        return words[at].lemma == "people"
    return words[at].is_a("NN2") or (words[at].is_a("NN0") and words[at].lemma == "people")
