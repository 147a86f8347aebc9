"""The gallery: for each set, a row of pictures, and for each system, its caption and the picture that the scorer
retrieved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from tellapart.errors import PictureError
from tellapart.metrics.results import Results
from tellapart.report.album import Album, unreadable_line
from tellapart.report.marked_text import Piece, pieces
from tellapart.report.number_text import format_number
from tellapart.report.verdict import YARDSTICKS, compare, order

# Maximum number of sets on a page. Nobody looks through more, and they would slow the page down.
MOST_SETS = 60
OUTCOMES = {
    "improved": "improved",
    "worse": "got worse",
    "missed": "both missed",
    "hit": "both hit",
    "open": "no picks to compare",
}
# Used if the page shows a single system.
LONE_OUTCOMES = {"hit": "hit", "missed": "missed", "open": "no pick"}
MOST_NATS = 3.0  # the worth at which a bar has its full length, which is the maximum reward for a word
HIGHLIGHTS = 3  # number of sets at the top of a page


class LenientModel(BaseModel):
    """Base model that ignores unknown keys, so that newer files can be read, and accepts numbers as strings."""

    model_config = ConfigDict(extra="ignore", coerce_numbers_to_str=True)


class StoredClaims(LenientModel):
    """A caption's claims.

    correct: number of true claims.
    of: number of all claims.
    false: (start, end, why) for the false words.
    unverified: whether the words in ``false`` are not known to be false, but were not found in the sources with which
    they were compared.
    """

    correct: int
    of: int
    false: list[tuple[int, int, str]] = []
    unverified: bool = False


class JudgedWord(NamedTuple):
    """A content word, its worth in nats, and the belief in it from 0 to 1 (`tellapart.evaluation.word_values`)."""

    text: str
    worth: float
    belief: float

    @property
    def worth_width(self) -> float:
        """Returns the length of the worth's bar, in percent."""
        return 100 * min(abs(self.worth) / MOST_NATS, 1.0)


class SetAnswer(LenientModel):
    """A system's caption for a set's target, and the candidate that the scorer retrieved with the caption.

    words: (start, end, worth, belief) for each content word.
    """

    caption: str = ""
    claims: StoredClaims | None = None
    words: list[tuple[int, int, float, float]] = []
    scores: dict[str, float | None] = {}
    picked: str | None = None

    def score(self, id: str) -> str:
        """Formats a candidate's score: few decimals for large scores, but enough to distinguish the two best ones. A
        missing score becomes ``–``.
        """
        best = sorted((x for x in self.scores.values() if x is not None and math.isfinite(x)), reverse=True)[:2]
        largest = abs(best[0]) if best else 0.0
        places = 1 if largest >= 10 else 2 if largest >= 1 else 3
        while places < 4 and len(set(best)) == 2 and round(best[0], places) == round(best[1], places):
            places += 1
        return format_number(self.scores.get(id), places)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Splits the caption at its marked words."""
        claims = self.claims or StoredClaims(correct=0, of=0)
        return pieces(self.caption, *((), claims.false) if claims.unverified else (claims.false,))

    @property
    def marked(self) -> list[Piece]:
        """Returns the marked words, each with the reason why."""
        return [piece for piece in self.pieces if piece.why]

    @property
    def judged_words(self) -> list[JudgedWord]:
        """Returns the words in order. Ignores spans outside the caption and values that are not finite."""
        return [
            JudgedWord(self.caption[start:end], worth, min(max(belief, 0.0), 1.0))
            for start, end, worth, belief in sorted(self.words)
            if 0 <= start < end <= len(self.caption) and math.isfinite(worth) and math.isfinite(belief)
        ]


class LookalikeSet(LenientModel):
    """A set of look-alikes: the candidates, including the target, and each system's answer."""

    target: str
    candidates: list[str] = []
    references: list[str] = []
    systems: dict[str, SetAnswer] = {}

    @property
    def ids(self) -> list[str]:
        """Returns the candidates, which include the target, without duplicates."""
        return list(
            dict.fromkeys(self.candidates if self.target in self.candidates else [self.target, *self.candidates])
        )

    @property
    def answers(self) -> dict[str, SetAnswer]:
        """Returns the systems' answers in the order of tables."""
        return {name: self.systems[name] for name in order(list(self.systems))}

    def takers(self, id: str) -> list[str]:
        """Returns the systems for whose captions the scorer retrieved this look-alike instead of the target."""
        return [name for name, answer in self.answers.items() if answer.picked == id != self.target]

    def rival(self, answer: SetAnswer) -> str | None:
        """Returns the look-alike with the highest score, or None if no look-alike has a score."""
        scores = {id: x for id in self.ids if id != self.target and (x := answer.scores.get(id)) is not None}
        return max(scores, key=lambda id: scores[id], default=None)


class Gallery(LenientModel):
    """The content of ``gallery.json``. ``pictures`` maps picture ids to files in the run folder."""

    sets: list[LookalikeSet] = []
    pictures: dict[str, str] = {}


@dataclass(frozen=True)
class GalleryView:
    """The sets to show.

    total: number of sets in the gallery, including those that are not shown.
    pair: the two systems that the page compares, or the only system.
    symbols: the symbols of the pictures that could be read, by id.
    described: the alternative texts of the pictures that have references, by id.
    """

    sets: list[LookalikeSet]
    total: int
    pair: tuple[str, ...]
    symbols: dict[str, str]
    described: dict[str, str]

    @property
    def labels(self) -> dict[str, str]:
        """Returns the label of each outcome."""
        return OUTCOMES if len(self.pair) == 2 else LONE_OUTCOMES

    def outcome(self, one: LookalikeSet) -> str:
        """Returns a key in `labels`, which is "open" if the scorer retrieved nothing for one of the systems."""
        picks = [one.systems[name].picked if name in one.systems else None for name in self.pair]
        if None in picks:
            return "open"
        before, after = picks[0] == one.target, picks[-1] == one.target
        return ("hit" if after else "missed") if before == after else "improved" if after else "worse"

    @property
    def outcomes(self) -> list[tuple[str, str, int]]:
        """Returns (key, label, count) for each outcome that occurs."""
        counts = Counter(map(self.outcome, self.sets))
        return [(key, label, counts[key]) for key, label in self.labels.items() if counts[key]]

    @cached_property
    def highlights(self) -> list[tuple[str, LookalikeSet]]:
        """Selects three representative sets, with titles: a gain without false words, a gain with false words, and a
        loss.

        Takes the first set of each kind, in gallery order. If there is no set of a kind, another set takes its place.
        """
        pair = len(self.pair) == 2
        gained, lost = ("improved", "worse") if pair else ("hit", "missed")
        # The kinds of sets, in order of preference.
        titles: dict[tuple[str, bool | None], str] = {
            (gained, True): "Identified",
            (gained, False): "Identified, with false words",
            (lost, None): "No longer identified" if pair else "Not identified",
        }
        if pair:
            titles |= {("missed", None): "Still not identified", ("hit", None): "Identified before and after"}
        kinds: dict[str, list[LookalikeSet]] = {title: [] for title in titles.values()}
        for one in self.sets:
            outcome = self.outcome(one)
            kind = outcome, not one.systems[self.pair[-1]].marked if outcome == gained else None
            if kind in titles:
                kinds[titles[kind]].append(one)
        first = [(title, sets[0]) for title, sets in kinds.items() if sets]
        rest = [(title, one) for title, sets in kinds.items() for one in sets[1:]]
        return (first[:HIGHLIGHTS] + rest)[:HIGHLIGHTS]

    def marks(self, unverified: bool) -> bool:
        """Returns whether false words are marked, which requires ground truth, or, if ``unverified`` is set, words that
        a factuality metric could not verify.
        """
        claims = (answer.claims for one in self.sets for answer in one.systems.values())
        return any(own is not None and own.unverified == unverified for own in claims)

    @property
    def scored(self) -> bool:
        """Returns whether a scorer chose among candidates. If not, the page shows only pictures and captions."""
        return any(len(one.ids) > 1 for one in self.sets)

    def alt(self, one: LookalikeSet, id: str) -> str:
        """Returns a picture's alternative text."""
        return self.described.get(id) or f"{'the target' if id == one.target else 'look-alike'}, {id}"


def view_gallery(
    gallery: Gallery, results: Results | None, folder: Path, album: Album, gaps: list[str]
) -> GalleryView | None:
    """Adds the pictures of a run's gallery to ``album`` and returns the gallery, or None if it has no sets.

    Unreadable pictures are left blank and reported in ``gaps``.
    """
    if not gallery.sets:
        gaps.append("gallery.json contains no sets, so no look-alike pictures can be shown.")
        return None
    shown = gallery.sets[:MOST_SETS]
    symbols, failed = {}, []
    for id in dict.fromkeys(id for one in shown for id in one.ids):
        try:
            symbols[id] = album.add(folder, gallery.pictures[id])
        except (KeyError, PictureError):
            failed.append(id)
    if failed:
        gaps.append(unreadable_line(failed))
    described = {one.target: one.references[0] for one in gallery.sets if one.references}
    names = (name for one in gallery.sets for name in one.systems)
    return GalleryView(shown, len(gallery.sets), _pair(results, names), symbols, described)


def _pair(results: Results | None, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the two systems that the page compares, or the only system."""
    if results and (comparison := compare(results)):
        return comparison.before, comparison.after
    systems = tuple(name for name in dict.fromkeys(names) if name not in YARDSTICKS)
    return systems if len(systems) == 1 else ("before", "after")
