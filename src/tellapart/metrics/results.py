"""The results of an evaluation, with their conversion to and from JSON."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from pydantic import TypeAdapter, ValidationError

from tellapart.metrics.intervals import Interval
from tellapart.metrics.metric_info import Candidates, MetricInfo
from tellapart.metrics.paired_tests import Difference
from tellapart.metrics.typical_words import Association
from tellapart.utils.strict_json import json_value


@dataclass(frozen=True, slots=True)
class SystemPair:
    """A paired comparison of two systems over the same pictures. ``difference`` is b minus a."""

    a: str
    b: str
    metric: str
    difference: Difference

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"a", "b", "metric", "difference", "low", "high", "n", "p"}``, with ``"p_holm"`` if p was
        corrected.
        """
        found = asdict(self.difference)
        if math.isnan(self.difference.p_holm):
            del found["p_holm"]
        return {"a": self.a, "b": self.b, "metric": self.metric, "difference": found.pop("value"), **found}


def digest_of_ids(ids: Iterable[str]) -> str:
    """Hashes a set of ids to 16 hexadecimal digits. Two results that cover the same pictures, in any order, have the
    same hash.
    """
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
    """The JSON schema of `Results`. Ignores unknown keys, so that files from newer versions stay readable."""

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
    """The systems' metrics, with intervals, paired differences, signatures and per-picture values.

    values: ``values[system][metric]`` has one value per id in ``ids``, or NaN for a picture without a value. Corpus
        metrics have no such values.
    candidates: each recall metric's candidate sets.
    metrics: each metric's description for reports.
    words: each system's typical adjectives and nouns, if requested.
    test_sets: results on a run's additional test sets, by name.
    extra: data for the gallery (candidate sets and scores). It is not printed.
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
    ids_digest: str | None = None  # set if the results were read from a file, because then the ids are not known

    def to_json(self) -> dict[str, Any]:
        """Returns the JSON that ``tellapart eval --json`` prints. Unavailable numbers are null."""
        optional = {
            "words": self.words,
            "hardware": self.hardware,
            "test_sets": {name: found.to_json() for name, found in self.test_sets.items()},
        }
        value: dict[str, Any] = json_value(
            {
                "systems": self.systems,
                "pairs": [pair.to_json() for pair in self.pairs],
                "signatures": self.signatures,
                "pictures": {"n": len(self.ids), "ids": self._digest()},
                "candidates": self.candidates,
                "metrics": self.metrics,
                "notes": self.notes,
                **{key: content for key, content in optional.items() if content},
            }
        )
        return value

    def _digest(self) -> str:
        return digest_of_ids(self.ids) if self.ids_digest is None else self.ids_digest

    @classmethod
    def from_json(cls, value: Any) -> Results:
        """Parses the output of `to_json`, which contains no per-picture values. Missing keys become empty, null becomes
        NaN.

        Raises `ValueError` with a one-line message for any other content.
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

    def digits(self, metric: str) -> int:
        """Returns the number of decimals in a metric's values."""
        return self.metrics[metric].digits if metric in self.metrics else 1

    @property
    def corrected(self) -> bool:
        """Returns whether p-values were corrected."""
        return any(not math.isnan(pair.difference.p_holm) for pair in self.pairs)


def _numbers(value: Any) -> Any:
    """Replaces null by NaN in the JSON of results, and removes counts that are null."""
    if isinstance(value, Mapping):
        return {
            key: math.nan if inner is None and key in _NUMBERS else _numbers(inner)
            for key, inner in value.items()
            if not (inner is None and key == "n")
        }
    return [_numbers(inner) for inner in value] if isinstance(value, list) else value


_NUMBERS = ("value", "low", "high", "p", "p_holm", "difference")
