"""What can match between a caption and its references: METEOR's four stages, in the order of the tool's lists."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tellapart.metrics.meteor_align import Match
from tellapart.metrics.meteor_words import Lexicon, Span

Places = list[tuple[int, int]]

CROWDED = 500_000  # matches of a caption with a reference; captions of a thousand ordinary words stay below it
_NEAR = 2  # in a crowd, matches of one kind that a word keeps on either side of its own place


class Sentence(NamedTuple):
    """Words by number, and the phrases among them that have paraphrases."""

    words: list[int]
    spans: list[Span]


class Pairs:
    """What can match between a caption and its references, found for all of them at once.

    ``paraphrases`` is what `Lexicon.paraphrases` says of a corpus that they are part of.
    """

    def __init__(
        self,
        caption: Sentence,
        references: Sequence[Sentence],
        lexicon: Lexicon,
        paraphrases: Mapping[int, Mapping[int, int]],
    ) -> None:
        self.caption, self.references, self.lexicon = caption, references, lexicon
        self._places: dict[int, list[int]] = {}
        for place, word in enumerate(caption.words):
            self._places.setdefault(word, []).append(place)
        self._word: dict[int, list[tuple[int, int]]] = {}
        self._stem: dict[int, list[int]] = {}
        for word in self._places:
            self._stem.setdefault(lexicon.stem[word], []).append(word)
        self._meaning: dict[int, list[int]] = {}
        for word in self._places:
            for synset in lexicon.synsets[word]:
                self._meaning.setdefault(synset, []).append(word)
        phrases: dict[int, Places] = {}
        for first, size, row in caption.spans:
            phrases.setdefault(row, []).append((first, size))
        self._phrase = _phrase_pairs(phrases, {row for one in references for _, _, row in one.spans}, paraphrases)

    def crowded(self, reference: Sentence) -> bool:
        """Whether there are so many matches that only near ones are searched: the tool itself takes minutes there."""
        return sum(len(self._look_up(word)) for word in reference.words) > CROWDED

    def near_matches(self, reference: Sentence) -> list[list[Match]]:
        """`matches`, of each kind those near a word's own place only."""
        found: list[list[Match]] = []
        for at, word in enumerate(reference.words):
            known = self._look_up(word)
            kept = [pair for stage in range(3) for pair in _near(known, (stage, -1), (stage, at), (stage + 1, -1))]
            found.append([(stage, place, 1, at, 1) for stage, place in kept])
        in_order = {row: (sorted(pair[0]), sorted(pair[1])) for row, pair in self._phrase.items()}
        end = (len(self.caption.words), 0)
        for at, width, row in reference.spans:
            for places in in_order.get(row, ()):
                found[at] += [(3, first, size, at, width) for first, size in _near(places, (-1, 0), (at, 0), end)]
        return found

    def matches(self, reference: Sentence) -> list[list[Match]]:
        """For each word of the reference the matches that begin there: by stage, then in the caption's order.

        Paraphrases come in two parts: those of the reference's phrase, in the table's order, and then those of
        which the reference's phrase is a paraphrase. A pair that stands in the table both ways is there twice.
        """
        found: list[list[Match]] = [
            [(stage, place, 1, at, 1) for stage, place in self._look_up(word)]
            for at, word in enumerate(reference.words)
        ]
        late: dict[int, list[Match]] = {}
        for at, width, row in reference.spans:
            pair = self._phrase.get(row)
            if pair is not None:
                found[at] += [(3, first, size, at, width) for first, size in pair[0]]
                late.setdefault(at, []).extend((3, first, size, at, width) for first, size in pair[1])
        for at, matches in late.items():
            found[at] += sorted(matches)
        return found

    def _look_up(self, word: int) -> list[tuple[int, int]]:
        """Stage and place of the caption's words that match a word."""
        found = self._word.get(word)
        if found is not None:
            return found
        lexicon, places = self.lexicon, self._places
        found = [(0, place) for place in places.get(word, ())]
        same = self._stem.get(lexicon.stem[word])
        if same is not None:
            found += sorted((1, place) for other in same if other != word for place in places[other])
        others = {other for synset in lexicon.synsets[word] for other in self._meaning.get(synset, ())} - {word}
        found += sorted((2, place) for other in others for place in places[other])
        self._word[word] = found
        return found


def _near(ordered: Places, begin: tuple[int, int], at: tuple[int, int], end: tuple[int, int]) -> Places:
    """Of the places from ``begin`` to ``end`` those nearest ``at``."""
    middle = bisect_left(ordered, at)
    first, last = bisect_left(ordered, begin), bisect_left(ordered, end)
    return ordered[max(first, middle - _NEAR) : min(last, middle + _NEAR)]


def _phrase_pairs(
    caption: dict[int, Places], reference: set[int], paraphrases: Mapping[int, Mapping[int, int]]
) -> dict[int, tuple[Places, Places]]:
    """For a reference's phrase the caption's phrases that are its paraphrases, and those that it is one of."""
    found: dict[int, tuple[Places, Places]] = {}
    for row in reference & paraphrases.keys():
        known = paraphrases[row]
        hits = known.keys() & caption.keys()
        if hits:
            found[row] = ([place for other in sorted(hits, key=known.__getitem__) for place in caption[other]], [])
    for row in caption.keys() & paraphrases.keys():
        for other in paraphrases[row].keys() & reference:
            found.setdefault(other, ([], []))[1].extend(caption[row])
    return found
