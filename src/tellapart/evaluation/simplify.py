"""The simplest captions that a caption contains, as in figure 4b of paper 1: its subject, or subject, verb and object.

Paper 1 (section 3.4) makes Simplest-COCO ("a girl") and Simpler-COCO ("a man working") of COCO's captions with spaCy's
parser. Here the words are tagged by HanTa and parsed by the rules of `tellapart.evaluation.facts.extract`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tellapart.evaluation.facts.claims import Extraction, Relation
from tellapart.evaluation.facts.extract import extract
from tellapart.evaluation.facts.words import Word, sentences
from tellapart.progress import Progress

Keep = Literal["subject", "svo"]


@dataclass(frozen=True)
class Simplified:
    """texts: by id, those without a subject left out. dropped: captions without one. words: mean length."""

    texts: dict[str, list[str]]
    captions: int
    dropped: int

    @property
    def words(self) -> float:
        lengths = [len(text.split()) for own in self.texts.values() for text in own]
        return sum(lengths) / len(lengths) if lengths else 0.0


def simplify_all(texts: Mapping[str, Sequence[str]], keep: Keep) -> Simplified:
    """Every caption simplified; the order of ids and captions stays. An id without a caption left is left out."""
    found: dict[str, list[str]] = {}
    with Progress(len(texts), "ids") as progress:
        for id_, own in texts.items():
            if short := [one for text in own if (one := simplify(text, keep))]:
                found[id_] = short
            progress.advance()
    captions = sum(map(len, texts.values()))
    return Simplified(found, captions, captions - sum(map(len, found.values())))


def simplify(caption: str, keep: Keep) -> str:
    """ "a girl" (subject), "a man riding a wave" or "a dog running" (svo); empty where the caption names nothing.

    The verb has the form that the caption gives it, without "is" and "are"; without a verb the subject is left.
    """
    extraction = extract(caption)
    if not extraction.mentions:
        return ""
    words = [word for sentence in sentences(caption) for word in sentence]
    subject = _with_article(extraction, 0, words)
    if keep == "subject":
        return subject
    return " ".join((subject, *_predicate(extraction, words)))


def _predicate(extraction: Extraction, words: Sequence[Word]) -> Iterator[str]:
    """The first verb of the subject in the caption, and its object where it has one."""
    action = next((one for one in extraction.mentions[0].attributes if one.action), None)
    relation = next((one for one in extraction.relations if one.subject == 0 and _verb(one, words)), None)
    if relation is not None and (action is None or relation.span < action.spans[0]):
        yield str(_verb(relation, words))
        yield _with_article(extraction, relation.objects[0], words)
    elif action is not None:
        yield _verbs_between(words, *action.spans[0]) or action.text


def _verb(relation: Relation, words: Sequence[Word]) -> str:
    """The verb of a relation where it is one with a direct object; empty for "on" and for "sitting on"."""
    inside = [word for word in words if relation.span[0] <= word.start and word.end <= relation.span[1]]
    return inside[-1].text if inside and _is_verb(inside[-1]) else ""


def _verbs_between(words: Sequence[Word], start: int, end: int) -> str:
    return " ".join(word.text for word in words if start <= word.start and word.end <= end and _is_verb(word))


def _is_verb(word: Word) -> bool:
    return word.is_a("VV", "VD", "VH") or (word.is_a("AJ0", "NN1") and word.text.endswith("ing"))


def _with_article(extraction: Extraction, number: int, words: Sequence[Word]) -> str:
    """The noun of a mention, with "a" or "an" where it is singular."""
    mention = extraction.mentions[number]
    start, end = mention.spans[0]
    at = next((n for n in reversed(range(len(words))) if start <= words[n].start and words[n].end <= end), None)
    noun = mention.text.split()[-1] if at is None else words[at].text
    if mention.count > 1 or (at is not None and _is_plural(words, at)):
        return noun
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def _is_plural(words: Sequence[Word], at: int) -> bool:
    """Whether the noun is plural: by its tag, unless "a" or "an" leads its phrase, which the tagger may overlook."""
    lead = at
    while lead and words[lead - 1].is_a("AJ", "NN", "VVG", "VVN", "AV"):
        lead -= 1
    if lead and words[lead - 1].text in ("a", "an"):
        return words[at].lemma == "people"
    return words[at].is_a("NN2") or (words[at].is_a("NN0") and words[at].lemma == "people")
