"""Faithfulness of boosted captions: words that no source has, on any data; false claims, exactly, on `scenes`.

Words are compared by lemma, as HanTa (the extra ``words``) gives it. That a word is new does not make it false: a
describer is there to say new things. What an answer adds to the texts that it was to be made of is another matter.

What boosting made of a data set: lengths, new words, bad answers, and on `scenes` what is true of it; as a table, and
as one self-contained HTML page.

`Statistics` takes items one by one and keeps counts, not the items: but for a sample whose words are analysed, and a
few whose pictures are shown.
"""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import rich
import rich.table
import transformers

from tellapart.boost import stages
from tellapart.boost.stages import NAMES
from tellapart.data.pictures import FilePicture
from tellapart.errors import MissingExtra, UsageError, need_extra
from tellapart.language.english import analyser
from tellapart.report import page
from tellapart.report.gallery import Album, Piece, Span, pieces
from tellapart.scenes.parser import parse_caption
from tellapart.scenes.truth import align, count_claims, mark_caption
from tellapart.scenes.vocabulary import FIELDS
from tellapart.scenes.world import Scene
from tellapart.types import Item
from tellapart.utils.files import write_output
from tellapart.utils.messages import json_value, track

Analyser = Callable[[str], Sequence[tuple[str, str, str]]]
# CLAWS 5: nouns and names, adjectives, verbs other than be, have and do, numbers.
CONTENT = ("NN", "NP", "AJ", "VV", "CRD", "ORD")
_GROUND = -1  # where a claim about an object has the object's number

Claim = tuple[int, str, str]  # object's number or _GROUND, slot, value


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


@dataclass(frozen=True, slots=True)
class Errors:
    """False values of the describer on `scenes`, those that people's captions contradict, and what became of them.

    ``kept_out`` of the contradicted ones are not in the final caption; ``passed_on`` of the others are.
    """

    made: int = 0
    contradicted: int = 0
    kept_out: int = 0
    passed_on: int = 0

    def __add__(self, other: Errors) -> Errors:
        return Errors(
            self.made + other.made,
            self.contradicted + other.contradicted,
            self.kept_out + other.kept_out,
            self.passed_on + other.passed_on,
        )


def describer_errors(texts: Mapping[str, str], references: Iterable[str], scene: Scene) -> Errors:
    """Returns what became of the errors of ``texts["describe"]`` in ``texts["holistic"]``, by the truth.

    A reference contradicts an error where it would be false of a picture in which the error is right, all else equal.
    """
    wrong = claims(texts["describe"], scene) - truth(scene)
    final = claims(texts["holistic"], scene)
    people = list(references)
    contradicted = {claim for claim in wrong if not _all_true(people, _changed(scene, claim))}
    return Errors(len(wrong), len(contradicted), len(contradicted - final), len((wrong - contradicted) & final))


def _changed(scene: Scene, claim: Claim) -> Scene:
    number, slot, value = claim
    if number == _GROUND:
        return replace(scene, ground=value)
    objects = list(scene.objects)
    change: dict[str, Any] = {slot: value}
    objects[number] = replace(objects[number], **change)
    return replace(scene, objects=tuple(objects))


def _all_true(captions: Iterable[str], scene: Scene) -> bool:
    return all(counts.correct == counts.claims for counts in (count_claims(caption, scene) for caption in captions))


def claims(text: str, scene: Scene) -> set[Claim]:
    """Each value that a caption gives an object, or the ground; mentions mean the objects of which most is true."""
    reading = parse_caption(text)
    _, meant = align(reading, scene)
    found: set[Claim] = {(_GROUND, "ground", ground) for ground in reading.grounds}
    for mention, number in zip(reading.mentions, meant, strict=True):
        if number >= 0:
            found |= {(number, "shape", mention.shape)} if mention.shape else set()
            found |= {(number, slot, value) for slot, values in mention.values.items() for value in values}
    return found


def truth(scene: Scene) -> set[Claim]:
    """Every value of every object, and the ground."""
    value = {(n, slot, value) for n, facts in enumerate(scene.facts) for slot, value in zip(FIELDS, facts, strict=True)}
    return {*value, (_GROUND, "ground", scene.ground)}


def percent(value: float) -> str:
    return f"{value:.1f}" if math.isfinite(value) else "–"


HUMAN = "human"
KINDS = (HUMAN, *NAMES)
TITLES = {HUMAN: "human", **stages.TITLES}
# Table 9 of paper 2, on COCO: mean and standard deviation of words and of tokens of CLIP.
PAPER = {
    HUMAN: ((10.5, 2.4), (13.5, 2.7)),
    "blend": ((20.1, 6.0), (25.4, 7.0)),
    "holistic": ((41.5, 13.1), (50.2, 15.4)),
    "describe": ((51.1, 14.4), (59.2, 12.8)),
}
SAMPLE = 200  # items whose words are analysed: a tagger takes milliseconds a caption
SHOWN = 24
BIN = 5  # words
BARS = 40  # characters of the longest bar


@dataclass(slots=True)
class Moments:
    """Mean and standard deviation (of the whole) of numbers that came by."""

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
    """``add`` every item, then read. ``count_tokens``: how many tokens a text has, by the tokenizer that matters."""

    count_tokens: Callable[[str], int] | None = None
    items: int = 0
    words: dict[str, Moments] = field(default_factory=lambda: {kind: Moments() for kind in KINDS})
    tokens: dict[str, Moments] = field(default_factory=lambda: {kind: Moments() for kind in KINDS})
    lengths: dict[str, Counter[int]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    bad: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in NAMES})
    errors: Errors = field(default_factory=Errors)
    claims: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
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
        """An item, the good answers about it by stage, why the others were bad, and those for its other references."""
        one = ShownItem(item, dict(texts), dict(bad or {}), others)
        self._keep(one)
        self.items += 1
        for kind, text in captions(one):
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
        """A line of a boosted data set in ``folder``. What is true of its picture is not known any more."""
        picture = FilePicture(folder / record["image"])
        people = tuple(record.get("references", ()))
        self.add(Item(record["id"], picture, people), record["stages"], record.get("bad"), record.get("others", ()))

    def _keep(self, one: ShownItem) -> None:
        """The first few for the page, and a sample that is alike for every place of the data set."""
        if len(self.shown) < SHOWN and one.texts:
            self.shown.append(one)
        if len(self.sample) < SAMPLE:
            self.sample.append(one)
        elif (place := self._chance.randrange(self.items + 1)) < SAMPLE:
            self.sample[place] = one

    def _judge(self, one: ShownItem) -> None:
        for kind, text in captions(one):
            counts = count_claims(text, one.item.truth)
            for what in ("claims", "correct", "attributes", "recalled"):
                self.claims[kind][what] += getattr(counts, what)
        if "describe" in one.texts and "holistic" in one.texts:
            self.errors += describer_errors(one.texts, one.item.references, one.item.truth)

    @property
    def kinds(self) -> list[str]:
        """Those of which there was a caption."""
        return [kind for kind in KINDS if self.words[kind].n]

    def new_words(self) -> NewWords:
        """Returns what the sample's captions say that their sources do not. Raises `MissingExtra` without HanTa."""
        if self._counted is not None and self._counted[0] == self.items:
            return self._counted[1]
        analyse, found = self._words_analyser(), NewWords()
        for one in track(self.sample, label="analysing words"):
            found.add(one.item.references, one.texts, analyse)
        self._counted = self.items, found
        return found

    def _words_analyser(self) -> Analyser:
        if self._analyse is None:
            self._analyse = _analyser()
        return self._analyse

    def new_word_spans(self, one: ShownItem) -> dict[str, list[tuple[int, int, str]]]:
        """By stage, the spans of words in its caption that none of its sources has. Raises `MissingExtra`."""
        analyse, sources = self._words_analyser(), sources_of(one.item.references, one.texts)
        return {
            stage: new_word_spans(one.texts[stage], own, analyse)
            for stage, own in sources.items()
            if own and one.texts.get(stage)
        }

    def rate(self, kind: str, what: str, of: str) -> float:
        """Such as ("blend", "correct", "claims") in percent: precision. NaN where there is no truth."""
        below = self.claims[kind][of]
        return 100 * self.claims[kind][what] / below if below else math.nan

    def to_json(self) -> dict[str, Any]:
        """All of it as plain numbers; without HanTa no ``new_words``."""
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
        """Words and tokens of each kind beside those of the paper's Table 9; and what is true of them on `scenes`."""
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
        """Returns what the table leaves, for a terminal: lengths as bars, then the other lines."""
        return [*self._histogram(), *self.summary_lines()]

    def summary_lines(self) -> list[str]:
        """New words, bad answers, the describer's errors: a sentence each."""
        return [*self._words(), *self._bad(), *self._errors()]

    def histogram(self, kind: str) -> list[tuple[str, int]]:
        """("10–14 words", how many captions) from the shortest to the longest of all kinds."""
        filled = [place for counts in self.lengths.values() for place in counts]
        places = range(min(filled), max(filled) + 1) if filled else range(0)
        return [(f"{place * BIN}–{place * BIN + BIN - 1}", self.lengths[kind][place]) for place in places]

    def _histogram(self) -> Iterator[str]:
        for kind in self.kinds:
            yield f"words of {TITLES[kind]}"
            rows = self.histogram(kind)
            most = max(count for _, count in rows)
            for label, count in rows:
                yield f"  {label:>9} {'█' * math.ceil(BARS * count / most):<{BARS}} {count:,}"

    def _words(self) -> Iterator[str]:
        found = self._new_words_or_none()
        if found is None:
            yield "new words are not counted: type pip install 'tellapart[words]'"
            return
        yield from found.lines(len(self.sample))

    def _bad(self) -> Iterator[str]:
        for stage, counts in self.bad.items():
            if counts:
                reasons = ", ".join(f"{count:,} {why}" for why, count in counts.most_common())
                yield f"{TITLES[stage]}: {counts.total():,} of {self.items:,} items without a good answer ({reasons})"

    def _errors(self) -> Iterator[str]:
        e = self.errors
        if e.made:
            yield (
                f"describer's errors: {e.made:,}; {e.contradicted:,} contradict the references, of which "
                f"{e.kept_out:,} were kept out; of the {e.made - e.contradicted:,} others {e.passed_on:,} are in the "
                "final caption"
            )


def captions(one: ShownItem) -> Iterator[tuple[str, str]]:
    """(kind, text) of every caption of an item."""
    yield from ((HUMAN, text) for text in one.item.references)
    for texts in (one.texts, *one.others):
        yield from ((stage, texts[stage]) for stage in NAMES if stage in texts)


def tokens_of(name: str) -> Callable[[str], int]:
    """Returns how many tokens a text has by the tokenizer of that folder or hub name, its start and end tokens counted.

    The paper's is ``openai/clip-vit-base-patch32``. Raises `UsageError` where there is none.
    """
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise UsageError(f"{name} has no tokenizer ({first}); type such as openai/clip-vit-base-patch32") from None
    return lambda text: len(tokenizer(text, truncation=False, verbose=False)["input_ids"])


def _analyser() -> Analyser:
    need_extra("words", "the analysis of words", "HanTa")
    return analyser()


def _pair(moments: Moments) -> dict[str, float]:
    return {"mean": round(moments.mean, 4), "sd": round(moments.sd, 4), "n": moments.n}


_NAMES = {HUMAN: "people’s"}
WIDTH, HEIGHT, FOOT = 260, 120, 18  # of a histogram's view box


@dataclass(frozen=True)
class Caption:
    """One stage's caption of an item, in pieces of which some are marked; ``why`` says why there is none.

    ``claims`` is (true, all) where the truth is known.
    """

    title: str
    pieces: tuple[Piece, ...]
    why: str
    claims: tuple[int, int] | None

    @property
    def false(self) -> tuple[Piece, ...]:
        """The pieces that make a false claim."""
        return tuple(piece for piece in self.pieces if piece.why and not piece.new)


@dataclass(frozen=True)
class ItemCard:
    """An item as the page shows it; ``symbol`` is its picture on the page, None where it cannot be read."""

    id: str
    symbol: str | None
    references: tuple[str, ...]
    captions: tuple[Caption, ...]


@dataclass(frozen=True)
class Bar:
    """One bar of a histogram, in the view box."""

    x: float
    y: float
    width: float
    height: float
    text: str
    label: str


def write_page(statistics: Statistics, path: Path, command: str = "") -> None:
    """The page at ``path``, whole or not at all. ``command`` is what makes it again."""
    write_output(path, render(statistics, command))


def render(statistics: Statistics, command: str = "") -> str:
    """The page as text; its look is the report's. Captions come from anywhere, and are escaped."""
    album = Album()
    new_words = _new_words(statistics)
    cards = [_card(one, own, album) for one, own in zip(statistics.shown, new_words, strict=True)]
    return page.template(Path(__file__).parent / "boost.html").render(
        title=headline(statistics),
        statistics=statistics,
        kinds=statistics.kinds,
        titles=TITLES,
        paper=PAPER,
        rows=_rows(statistics),
        charts=[(kind, bars(statistics, kind)) for kind in statistics.kinds],
        size=(WIDTH, HEIGHT + FOOT),
        lines=statistics.summary_lines(),
        cards=cards,
        judged=any(caption.claims for card in cards for caption in card.captions),
        analysed=any(own is not None for own in new_words),
        sprites=album.sprites(),
        command=command,
    )


def headline(statistics: Statistics) -> str:
    """Returns what happened, in one sentence."""
    ends = dict.fromkeys((*statistics.kinds[:1], *statistics.kinds[-1:]))
    means = [f"{statistics.words[kind].mean:.1f} in {_NAMES.get(kind, TITLES[kind])}" for kind in ends]
    return f"{statistics.items:,} items; words in a caption: {', '.join(means) or 'none'}"


def _rows(statistics: Statistics) -> list[dict[str, Any]]:
    """The table: a row for each kind of caption, with empty cells where nothing is known."""
    rows = []
    for kind in statistics.kinds:
        has_claims = bool(statistics.claims[kind]["attributes"])
        rows.append(
            {
                "kind": kind,
                "words": str(statistics.words[kind]),
                "tokens": str(statistics.tokens[kind]) if statistics.count_tokens else "",
                "precision": f"{statistics.rate(kind, 'correct', 'claims'):.1f}" if has_claims else "",
                "recall": f"{statistics.rate(kind, 'recalled', 'attributes'):.1f}" if has_claims else "",
            }
        )
    return rows


def bars(statistics: Statistics, kind: str) -> list[Bar]:
    """The lengths of one kind of caption, on the same axis for all kinds."""
    rows = statistics.histogram(kind)
    most, width = max(count for _, count in rows), WIDTH / len(rows)
    every = -(-len(rows) // 6)
    return [
        Bar(
            x=round(place * width + 1, 2),
            y=round(HEIGHT * (1 - count / most), 2),
            width=round(width - 2, 2),
            height=round(HEIGHT * count / most, 2),
            text=f"{label} words: {count:,}",
            label="" if place % every else label.split("–")[0],
        )
        for place, (label, count) in enumerate(rows)
    ]


def _new_words(statistics: Statistics) -> list[dict[str, list[Span]] | None]:
    """Of each item shown the words that no source has, by stage; None where words cannot be analysed."""
    try:
        return [statistics.new_word_spans(one) for one in statistics.shown]
    except MissingExtra:
        return [None] * len(statistics.shown)


def _card(one: ShownItem, new_words: dict[str, list[Span]] | None, album: Album) -> ItemCard:
    stages = [stage for stage in (*TITLES,)[1:] if one.texts.get(stage) or one.bad.get(stage)]
    captions = tuple(_caption(one, stage, (new_words or {}).get(stage, [])) for stage in stages)
    return ItemCard(one.item.id, album.add_picture(one.item.picture), tuple(one.item.references), captions)


def _caption(one: ShownItem, stage: str, new: list[Span]) -> Caption:
    text, why = one.texts.get(stage, ""), one.bad.get(stage, "")
    if one.item.truth is None or not text:
        return Caption(TITLES[stage], pieces(text, (), new), why, None)
    marked = mark_caption(text, one.item.truth)
    return Caption(TITLES[stage], pieces(text, marked.false, new), why, (marked.correct, marked.claims))
