"""METEOR's alignment of a caption with a reference (Denkowski & Lavie 2011, section 2), with the tool's own choices.

The papers ask for the most covered words, then the fewest chunks, then the least distance. The real tool differs in
four ways, found by comparing outputs, and they are part of the number:

1. A match whose words have no other match is taken as it is; only the rest is searched, by a beam of 40.
2. What the search counts as covered is cut to whole numbers, each side of a match alone: ⌊0.6⌋ = 0 for a stem or a
   paraphrase of one word, ⌊0.8⌋ = 0 for a synonym, 1 for an exact match. So in the search the former are
   taken only where they cost no chunk.
3. The distance of a match counts where it was free to take and passed over, not where it is taken.
4. Ties keep the order in which paths were made: exact, stem, synonym, paraphrase; not matching a word comes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase
BEAM = 40
_CHUNK, _WORD = 1 << 40, 1 << 56  # one integer orders paths: covered words, then chunks, then distance

# stage, first word and number of words in the caption, the same in the reference
Match = tuple[int, int, int, int, int]
_Path = tuple[int, int, int, int, "_Node | None"]  # cost, next word of an open chunk or −1, busy until, taken, matches
_Node = tuple[Match, "_Node | None"]
_cost = itemgetter(0)


def align(matches: Sequence[Sequence[Match]], caption_words: int) -> list[Match]:
    """The matches that the tool takes, by their place in the reference.

    ``matches`` has for each word of the reference the matches that begin there, in the tool's order.
    """
    covered_C, covered_R = [0] * caption_words, [0] * len(matches)
    for _, first, size, at, width in (match for row in matches for match in row):
        for place in range(first, first + size):
            covered_C[place] += 1
        for place in range(at, at + width):
            covered_R[place] += 1
    fixed = [
        len(row) == 1
        and all(covered_C[place] == 1 for place in range(row[0][1], row[0][1] + row[0][2]))
        and all(covered_R[place] == 1 for place in range(row[0][3], row[0][3] + row[0][4]))
        for row in matches
    ]
    if all(alone or not row for alone, row in zip(fixed, matches, strict=True)):
        return [row[0] for row in matches if row]
    paths: list[_Path] = [(0, -1, 0, 0, None)]
    for at, row in enumerate(matches):
        if not row:
            grown = [_skip(path, at, 0) for path in paths]
        elif fixed[at]:
            grown = [_take(path, row[0], 0) for path in paths]
        else:
            grown = _grow(paths, row, at)
        if len(grown) > 1:
            grown.sort(key=_cost)
        paths = grown[:BEAM]
    best = min(paths, key=lambda path: path[0] + (_CHUNK if path[1] >= 0 else 0))
    taken, node = [], best[4]
    while node is not None:
        taken.append(node[0])
        node = node[1]
    return taken[::-1]


def _grow(paths: Sequence[_Path], row: Sequence[Match], at: int) -> list[_Path]:
    grown = []
    masks = [(match, ((1 << match[2]) - 1) << match[1], abs(match[1] - at)) for match in row]
    for path in paths:
        if path[2] > at:
            grown.append(path)
            continue
        taken, passed = path[3], 0
        for match, mask, distance in masks:
            if not taken & mask:
                grown.append(_take(path, match, mask, passed))
                passed += distance
        grown.append(_skip(path, at, passed))
    return grown


def _take(path: _Path, match: Match, mask: int, passed: int = 0) -> _Path:
    cost, following, _, taken, node = path
    stage, first, size, at, width = match
    weight = WEIGHTS[stage]
    cost += passed - _WORD * (int(size * weight) + int(width * weight))
    if following not in (first, -1):
        cost += _CHUNK
    return cost, first + size, at + width, taken | mask, (match, node)


def _skip(path: _Path, at: int, passed: int) -> _Path:
    """The path without a match at this word of the reference: its chunk ends, and counts from now on."""
    cost, following, until, taken, node = path
    if until > at:
        return path
    if following >= 0:
        cost += _CHUNK
    return cost + passed, -1, until, taken, node
