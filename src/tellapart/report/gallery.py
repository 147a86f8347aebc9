"""Pictures as data URIs, each embedded once: a page refers to it as ``<use href="#p0">`` wherever it is shown.

A text in pieces, so that a page can mark some of its words, and bars that say what each word is worth.

The gallery: each set's pictures in a row, and each system's caption with the picture that the scorer picked.
"""

from __future__ import annotations

import base64
import hashlib
import io
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from PIL import Image

from tellapart.data.pictures import FilePicture, open_image, to_rgb
from tellapart.errors import PictureError
from tellapart.report.folder import Gallery, LookalikeSet, RunFolder, SetAnswer, StoredClaims
from tellapart.report.shown import number
from tellapart.report.verdict import YARDSTICKS, compare, order
from tellapart.types import Picture

# Pictures up to this side keep every pixel (PNG) and are scaled without smoothing; larger ones become JPEG files.
SMALL = 96
# The size limit of all pictures of a page, in characters of base64, and the sides to try until they fit.
BUDGET = 3_800_000
SIDES = (288, 224, 176, 136, 104)


@dataclass(frozen=True)
class PageSprite:
    """One embedded picture: ``symbol`` is its id on the page, ``uri`` its data."""

    symbol: str
    uri: str
    width: int
    height: int
    crisp: bool


@dataclass
class Album:
    """The pictures of a page. `add` files first, then `sprites`; equal files are one picture, whatever their names."""

    _by_hash: dict[str, bytes] = field(default_factory=dict)
    _symbols: dict[str, str] = field(default_factory=dict)

    def add(self, root: Path, name: str) -> str:
        """The symbol of the picture ``root``/``name``. Raises `PictureError`."""
        inside = PurePosixPath(name.replace("\\", "/"))
        if inside.is_absolute() or ".." in inside.parts:
            raise PictureError(f"{name}: it lies outside the run folder")
        return self.add_content(FilePicture(root / inside).read().data)

    def add_content(self, content: bytes) -> str:
        """The symbol of the picture in the bytes of a file. Raises `PictureError` for other bytes."""
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._symbols:
            _open(content)  # raises here, where the caller still knows the name
            self._symbols[digest] = f"p{len(self._symbols)}"
            self._by_hash[digest] = content
        return self._symbols[digest]

    def add_picture(self, picture: Picture) -> str | None:
        """The symbol of a picture of any kind, drawn or from a file; None where it cannot be read."""
        stream = io.BytesIO()
        try:
            picture.image().save(stream, "PNG")
            return self.add_content(stream.getvalue())
        except PictureError:
            return None

    def sprites(self) -> list[PageSprite]:
        """All pictures, as large as the page's budget allows."""
        images = {self._symbols[digest]: _open(content) for digest, content in self._by_hash.items()}
        side = SIDES[0]
        while True:
            made = [_sprite(symbol, image, side) for symbol, image in images.items()]
            total = sum(len(s.uri) for s in made)
            if total <= BUDGET or side == SIDES[-1]:
                return made
            # The size of a photo is about proportional to its area: skip the sides that would not fit.
            smaller = [s for s in SIDES if s < side]
            side = next((s for s in smaller if total * (s / side) ** 2 <= BUDGET), SIDES[-1])


def _open(content: bytes) -> Image.Image:
    """Decode to RGB, upright, at most the largest side, without metadata (a photo's may contain its location)."""
    with open_image(content, "picture") as image:
        image.draft("RGB", (SIDES[0], SIDES[0]))  # JPEG decoders can skip most of a large photo
        upright = to_rgb(image)
    if max(upright.size) > SMALL:
        upright.thumbnail((SIDES[0], SIDES[0]), Image.Resampling.LANCZOS)
    return upright


def _sprite(symbol: str, image: Image.Image, side: int) -> PageSprite:
    """``image`` as data; a photo is made smaller in place, so that the next smaller side starts from there."""
    crisp = max(image.size) <= SMALL
    if not crisp:
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    if crisp:
        image.save(stream, "PNG", optimize=True)
    else:
        image.save(stream, "JPEG", quality=80, optimize=True)
    kind = "png" if crisp else "jpeg"
    uri = f"data:image/{kind};base64,{base64.b64encode(stream.getvalue()).decode('ascii')}"
    return PageSprite(symbol, uri, *image.size, crisp)


def unreadable_line(names: Iterable[str]) -> str:
    """The page's line about pictures that could not be read; the first few are named."""
    names = list(names)
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{len(names)} picture(s) of the gallery cannot be read and are left blank: {', '.join(names[:3])}{more}."


@dataclass(frozen=True)
class Piece:
    """Some characters of a text; ``why`` says why they are marked, and is empty where they are not.

    ``new`` words are not known to be false: no source says them.
    """

    text: str
    why: str = ""
    new: bool = False


Span = tuple[int, int, str]  # start, end, why


def pieces(text: str, false: Iterable[Span], new: Iterable[Span] = ()) -> tuple[Piece, ...]:
    """``text`` cut at spans in characters; one that lies outside it or overlaps another is left unmarked.

    Where a word is false and new, it is marked as false.
    """
    wrong = [(start, end, why) for start, end, why in false if 0 <= start < end <= len(text)]
    free = [span for span in new if not any(span[0] < end and start < span[1] for start, end, _ in wrong)]
    found, at = [], 0
    for start, end, why, is_new in sorted([*((*span, False) for span in wrong), *((*span, True) for span in free)]):
        if at <= start < end <= len(text):
            found += [Piece(text[at:start]), Piece(text[start:end], why, is_new)]
            at = end
    return tuple(piece for piece in [*found, Piece(text[at:])] if piece.text)


@dataclass(frozen=True)
class JudgedWord:
    """A content word with its bars: ``worth`` and ``belief`` as text, widths in percent.

    ``against``: the word is worth less than nothing, it tells of a look-alike.
    """

    text: str
    worth: str
    worth_width: float
    against: bool
    belief: str
    belief_width: float


MOST_NATS = 3.0  # of worth, that the longest bar shows: the limit of a paid word


def judged_words(text: str, found: Iterable[tuple[int, int, float, float]]) -> tuple[JudgedWord, ...]:
    """The words at spans of ``text`` that lie inside it, in their order."""
    words = []
    for start, end, worth, belief in sorted(found):
        if 0 <= start < end <= len(text) and math.isfinite(worth) and math.isfinite(belief):
            belief = min(max(belief, 0.0), 1.0)
            width = 100 * min(abs(worth) / MOST_NATS, 1.0)
            shown = number(worth, 1, signed=True)
            words.append(JudgedWord(text[start:end], shown, width, worth < 0, number(100 * belief, 0), 100 * belief))
    return tuple(words)


# A gallery is looked through by a person; more sets than this only make the page slow.
MOST_SETS = 60
OUTCOMES = {
    "improved": "improved",
    "worse": "got worse",
    "missed": "both missed",
    "hit": "both hit",
    "open": "no picks to compare",
}
# Of one system alone.
LONE_OUTCOMES = {"hit": "hit", "missed": "missed", "open": "no pick"}
HIGHLIGHTS = 3  # sets at the head of a page


@dataclass(frozen=True)
class Candidate:
    """One picture of a set; ``taken_by`` names the systems whose caption led the scorer to it instead of the target."""

    number: int
    id: str
    symbol: str | None
    alt: str
    is_target: bool
    taken_by: tuple[str, ...]


@dataclass(frozen=True)
class SetVerdict:
    """A system's caption of the target, and the scorer's pick. Scores are formatted, ``–`` where absent."""

    name: str
    caption: str
    hit: bool
    picked: Candidate | None
    target_score: str
    picked_score: str
    rival: Candidate | None
    rival_score: str
    scores: tuple[str, ...]
    pieces: tuple[Piece, ...]
    claims: StoredClaims | None
    words: tuple[JudgedWord, ...]

    @property
    def false(self) -> tuple[Piece, ...]:
        """The words that make a false claim, each with the reason."""
        return tuple(piece for piece in self.pieces if piece.why)


@dataclass(frozen=True)
class SetView:
    """One set as the page shows it; ``outcome`` is a key of `OUTCOMES`, ``outcome_words`` says it as people do."""

    number: int
    target: str
    outcome: str
    outcome_words: str
    candidates: tuple[Candidate, ...]
    references: tuple[str, ...]
    verdicts: tuple[SetVerdict, ...]

    @property
    def judged(self) -> bool:
        """Returns whether any of its words have a worth and a belief."""
        return any(verdict.words for verdict in self.verdicts)

    def of(self, name: str) -> SetVerdict | None:
        """A system's verdict."""
        return next((v for v in self.verdicts if v.name == name), None)


@dataclass(frozen=True)
class GalleryView:
    """The sets that are shown, how many there were, and each outcome that occurs: (key, words, how often).

    ``highlights`` are the few sets for the head of the page, each with a title; ``marked``: the truth is known, so that
    false words are marked; ``unverified``: words that a metric of facts could not verify are.
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
        """Returns whether a scorer chose among candidates; else the pictures are shown with their captions alone."""
        return any(len(one.candidates) > 1 for one in self.sets)


def view_gallery(run: RunFolder, album: Album) -> GalleryView | None:
    """The run's gallery, its pictures added to ``album``; None where there is none.

    Pictures that cannot be read stay blank, and become a line of the run's gaps.
    """
    if run.gallery is None:
        return None
    if not run.gallery.sets:
        run.gaps.append("gallery.json holds no sets, so no look-alike pictures can be shown.")
        return None
    pair = _pair(run)
    shown = run.gallery.sets[:MOST_SETS]
    symbols = _embed(run, shown, album)
    described = {s.target: s.references[0] for s in run.gallery.sets if s.references}
    views = tuple(_view(i + 1, s, symbols, described, pair) for i, s in enumerate(shown))
    counts = Counter(v.outcome for v in views)
    words = OUTCOMES if len(pair) == 2 else LONE_OUTCOMES
    outcomes = tuple((key, label, counts[key]) for key, label in words.items() if counts[key])
    verified = [v.claims for one in views for v in one.verdicts if v.claims]
    marked, unverified = any(not own.unverified for own in verified), any(own.unverified for own in verified)
    return GalleryView(views, len(run.gallery.sets), outcomes, highlights(views, pair), pair, marked, unverified)


def _pair(run: RunFolder) -> tuple[str, ...]:
    """The two systems that the page compares, or the only one that there is."""
    comparison = compare(run.results) if run.results else None
    if comparison:
        return comparison.before, comparison.after
    names = list(dict.fromkeys(name for s in (run.gallery.sets if run.gallery else ()) for name in s.systems))
    systems = [name for name in names if name not in YARDSTICKS]
    return tuple(systems) if len(systems) == 1 else ("before", "after")


def highlights(views: Sequence[SetView], pair: tuple[str, ...]) -> tuple[tuple[str, SetView], ...]:
    """Three representative sets: a gain without a false word, a gain with one (or a miss), and a loss.

    The first of each kind in the gallery's order; an absent kind is replaced by a further set of another kind.
    """
    last = pair[-1]

    def faithful(one: SetView) -> bool:
        answer = one.of(last)
        return answer is not None and not answer.false

    # In the order in which they are wanted: who is found by the caption, and who is not.
    gained, lost = ("improved", "worse") if len(pair) == 2 else ("hit", "missed")
    kinds = [
        ("Told apart", [one for one in views if one.outcome == gained and faithful(one)]),
        ("Told apart, with false words", [one for one in views if one.outcome == gained and not faithful(one)]),
        ("No longer told apart" if len(pair) == 2 else "Not told apart", [one for one in views if one.outcome == lost]),
        ("Still not told apart", [one for one in views if one.outcome == "missed" and lost != "missed"]),
        ("Told apart all along", [one for one in views if one.outcome == "hit" and gained != "hit"]),
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
    """The picked candidate: as stored, else the one with the highest score."""
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
    """A key of `OUTCOMES`; "open" where one of the compared picked nothing."""
    if None in taken:
        return "open"
    before, after = taken[0] == target, taken[-1] == target
    if before == after:
        return "hit" if after else "missed"
    return "improved" if after else "worse"


def _verdict(name: str, s: LookalikeSet, candidates: list[Candidate], taken: str | None) -> SetVerdict:
    answer = s.systems[name]
    scores = {c.id: answer.scores.get(c.id) for c in candidates}
    places = _places([x for x in scores.values() if x is not None])

    def text(id: str | None) -> str:
        return number(scores.get(id) if id else None, places)

    by_id = {c.id: c for c in candidates}
    rivals = [c for c in candidates if not c.is_target and scores[c.id] is not None]
    rival = max(rivals, key=lambda c: scores[c.id] or 0.0, default=None)
    return SetVerdict(
        name,
        answer.caption,
        hit=taken == s.target,
        picked=by_id.get(taken) if taken else None,
        target_score=text(s.target),
        picked_score=text(taken),
        rival=rival,
        rival_score=text(rival.id if rival else None),
        scores=tuple(text(c.id) for c in candidates),
        pieces=_pieces(answer),
        claims=answer.claims,
        words=judged_words(answer.caption, answer.words),
    )


def _pieces(answer: SetAnswer) -> tuple[Piece, ...]:
    if answer.claims is None:
        return pieces(answer.caption, ())
    found = answer.claims.false
    return pieces(answer.caption, (), found) if answer.claims.unverified else pieces(answer.caption, found)


def _places(scores: list[float]) -> int:
    """Decimals that suit the size of the scores, and more where the best two would look equal without being so."""
    best = sorted((x for x in scores if math.isfinite(x)), reverse=True)[:2]
    if not best:
        return 0
    places = 1 if abs(best[0]) >= 10 else 2 if abs(best[0]) >= 1 else 3
    while places < 4 and best[0] != best[-1] and round(best[0], places) == round(best[-1], places):
        places += 1
    return places
