"""Words of a caption that none of the texts behind it has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tellapart.boost.stages import NAMES
from tellapart.boost.titles import TITLES, percent
from tellapart.errors import need_extra
from tellapart.language.english import analyser
from tellapart.utils.messages import json_value

Analyser = Callable[[str], Sequence[tuple[str, str, str]]]
# CLAWS 5: nouns and names, adjectives, verbs other than be, have and do, numbers.
CONTENT = ("NN", "NP", "AJ", "VV", "CRD", "ORD")


@dataclass(frozen=True, slots=True)
class NewWordShare:
    """``new`` of ``total`` content words."""

    new: int = 0
    total: int = 0

    def __add__(self, other: NewWordShare) -> NewWordShare:
        return NewWordShare(self.new + other.new, self.total + other.total)

    @property
    def percent(self) -> float:
        """NaN without a word."""
        return 100 * self.new / self.total if self.total else float("nan")


def content_words(text: str, analyse: Analyser) -> list[tuple[str, str]]:
    """(word, lemma) of the content words: nouns, adjectives, verbs."""
    return [(word, lemma) for word, lemma, tag in analyse(text) if tag.startswith(CONTENT)]


def new_words(text: str, sources: Iterable[str], analyse: Analyser) -> list[str]:
    """The content words of ``text`` that no source has, neither as they stand nor by their lemma."""
    known = {form for source in sources for word, lemma, _ in analyse(source) for form in (word, lemma)}
    return [word for word, lemma in content_words(text, analyse) if word not in known and lemma not in known]


def sources_of(references: Sequence[str], texts: Mapping[str, str]) -> dict[str, list[str]]:
    """The texts that each stage's caption was to be made of; a describer is given none, and is left out."""
    return {"blend": list(references), "holistic": [texts[name] for name in ("blend", "describe") if name in texts]}


def new_word_spans(text: str, sources: Sequence[str], analyse: Analyser) -> list[tuple[int, int, str]]:
    """(start, end, why) in characters of every content word of ``text`` that no source has."""
    plain = text.replace("’", "'")
    words = dict.fromkeys(new_words(text, sources, analyse))
    found = {match.span() for word in words for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", plain, re.I)}
    return [(start, end, "in no source") for start, end in sorted(found)]


def share_of_new_words(text: str, sources: Iterable[str], analyse: Analyser) -> NewWordShare:
    """Returns how many of the content words are `new_words`."""
    return NewWordShare(len(new_words(text, sources, analyse)), len(content_words(text, analyse)))


@dataclass
class NewWords:
    """Shares of content words. ``in_no_reference``: of a stage's, those that no reference has. ``in_no_source``: those
    that nothing has which the stage was given (a describer is given no text). ``left_out``: of the describer's that no
    reference has, those that the holistic caption has not either: conflicts, and what it found verbose.
    """

    in_no_reference: dict[str, NewWordShare] = field(default_factory=dict)
    in_no_source: dict[str, NewWordShare] = field(default_factory=dict)
    left_out: NewWordShare = field(default_factory=NewWordShare)

    def add(self, references: Sequence[str], texts: Mapping[str, str], analyse: Analyser) -> None:
        """Count one item."""
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
        """Percent of each, by stage."""
        value: dict[str, Any] = {
            name: {stage: json_value(shares[stage].percent, 3) for stage in NAMES if stage in shares}
            for name, shares in (("in_no_reference", self.in_no_reference), ("in_no_source", self.in_no_source))
        }
        return value | {"left_out": json_value(self.left_out.percent, 3)}

    def lines(self, sample: int) -> Iterator[str]:
        """A sentence for each stage that had answers."""
        for stage in NAMES:
            if stage in self.in_no_reference:
                line = f"{TITLES[stage]}: {percent(self.in_no_reference[stage].percent)} % of its content words are in "
                line += "no reference"
                if stage in self.in_no_source:
                    line += f", {percent(self.in_no_source[stage].percent)} % in nothing that it was made of"
                yield f"{line} ({sample:,} items)"
        if self.left_out.total:
            yield (
                f"HolisticCap left out {percent(self.left_out.percent)} % of the description's words that no "
                f"reference has ({sample:,} items)"
            )


def word_analyser() -> Analyser:
    need_extra("words", "the analysis of words", "HanTa")
    return analyser()
