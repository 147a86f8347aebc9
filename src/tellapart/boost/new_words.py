"""Finds the words in a caption that are in none of its source texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart.boost.stages import STAGE_NAMES
from tellapart.boost.titles import TITLES, percent
from tellapart.errors import need_extra
from tellapart.language.tagged_words import analyser
from tellapart.utils.strict_json import json_value

Analyser = Callable[[str], Sequence[tuple[str, str, str]]]
# CLAWS 5 tags of nouns and names, adjectives, verbs (except be, have and do) and numbers
CONTENT = ("NN", "NP", "AJ", "VV", "CRD", "ORD")


@dataclass(frozen=True, slots=True)
class NewWordShare:
    """The fraction of new words: ``new`` of ``total`` content words."""

    new: int = 0
    total: int = 0

    def __add__(self, other: NewWordShare) -> NewWordShare:
        return NewWordShare(self.new + other.new, self.total + other.total)

    @property
    def percent(self) -> float:
        """The percentage of new words; NaN if there are no words."""
        return 100 * self.new / self.total if self.total else float("nan")


def content_words(text: str, analyse: Analyser) -> list[tuple[str, str]]:
    """Returns (word, lemma) of the content words: nouns, adjectives, verbs."""
    return [(word, lemma) for word, lemma, tag in analyse(text) if tag.startswith(CONTENT)]


def new_words(text: str, sources: Iterable[str], analyse: Analyser) -> list[str]:
    """Returns the content words of ``text`` that occur in no source, neither as words nor as lemmas."""
    known = {form for source in sources for word, lemma, _ in analyse(source) for form in (word, lemma)}
    return [word for word, lemma in content_words(text, analyse) if word not in known and lemma not in known]


def sources_of(references: Sequence[str], texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Returns the source texts of each stage's caption; omits the describer, which has none."""
    return {"blend": list(references), "holistic": [texts[name] for name in ("blend", "describe") if name in texts]}


def new_word_spans(text: str, sources: Sequence[str], analyse: Analyser) -> list[tuple[int, int, str]]:
    """Returns (start, end, why) for every content word of ``text`` that is in no source, in characters."""
    plain = text.replace("’", "'")
    words = dict.fromkeys(new_words(text, sources, analyse))
    found = {match.span() for word in words for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", plain, re.I)}
    return [(start, end, "in no source") for start, end in sorted(found)]


def share_of_new_words(text: str, sources: Iterable[str], analyse: Analyser) -> NewWordShare:
    """Returns the fraction of `new_words` among the content words."""
    return NewWordShare(len(new_words(text, sources, analyse)), len(content_words(text, analyse)))


@dataclass
class NewWords:
    """Fractions of new content words, by stage.

    in_no_reference: a stage's words that are in no reference.
    in_no_source: a stage's words that are in none of its inputs (a describer has no text input).
    left_out: the describer's words that are neither in a reference nor in the holistic caption: conflicts, and words
    dropped for brevity.
    """

    in_no_reference: dict[str, NewWordShare] = field(default_factory=dict)
    in_no_source: dict[str, NewWordShare] = field(default_factory=dict)
    left_out: NewWordShare = field(default_factory=NewWordShare)

    def add(self, references: Sequence[str], texts: Mapping[str, str], analyse: Analyser) -> None:
        """Counts one item."""
        people, given = list(references), sources_of(references, texts)
        for stage, text in texts.items():
            if people:
                share = share_of_new_words(text, people, analyse)
                self.in_no_reference[stage] = self.in_no_reference.get(stage, NewWordShare()) + share
            if stage in given:
                share = share_of_new_words(text, given[stage], analyse)
                self.in_no_source[stage] = self.in_no_source.get(stage, NewWordShare()) + share
        if "describe" in texts and "holistic" in texts:
            new = new_words(texts["describe"], people, analyse)
            lost = new_words(texts["describe"], [*people, texts["holistic"]], analyse)
            self.left_out += NewWordShare(len(lost), len(new))

    def to_json(self) -> dict[str, Any]:
        """Returns the percentages, by stage."""
        value: dict[str, Any] = {
            name: {stage: json_value(shares[stage].percent, 3) for stage in STAGE_NAMES if stage in shares}
            for name, shares in (("in_no_reference", self.in_no_reference), ("in_no_source", self.in_no_source))
        }
        return value | {"left_out": json_value(self.left_out.percent, 3)}

    def lines(self, sample: int) -> Iterator[str]:
        """Yields one sentence for each stage with answers."""
        for stage in STAGE_NAMES:
            if stage in self.in_no_reference:
                line = f"{TITLES[stage]}: {percent(self.in_no_reference[stage].percent)}% of content words are in "
                line += "no reference"
                if stage in self.in_no_source:
                    line += f", {percent(self.in_no_source[stage].percent)}% are in none of its sources"
                yield f"{line} ({sample:,} items)"
        if self.left_out.total:
            yield (
                f"HolisticCap omitted {percent(self.left_out.percent)}% of the description's "
                f"words that are in no reference ({sample:,} items)"
            )


def word_analyser() -> Analyser:
    need_extra("words", "the word analysis", "HanTa")
    return analyser()
