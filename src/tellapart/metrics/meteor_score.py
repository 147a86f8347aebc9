"""METEOR 1.5 as COCO's jar computes it (``-l en -norm``), without Java: `meteor`.

Implements Denkowski & Lavie 2014, "Meteor Universal", with the parameters for English. A caption is aligned with each
reference by exact, stem, synonym and paraphrase matches. Precision and recall weight content and function words
differently, and the score is their harmonic mean minus a penalty for chunks. A caption's score is the score for its
best reference; on a tie, the first.
"""

from __future__ import annotations

import importlib.util
import itertools
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache, lru_cache
from operator import itemgetter, mul
from typing import NamedTuple

import numpy as np

from tellapart.errors import MissingExtra
from tellapart.metrics.corpus_scores import PERCENT
from tellapart.metrics.inputs import References
from tellapart.metrics.meteor_tables import (
    LONGEST,
    PLACES,
    Tables,
    bases,
    english_stemmer,
    index_folder,
    open_tables,
)
from tellapart.metrics.metric_info import CLOSE
from tellapart.metrics.ptb import VERSION, tokenized
from tellapart.metrics.recent import recent
from tellapart.metrics.registry import metric
from tellapart.metrics.word_hashes import word_hash
from tellapart.utils import forks
from tellapart.utils.progress import track

# METEOR's own text normalization (option ``-norm``), which runs after the COCO tools' PTB tokenizer.
#
# It is a Moses-style tokenizer: it splits off punctuation, turns a hyphen between two letters into a space, "n't" into
# "n 't" and "t.v." into "tv", and keeps an abbreviation's full stop. The rules were derived by comparing outputs with
# the real tool.

_LETTER = "A-Za-zÀ-ÖØ-öø-ž\u0400-\u0527"  # only Latin and Cyrillic, because any other character is a token of its own
_WORD = "0-9" + _LETTER
_EASY = re.compile(r"[a-z0-9]+(?: [a-z0-9]+)*")
_BLANKS = re.compile(r"[ \t\x0c\u00a0\u2000-\u200a\u202f\u205f\u3000]+")
_HAS_LETTER = re.compile(f"[{_LETTER}]")
# The order matters. A match consumes its neighbours, so in "a-b-c" only the first hyphen becomes a space, as in the
# tool.
_RULES = (
    ("[“”]", '"'),
    ("[‘’`]", "'"),
    ("''", '"'),
    ("–", " - "),
    (rf"([^{_WORD}\s.'\-,])", r" \1 "),
    (r"(\.{2,})", r" \1 "),
    (r"([^0-9]),([^0-9])", r"\1 , \2"),
    (r"([0-9]),([^0-9])", r"\1 , \2"),
    (r"([^0-9]),([0-9])", r"\1 , \2"),
    ("--", "-"),
    (rf"([{_WORD}.])-([{_WORD}])", r"\1 \2"),
    (rf"([^{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
    (rf"([^{_WORD}])'([{_LETTER}])", r"\1 ' \2"),
    (rf"([{_LETTER}])'([^{_LETTER}])", r"\1 ' \2"),
    (rf"([{_LETTER}])'([{_LETTER}])", r"\1 '\2"),
    (r"([0-9])'s", r"\1 's"),
)


@cache
def _rules() -> list[tuple[re.Pattern[str], str]]:
    """Compiles the rules on first use, because compiling takes longer than a whole short command."""
    return [(re.compile(pattern), result) for pattern, result in _RULES]


def normalise(text: str, abbreviations: Set[str], before_numbers: Set[str]) -> list[str]:
    """Returns the lower-cased words in a PTB-tokenized text.

    Words in ``abbreviations`` (given without a full stop) keep their full stop; words in ``before_numbers`` keep it
    only before a number.
    """
    if _EASY.fullmatch(text):
        return text.split(" ")
    text = f" {text} "
    for pattern, result in _rules():
        text = pattern.sub(result, text)
    chunks = [chunk for chunk in _BLANKS.split(text) if chunk]
    words = []
    for chunk, following in itertools.zip_longest(chunks, chunks[1:], fillvalue=""):
        stem = chunk[:-1]
        if not stem or chunk[-1] != "." or stem[-1] == ".":
            words.append(chunk)
        elif "." in stem and _HAS_LETTER.search(stem):
            words.append(chunk.replace(".", ""))  # "t.v." is "tv"
        else:
            abbreviated = stem in abbreviations or (stem in before_numbers and "0" <= following[:1] <= "9")
            words += [chunk] if abbreviated or "a" <= following[:1] <= "z" else [stem, "."]
    return [word.lower() for word in words]


# METEOR's knowledge of words and phrases: stems, synonyms, function words and paraphrases.
#
# Each distinct word is looked up once and identified by a number.

DELTA = 0.75  # weight of content words in precision and recall; function words get 1 - DELTA
Span = tuple[int, int, int]  # first word, number of words, row in the paraphrase table


# For each phrase (as a table row), the phrases that the table lists as its paraphrases, with their places in the list.
Paraphrases = Mapping[int, Mapping[int, int]]


class Lexicon:
    """Assigns numbers to words. ``stem``, ``synsets``, ``function`` and ``share`` are indexed by word number."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.number: dict[str, int] = {}
        self.stem: list[int] = []
        self.synsets: list[frozenset[int]] = []
        self.function: list[bool] = []
        self.share: list[float] = []
        self._hash: list[int] = []

    def sentence(self, text: str) -> list[str]:
        """Returns the words in a PTB-tokenized text."""
        return normalise(text, self.tables.abbreviations, self.tables.before_numbers)

    def numbers(self, sentences: Sequence[Sequence[str]]) -> list[list[int]]:
        """Returns the words' numbers. Looks up all new words at once."""
        new = [word for word in dict.fromkeys(itertools.chain(*sentences)) if word not in self.number]
        for word in new:
            self.number[word] = len(self.number)
        hashes = [word_hash(word) for word in new]
        self._hash += hashes
        self.function += [word in self.tables.function_words for word in new]
        self.share += [1 - DELTA if word in self.tables.function_words else DELTA for word in new]
        known_W = self.tables.words.find(np.array(hashes, np.uint64))
        stem_W = self.tables.stem_W[known_W] if len(self.tables.stem_W) else known_W
        for word, row, stem in zip(new, known_W.tolist(), stem_W.tolist(), strict=True):
            self.stem.append(stem if row >= 0 else word_hash(english_stemmer()(word)))
            self.synsets.append(frozenset(self.tables.words.row(row) if row >= 0 else self._synsets(word)))
        return [[self.number[word] for word in words] for words in sentences]

    def phrases(self, sentences: Sequence[Sequence[int]]) -> tuple[list[list[Span]], Paraphrases]:
        """Returns each sentence's phrases that are paraphrases of other phrases in the sentences, and the
        paraphrases.
        """
        sentence_S, first_S, size_S, row_S = self._known_phrases(sentences)
        table = self.tables.paraphrases
        present = np.zeros(len(table.key), dtype=bool)
        present[row_S] = True
        row_D = np.flatnonzero(present)
        begin_D = table.start[row_D].astype(np.int64)
        many_D = table.start[row_D + 1] - begin_D
        place_E = np.arange(int(many_D.sum())) + np.repeat(begin_D - np.cumsum(many_D) + many_D, many_D)
        hit = np.flatnonzero(present[table.value[place_E]])
        row_H, other_H, place_H = np.repeat(row_D, many_D)[hit], table.value[place_E[hit]], place_E[hit]
        paraphrases: dict[int, dict[int, int]] = {}
        for row, other, place in zip(row_H.tolist(), other_H.tolist(), place_H.tolist(), strict=True):
            paraphrases.setdefault(row, {})[other] = place
        present[:] = False
        present[row_H] = present[other_H] = True
        kept = np.flatnonzero(present[row_S])
        cut = np.searchsorted(sentence_S[kept], np.arange(len(sentences) + 1))
        spans = list(zip(first_S[kept].tolist(), size_S[kept].tolist(), row_S[kept].tolist(), strict=True))
        return [spans[a:b] for a, b in itertools.pairwise(cut.tolist())], paraphrases

    def _known_phrases(
        self, sentences: Sequence[Sequence[int]]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns all phrases that the paraphrase table contains, each as sentence, first word in the sentence, number
        of words, and table row.
        """
        length_N = np.fromiter(map(len, sentences), np.int64, len(sentences))
        number_W = np.fromiter(itertools.chain(*sentences), np.int64, int(length_N.sum()))
        left_W = np.repeat(np.cumsum(length_N), length_N) - np.arange(len(number_W))  # words up to the sentence's end
        hash_W = np.append(np.array(self._hash, np.uint64)[number_W], np.zeros(LONGEST, np.uint64))
        word_WL = np.lib.stride_tricks.sliding_window_view(hash_W, LONGEST)[: len(number_W)]
        hash_WL = np.cumsum(word_WL * PLACES, axis=1)
        inside_WL = left_W[:, None] > np.arange(LONGEST)
        distinct, where_S = np.unique(hash_WL[inside_WL], return_inverse=True)
        row_S = self.tables.paraphrases.find(distinct)[where_S]
        word_S, size_S = (axis[row_S >= 0] for axis in np.nonzero(inside_WL))
        sentence_S = np.repeat(np.arange(len(sentences)), length_N)[word_S]
        return sentence_S, word_S - (np.cumsum(length_N) - length_N)[sentence_S], size_S + 1, row_S[row_S >= 0]

    def _synsets(self, word: str) -> list[int]:
        """Looks up the synsets of a word that is in no table, using its base form."""
        rows = self.tables.synsets.find(np.array([word_hash(base) for base in bases(word)], np.uint64)).tolist()
        return next((self.tables.synsets.row(row) for row in rows if row >= 0), [])


# METEOR's alignment of a caption with a reference (Denkowski & Lavie 2011, section 2), as the tool implements it.
#
# The papers maximize the covered words, then minimize the chunks, then the distance. The real tool differs in four
# ways, which affect the score and were found by comparing outputs:
#
# 1. A match whose words have no other match is always taken; only the other matches are searched, with a beam of 40.
# 2. The search truncates the number of covered words to an integer, separately for each side of a match: 0 for a stem
#    or a synonym, 1 for an exact match, ⌊n/2⌋ for a paraphrase of n words. So it takes a stem, a synonym or a one-word
#    paraphrase only if that adds no chunk.
# 3. A match's distance counts if the match was available but skipped, not if it is taken.
# 4. On ties, paths keep the order in which they were created: exact, stem, synonym, paraphrase, and finally no match.

WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # exact, stem, synonym, paraphrase
BEAM = 40
_MOST_ALIKE = BEAM  # matches of equal gain that a path is extended with at one word
NARROW = 4  # beam width for texts of thousands of words, to save time
_CHUNK, _COVERED_WORD = 1 << 40, 1 << 56  # one integer sorts paths by covered words, then chunks, then distance

# stage, then first word and number of words in the caption, then in the reference
Match = tuple[int, int, int, int, int]
_Node = tuple[Match, "_Node | None"]
# cost, next word of an open chunk or −1, first free word in the reference, taken words (bits), matches
_Path = tuple[int, int, int, int, "_Node | None"]
_cost = itemgetter(0)


def align(matches: Sequence[Sequence[Match]], caption_words: int, beam: int = BEAM) -> list[Match]:
    """Returns the matches that the METEOR tool would select, ordered by their position in the reference.

    matches: for each word in the reference, the matches that begin there, in the tool's order.
    beam: the width of the beam search. The tool uses `BEAM`.
    """
    alone = _alone(matches, caption_words)
    if all(alone):
        return [row[0] for row in matches if row]
    paths: list[_Path] = [(0, -1, 0, 0, None)]
    for at, row in enumerate(matches):
        grown = _grow(paths, row, at, skipping=not (row and alone[at]))
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
    """Marks each reference word at which no match begins, or at which exactly one match begins whose words have
    no other match on either side.
    """
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
    """Returns the number of words that the search counts as covered on one side of a match that is ``words`` words
    long.
    """
    return words // 2 if stage == 3 else int(WEIGHTS[stage]) * words


def _gain(match: Match) -> int:
    stage, _, size, _, width = match
    return _COVERED_WORD * (covered(stage, size) + covered(stage, width))


def _grow(paths: Sequence[_Path], row: Sequence[Match], at: int, skipping: bool) -> list[_Path]:
    """Extends ``paths`` at one reference word with each available match and, if ``skipping``, without a match.

    If a path has several matches with equal gain, later matches cost more. So, except for a continued chunk, only the
    first `_MOST_ALIKE` available matches can survive, and the others are not created.
    """
    options, many = [], len(row) > _MOST_ALIKE
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
        created: dict[int, int] = {}
        for match, first, mask, gain, distance, following_then, until_then in options:
            if not taken & mask:
                if many:
                    created[gain] = created.get(gain, 0) + 1
                if not many or created[gain] <= _MOST_ALIKE or following == first:
                    base = cost if following == first else ended
                    grown.append((base - gain, following_then, until_then, taken | mask, (match, node)))
                cost, ended = cost + distance, ended + distance  # all later paths skip this match
        if skipping:
            grown.append((ended, -1, until, taken, node))
    return grown


# Possible matches between a caption and its references. METEOR has four stages, in the order of the tool's lists.

Places = list[tuple[int, int]]

CROWDED = 500_000  # matches between a caption and a reference; captions of a thousand ordinary words have fewer
_WINDOW = 20  # in crowded pairs, the distance in words up to which a word's matches are searched


class Sentence(NamedTuple):
    """A sentence's word numbers, and those of its phrases that have paraphrases."""

    words: list[int]
    spans: list[Span]


def relatives(lexicon: Lexicon, words: Iterable[int]) -> dict[int, frozenset[int]]:
    """Maps each word to the words that may match it: those with the same stem or a common synset."""
    keys = {word: (lexicon.stem[word], *lexicon.synsets[word]) for word in words}
    words_of: defaultdict[int, list[int]] = defaultdict(list)
    for word, own in keys.items():
        for key in own:
            words_of[key].append(word)
    return {word: frozenset(itertools.chain(*[words_of[key] for key in own])) for word, own in keys.items()}


class Pairs:
    """Possible matches between a caption and all its references.

    related, paraphrases: the results of `relatives` and `Lexicon.phrases` for a corpus that contains these texts.
    """

    def __init__(
        self,
        caption: Sentence,
        references: Sequence[Sentence],
        lexicon: Lexicon,
        related: Mapping[int, frozenset[int]],
        paraphrases: Paraphrases,
    ) -> None:
        self.caption, self.references, self.lexicon, self.related = caption, references, lexicon, related
        self._places: dict[int, list[int]] = {}
        for place, word in enumerate(caption.words):
            self._places.setdefault(word, []).append(place)
        self._words = frozenset(self._places)
        self._word: dict[int, list[tuple[int, int]]] = {}
        phrases: dict[int, Places] = {}
        for first, size, row in caption.spans:
            phrases.setdefault(row, []).append((first, size))
        self._phrase = _phrase_pairs(phrases, {row for one in references for _, _, row in one.spans}, paraphrases)

    def crowded(self, reference: Sentence) -> bool:
        """Returns whether there are so many matches that only near matches are searched. The tool would take minutes
        here.
        """
        most = _STAGES * len(self.caption.words) * len(reference.words)
        return most > CROWDED and sum(len(self._look_up(word)) for word in reference.words) > CROWDED

    def near_matches(self, reference: Sentence) -> list[list[Match]]:
        """Returns the `matches` of single words within `_WINDOW` words of a word's own position."""
        found: list[list[Match]] = []
        for at, word in enumerate(reference.words):
            known = self._look_up(word)
            ends = [bisect_left(known, (stage, at + by)) for stage in range(3) for by in (-_WINDOW, _WINDOW + 1)]
            near = itertools.chain(*[known[a:b] for a, b in zip(ends[::2], ends[1::2], strict=True)])
            found.append([(stage, place, 1, at, 1) for stage, place in near])
        return found

    def matches(self, reference: Sentence) -> list[list[Match]]:
        """For each reference word, returns the matches that begin there, by stage, then in caption order.

        Paraphrases come in two parts, each in table order: first the paraphrases of the reference's phrase, then the
        phrases whose paraphrases include the reference's phrase. A pair that the table lists in both directions appears
        twice.
        """
        found: list[list[Match]] = []
        for at, word in enumerate(reference.words):
            known = self._look_up(word)
            found.append([(stage, place, 1, at, 1) for stage, place in known] if known else [])
        late: dict[int, list[Match]] = {}
        phrases = self._phrase
        for at, width, row in reference.spans:
            if row in phrases:
                pair = phrases[row]
                found[at] += [(3, first, size, at, width) for first, size in pair[0]]
                late.setdefault(at, []).extend((3, first, size, at, width) for first, size in pair[1])
        for at, matches in late.items():
            found[at] += sorted(matches)
        return found

    def _look_up(self, word: int) -> list[tuple[int, int]]:
        """Returns the stage and the position of each caption word that matches ``word``."""
        found = self._word.get(word)
        if found is not None:
            return found
        lexicon, places = self.lexicon, self._places
        near, found = self.related[word] & self._words, []
        if near:
            stem, synsets = lexicon.stem[word], lexicon.synsets[word]
            found = [(0, place) for place in places.get(word, ())]
            others = [other for other in near if other != word]
            found += sorted((1, place) for other in others if lexicon.stem[other] == stem for place in places[other])
            meant = [other for other in others if not synsets.isdisjoint(lexicon.synsets[other])]
            found += sorted((2, place) for other in meant for place in places[other])
        self._word[word] = found
        return found


def _phrase_pairs(
    caption: dict[int, Places], reference: set[int], paraphrases: Paraphrases
) -> dict[int, tuple[Places, Places]]:
    """Maps each reference phrase to its paraphrases' positions in the caption, in both directions of the table."""
    found: defaultdict[int, tuple[Places, Places]] = defaultdict(lambda: ([], []))
    for other in reference:
        if known := paraphrases.get(other):
            for row in sorted(known.keys() & caption.keys(), key=known.__getitem__):
                found[other][0].extend(caption[row])
    for row in caption:
        if known := paraphrases.get(row):
            for other in known.keys() & reference:
                found[other][1].extend(caption[row])
    return found


METEOR_SIGNATURE = f"1.5|en,norm|best-reference|tok:{VERSION}"
ALPHA, BETA, GAMMA = 0.85, 0.20, 0.60
COUNTS = 23
_ROUNDING, _KEPT_WORDS = 1e-9, 500_000
_LEAST_PAIRS = 500  # minimum per process; they take a tenth of a second
# Columns of the counts: words (caption, reference), function words (caption, reference), then for each stage the
# matched content words (caption, reference) and matched function words (caption, reference), then chunks, then matched
# words (caption, reference).
_STAGES, _CHUNKS, _MATCHED = 4, 20, 21


def find_tables() -> None:
    """Raises `MissingExtra` if METEOR's data is not installed."""
    index_folder()
    if importlib.util.find_spec("snowballstemmer") is None:
        raise MissingExtra("meteor", "METEOR")


def meteor_counts(captions: Sequence[str], references: References) -> np.ndarray:
    """Returns the tool's statistics for each caption's best reference, N×23."""
    return _counts(captions, references, str(index_folder()))


@recent
def _counts(captions: Sequence[str], references: References, index: str) -> np.ndarray:
    return _counts_of_tokens(*tokenized(captions, references), index)


def _counts_of_tokens(caption_tokens: list[str], reference_texts: list[list[str]], index: str) -> np.ndarray:
    lexicon = _lexicon(index)
    if len(lexicon.number) > _KEPT_WORDS:
        _lexicon.cache_clear()

    def counts(rows: range) -> np.ndarray:
        part = slice(rows.start, rows.stop)
        pairs = list(zip(caption_tokens[part], reference_texts[part], strict=True))
        texts = list(dict.fromkeys(itertools.chain(*[(caption, *references) for caption, references in pairs])))
        numbers = lexicon.numbers([lexicon.sentence(text) for text in texts])
        spans, paraphrases = lexicon.phrases(numbers)
        known = dict(zip(texts, map(Sentence, numbers, spans), strict=True))
        related = relatives(lexicon, set(itertools.chain(*numbers)))
        found = [
            best(Pairs(known[caption], [known[text] for text in references], lexicon, related, paraphrases))
            for caption, references in track(pairs, label="METEOR", enabled=not rows.start)
        ]
        return np.array(found, dtype=float).reshape(-1, COUNTS)

    return forks.rows_of(counts, len(caption_tokens), _LEAST_PAIRS)


def meteor_stats(captions: Sequence[str], references: References) -> np.ndarray:
    """Returns `meteor_counts` in a form that can be summed, in which a caption identical to its reference has no
    chunks.
    """
    return _summable(meteor_counts(captions, references))


def _summable(counts_NC: np.ndarray) -> np.ndarray:
    matched = counts_NC[:, _MATCHED : _MATCHED + 2] == counts_NC[:, :2]
    whole_N = (counts_NC[:, _CHUNKS] == 1) & matched.all(axis=1)
    summable_NC = counts_NC.copy()
    summable_NC[whole_N, _CHUNKS] = 0
    return summable_NC


def meteor_of(sums_RC: np.ndarray) -> np.ndarray:
    """Computes `score` for sums of `meteor_stats`, …×23."""
    scores = [score(counts) for counts in sums_RC.reshape(-1, COUNTS).tolist()]
    return np.array(scores).reshape(sums_RC.shape[:-1])


@metric(
    "meteor",
    stats=meteor_stats,
    score=meteor_of,
    signature=METEOR_SIGNATURE,
    label="METEOR",
    help="words that match the references, including stems and synonyms",
    scale=100.0,
    bounds=PERCENT,
    direction="higher",
    group=CLOSE,
    check=find_tables,
)
def meteor(captions: Sequence[str], references: References) -> tuple[float, np.ndarray]:
    """Computes METEOR for the corpus and for each caption, 0 to 1. The corpus score uses summed counts and is not a
    mean.

    Raises `MissingExtra` if pycocoevalcap (the tables) or snowballstemmer is not installed.
    """
    return _of_stats(meteor_stats(captions, references))


def meteor_of_tokens(caption_tokens: list[str], reference_texts: list[list[str]]) -> tuple[float, np.ndarray]:
    """Computes `meteor` from texts in the form passed to the Java tool, and applies the tool's own normalization."""
    return _of_stats(_summable(_counts_of_tokens(caption_tokens, reference_texts, str(index_folder()))))


def _of_stats(stats_NC: np.ndarray) -> tuple[float, np.ndarray]:
    return float(meteor_of(stats_NC.sum(0))) if len(stats_NC) else float("nan"), meteor_of(stats_NC)


@lru_cache(maxsize=1)
def _lexicon(index: str) -> Lexicon:
    """Returns the lexicon of the words looked up so far. Only the lexicon of the latest index is cached."""
    return Lexicon(open_tables())


def score(counts: Sequence[float]) -> float:
    """Computes METEOR for a caption or a corpus from its 23 counts (Denkowski & Lavie 2014, eq. 1 to 5)."""
    chunks, matched = counts[_CHUNKS], (counts[_MATCHED] + counts[_MATCHED + 1]) / 2
    if chunks == 1 and counts[_MATCHED] == counts[0] and counts[_MATCHED + 1] == counts[1]:
        chunks = 0
    hits = [_hits(counts, side) for side in (0, 1)]
    sizes = [DELTA * (counts[side] - counts[2 + side]) + (1 - DELTA) * counts[2 + side] for side in (0, 1)]
    precision, recall = (hit / size if size else 0.0 for hit, size in zip(hits, sizes, strict=True))
    return _less_chunks(precision, recall, chunks, matched)


def _hits(counts: Sequence[float], side: int) -> float:
    """Computes the weighted matches of the caption (side 0) or the reference (side 1).

    Rounding breaks ties between references, so the order of summation matters: first all content words, then all
    function words, one after the other. `sum` is unsuitable because it has rounded differently since Python 3.12.
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
    """Returns the counts for the reference with the highest score. On a tie, the first reference wins."""
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
        taken = align(found[place], len(caption.words), NARROW if crowds[place] else BEAM)
        counts = count(caption.words, words, taken, lexicon)
        value = score(counts)
        if value > best_score or (value == best_score and place < best_place):
            best_score, best_place, best_counts = value, place, counts
    return best_counts


def ceiling(
    caption: Sequence[int], reference: Sequence[int], matches: Sequence[Sequence[Match]], lexicon: Lexicon
) -> float:
    """Computes an upper bound on the score, as if every word had its best possible match in a single chunk."""
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
    """Returns the tool's 23 statistics of an alignment."""
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
