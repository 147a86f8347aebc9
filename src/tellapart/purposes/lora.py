"""Makes captions for training a trigger word, by removing what all pictures in a set have in common.

Words are removed by rules of English grammar (`tellapart.language.word_removal`). Only the trigger, the prefix, the
suffix and the included phrases are added.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from tellapart.boost.answer_checks import unusable
from tellapart.language.english_words import FUNCTION_WORDS
from tellapart.language.inflection import singular
from tellapart.language.phrase_search import has_phrase
from tellapart.language.sentences import sentences
from tellapart.language.word_removal import without_words
from tellapart.language.word_runs import LONGEST_PHRASE, places_in_phrases, word_runs
from tellapart.purposes.edited import Edited
from tellapart.purposes.shortening import shortened, without_openings
from tellapart.utils.random_stream import RandomStream

COMMON = 0.5  # a word in more than this fraction of captions describes the whole set
LEAST = 5  # minimum number of captions; fewer do not show what the set has in common
Key = tuple[str, ...]
LENGTHS = (1 / 3, 2 / 3, 1.0)  # lengths of short, medium and long captions, as fractions of the whole caption


@dataclass(frozen=True)
class WordShare:
    """A word or phrase in its most frequent form, with the number and share of the captions that contain it.

    Words inside a removed phrase are not counted. ``key``: the key of each word (`word_key`), which groups its forms.
    """

    key: Key
    word: str
    count: int
    share: float
    left_out: bool


@dataclass(frozen=True)
class LoraCaptions:
    """Makes captions from which a generator learns ``trigger`` as the name of what the pictures have in common.

    Args:
        trigger: the word that begins each caption.
        common: words in more than this fraction of the captions are removed.
        keep, avoid: words that are never removed, and words that are always removed.
        include: words and phrases that are kept, and appended to captions that lack them.
        prefix, suffix: text to add before and after the whole caption.
        lengths: fractions of captions to keep short, medium and long (a third, two thirds or all of the caption, up to
            the end of a phrase), chosen by ``seed`` and the picture's id; None shortens no caption.
    """

    trigger: str
    common: float = COMMON
    keep: frozenset[str] = frozenset()
    avoid: frozenset[str] = frozenset()
    prefix: str = ""
    suffix: str = ""
    lengths: tuple[float, float, float] | None = None
    seed: int = 0
    include: tuple[str, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """Returns the words that are never removed."""
        return self.keep | {word for phrase in self.include for word in phrase.lower().split()}

    def evidence(self, captions: Mapping[str, str]) -> list[WordShare]:
        """Returns the content words and phrases in the captions, marking those that are removed.

        The most frequent ones come first; phrases are listed only if they are removed. A phrase consists of up to
        `LONGEST_PHRASE` adjacent content words. A part of a longer phrase is listed only if it also occurs elsewhere.
        Words inside a removed phrase are not counted on their own, except nouns: if most captions say "red barn", "a
        red car" keeps its "red".
        """
        runs = [_runs(text) for text in captions.values() if not unusable(text)]
        pictures = len({key.partition("\n")[0] for key, text in captions.items() if not unusable(text)})
        least = self.common * len(runs) if pictures >= LEAST else math.inf
        nouns = Counter[Key]()
        for caption in runs:
            nouns.update({(one[0],) for run in caption for one in run if one[-1]})
        forms, shares, phrases = Counter[tuple[Key, str]](), dict[Key, int](), set[Key]()
        for size in range(LONGEST_PHRASE, 0, -1):
            count = Counter[Key]()
            for caption in runs:
                said = {one for run in caption for one in _parts(run, size, phrases)}
                forms.update(said)
                count.update({key for key, _ in said})
            if size > 1:
                count = Counter({key: times for key, times in count.items() if times > least and self._keeps_no(key)})
                phrases |= count.keys()
            else:  # nouns also count inside phrases: a dog in all pictures is common, whatever it does
                count = Counter({key: max(times, nouns[key]) for key, times in count.items()})
            shares |= count
        form_of: dict[Key, str] = {}
        for (key, form), _ in forms.most_common():
            form_of.setdefault(key, form)
        return [
            WordShare(key, form_of[key], times, times / len(runs), self._is_left_out(key, form_of[key], times > least))
            for key, times in sorted(shares.items(), key=lambda pair: (-pair[1], pair[0]))
        ]

    def _keeps_no(self, words: Iterable[str]) -> bool:
        return self.kept.isdisjoint(words) and {singular(word) for word in self.kept}.isdisjoint(words)

    def _is_left_out(self, key: Key, form: str, is_common: bool) -> bool:
        return self._keeps_no({*key, form}) and (is_common or not self.avoid.isdisjoint({*key[:1], form}))

    def edited(self, captions: Mapping[str, str]) -> dict[str, Edited]:
        """Returns the text of each caption, without the words that most captions share.

        If a picture has several captions, every key but the first consists of the first key, a line break and a number.
        """
        out = {one.key for one in self.evidence(captions) if one.left_out}
        return {key: self._edited(key, caption, out) for key, caption in captions.items()}

    def _edited(self, key: str, caption: str, out: set[Key]) -> Edited:
        if why := unusable(caption):
            return Edited("", (("no text", why),))
        words = {one[0] for one in out if len(one) == 1}
        plain = without_openings(caption)[0]
        if plain.split()[0].lower() in caption.split():  # removing an opening has capitalized the first word
            plain = plain[0].lower() + plain[1:]
        text = without_words(plain, words, self.trigger, out)
        if self.lengths is not None:
            part = RandomStream("length-mix", self.seed, key).weighted_choice(LENGTHS, self.lengths)
            text = shortened(text, int(part * len(text)), whole_phrases=True)[0]
        if not re.match(rf"{re.escape(self.trigger)}(?!\w)", text):
            first, _, rest = text.partition(" ")
            text = f"{first.lower() if first.lower() in FUNCTION_WORDS else first} {rest}".strip()
            text = f"{self.trigger}, {text}" if text else self.trigger
        text = f"{self.prefix} {text}".strip()
        for phrase in self.include:
            if not has_phrase(text, phrase):
                text = f"{text.rstrip('. ')}, {phrase}"
        if self.suffix:
            text = text.rstrip(". ") + ("" if re.match(r"[^\w\s]", self.suffix) else " ") + self.suffix
        return Edited(text)


Run = Sequence[tuple[str, str, int, int, bool]]  # for each word: key, sentence, start and end, is a noun


def _runs(caption: str) -> list[Run]:
    found = sentences(without_openings(caption)[0])
    return [
        [(key, part, word.start, word.end, word.kind == "head") for key, word in run]
        for part in found
        for run in word_runs(part)
    ]


def _parts(run: Run, size: int, phrases: Set[Key]) -> Iterator[tuple[Key, str]]:
    """Yields the key and the text of each sequence of ``size`` words that is not inside one of these phrases."""
    keys = [key for key, *_ in run]
    taken = places_in_phrases(keys, phrases)
    for start in range(len(run) - size + 1):
        if not taken.issuperset(range(start, start + size)):
            (_, text, begin, *_), (*_, end, _) = run[start], run[start + size - 1]
            yield tuple(keys[start : start + size]), text[begin:end].lower()
