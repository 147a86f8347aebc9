"""Computes statistics of boosted captions: lengths, new words, errors and examples."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from tellapart.boost.describer_errors import Errors, describer_errors
from tellapart.boost.new_words import Analyser, NewWords, new_word_spans, word_analyser
from tellapart.boost.stages import CAPTION_KINDS, HUMAN, STAGE_NAMES, sources_of
from tellapart.boost.types import Boosted
from tellapart.data.pictures import FilePicture
from tellapart.errors import MissingExtra
from tellapart.scenes.claims import count_claims
from tellapart.types import Item
from tellapart.utils.progress import track

ANALYSED_ITEMS = 200  # maximum number of items whose words are analysed; tagging takes milliseconds per caption
MAX_EXAMPLES = 24
BIN = 5  # words


class Lengths(Counter[int]):
    """The number of captions of each length."""

    @property
    def mean(self) -> float:
        return sum(length * count for length, count in self.items()) / self.total() if self else math.nan

    @property
    def sd(self) -> float:
        """The population standard deviation."""
        mean = self.mean
        squares = sum((length - mean) ** 2 * count for length, count in self.items())
        return math.sqrt(squares / self.total()) if self else math.nan

    def __str__(self) -> str:
        return f"{self.mean:.1f} ±{self.sd:.1f}" if self else "–"

    def to_json(self) -> dict[str, float]:
        return {"mean": round(self.mean, 4), "sd": round(self.sd, 4), "n": self.total()}


class Statistics:
    """Statistics of items. Add all items with `add` before reading the statistics.

    count_tokens: returns the number of tokens in a text.
    """

    def __init__(self, count_tokens: Callable[[str], int] | None = None) -> None:
        self.count_tokens = count_tokens
        self.items = 0
        self.words = {kind: Lengths() for kind in CAPTION_KINDS}
        self.tokens = {kind: Lengths() for kind in CAPTION_KINDS}
        self.claims = {kind: Counter[str]() for kind in CAPTION_KINDS}  # on scenes, whose ground truth is known
        self.bad = {stage: Counter[str]() for stage in STAGE_NAMES}
        self.errors = Errors()
        self.sample: list[Boosted] = []
        self.shown: list[Boosted] = []
        self._chance = random.Random(0)
        self._new_words: tuple[int, NewWords | None] = (0, NewWords())  # number of items when counted, and the counts

    def add(self, done: Boosted) -> None:
        """Adds an item."""
        self._select(done)
        self.items += 1
        scene = done.item.truth
        for kind, text in captions_of(done):
            self.words[kind][len(text.split())] += 1
            if self.count_tokens is not None:
                self.tokens[kind][self.count_tokens(text)] += 1
            if scene is not None:
                counts = count_claims(text, scene)
                names = ("claims", "correct", "attributes", "recalled")
                self.claims[kind].update({name: getattr(counts, name) for name in names})
        for stage, why in done.bad.items():
            self.bad[stage][why.partition(":")[0]] += 1
        if scene is not None and {"describe", "holistic"} <= done.texts.keys():
            self.errors += describer_errors(done.texts, done.item.references, scene)

    def add_record(self, record: Mapping[str, Any], folder: Path) -> None:
        """Adds one line of a boosted data set whose pictures are in ``folder``. Uses no ground truth."""
        item = Item(record["id"], FilePicture(folder / record["image"]), tuple(record.get("references", ())))
        self.add(Boosted(item, record["stages"], record.get("bad") or {}, others=record.get("others", ())))

    def _select(self, done: Boosted) -> None:
        """Keeps the first few items for the page and a uniform sample of all items for the analysis of words."""
        if len(self.shown) < MAX_EXAMPLES and done.texts:
            self.shown.append(done)
        if len(self.sample) < ANALYSED_ITEMS:
            self.sample.append(done)
        elif (place := self._chance.randrange(self.items + 1)) < ANALYSED_ITEMS:
            self.sample[place] = done

    @property
    def kinds(self) -> list[str]:
        """The kinds of captions that occurred."""
        return [kind for kind in CAPTION_KINDS if self.words[kind]]

    @cached_property
    def analyse(self) -> Analyser | None:
        """The word analyser, or None if HanTa is not installed."""
        try:
            return word_analyser()
        except MissingExtra:
            return None

    def new_words(self) -> NewWords | None:
        """Counts the words in the sample's captions that do not occur in their sources. Returns None if HanTa is not
        installed.
        """
        if self._new_words[0] != self.items and self.analyse is not None:
            counts = NewWords()
            for done in track(self.sample, label="analysing words"):
                counts.add(done.item.references, done.texts, self.analyse)
            self._new_words = self.items, counts
        return None if self.analyse is None else self._new_words[1]

    def new_word_spans(self, done: Boosted, stage: str) -> list[tuple[int, int, str]]:
        """Returns the spans of a caption's words that occur in none of its sources. Returns no spans if HanTa is not
        installed or the stage has no source texts.
        """
        sources = sources_of(stage, done.item.references, done.texts)
        return new_word_spans(done.texts[stage], sources, self.analyse) if self.analyse and sources else []

    def rate(self, kind: str, what: str, of: str) -> float:
        """Returns a rate in percent, e.g. BlendCap's precision for ("blend", "correct", "claims"). Returns NaN if there
        is no ground truth.
        """
        below = self.claims[kind][of]
        return 100 * self.claims[kind][what] / below if below else math.nan

    def to_json(self) -> dict[str, Any]:
        """Returns all statistics as plain numbers. Omits ``new_words`` if HanTa is not installed."""
        captions: dict[str, dict[str, Any]] = {}
        for kind in self.kinds:
            captions[kind] = {"words": self.words[kind].to_json(), "histogram": dict(sorted(self._bins(kind).items()))}
            if self.count_tokens is not None:
                captions[kind]["tokens"] = self.tokens[kind].to_json()
            if self.claims[kind]["attributes"]:
                captions[kind]["precision"] = round(self.rate(kind, "correct", "claims"), 3)
                captions[kind]["recall"] = round(self.rate(kind, "recalled", "attributes"), 3)
        bad = {stage: dict(counts) for stage, counts in self.bad.items() if counts}
        value = {"items": self.items, "captions": captions, "bad": bad, "histogram_bin": BIN}
        value |= {"describer_errors": asdict(self.errors)} if self.errors.made else {}
        words = self.new_words()
        return value | ({} if words is None else {"new_words": {"sample": len(self.sample), **words.to_json()}})

    def histogram(self, kind: str) -> list[tuple[str, int]]:
        """Returns (bin, number of captions) pairs for ``kind``. The bins cover the lengths of all kinds of captions."""
        filled = [place for each in self.kinds for place in self._bins(each)]
        places, own = range(min(filled), max(filled) + 1) if filled else (), self._bins(kind)
        return [(f"{place * BIN}–{place * BIN + BIN - 1}", own[place]) for place in places]

    def _bins(self, kind: str) -> Counter[int]:
        bins: Counter[int] = Counter()
        for length, count in self.words[kind].items():
            bins[length // BIN] += count
        return bins


def captions_of(done: Boosted) -> Iterator[tuple[str, str]]:
    """Yields (kind, text) for each of an item's captions."""
    yield from ((HUMAN, text) for text in done.item.references)
    for texts in (done.texts, *done.others):
        yield from ((stage, texts[stage]) for stage in STAGE_NAMES if stage in texts)
