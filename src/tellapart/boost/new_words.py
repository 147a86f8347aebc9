"""Finds the words in a caption that occur in none of its source texts."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tellapart.boost.stages import STAGE_NAMES, sources_of
from tellapart.errors import need_extra
from tellapart.language.tagged_words import analyse
from tellapart.utils.strict_json import json_value

Analyser = Callable[[str], Sequence[tuple[str, str, str]]]
# Prefixes of the CLAWS 5 tags for nouns and names, adjectives, verbs (except be, have and do) and numbers.
CONTENT = ("NN", "NP", "AJ", "VV", "CRD", "ORD")


@dataclass(slots=True)
class NewWordShare:
    """The share of new words: ``new`` out of ``total`` content words."""

    new: int = 0
    total: int = 0

    def add(self, new: Sequence[str], words: Sequence[str]) -> None:
        """Adds the counts for one text: ``words`` are its content words, and ``new`` are those that are new."""
        self.new, self.total = self.new + len(new), self.total + len(words)

    @property
    def percent(self) -> float:
        """The percentage of new words, or NaN if there are no words."""
        return 100 * self.new / self.total if self.total else math.nan


class NewWords:
    """Shares of new content words, by stage.

    in_no_reference: a stage's words that occur in no reference.
    in_no_source: a stage's words that occur in none of its input texts (the describer has none).
    left_out: out of the describer's words that occur in no reference, those that are not in the holistic caption
    either, because they contradict the references or were dropped for brevity.
    """

    def __init__(self) -> None:
        self.in_no_reference: dict[str, NewWordShare] = defaultdict(NewWordShare)
        self.in_no_source: dict[str, NewWordShare] = defaultdict(NewWordShare)
        self.left_out = NewWordShare()

    def add(self, references: Sequence[str], texts: Mapping[str, str], analyse: Analyser) -> None:
        """Counts one item."""
        for stage, text in texts.items():
            words = content_words(text, analyse)
            if references:
                self.in_no_reference[stage].add(new_words(text, references, analyse), words)
            if sources := sources_of(stage, references, texts):
                self.in_no_source[stage].add(new_words(text, sources, analyse), words)
        if "describe" in texts and "holistic" in texts:
            new = new_words(texts["describe"], references, analyse)
            self.left_out.add(new_words(texts["describe"], [*references, texts["holistic"]], analyse), new)

    def to_json(self) -> dict[str, Any]:
        """Returns the percentages, by stage."""
        shares = {"in_no_reference": self.in_no_reference, "in_no_source": self.in_no_source}
        value: dict[str, Any] = {
            name: {stage: by_stage[stage].percent for stage in STAGE_NAMES if stage in by_stage}
            for name, by_stage in shares.items()
        }
        return dict(json_value(value | {"left_out": self.left_out.percent}, 3))


def word_analyser() -> Analyser:
    """Returns HanTa's word analyser. Raises `MissingExtra` if HanTa is not installed."""
    need_extra("words", "the word analysis", "HanTa")
    return analyse


def content_words(text: str, analyse: Analyser) -> list[str]:
    """Returns the content words of a text: nouns, adjectives, verbs and numbers."""
    return [word for word, _, tag in analyse(text) if tag.startswith(CONTENT)]


def new_words(text: str, sources: Iterable[str], analyse: Analyser) -> list[str]:
    """Returns the content words of ``text`` that occur in no source, either as words or as lemmas."""
    known = {form for source in sources for word, lemma, _ in analyse(source) for form in (word, lemma)}
    return [word for word, lemma, tag in analyse(text) if tag.startswith(CONTENT) and known.isdisjoint((word, lemma))]


def new_word_spans(text: str, sources: Sequence[str], analyse: Analyser) -> list[tuple[int, int, str]]:
    """Returns (start, end, why), with offsets in characters, for every content word of ``text`` that does
    not occur in any source.
    """
    plain = text.replace("’", "'")
    words = set(new_words(text, sources, analyse))
    spans = {match.span() for word in words for match in re.finditer(rf"(?<!\w){re.escape(word)}(?!\w)", plain, re.I)}
    return [(start, end, "in no source") for start, end in sorted(spans)]
