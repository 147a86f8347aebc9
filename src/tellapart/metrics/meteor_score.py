"""METEOR 1.5 as COCO's jar computes it (``-l en -norm``), without Java: `meteor`.

Denkowski & Lavie 2014, "Meteor Universal", with the parameters of English: a caption is aligned with each reference
by exact, stem, synonym and paraphrase matches; P and R are weighted over content and function words; the
score is their harmonic mean, less a penalty for chunks. The best reference counts, the first one of several.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from operator import mul

import numpy as np

from tellapart.errors import MissingExtra
from tellapart.metrics.meteor_align import BEAM, NARROW, WEIGHTS, Match, align
from tellapart.metrics.meteor_index import index_folder, open_tables
from tellapart.metrics.meteor_matches import Pairs, Sentence
from tellapart.metrics.meteor_words import DELTA, Lexicon
from tellapart.metrics.recent import recent
from tellapart.metrics.resampling import SummedStatistic
from tellapart.metrics.tokenizer import VERSION, tokenized
from tellapart.progress import track

References = Sequence[Sequence[str]]

METEOR_SIGNATURE = f"1.5|en,norm|best-reference|tok:{VERSION}"
ALPHA, BETA, GAMMA = 0.85, 0.20, 0.60
COUNTS = 23
_ROUNDING, _KEPT_WORDS = 1e-9, 500_000
# Columns of the counts: words (caption, reference), function words (the same), then for each stage content words
# (caption, reference) and function words (the same) that it matched, chunks, matched words (caption, reference).
_STAGES, _CHUNKS, _MATCHED = 4, 20, 21


def meteor(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """METEOR of the corpus and of each caption, 0 to 1. The corpus number is made of summed counts, not a mean.

    Raises `MissingExtra` where pycocoevalcap (the tables) or snowballstemmer is not installed.
    """
    counts_NC = meteor_counts(captions, references)
    corpus = score(_for_sums(counts_NC).sum(0).tolist()) if len(counts_NC) else float("nan")
    return corpus, np.array([score(row) for row in counts_NC.tolist()])


def find_tables() -> None:
    """Raises `MissingExtra` where what METEOR is read from is not installed."""
    index_folder()
    if importlib.util.find_spec("snowballstemmer") is None:
        raise MissingExtra("meteor", "METEOR")


def meteor_statistic(captions: Sequence[str], references: References) -> SummedStatistic:
    """`meteor`'s corpus number as a function of the captions' weights."""
    return SummedStatistic(_for_sums(meteor_counts(captions, references)), _scores, bounds=(0.0, 1.0))


def _scores(counts_RC: np.ndarray) -> np.ndarray:
    return np.array([score(row) for row in counts_RC.reshape(-1, COUNTS).tolist()]).reshape(counts_RC.shape[:-1])


def meteor_counts(captions: Sequence[str], references: References) -> np.ndarray:
    """All that METEOR is made of, N×23, for the best reference of each caption: the tool's line of statistics."""
    return _counts(captions, references, str(index_folder()))


@recent
def _counts(captions: Sequence[str], references: References, index: str) -> np.ndarray:
    caption_tokens, reference_texts = tokenized(captions, references)
    lexicon = _lexicon(index)
    texts = list(dict.fromkeys([*caption_tokens, *(text for own in reference_texts for text in own)]))
    numbers = lexicon.numbers([lexicon.sentence(text) for text in texts])
    spans = lexicon.spans(numbers)
    known = dict(zip(texts, map(Sentence, numbers, spans), strict=True))
    paraphrases = lexicon.paraphrases(spans)
    rows = [
        best(Pairs(known[text], [known[one] for one in own], lexicon, paraphrases))
        for text, own in track(list(zip(caption_tokens, reference_texts, strict=True)), label="METEOR")
    ]
    return np.array(rows, dtype=float).reshape(-1, COUNTS)


_kept: list[tuple[str, Lexicon]] = []


def _lexicon(index: str) -> Lexicon:
    """The words looked up so far, for as long as the index is the same one."""
    if not _kept or _kept[0][0] != index or len(_kept[0][1].number) > _KEPT_WORDS:
        _kept[:] = [(index, Lexicon(open_tables()))]
    return _kept[0][1]


def _for_sums(counts_NC: np.ndarray) -> np.ndarray:
    """Counts that may be summed to those of a corpus: a caption that equals its reference adds no chunks."""
    matched = counts_NC[:, _MATCHED : _MATCHED + 2] == counts_NC[:, :2]
    whole_N = (counts_NC[:, _CHUNKS] == 1) & matched.all(axis=1)
    summable_NC = counts_NC.copy()
    summable_NC[whole_N, _CHUNKS] = 0
    return summable_NC


def score(counts: Sequence[float]) -> float:
    """METEOR of one caption or corpus from its 23 counts (Denkowski & Lavie 2014, eq. 1 to 5)."""
    chunks, matched = counts[_CHUNKS], (counts[_MATCHED] + counts[_MATCHED + 1]) / 2
    if chunks == 1 and counts[_MATCHED] == counts[0] and counts[_MATCHED + 1] == counts[1]:
        chunks = 0
    hits = [_hits(counts, side) for side in (0, 1)]
    sizes = [DELTA * (counts[side] - counts[2 + side]) + (1 - DELTA) * counts[2 + side] for side in (0, 1)]
    precision, recall = (hit / size if size else 0.0 for hit, size in zip(hits, sizes, strict=True))
    return _less_chunks(precision, recall, chunks, matched)


def _hits(counts: Sequence[float], side: int) -> float:
    """Weighted matches of the caption (side 0) or the reference (1).

    The tool's sums break ties between references: content words before function words, one after the other. `sum`
    would not do, it rounds otherwise from Python 3.12 on.
    """
    total = 0.0
    for share, start in ((DELTA, 4), (1 - DELTA, 6)):
        for stage, weight in enumerate(WEIGHTS):
            total += weight * counts[start + 4 * stage + side] * share
    return total


def _less_chunks(precision: float, recall: float, chunks: float, matched: float) -> float:
    if not precision or not recall:
        return 0.0
    mean = 1 / ((1 - ALPHA) / precision + ALPHA / recall)
    return float(mean * (1 - GAMMA * (chunks / matched) ** BETA))


def best(pairs: Pairs) -> list[float]:
    """The counts against the reference with the highest score, the first of several."""
    caption, references, lexicon = pairs.caption, pairs.references, pairs.lexicon
    crowds = [pairs.crowded(reference) for reference in references]
    found = [
        pairs.near_matches(reference) if crowd else pairs.matches(reference)
        for reference, crowd in zip(references, crowds, strict=True)
    ]
    most = [
        ceiling(caption.words, reference.words, matches, lexicon)
        for reference, matches in zip(references, found, strict=True)
    ]
    best_score, best_place, best_counts = -1.0, -1, [0.0] * COUNTS
    for place in sorted(range(len(references)), key=lambda place: -most[place]):
        if most[place] < best_score - _ROUNDING:
            break
        words = references[place].words
        counts = count(
            caption.words, words, align(found[place], len(caption.words), NARROW if crowds[place] else BEAM), lexicon
        )
        value = score(counts)
        if value > best_score or (value == best_score and place < best_place):
            best_score, best_place, best_counts = value, place, counts
    return best_counts


def ceiling(
    caption: Sequence[int], reference: Sequence[int], matches: Sequence[Sequence[Match]], lexicon: Lexicon
) -> float:
    """What the score cannot exceed: every word as well matched as any match could, in one chunk."""
    hit_C, hit_R = [0.0] * len(caption), [0.0] * len(reference)
    for row in matches:
        for stage, first, size, at, width in row:
            weight = WEIGHTS[stage]
            for place in range(first, first + size) if size > 1 else (first,):
                if hit_C[place] < weight:
                    hit_C[place] = weight
            for place in range(at, at + width) if width > 1 else (at,):
                if hit_R[place] < weight:
                    hit_R[place] = weight
    matched = len(caption) - hit_C.count(0.0), len(reference) - hit_R.count(0.0)
    punished = matched != (len(caption), len(reference))
    share_C, share_R = ([lexicon.share[word] for word in words] for words in (caption, reference))
    precision = sum(map(mul, hit_C, share_C)) / (sum(share_C) or 1)
    recall = sum(map(mul, hit_R, share_R)) / (sum(share_R) or 1)
    return _less_chunks(precision, recall, float(punished), sum(matched) / 2)


def count(caption: Sequence[int], reference: Sequence[int], taken: Sequence[Match], lexicon: Lexicon) -> list[float]:
    """The tool's 23 numbers for an alignment."""
    function = lexicon.function
    counts = [0.0] * COUNTS
    counts[0], counts[1] = len(caption), len(reference)
    counts[2], counts[3] = sum(function[w] for w in caption), sum(function[w] for w in reference)
    following = (-1, -1)
    for stage, first, size, at, width in taken:
        column = 4 + 4 * stage
        for word in caption[first : first + size]:
            counts[column + 2 * function[word]] += 1
        for word in reference[at : at + width]:
            counts[column + 1 + 2 * function[word]] += 1
        if (first, at) != following:
            counts[_CHUNKS] += 1
        following = (first + size, at + width)
        counts[_MATCHED] += size
        counts[_MATCHED + 1] += width
    return counts
