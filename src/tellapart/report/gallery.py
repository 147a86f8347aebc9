"""Builds the gallery. For each set, it shows a row of pictures, and for each system, the caption and the picture that
the scorer retrieved.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tellapart.errors import PictureError
from tellapart.report.album import Album, unreadable_line
from tellapart.report.folder import Gallery, LookalikeSet, RunFolder, SetAnswer
from tellapart.report.judged_words import JudgedWord, judged_words
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
HIGHLIGHTS = 3  # number of sets at the top of a page


@dataclass(frozen=True)
class Candidate:
    """One picture in a set. ``taken_by``: the systems for whose captions the scorer retrieved it, not the target."""

    number: int
    id: str
    symbol: str | None
    alt: str
    is_target: bool
    taken_by: tuple[str, ...]


@dataclass(frozen=True)
class SetVerdict:
    """A system's answer for the target.

    picked: the picture that the scorer retrieved.
    rival: the look-alike with the highest score.
    places: number of decimals with which scores are shown.
    """

    name: str
    answer: SetAnswer
    picked: Candidate | None
    rival: Candidate | None
    places: int
    pieces: tuple[Piece, ...]
    words: tuple[JudgedWord, ...]

    def score(self, candidate: Candidate) -> str:
        """Formats a candidate's score. A missing score becomes ``–``."""
        return format_number(self.answer.scores.get(candidate.id), self.places)

    @property
    def false(self) -> tuple[Piece, ...]:
        """Returns the words that make false claims, each with the reason why it is false."""
        return tuple(piece for piece in self.pieces if piece.why)


@dataclass(frozen=True)
class SetView:
    """One set as shown on the page. ``outcome`` is a key in `OUTCOMES`, and ``outcome_words`` is its label."""

    number: int
    target: str
    outcome: str
    outcome_words: str
    candidates: tuple[Candidate, ...]
    references: tuple[str, ...]
    verdicts: tuple[SetVerdict, ...]

    @property
    def judged(self) -> bool:
        """Returns whether the worth of any word, and the belief in it, are known."""
        return any(verdict.words for verdict in self.verdicts)

    def of(self, name: str) -> SetVerdict | None:
        """Returns the verdict on a system, or None if there is no verdict on it."""
        return next((v for v in self.verdicts if v.name == name), None)


@dataclass(frozen=True)
class GalleryView:
    """The sets to show.

    total: number of sets in the gallery, including those that are not shown.
    outcomes: (key, label, count) for each outcome that occurs.
    highlights: (title, set) pairs for the top of the page.
    marked: whether false words are marked, which requires ground truth.
    unverified: whether words that a factuality metric could not verify are marked.
    """

    sets: tuple[SetView, ...]
    total: int
    outcomes: tuple[tuple[str, str, int], ...]
    highlights: tuple[tuple[str, SetView], ...]
    pair: tuple[str, ...]
    marked: bool
    unverified: bool = False

    @property
    def scored(self) -> bool:
        """Returns whether a scorer chose among candidates. If not, the page shows only pictures and captions."""
        return any(len(one.candidates) > 1 for one in self.sets)


def view_gallery(run: RunFolder, album: Album) -> GalleryView | None:
    """Adds the pictures of a run's gallery to ``album`` and returns the gallery, or None if the run has none.

    Unreadable pictures are left blank and reported in the run's gaps.
    """
    if run.gallery is None:
        return None
    if not run.gallery.sets:
        run.gaps.append("gallery.json contains no sets, so no look-alike pictures can be shown.")
        return None
    pair = _pair(run)
    shown = run.gallery.sets[:MOST_SETS]
    symbols = _embed(run, shown, album)
    described = {s.target: s.references[0] for s in run.gallery.sets if s.references}
    views = tuple(_view(i + 1, s, symbols, described, pair) for i, s in enumerate(shown))
    counts = Counter(v.outcome for v in views)
    words = OUTCOMES if len(pair) == 2 else LONE_OUTCOMES
    outcomes = tuple((key, label, counts[key]) for key, label in words.items() if counts[key])
    verified = [v.answer.claims for one in views for v in one.verdicts if v.answer.claims]
    marked, unverified = any(not own.unverified for own in verified), any(own.unverified for own in verified)
    return GalleryView(views, len(run.gallery.sets), outcomes, highlights(views, pair), pair, marked, unverified)


def _pair(run: RunFolder) -> tuple[str, ...]:
    """Returns the two systems that the page compares, or the only system."""
    comparison = compare(run.results) if run.results else None
    if comparison:
        return comparison.before, comparison.after
    names = list(dict.fromkeys(name for s in (run.gallery.sets if run.gallery else ()) for name in s.systems))
    systems = [name for name in names if name not in YARDSTICKS]
    return tuple(systems) if len(systems) == 1 else ("before", "after")


def highlights(views: Sequence[SetView], pair: tuple[str, ...]) -> tuple[tuple[str, SetView], ...]:
    """Selects three representative sets: a gain without false words, a gain with false words, and a loss.

    Takes the first set of each kind, in gallery order. If there is no set of a kind, another set takes its place.
    """
    last = pair[-1]

    def faithful(one: SetView) -> bool:
        answer = one.of(last)
        return answer is not None and not answer.false

    # The kinds of sets, in order of preference.
    gained, lost = ("improved", "worse") if len(pair) == 2 else ("hit", "missed")
    kinds = [
        ("Identified", [one for one in views if one.outcome == gained and faithful(one)]),
        ("Identified, with false words", [one for one in views if one.outcome == gained and not faithful(one)]),
        ("No longer identified" if len(pair) == 2 else "Not identified", [one for one in views if one.outcome == lost]),
        ("Still not identified", [one for one in views if one.outcome == "missed" and lost != "missed"]),
        ("Identified before and after", [one for one in views if one.outcome == "hit" and gained != "hit"]),
    ]
    found = [(title, sets[0]) for title, sets in kinds if sets][:HIGHLIGHTS]
    rest = [(title, one) for title, sets in kinds for one in sets[1:]]
    return (*found, *rest[: HIGHLIGHTS - len(found)])


def _embed(run: RunFolder, sets: list[LookalikeSet], album: Album) -> dict[str, str]:
    gallery: Gallery = run.gallery  # type: ignore[assignment]
    symbols, failed = {}, []
    for id in dict.fromkeys(id for s in sets for id in _ids(s)):
        try:
            symbols[id] = album.add(run.path, gallery.pictures[id])
        except (KeyError, PictureError):
            failed.append(id)
    if failed:
        run.gaps.append(unreadable_line(failed))
    return symbols


def _ids(s: LookalikeSet) -> list[str]:
    return list(dict.fromkeys(s.candidates if s.target in s.candidates else [s.target, *s.candidates]))


def picked(answer: SetAnswer) -> str | None:
    """Returns the candidate that was retrieved. If none is stored, returns the candidate with the highest score."""
    if answer.picked is not None:
        return answer.picked
    scores = {id: x for id, x in answer.scores.items() if x is not None and math.isfinite(x)}
    return max(scores, key=lambda id: scores[id]) if scores else None


def _view(
    position: int, s: LookalikeSet, symbols: dict[str, str], described: dict[str, str], pair: tuple[str, ...]
) -> SetView:
    names = order(list(s.systems))
    taken = {name: picked(s.systems[name]) for name in names}
    candidates = []
    for i, id in enumerate(_ids(s)):
        takers = tuple(name for name in names if taken[name] == id and id != s.target)
        alt = described.get(id) or (f"the target, {id}" if id == s.target else f"look-alike, {id}")
        candidates.append(Candidate(i + 1, id, symbols.get(id), alt, id == s.target, takers))
    verdicts = tuple(_verdict(name, s, candidates, taken[name]) for name in names)
    outcome = _outcome([taken.get(name) for name in pair], s.target)
    return SetView(
        position,
        s.target,
        outcome,
        (OUTCOMES if len(pair) == 2 else LONE_OUTCOMES)[outcome],
        tuple(candidates),
        tuple(s.references),
        verdicts,
    )


def _outcome(taken: Sequence[str | None], target: str) -> str:
    """Returns a key in `OUTCOMES`, which is "open" if the scorer retrieved nothing for one of the systems."""
    if None in taken:
        return "open"
    before, after = taken[0] == target, taken[-1] == target
    if before == after:
        return "hit" if after else "missed"
    return "improved" if after else "worse"


def _verdict(name: str, s: LookalikeSet, candidates: list[Candidate], taken: str | None) -> SetVerdict:
    answer = s.systems[name]
    scores = {c.id: x for c in candidates if (x := answer.scores.get(c.id)) is not None}
    rivals = [c for c in candidates if not c.is_target and c.id in scores]
    return SetVerdict(
        name,
        answer,
        picked=next((c for c in candidates if c.id == taken), None),
        rival=max(rivals, key=lambda c: scores[c.id], default=None),
        places=_places(list(scores.values())),
        pieces=_pieces(answer),
        words=judged_words(answer.caption, answer.words),
    )


def _pieces(answer: SetAnswer) -> tuple[Piece, ...]:
    if answer.claims is None:
        return pieces(answer.caption, ())
    found = answer.claims.false
    return pieces(answer.caption, (), found) if answer.claims.unverified else pieces(answer.caption, found)


def _places(scores: list[float]) -> int:
    """Returns how many decimals to show: few for large scores, but enough to distinguish the two best ones."""
    best = sorted((x for x in scores if math.isfinite(x)), reverse=True)[:2]
    if not best:
        return 0
    places = 1 if abs(best[0]) >= 10 else 2 if abs(best[0]) >= 1 else 3
    while places < 4 and best[0] != best[-1] and round(best[0], places) == round(best[-1], places):
        places += 1
    return places
