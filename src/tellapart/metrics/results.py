"""Results of an evaluation, and their tables and JSON."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
import rich
import rich.console
import rich.table
import rich.text
from pydantic import TypeAdapter, ValidationError
from rich import box
from rich.table import Table

from tellapart.metrics.intervals import BOOTSTRAP, RARE, STUDENT, Interval
from tellapart.metrics.paired_tests import ALPHA, Difference
from tellapart.metrics.printed_differences import format_p, places_for
from tellapart.utils.registry import Direction
from tellapart.utils.strict_json import json_value

PAIR_HEADS = ("metric", "a", "b", "b − a", "95% interval", "p")
HOLM_HEAD = "p (Holm)"
PROCEDURES = "intervals"  # the part of a signature that says how the intervals were computed
_PROCEDURE_NAMES = {BOOTSTRAP: "bootstrap", STUDENT: "Student's t", RARE: "rare events"}
ORACLE = ".oracle"  # suffix: the best of a picture's captions by the metric itself
BEST = ".best"  # suffix: the caption that the scorer prefers
POS = ("adjective", "noun")
WORDS_KEY = "words"  # key of the word analysis, which is not a score, in the signatures

GROUPS = (
    "Distinguishing pictures",
    "Truth",
    "By type of claim",
    "Faithfulness to picture and references",
    "Language",
    "Other",
)
APART, TRUTH, KIND, CLOSE, LANGUAGE, OTHER = GROUPS


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """A metric in reports: label, one line of help, better direction, group and decimals."""

    label: str
    help: str = ""
    direction: Direction | None = None
    group: str = OTHER
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Association:
    """A lemma typical of a system's captions, with its association and its count."""

    lemma: str
    pos: str
    lmi: float
    count: int

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"lemma", "pos", "lmi", "count"}``."""
        return {"lemma": self.lemma, "pos": self.pos, "lmi": self.lmi, "count": self.count}


@dataclass(frozen=True, slots=True)
class SystemPair:
    """A paired comparison of systems over the same pictures; ``difference`` is b minus a."""

    a: str
    b: str
    metric: str
    difference: Difference

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"a", "b", "metric", "difference", "low", "high", "n", "p"}``, and ``"p_holm"`` if corrected."""
        found = asdict(self.difference)
        if math.isnan(self.difference.p_holm):
            del found["p_holm"]
        return {"a": self.a, "b": self.b, "metric": self.metric, "difference": found.pop("value"), **found}


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidate sets of a recall: smallest and largest size, and a blind guess's score in the metric's unit."""

    fewest: int
    most: int
    chance: float

    def __str__(self) -> str:
        return f"{self.fewest:,}" if self.fewest == self.most else f"{self.fewest:,}–{self.most:,}"


def digest_of_ids(ids: Iterable[str]) -> str:
    """Hashes a set of ids to 16 hexadecimal digits: equal if two results cover the same pictures, in any order."""
    digest = hashlib.sha256()
    for id_ in sorted(ids):
        digest.update(id_.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()[:16]


@dataclass
class _StoredPair:
    a: str
    b: str
    metric: str
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    p: float = math.nan
    p_holm: float = math.nan


@dataclass
class _StoredPictures:
    n: int = 0
    ids: str = ""


@dataclass
class _Stored:
    """The JSON schema of `Results`. Ignores unknown keys, so that newer files stay readable."""

    __pydantic_config__: ClassVar = {"coerce_numbers_to_str": True}

    systems: dict[str, dict[str, Interval | None]] = field(default_factory=dict)
    pictures: _StoredPictures = field(default_factory=_StoredPictures)
    candidates: dict[str, Candidates] = field(default_factory=dict)
    metrics: dict[str, MetricInfo] = field(default_factory=dict)
    pairs: list[_StoredPair] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    words: dict[str, list[Association]] = field(default_factory=dict)
    test_sets: dict[str, Any] = field(default_factory=dict)


@dataclass
class Results:
    """Systems' metrics with intervals, paired differences, signatures and per-picture values.

    values: ``values[system][metric]`` has one value per id in ``ids`` (NaN: no value); corpus metrics have none.
    candidates: the candidate sets of each recall.
    metrics: the description of each metric for reports.
    words: each system's typical adjectives and nouns, if requested.
    test_sets: results on a run's additional test sets, by name.
    extra: data for the gallery (candidate sets and scores), which is not printed.
    """

    ids: list[str]
    systems: dict[str, dict[str, Interval]] = field(default_factory=dict)
    pairs: list[SystemPair] = field(default_factory=list)
    signatures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    values: dict[str, dict[str, np.ndarray]] = field(default_factory=dict)
    captions: dict[str, list[str]] = field(default_factory=dict)
    references: list[list[str]] | None = None
    candidates: dict[str, Candidates] = field(default_factory=dict)
    metrics: dict[str, MetricInfo] = field(default_factory=dict)
    words: dict[str, list[Association]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    hardware: dict[str, str] = field(default_factory=dict)  # device and precision of the scoring models
    test_sets: dict[str, Results] = field(default_factory=dict)
    ids_digest: str | None = None  # for results read from a file, whose ids are not known

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON of ``tellapart eval --json``; unavailable numbers are null."""
        words = {name: [word.to_json() for word in found] for name, found in self.words.items()}
        value: dict[str, Any] = json_value(
            {
                "systems": {
                    name: {metric: asdict(interval) for metric, interval in found.items()}
                    for name, found in self.systems.items()
                },
                "pairs": [pair.to_json() for pair in self.pairs],
                "signatures": self.signatures,
                "pictures": {"n": len(self.ids), "ids": self._digest()},
                "candidates": {metric: asdict(found) for metric, found in self.candidates.items()},
                "metrics": {metric: asdict(info) for metric, info in self.metrics.items()},
                "notes": self.notes,
            }
            | ({"words": words} if words else {})
            | ({"hardware": self.hardware} if self.hardware else {})
            | (
                {"test_sets": {name: found.to_json() for name, found in self.test_sets.items()}}
                if self.test_sets
                else {}
            )
        )
        return value

    def _digest(self) -> str:
        return digest_of_ids(self.ids) if self.ids_digest is None else self.ids_digest

    @classmethod
    def from_json(cls, value: Any) -> Results:
        """Parses the output of `to_json`, without per-picture values. Missing keys become empty, null becomes NaN.

        Raises `ValueError` with a one-line message for other content.
        """

        try:
            stored = TypeAdapter(_Stored).validate_python(_numbers(value))
        except ValidationError as error:
            first = error.errors()[0]
            raise ValueError(f"{'.'.join(map(str, first['loc'])) or 'top level'}: {first['msg']}") from None
        systems = {
            name: {metric: interval or Interval() for metric, interval in found.items()}
            for name, found in stored.systems.items()
        }
        pairs = [
            SystemPair(x.a, x.b, x.metric, Difference(x.difference, x.low, x.high, x.n, x.p, x.p_holm))
            for x in stored.pairs
        ]
        count = max((found.n for metrics in systems.values() for found in metrics.values()), default=0)
        return cls(
            [str(place) for place in range(stored.pictures.n or count)],
            systems,
            pairs,
            stored.signatures,
            stored.notes,
            candidates=stored.candidates,
            metrics=stored.metrics,
            words=stored.words,
            ids_digest=stored.pictures.ids,
            test_sets={name: cls.from_json(found) for name, found in stored.test_sets.items()},
        )

    def table(
        self, *, without: Sequence[str] = (), only: Sequence[str] | None = None, signatures: bool = False, of: str = ""
    ) -> rich.console.Group:
        """Returns a table with metrics as rows, systems as columns and 95% intervals, followed by paired differences.

        without: systems (such as baselines) whose pairs are omitted.
        only: show only these metrics, and a line with the number of others.
        signatures: print the signatures of the shown metrics below the notes.
        of: text for the title; the ``test_sets`` follow, each under its name.
        """
        shown = [key for key in self.signatures if key != WORDS_KEY and (only is None or key in only)]
        parts: list[Any] = [self._systems_table(shown, of)]
        pairs = [pair for pair in self.pairs if not {pair.a, pair.b} & set(without) and pair.metric in shown]
        if pairs:
            parts.append(self._pairs_table(pairs))
        if self.words:
            parts.extend(words_tables(self.words))
        parts.extend(rich.text.Text(f"note: {note}", style="yellow") for note in self.notes)
        if signatures:
            parts.extend(
                rich.text.Text(f"{key}: {self.signatures[key]}", style="dim", overflow="fold") for key in shown
            )
        if more := sum(key != WORDS_KEY for key in self.signatures) - len(shown):
            parts.append(
                rich.text.Text(
                    f"{more} more metric{'s were' if more > 1 else ' was'} measured; add --metrics all to show them"
                )
            )
        parts += [
            found.table(without=without, only=only, signatures=signatures, of=name)
            for name, found in self.test_sets.items()
        ]
        return rich.console.Group(*parts)

    def system_rows(self) -> tuple[list[str], dict[str, list[str]]]:
        """Returns the column heads after the first one, and the cells of each metric that follow its name."""
        heads = ("n", "candidates", "chance") if self.candidates else ()
        settings = [head for head in heads if head not in self.systems]  # chance has its own column
        return [*settings, *self.systems], {
            metric: [
                *self._among(metric)[: len(settings)],
                *(self.cell(found.get(metric), metric) for found in self.systems.values()),
            ]
            for metric in self.signatures
            if metric != WORDS_KEY  # it has its own tables
        }

    def _systems_table(self, shown: Sequence[str], of: str) -> Any:
        title = f"{of and f'{of}: '}{len(self.ids)} pictures; {self.intervals()}"
        table = rich.table.Table(box=box.SIMPLE_HEAD, title=title)
        table.add_column("metric")
        heads, rows = self.system_rows()
        for name in heads:
            table.add_column(name, justify="right", overflow="fold")
        for metric in shown:
            table.add_row(metric, *rows[metric])
        return table

    def digits(self, metric: str) -> int:
        """Returns the number of decimals of a metric's values."""
        return self.metrics[metric].digits if metric in self.metrics else 1

    def _n(self, metric: str) -> int:
        """Returns the number of pictures behind most systems' values."""
        counts = [found[metric].n for found in self.systems.values() if metric in found]
        return max(counts, default=0)

    def _among(self, metric: str) -> tuple[str, str, str]:
        """Returns the extra cells for a recall: numbers of pictures and candidates, and a blind guess's score."""
        n, found = f"{self._n(metric):,}", self.candidates.get(metric)
        return (n, "", "") if found is None else (n, str(found), f"{found.chance:.{self.digits(metric)}f}")

    @property
    def corrected(self) -> bool:
        """Returns whether p-values were corrected."""
        return any(not math.isnan(pair.difference.p_holm) for pair in self.pairs)

    def pair_heads(self) -> tuple[str, ...]:
        """Returns the column heads of the paired differences."""
        return (*PAIR_HEADS, HOLM_HEAD) if self.corrected else PAIR_HEADS

    def pair_row(self, pair: SystemPair) -> tuple[str, ...]:
        """Returns a pair's difference, its interval, p, and the corrected p if any."""
        found = pair.difference
        digits = places_for(self.digits(pair.metric) + 1, (found.value, found.low, found.high))
        value = "–" if math.isnan(found.value) else f"{found.value:+z.{digits}f}"
        between = "–" if math.isnan(found.low) else f"{found.low:+z.{digits}f} … {found.high:+z.{digits}f}"
        ps = (found.p, found.p_holm) if self.corrected else (found.p,)
        return value, between, *("–" if math.isnan(p) else format_p(p) for p in ps)

    def intervals(self) -> str:
        """Describes the intervals with the procedures in the signatures, e.g. ``95% intervals (bootstrap)``."""
        parts = (part for signature in self.signatures.values() for part in signature.split("|"))
        values = (part.partition(":")[2].partition(",")[0] for part in parts if part.startswith(f"{PROCEDURES}:"))
        known = {name for value in values for name in value.split("+")}
        names = [text for name, text in _PROCEDURE_NAMES.items() if name in known]
        return "95% intervals" + (f" ({', '.join(names)})" if names else "")

    def rule(self) -> str:
        """Returns the footer of the paired differences, which defines better and worse."""
        which = f"{HOLM_HEAD} below {ALPHA}" if self.corrected else f"p below {ALPHA}"
        return (
            f"Better or worse (bold): {which}, by approximate randomization. The intervals are computed "
            "independently and may disagree with p."
        )

    def _pairs_table(self, pairs: Sequence[SystemPair]) -> Any:
        title = "paired differences over pictures (b − a)"
        table = rich.table.Table(box=box.SIMPLE_HEAD, title=title, caption=self.rule(), caption_justify="left")
        for name in PAIR_HEADS[:3]:
            table.add_column(name, overflow="fold")
        for name in self.pair_heads()[3:]:
            table.add_column(name, justify="right")
        for pair in pairs:
            style = "bold" if pair.difference.clear else None
            table.add_row(pair.metric, pair.a, pair.b, *self.pair_row(pair), style=style)
        return table

    def cell(self, interval: Interval | None, metric: str) -> str:
        """Formats a value with its interval in brackets, and its number of pictures if it differs from the table's."""
        if interval is None or math.isnan(interval.value):
            return "–"
        digits = self.digits(metric)
        text = f"{interval.value:z.{digits}f}"
        if not math.isnan(interval.low):
            text += f" [{interval.low:z.{digits}f}, {interval.high:z.{digits}f}]"
        usual = self._n(metric) if self.candidates else len(self.ids)
        return text + (f" n={interval.n}" if interval.n != usual else "")


def words_tables(words: Mapping[str, Sequence[Association]]) -> list[Table]:
    """Returns a table per part of speech, with systems as columns and their words with counts as rows."""
    return [_words_table(words, pos) for pos in POS]


def _words_table(words: Mapping[str, Sequence[Association]], pos: str) -> rich.table.Table:
    title = f"{pos}s most associated with each system (local mutual information)"
    # Rich folds a title at the table's width.
    table = rich.table.Table(box=box.SIMPLE_HEAD, title=title, min_width=len(title))
    own = {system: [word for word in found if word.pos == pos] for system, found in words.items()}
    for system in words:
        table.add_column(system, overflow="fold")
    for row in range(max((len(found) for found in own.values()), default=0)):
        table.add_row(
            *[f"{found[row].lemma} {found[row].count:,}" if row < len(found) else "" for found in own.values()]
        )
    return table


def _numbers(value: Any) -> Any:
    """Replaces null numbers in the JSON of results with NaN, and removes null counts."""
    if isinstance(value, Mapping):
        return {
            key: math.nan if inner is None and key in _NUMBERS else _numbers(inner)
            for key, inner in value.items()
            if not (inner is None and key == "n")
        }
    return [_numbers(inner) for inner in value] if isinstance(value, list) else value


_NUMBERS = ("value", "low", "high", "p", "p_holm", "difference")
