"""METEOR's alignment of a caption with a reference (Denkowski & Lavie 2011, section 2), with the tool's own choices.

The papers ask for the most covered words, then the fewest chunks, then the least distance. The real tool differs in
four ways, found by comparing outputs, and they are part of the number:

1. A match whose words have no other match is taken as it is; only the rest is searched, by a beam of 40.
2. What the search counts as covered is cut to whole numbers, each side of a match alone: 0 for a stem or a synonym, 1
   for an exact match, ⌊n/2⌋ for a paraphrase of n words. So in the search a stem, a synonym or a paraphrase of one word
   is taken only where it costs no chunk.
3. The distance of a match counts where it was free to take and passed over, not where it is taken.
4. Ties keep the order in which paths were made: exact, stem, synonym, paraphrase; not matching a word comes last.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter

WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase
BEAM = 40
NARROW = 4  # for texts of thousands of words
_MANY = 4 * BEAM  # matches of one word: from here on, those that no path can keep are not made
_CHUNK, _WORD = 1 << 40, 1 << 56  # one integer orders paths: covered words, then chunks, then distance

# stage, first word and number of words in the caption, the same in the reference
Match = tuple[int, int, int, int, int]
_Node = tuple[Match, "_Node | None"]
# cost, next word of an open chunk or −1, first word of the reference that is free again, taken words (bits), matches
_Path = tuple[int, int, int, int, "_Node | None"]
_cost = itemgetter(0)


def align(matches: Sequence[Sequence[Match]], caption_words: int, beam: int = BEAM) -> list[Match]:
    """The matches that the tool takes, by their place in the reference.

    ``matches`` has for each word of the reference the matches that begin there, in the tool's order. The tool's beam
    is `BEAM`.
    """
    alone = _alone(matches, caption_words)
    if all(alone):
        return [row[0] for row in matches if row]
    paths: list[_Path] = [(0, -1, 0, 0, None)]
    for at, row in enumerate(matches):
        grow = _grow if len(row) < _MANY else _grow_many
        grown = grow(paths, row, at, skipping=not (row and alone[at]))
        if len(grown) > 1:
            grown.sort(key=_cost)
        paths = grown[:beam]
    best = min(paths, key=lambda path: path[0] + (_CHUNK if path[1] >= 0 else 0))
    taken, node = [], best[4]
    while node is not None:
        taken.append(node[0])
        node = node[1]
    return taken[::-1]


def _alone(matches: Sequence[Sequence[Match]], caption_words: int) -> list[bool]:
    """Where a reference's word begins no match, or one whose words, on both sides, have no other."""
    covered_C, covered_R = [0] * caption_words, [0] * len(matches)
    for row in matches:
        for _, first, size, at, width in row:
            for place in range(first, first + size):
                covered_C[place] += 1
            for place in range(at, at + width):
                covered_R[place] += 1
    found = []
    for row in matches:
        if len(row) == 1:
            _, first, size, at, width = row[0]
            found.append(sum(covered_C[first : first + size]) == size and sum(covered_R[at : at + width]) == width)
        else:
            found.append(not row)
    return found


def covered(stage: int, words: int) -> int:
    """What the search counts for one side of a match of so many words."""
    return words // 2 if stage == 3 else int(WEIGHTS[stage]) * words


def _gain(match: Match) -> int:
    stage, _, size, _, width = match
    return _WORD * (covered(stage, size) + covered(stage, width))


def _grow(paths: Sequence[_Path], row: Sequence[Match], at: int, skipping: bool) -> list[_Path]:
    """All ways on from ``paths`` at one word of the reference: each match that is free, and none (``skipping``)."""
    options = []
    for match in row:
        _, first, size, _, width = match
        mask = ((1 << size) - 1) << first
        options.append((match, first, mask, _gain(match), abs(first - at), first + size, at + width))
    grown: list[_Path] = []
    for path in paths:
        cost, following, until, taken, node = path
        if until > at:
            grown.append(path)
            continue
        ended = cost + _CHUNK if following >= 0 else cost
        for match, first, mask, gain, distance, following_then, until_then in options:
            if not taken & mask:
                base = cost if following == first else ended
                grown.append((base - gain, following_then, until_then, taken | mask, (match, node)))
                cost, ended = cost + distance, ended + distance  # for all that pass it over
        if skipping:
            grown.append((ended, -1, until, taken, node))
    return grown


def _grow_many(paths: Sequence[_Path], row: Sequence[Match], at: int, skipping: bool) -> list[_Path]:
    """`_grow` for a word with thousands of matches, without the ways on that sorting would drop.

    Among the matches of one path that gain as much, costs rise in their order: a chunk that goes on apart, only the
    first `BEAM` that are free can be kept.
    """
    gains = [_gain(match) for match in row]
    passed = list(itertools.accumulate((abs(match[1] - at) for match in row), initial=0))  # distance of those before
    alike: defaultdict[int, list[int]] = defaultdict(list)
    covering: defaultdict[int, list[int]] = defaultdict(list)
    starting: defaultdict[int, list[int]] = defaultdict(list)
    for number, (_, first, size, _, _) in enumerate(row):
        alike[gains[number]].append(number)
        starting[first].append(number)
        for place in range(first, first + size):
            covering[place].append(number)
    grown: list[_Path] = []
    for path in paths:
        cost, following, until, taken, node = path
        if until > at:
            grown.append(path)
            continue
        blocked = {number for place in _places(node) for number in covering.get(place, ())}
        free = (itertools.islice((n for n in numbers if n not in blocked), BEAM) for numbers in alike.values())
        going_on = (n for n in starting.get(following, ()) if n not in blocked)
        lost = sorted((number, abs(row[number][1] - at)) for number in blocked)
        chunk = _CHUNK if following >= 0 else 0
        not_passed, rest = 0, iter((*lost, (len(row), 0)))
        before, distance = next(rest)
        for number in sorted({*going_on, *itertools.chain.from_iterable(free)}):
            while before < number:
                not_passed += distance
                before, distance = next(rest)
            match = row[number]
            _, first, size, _, width = match
            base = cost + passed[number] - not_passed + (chunk if following != first else 0)
            mask = ((1 << size) - 1) << first
            grown.append((base - gains[number], first + size, at + width, taken | mask, (match, node)))
        if skipping:
            grown.append((cost + passed[-1] - sum(gap for _, gap in lost) + chunk, -1, until, taken, node))
    return grown


def _places(node: _Node | None) -> Iterable[int]:
    """The caption's words that a path has taken."""
    while node is not None:
        (_, first, size, _, _), node = node
        yield from range(first, first + size)
