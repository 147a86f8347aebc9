"""Detects a stage's bad answers with a few explainable rules. It needs no model.

An answer is bad if it is broken text, is empty, repeats the API key, is a refusal, is too long for a caption, has more
than one paragraph, talks about itself, repeats the prompt, or is not in the references' language.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

from tellapart.boost.stage_prompts import StagePrompt
from tellapart.boost.types import REDACTED
from tellapart.language.stock_phrases import refusal
from tellapart.utils.untrusted_text import broken

RUN = 8  # a caption that shares this many consecutive words with the prompt was copied from it
SCRIPT_SHARE = 0.3  # minimum fraction of letters in another script; quoted names and signs stay below it
WORDS_FOR_A_LANGUAGE = 3
_LABEL = re.compile(r"(?m)^([^\W\d][\w -]{2,40}?)(?: \d+| \{number\})?:")  # before a colon at the start of a line
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_PREAMBLE = re.compile(
    r"""^\W*(?:(?:sure|certainly|of\s+course|absolutely|okay|ok)\s*[,!.:]
      |here(?:'s|\s+is|\s+are)\s+(?:the|an?|your|my)\s+(?:[\w-]+\s+){0,3}(?:captions?|descriptions?)\b[^.]*:
      |(?:assistant|user|system|caption|description|answer|output|response)\s*:)""",
    re.IGNORECASE | re.VERBOSE,
)
# Words that are so frequent that a ten-word sentence contains some of them, but that are rare in other languages.
_FREQUENT = {
    "English": "the of and with is are in on to that an at by his her their has from which there",
    "German": "der die das und mit ist sind auf einem einer einen ein eine dem den im am zwei von steht vor",
    "French": "le la les des et avec est sont dans sur une un du au qui deux devant assis pour il",
    "Spanish": "el los las del y con es está están en una un sobre que dos junto por su al para",
    "Italian": "il lo gli della del e con è sono nel sulla una un di che due accanto per su al",
    "Portuguese": "o os as do da e com é está estão em uma um no na sobre que dois ao para",
    "Dutch": "de het een en met is zijn op van aan twee voor die naast staat zit in dat naar bij",
}
_LANGUAGES = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}


def trouble(text: str, sources: Sequence[str], prompt: StagePrompt, references: Sequence[str] = ()) -> str | None:
    """Returns why the answer is bad, in words that complete "the answer was …", or None if the answer is usable.

    sources: the captions quoted in the question. Words shared with them are not an echo, and the answer can be as long
    as all of the captions together.
    references: used to determine the expected language; if there are no references, the prompt is used.
    """
    if (why := unusable(text)) is not None:
        return why
    if sum(bool(line.strip()) for line in text.strip().splitlines()) > 1:
        return "more than one paragraph"
    if _PREAMBLE.search(text.replace("’", "'")):
        return "talk about the answer"
    if echoes(text, sources, prompt):
        return "an echo of the prompt"
    longest = max(prompt.max_words, sum(len(source.split()) for source in sources))
    if length(text) > longest:
        return f"longer than {longest} words"
    expected = " ".join([*references] or [turn.text for turn in prompt.turns])
    return "in another language" if foreign(text, expected) else None


def unusable(text: str) -> str | None:
    """Returns why the answer would be unusable for any question, or None if it may be usable."""
    if (why := broken(text)) is not None:
        return why
    if REDACTED in text:
        return "an echo of the API key"
    if not _WORD.search(text):
        return "empty"
    return "a refusal" if refusal(text) else None


def length(text: str) -> int:
    """Counts words. In scripts that do not use spaces, two characters count as one word."""
    unspaced = sum(_script(letter) in ("CJK", "HIRAGANA", "KATAKANA", "THAI") for letter in text)
    return max(len(text.split()), unspaced // 2)


def echoes(text: str, sources: Sequence[str], prompt: StagePrompt) -> bool:
    """Returns whether the answer repeats a label ("Reference caption 2:") or `RUN` consecutive words of the prompt."""
    turns = [turn.text for turn in prompt.turns]
    labels = {re.escape(label) for label in _LABEL.findall("\n".join(turns))}
    if any(re.search(rf"{label}(?: \d+)?:", text, re.IGNORECASE) for label in labels):
        return True
    return bool(_runs(text) & _runs(*turns, prompt.again) - _runs(*sources))


def foreign(text: str, expected: str) -> bool:
    """Returns whether the text is in a different script than ``expected``, or clearly in a different language."""
    ours, theirs = _scripts(text), _scripts(expected)
    if not theirs:
        return False
    if sum(count for script, count in ours.items() if script not in theirs) > SCRIPT_SHARE * ours.total():
        return True
    own, home = _evidence(text), _evidence(expected)
    (native, least), (other, found) = home.most_common(1)[0], own.most_common(1)[0]
    clear = min(least, found) >= WORDS_FOR_A_LANGUAGE
    return clear and other != native and found > 2 * own[native]


def _scripts(text: str) -> Counter[str]:
    """Counts letters by script."""
    return Counter(script for letter in text if (script := _script(letter)))


def _script(letter: str) -> str:
    """Returns the script of a letter, e.g. LATIN, CYRILLIC or CJK. Returns "" for characters that are not letters."""
    return unicodedata.name(letter, "").split(" ")[0].split("-")[0] if letter.isalpha() else ""


def _evidence(text: str) -> Counter[str]:
    """For each language, counts the words in the text that are frequent in that language."""
    words = _words(text)
    return Counter({language: sum(word in frequent for word in words) for language, frequent in _LANGUAGES.items()})


def _runs(*texts: str) -> set[tuple[str, ...]]:
    """Returns all runs of `RUN` consecutive words, which are too long to match by coincidence."""
    return {tuple(words[at : at + RUN]) for words in map(_words, texts) for at in range(len(words) - RUN + 1)}


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]
