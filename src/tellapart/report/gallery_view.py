"""The gallery that a page shows: which sets, the two systems that are compared, and the outcome of each set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tellapart.errors import PictureError
from tellapart.metrics.results import Results
from tellapart.report.album import Album
from tellapart.report.gallery import Gallery, LookalikeSet
from tellapart.report.system_comparison import YARDSTICKS, compare
from tellapart.utils.listed_names import few

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
        gaps.append(f"{len(failed)} picture(s) in the gallery cannot be read and are left blank: {few(failed)}.")
    described = {one.target: one.references[0] for one in gallery.sets if one.references}
    names = (name for one in gallery.sets for name in one.systems)
    return GalleryView(shown, len(gallery.sets), _pair(results, names), symbols, described)


def _pair(results: Results | None, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the two systems that the page compares, or the only system."""
    if results and (comparison := compare(results)):
        return comparison.before, comparison.after
    systems = tuple(name for name in dict.fromkeys(names) if name not in YARDSTICKS)
    return systems if len(systems) == 1 else ("before", "after")
