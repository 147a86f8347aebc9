"""Computes statistics of boosted captions: lengths, new words and errors. Selects the items that the page shows."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import rich
import rich.table
import transformers

from tellapart.boost.errors import Errors, describer_errors
from tellapart.boost.new_words import Analyser, NewWords, new_word_spans, sources_of, word_analyser
from tellapart.boost.stages import STAGE_NAMES
from tellapart.boost.titles import CAPTION_KINDS, HUMAN, TITLES, percent
from tellapart.data.pictures import FilePicture
from tellapart.errors import MissingExtra, UsageError
from tellapart.scenes.truth import count_claims
from tellapart.types import Item
from tellapart.utils.progress import track

# Table 9 of paper 2, on COCO: mean and standard deviation of the numbers of words and of CLIP tokens.
PAPER = {
    HUMAN: ((10.5, 2.4), (13.5, 2.7)),
    "blend": ((20.1, 6.0), (25.4, 7.0)),
    "holistic": ((41.5, 13.1), (50.2, 15.4)),
    "describe": ((51.1, 14.4), (59.2, 12.8)),
}
ANALYSED_ITEMS = 200  # maximum number of items whose words are analyzed, because tagging takes milliseconds per caption
MAX_EXAMPLES = 24
BIN = 5  # words
BARS = 40  # length of the longest bar, in characters


@dataclass(slots=True)
class Moments:
    """The running mean and population standard deviation of a series of numbers."""

    n: int = 0
    total: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.n, self.total, self.squares = self.n + 1, self.total + value, self.squares + value * value

    @property
    def mean(self) -> float:
        return self.total / self.n if self.n else math.nan

    @property
    def sd(self) -> float:
        return math.sqrt(max(0.0, self.squares / self.n - self.mean**2)) if self.n else math.nan

    def __str__(self) -> str:
        return f"{self.mean:.1f} ±{self.sd:.1f}" if self.n else "–"


@dataclass(frozen=True, slots=True)
class ShownItem:
    """One item with all its captions."""

    item: Item
    texts: Mapping[str, str]
    bad: Mapping[str, str]
    others: Sequence[Mapping[str, str]] = ()


@dataclass
class Statistics:
    """Statistics of items; ``add`` all items before reading them. ``count_tokens``: returns a text's
    number of tokens.
    """

    count_tokens: Callable[[str], int] | None = None
    items: int = 0
    words: dict[str, Moments] = field(default_factory=lambda: {kind: Moments() for kind in CAPTION_KINDS})
    tokens: dict[str, Moments] = field(default_factory=lambda: {kind: Moments() for kind in CAPTION_KINDS})
    lengths: dict[str, Counter[int]] = field(default_factory=lambda: {kind: Counter() for kind in CAPTION_KINDS})
    bad: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in STAGE_NAMES})
    errors: Errors = field(default_factory=Errors)
    claims: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in CAPTION_KINDS})
    sample: list[ShownItem] = field(default_factory=list)
    shown: list[ShownItem] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(0)
        self._counted: tuple[int, NewWords] | None = None
        self._analyse: Analyser | None = None

    def add(
        self,
        item: Item,
        texts: Mapping[str, str],
        bad: Mapping[str, str] | None = None,
        others: Sequence[Mapping[str, str]] = (),
    ) -> None:
        """Adds an item: its good answers by stage, why the others are bad, and the texts for its other references."""
        one = ShownItem(item, dict(texts), dict(bad or {}), others)
        self._keep(one)
        self.items += 1
        for kind, text in shown_captions(one):
            count = len(text.split())
            self.words[kind].add(count)
            self.lengths[kind][count // BIN] += 1
            if self.count_tokens is not None:
                self.tokens[kind].add(self.count_tokens(text))
        for stage, why in one.bad.items():
            self.bad[stage][why.partition(":")[0]] += 1
        if item.truth is not None:
            self._judge(one)

    def add_record(self, record: Mapping[str, Any], folder: Path) -> None:
        """Counts one line of the boosted data set whose pictures are in ``folder``; uses no ground truth."""
        picture = FilePicture(folder / record["image"])
        people = tuple(record.get("references", ()))
        self.add(Item(record["id"], picture, people), record["stages"], record.get("bad"), record.get("others", ()))

    def _keep(self, one: ShownItem) -> None:
        """Keeps the first few items for the page, and a uniform sample of the data set."""
        if len(self.shown) < MAX_EXAMPLES and one.texts:
            self.shown.append(one)
        if len(self.sample) < ANALYSED_ITEMS:
            self.sample.append(one)
        elif (place := self._chance.randrange(self.items + 1)) < ANALYSED_ITEMS:
            self.sample[place] = one

    def _judge(self, one: ShownItem) -> None:
        for kind, text in shown_captions(one):
            counts = count_claims(text, one.item.truth)
            for what in ("claims", "correct", "attributes", "recalled"):
                self.claims[kind][what] += getattr(counts, what)
        if "describe" in one.texts and "holistic" in one.texts:
            self.errors += describer_errors(one.texts, one.item.references, one.item.truth)

    @property
    def kinds(self) -> list[str]:
        """The kinds of captions that occurred."""
        return [kind for kind in CAPTION_KINDS if self.words[kind].n]

    def new_words(self) -> NewWords:
        """Counts words in the sample's captions that are not in their sources. Raises `MissingExtra` if HanTa is not
        installed.
        """
        if self._counted is not None and self._counted[0] == self.items:
            return self._counted[1]
        analyse, found = self._words_analyser(), NewWords()
        for one in track(self.sample, label="analysing words"):
            found.add(one.item.references, one.texts, analyse)
        self._counted = self.items, found
        return found

    def _words_analyser(self) -> Analyser:
        if self._analyse is None:
            self._analyse = word_analyser()
        return self._analyse

    def new_word_spans(self, one: ShownItem) -> dict[str, list[tuple[int, int, str]]]:
        """Returns, by stage, the spans of words that are in none of the caption's sources. Raises `MissingExtra`."""
        analyse, sources = self._words_analyser(), sources_of(one.item.references, one.texts)
        return {
            stage: new_word_spans(one.texts[stage], own, analyse)
            for stage, own in sources.items()
            if own and one.texts.get(stage)
        }

    def rate(self, kind: str, what: str, of: str) -> float:
        """Returns a rate in percent; ("blend", "correct", "claims") is precision. NaN if there is no ground truth."""
        below = self.claims[kind][of]
        return 100 * self.claims[kind][what] / below if below else math.nan

    def to_json(self) -> dict[str, Any]:
        """Returns all statistics as plain numbers; without ``new_words`` if HanTa is not installed."""
        value: dict[str, Any] = {"items": self.items, "captions": {}}
        for kind in self.kinds:
            own = {"words": _pair(self.words[kind]), "histogram": dict(sorted(self.lengths[kind].items()))}
            if self.count_tokens is not None:
                own["tokens"] = _pair(self.tokens[kind])
            if self.claims[kind]["attributes"]:
                own["precision"] = round(self.rate(kind, "correct", "claims"), 3)
                own["recall"] = round(self.rate(kind, "recalled", "attributes"), 3)
            value["captions"][kind] = own
        value["bad"] = {stage: dict(counts) for stage, counts in self.bad.items() if counts}
        value["histogram_bin"] = BIN
        if self.errors.made:
            value["describer_errors"] = {slot: getattr(self.errors, slot) for slot in Errors.__slots__}
        words = self._new_words_or_none()
        if words is not None:
            value["new_words"] = {"sample": len(self.sample), **words.to_json()}
        return value

    def _new_words_or_none(self) -> NewWords | None:
        try:
            return self.new_words()
        except MissingExtra:
            return None

    def table(self) -> rich.table.Table:
        """Returns a table of word and token counts per caption kind, next to the paper's Table 9; on `scenes`, also
        precision and recall.
        """
        shown = rich.table.Table(title=f"{self.items:,} items")
        columns = ["words", "paper, COCO"]
        columns += ["tokens", "paper, CLIP"] if self.count_tokens is not None else []
        columns += ["precision %", "recall %"] if any(self.claims[kind] for kind in self.kinds) else []
        shown.add_column("caption")
        for name in columns:
            shown.add_column(name, justify="right")
        for kind in self.kinds:
            cells = {
                "words": str(self.words[kind]),
                "paper, COCO": "{} ±{}".format(*PAPER[kind][0]),
                "tokens": str(self.tokens[kind]),
                "paper, CLIP": "{} ±{}".format(*PAPER[kind][1]),
                "precision %": percent(self.rate(kind, "correct", "claims")),
                "recall %": percent(self.rate(kind, "recalled", "attributes")),
            }
            shown.add_row(TITLES[kind], *[cells[name] for name in columns])
        return shown

    def lines(self) -> list[str]:
        """Returns the lines after the table in a terminal: a histogram of lengths, then the summary."""
        return [*self._histogram(), *self.summary_lines()]

    def summary_lines(self) -> list[str]:
        """Returns one sentence each on new words, bad answers and the describer's errors."""
        return [*self._words(), *self._bad(), *self._errors()]

    def histogram(self, kind: str) -> list[tuple[str, int]]:
        """Returns (bin, number of captions) pairs for ``kind``, over the range of lengths of all kinds."""
        filled = [place for counts in self.lengths.values() for place in counts]
        places = range(min(filled), max(filled) + 1) if filled else range(0)
        return [(f"{place * BIN}–{place * BIN + BIN - 1}", self.lengths[kind][place]) for place in places]

    def _histogram(self) -> Iterator[str]:
        for kind in self.kinds:
            yield f"words per caption: {TITLES[kind]}"
            rows = self.histogram(kind)
            most = max(count for _, count in rows)
            for label, count in rows:
                yield f"  {label:>9} {'█' * math.ceil(BARS * count / most):<{BARS}} {count:,}"

    def _words(self) -> Iterator[str]:
        found = self._new_words_or_none()
        if found is None:
            yield "to count new words, run: pip install 'tellapart[words]'"
            return
        yield from found.lines(len(self.sample))

    def _bad(self) -> Iterator[str]:
        for stage, counts in self.bad.items():
            if counts:
                reasons = ", ".join(f"{count:,} {why}" for why, count in counts.most_common())
                yield (
                    f"{TITLES[stage]}: {counts.total():,} of {self.items:,} items without a usable answer ({reasons})"
                )

    def _errors(self) -> Iterator[str]:
        e = self.errors
        if e.made:
            yield (
                f"describer's errors: {e.made:,}; {e.contradicted:,} contradict the references, "
                f"of which {e.kept_out:,} were removed; of the other {e.made - e.contradicted:,}, "
                f"{e.passed_on:,} are in the final caption"
            )


def shown_captions(one: ShownItem) -> Iterator[tuple[str, str]]:
    """Yields (kind, text) of every caption of an item."""
    yield from ((HUMAN, text) for text in one.item.references)
    for texts in (one.texts, *one.others):
        yield from ((stage, texts[stage]) for stage in STAGE_NAMES if stage in texts)


def tokens_of(name: str) -> Callable[[str], int]:
    """Returns a function that counts a text's tokens, including start and end, with a tokenizer (folder or hub name).

    The paper uses ``openai/clip-vit-base-patch32``. Raises `UsageError` if there is no tokenizer.
    """
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(f"{name} has no tokenizer ({first}); use one such as openai/clip-vit-base-patch32") from None
    return lambda text: len(tokenizer(text, truncation=False, verbose=False)["input_ids"])


def _pair(moments: Moments) -> dict[str, float]:
    return {"mean": round(moments.mean, 4), "sd": round(moments.sd, 4), "n": moments.n}
