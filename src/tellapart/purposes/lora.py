"""Captions for training a trigger word: removes what all pictures of a set have in common.

Rules of English grammar (`tellapart.language.phrases`) remove words. Nothing is added except the trigger, the prefix,
the suffix and the included phrases.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tellapart.boost.stages import unusable
from tellapart.language.english import FUNCTION_WORDS
from tellapart.language.phrases import without_words, word_key
from tellapart.language.words import content_words
from tellapart.purposes.texts import Edited, has_phrase, shortened, without_openings
from tellapart.utils.rng import RandomStream

COMMON = 0.5  # a word in more than this fraction of captions describes the whole set
LEAST = 5  # captions; fewer do not show what a set has in common
LENGTHS = (1 / 3, 2 / 3, 1.0)  # of short, medium and long captions, as fractions of the whole caption


@dataclass(frozen=True)
class WordShare:
    """Number and share of the captions that contain a word, and the word's most frequent form.

    ``key``: the key that groups the word's forms (`word_key`).
    """

    key: str
    word: str
    count: int
    share: float
    left_out: bool


@dataclass(frozen=True)
class LoraCaptions:
    """Makes captions for a generator that learns ``trigger`` as the name of what the pictures have in common.

    Args:
        trigger: the word that begins each caption.
        common: words in more than this fraction of the captions are removed.
        keep, avoid: words that are never removed, and words that are always removed.
        include: words and phrases that are kept, and appended to captions that lack them.
        prefix, suffix: texts put around the whole caption.
        lengths: fractions of short, medium and long captions (a third, two thirds and the whole, up to the end of a
            phrase), drawn by ``seed`` and the picture's id; None: all captions stay whole.
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
        """Returns the content words of the captions, most frequent first, and marks those that are removed."""
        usable = [without_openings(text)[0] for text in captions.values() if not unusable(text)]
        count, forms = Counter[str](), Counter[tuple[str, str]]()
        for text in usable:
            found = [word for word in content_words(text) if word.kind != "relation"]
            count.update({word_key(text, word) for word in found})
            forms.update((word_key(text, word), text[word.start : word.end].lower()) for word in found)
        pictures = len({key.partition("\n")[0] for key, text in captions.items() if not unusable(text)})
        form: dict[str, str] = {}
        for (key, word), _ in forms.most_common():
            form.setdefault(key, word)
        return [
            WordShare(
                key,
                form[key],
                times,
                times / len(usable),
                self._is_left_out({key, form[key]}, times, len(usable), pictures),
            )
            for key, times in sorted(count.items(), key=lambda pair: (-pair[1], pair[0]))
        ]

    def _is_left_out(self, names: set[str], times: int, captions: int, pictures: int) -> bool:
        if names & self.kept:
            return False
        return bool(names & self.avoid) or (pictures >= LEAST and times > self.common * captions)

    def edited(self, captions: Mapping[str, str]) -> dict[str, Edited]:
        """Returns the text of each caption, without what all captions have in common.

        If a picture has several captions, the keys after the first are the first key, a line break and a number.
        """
        out = {one.key for one in self.evidence(captions) if one.left_out}
        return {key: self._edited(key, caption, out) for key, caption in captions.items()}

    def _edited(self, key: str, caption: str, out: set[str]) -> Edited:
        if why := unusable(caption):
            return Edited("", (("no text", why),))
        text = without_words(without_openings(caption)[0], out, self.trigger)
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
