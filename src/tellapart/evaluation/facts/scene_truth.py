"""The exact verifier, which compares claims from the generic extractor with the ground truth of a scene.

Words are looked up in the world's vocabulary; unknown words ("sits", "thing") make no checkable claim. Mentions are
matched to objects and verified as in `tellapart.scenes.truth`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tellapart.evaluation.facts.verdict import Verdict
from tellapart.language.claims import Attribute, Extraction, extract
from tellapart.scenes.parser import ClaimWords, Mention, ParsedCaption, token_spans, tokens
from tellapart.scenes.truth import check_claims
from tellapart.scenes.vocabulary import Sense, senses
from tellapart.scenes.world import Scene

_SLOTS = ("colour", "size", "texture", "motion")


def verify_scene(caption: str, scene: Scene) -> Verdict:
    """Counts the true and false claims in a caption; exact if the extraction is correct. Never raises."""
    parsed = as_parsed(caption, extract(caption))
    counts, false = check_claims(parsed, scene)
    where = token_spans(caption)
    spans = [(*where[word], reason) for words, reason in false for word in words]
    return Verdict(counts.claims, counts.correct, counts.attributes, counts.recalled, tuple(sorted(set(spans))))


def as_parsed(caption: str, extraction: Extraction) -> ParsedCaption:
    """Translates an extraction to the world's vocabulary."""
    return _Reading(caption).read(extraction)


class _Reading:
    def __init__(self, caption: str) -> None:
        self.tokens = tokens(caption)
        self.word_at = {start: number for number, (start, _) in enumerate(token_spans(caption))}
        self.mentions: list[Mention] = []
        self.grounds: list[tuple[str, tuple[int, ...]]] = []
        self.loose: list[tuple[str, str, tuple[int, ...]]] = []
        self.number: int | None = None
        self.place: dict[int, int] = {}  # maps the extraction's mentions to ours

    def read(self, extraction: Extraction) -> ParsedCaption:
        for number, mention in enumerate(extraction.mentions):
            self.add_mention(number, mention.text, mention.spans, mention.attributes, mention.count)
        for attribute in extraction.loose:
            self.add_loose(attribute)
        relations: list[tuple[str | int, ...]] = []
        words: list[tuple[int, ...]] = []
        for relation in extraction.relations:
            ends = [self.place.get(number, -1) for number in (relation.subject, *relation.objects)]
            kind = _relation(relation.text.split())
            if kind and -1 not in ends and len(set(ends)) == len(ends) and len(ends) == 2 + (kind == "between"):
                relations.append((kind, *ends))
                start, end = relation.span
                words.append(tuple(n for at, n in self.word_at.items() if start <= at < end))
        return ParsedCaption(
            self.tokens,
            tuple(self.mentions),
            tuple(relations),
            tuple(value for value, _ in self.grounds),
            tuple((kind, value) for kind, value, _ in self.loose),
            self.number,
            (),
            ClaimWords(tuple(words), tuple(w for _, w in self.grounds), tuple(w for *_, w in self.loose)),
        )

    def add_mention(
        self,
        number: int,
        text: str,
        spans: Sequence[tuple[int, int]],
        attributes: Sequence[Attribute],
        count: int,
    ) -> None:
        found = Mention("")
        parts = [(text, self.words(spans))]
        parts += [(part, self.words(attribute.spans)) for attribute in attributes for part in _parts(attribute)]
        for part, words in parts:
            sense = _sense(part)
            if sense is None or (sense.kind == "shape" and found.shape not in ("", sense.value)):
                continue
            if sense.kind == "ground":
                self.grounds.append((sense.value, words))
                return  # "green grass": an attribute of the background does not describe an object
            if sense.kind == "shape":
                found.shape = sense.value
                found.words["shape", sense.value] = found.words.get(("shape", sense.value), ()) + words
            elif sense.kind in _SLOTS:
                own = found.values.get(sense.kind, ())
                if sense.value not in own:
                    found.values[sense.kind] = (*own, sense.value)
                found.words[sense.kind, sense.value] = found.words.get((sense.kind, sense.value), ()) + words
        generic = (sense := _sense(text)) is not None and sense.kind == "generic"
        if not found.shape and not generic:
            for kind, values in found.values.items():  # "a small red": bound to no object
                self.loose += [(kind, value, found.words[kind, value]) for value in values]
            return
        if generic and not found.shape and not found.values and count > 1 and not self.mentions:
            self.number = count
        self.place[number] = len(self.mentions)
        copies = range(max(1, count))
        self.mentions += [Mention(found.shape, dict(found.values), dict(found.words)) for _ in copies]
        if self.number is not None and self.number != len(self.mentions):
            self.number = None

    def add_loose(self, attribute: Attribute) -> None:
        for part in _parts(attribute):
            sense = _sense(part)
            words = self.words(attribute.spans)
            if sense is not None and sense.kind in _SLOTS:
                self.loose.append((sense.kind, sense.value, words))
            elif sense is not None and sense.kind == "shape":
                self.mentions.append(Mention(sense.value, {}, {("shape", sense.value): words}))

    def words(self, spans: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        return tuple(self.word_at[start] for start, _ in spans if start in self.word_at)


def _parts(attribute: Attribute) -> list[str]:
    """Returns an attribute as written, "slides left", or only the verb of an unknown action."""
    if not attribute.action or _sense(attribute.text) is not None:
        return [attribute.text]
    return attribute.text.split()[:1]


def _sense(phrase: str) -> Sense | None:
    return senses().get(tuple(phrase.split()))


def _relation(words: Sequence[str]) -> str:
    """Returns the relation expressed by the longest phrase among the words, or ""."""
    for length in range(len(words), 0, -1):
        for start in range(len(words) - length + 1):
            phrase = tuple(word for word in words[start : start + length] if word != "the")
            for form in (tuple(words[start : start + length]), phrase):
                sense = senses().get(form)
                if sense is not None and sense.kind == "relation":
                    return sense.value
    return ""
