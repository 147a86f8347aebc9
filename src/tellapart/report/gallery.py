"""The content of ``gallery.json``: for each set, a row of pictures, and for each system, its caption and the picture
that the scorer retrieved.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from pydantic import Field

from tellapart.report.lenient_model import LenientModel
from tellapart.report.marked_text import Piece, pieces
from tellapart.report.number_text import format_number
from tellapart.report.system_comparison import order

MOST_NATS = 3.0  # the worth at which a bar has its full length, which is the maximum reward for a word


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
    false: list[tuple[int, int, str]] = Field(default_factory=list)
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
    words: list[tuple[int, int, float, float]] = Field(default_factory=list)
    scores: dict[str, float | None] = Field(default_factory=dict)
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
    candidates: list[str] = Field(default_factory=list)
    references: list[str] = Field(default_factory=list)
    systems: dict[str, SetAnswer] = Field(default_factory=dict)

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

    sets: list[LookalikeSet] = Field(default_factory=list)
    pictures: dict[str, str] = Field(default_factory=dict)
