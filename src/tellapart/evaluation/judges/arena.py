"""The arena: compares two systems' captions of a picture in both orders, and computes Bradley-Terry strengths.

A caption wins if the judge prefers it in both orders. If the two answers contradict each other or call the captions
equal, it is a tie. The number of contradictions is printed, since it shows the judge's position bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import rich
import rich.table

from tellapart.errors import UsageError
from tellapart.evaluation.judges.answers import letter_in
from tellapart.evaluation.judges.judge import Judge, Question
from tellapart.metrics.draws import bootstrap_weights
from tellapart.types import Picture
from tellapart.utils.tables import table_of

ELO = 400 / np.log(10)  # points for a factor of e in the odds; the mean over systems is 1,000
MEAN = 1000.0
_PRIOR = 0.5  # each system gets half a win against every other system, so that an unbeaten system has a finite strength


@dataclass(frozen=True)
class Strength:
    """A system's strength in points with its 95% interval over pictures, and its battle counts."""

    value: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int


@dataclass
class ArenaResult:
    """Each system's strength, by name.

    contradictions: the number of battles in which the judge's answers for the two orders disagree.
    abstained: the number of battles without a usable answer.
    """

    strengths: dict[str, Strength]
    battles: int
    contradictions: int
    abstained: int
    judge: str
    signature: str
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns ``{"systems": {NAME: {"value", "low", "high", "wins", "ties", "losses"}}, "battles", …}``."""
        value = asdict(self)
        return {"systems": value.pop("strengths"), **value}

    def table(self) -> rich.table.Table:
        """Returns a table of systems, strongest first."""
        biased = f"{self.contradictions:,} decided by order alone, {self.abstained:,} without a usable answer"
        title = f"arena by {self.judge}: {self.battles:,} battles in both orders, {biased}"
        rows = [
            (name, f"{own.value:,.0f}", f"{own.low:,.0f} … {own.high:,.0f}",
             *(f"{n:,}" for n in (own.wins, own.ties, own.losses)))
            for name, own in sorted(self.strengths.items(), key=lambda pair: -pair[1].value)
        ]  # fmt: skip
        return table_of(("system", "strength", "95%", "won", "tied", "lost"), rows, title)


def arena(
    judge: Judge,
    systems: Mapping[str, Sequence[str]],
    ids: Sequence[str],
    pictures: Sequence[Picture],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> ArenaResult:
    """Compares each pair of systems on every picture. For identical captions, records a tie without asking."""
    if len(systems) < 2:
        raise UsageError("an arena compares at least two systems; add a second --captions FILE")
    names, texts = list(systems), list(systems.values())
    asked = [
        (n, a, b) for a, b in permutations(range(len(names)), 2) for n in range(len(ids)) if texts[a][n] != texts[b][n]
    ]
    questions = [
        Question(
            f"{ids[n]}/{names[a]}/{names[b]}",
            {"first": texts[a][n], "second": texts[b][n]},
            partial(letter_in, options=3),
            pictures[n],
        )
        for n, a, b in asked
    ]
    point_NSS = np.full((len(ids), len(names), len(names)), 0.5)  # of the caption shown first; NaN: no answer
    for place, answer in zip(asked, judge.ask("arena", questions), strict=True):
        point_NSS[place] = np.nan if answer is None else (1.0, 0.0, 0.5)[answer]
    point_NSS[:, range(len(names)), range(len(names))] = np.nan  # no system competes with itself
    swapped_NSS = 1 - point_NSS.transpose(0, 2, 1)
    known_NSS = ~np.isnan(point_NSS + swapped_NSS)
    share_NSS = np.where(known_NSS, np.where(point_NSS == swapped_NSS, point_NSS, 0.5), np.nan)
    score_NSS = np.nan_to_num(share_NSS)
    battles = len(ids) * len(names) * (len(names) - 1) // 2
    contradictions = int((known_NSS & (point_NSS != swapped_NSS)).sum()) // 2  # each battle is there in both orders
    point_S = bradley_terry(score_NSS.sum(0))
    drawn = [
        bradley_terry(np.tensordot(weight_N, score_NSS, 1))
        for weight_RN in bootstrap_weights(len(ids), resamples, seed)
        for weight_N in weight_RN
    ]
    low_S, high_S = np.percentile(np.array(drawn), [2.5, 97.5], axis=0)
    counts = [(share_NSS == share).sum((0, 2)).tolist() for share in (1, 0.5, 0)]
    rows = zip(names, *(values_S.tolist() for values_S in (point_S, low_S, high_S)), *counts, strict=True)
    strengths = {name: Strength(*own) for name, *own in rows}
    prompt = judge.prompt("arena").signature
    signature = f"bradley-terry,elo|both-orders,contradiction:tie|{prompt}|judge:{judge.tag()}"
    abstained = battles - int(known_NSS.sum()) // 2
    return ArenaResult(strengths, battles, contradictions, abstained, judge.tag(), signature, judge.notes())


def bradley_terry(score_SS: np.ndarray) -> np.ndarray:
    """Computes the strengths of S systems in Elo points, with a mean of 1,000, from pairwise wins. A tie is half a win.

    Maximizes the likelihood with Hunter's (2004) MM algorithm. As a prior, each system of a pair gets half a win.
    """
    score_SS = score_SS + _PRIOR * (1 - np.eye(len(score_SS)))
    games_SS, wins_S = score_SS + score_SS.T, score_SS.sum(1)
    strength_S = np.ones(len(score_SS))
    for _ in range(200):
        updated_S = wins_S / (games_SS / (strength_S[:, None] + strength_S[None, :])).sum(1)
        updated_S /= np.exp(np.log(updated_S).mean())
        if np.allclose(updated_S, strength_S, rtol=1e-10):
            break
        strength_S = updated_S
    log_S: np.ndarray = np.log(strength_S)
    elo_S: np.ndarray = MEAN + ELO * (log_S - log_S.mean())
    return elo_S
