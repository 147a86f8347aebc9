"""The description of a metric in reports: label, group, decimals, and the candidates of a recall."""

from __future__ import annotations

from dataclasses import dataclass

from tellapart.utils.registry import Direction

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
    """A metric's description in reports: label, one line of help, which direction is better, group, and decimals."""

    label: str
    help: str = ""
    direction: Direction | None = None
    group: str = OTHER
    digits: int = 1


@dataclass(frozen=True, slots=True)
class Candidates:
    """A recall metric's candidate sets: smallest and largest size, and a blind guess's score in the metric's unit."""

    fewest: int
    most: int
    chance: float

    def __str__(self) -> str:
        return f"{self.fewest:,}" if self.fewest == self.most else f"{self.fewest:,}–{self.most:,}"
