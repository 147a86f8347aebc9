"""Finds defects in captions, individually or by comparison with other captions and the references."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, takewhile

from tellapart.check.pairing import misfits
from tellapart.language import stock_phrases
from tellapart.language.english_words import word_set

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_END = re.compile(r"[.!?…。！？]['\")\]»”’]*\s*$")
_NEVER_LAST = word_set("""
    a an the of and or but with to in at by from into onto for as is are was were has have his her their its my your
    very while who which that
""")
_REFUSAL = re.compile(
    r"\b(?:i(?:['’]m| am) (?:sorry|unable|not able)|i (?:can(?:not|['’]t)|could not|do not|don['’]t|won['’]t) "
    r"(?:assist|help|provide|see|view|describe|identify|process|comply|have access)|i apologi[sz]e|"
    r"as an? (?:ai|artificial|language|large)\b|unable to (?:view|see|process|describe|assist|provide)|"
    r"(?:no|without an?) image (?:was |has been )?(?:provided|attached|uploaded|given)|"
    r"against my (?:guidelines|policy)|"
    r"please (?:provide|upload|share) (?:the|an|your) image|content policy)",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(
    r"^\W*(?:(?:in )?(?:the|this|that) (?:image|picture|photo|photograph|scene)\b|(?:the|this|an?) "
    r"(?:image|picture|photo|photograph) (?:shows|depicts|features|captures|displays|contains|is|has|of\b)|"
    r"(?:sure|certainly|of course|here is|here['’]s|here are)\b|(?:caption|description|answer|assistant)\s*:)",
    re.IGNORECASE,
)
_MOJIBAKE = re.compile(
    r"�|Ã[\u0080-¿‚-™]|Â[\u00a0-¿]|â€|ã€|ï»¿|ðŸ|&(?:[a-z]{2,8}|#\d{2,5}|#x[0-9a-f]{2,5});|\\u[0-9a-f]{4}|\\x[0-9a-f]{2}"
    r"|\\[nrt](?![a-z])|</?(?:br|p|div|span|b|i|s|pad|unk|eos|bos)\b[^>]*>|<\|[\w ]+\|>"
    r"|\[(?:PAD|UNK|SEP|CLS|EOS)\]",
    re.IGNORECASE,
)
SHARED_OPENING = 0.2  # a three-word opening shared by at least this fraction of captions is a template
NEAR_WORDS = 8  # shorter captions may differ in a single word by chance
ALIKE = 0.75  # words in common with the previous row, as a fraction of the words in both
# Function words by language, except short ones that several languages share.
_LANGUAGES = {
    "en": "the and is are with of on an his her their while two man woman wearing holding sitting standing",
    "de": "der die das und ist sind mit auf ein eine einem einer einen im am von vor zwei steht sitzt trägt",
    "fr": "le la les et est sont avec sur une des dans du au aux deux homme femme qui pendant porte assis",
    "es": "el los las y está están con sobre una unos unas en del al dos hombre mujer mientras sentado lleva",
    "it": "il lo gli e è sono con su una uno della dello nel nella due uomo donna mentre seduto indossa",
    "pt": "os as está estão com sobre uma um em do da dos das ao dois homem mulher enquanto sentado vestindo",
    "nl": "de het een en zijn met op van twee man vrouw terwijl zit staat draagt aan voor bij",
}
LANGUAGES = {name: word_set(words) for name, words in _LANGUAGES.items()}


@dataclass(frozen=True)
class CheckedCaption:
    """A caption: the picture's id, the text, and its lowercase words."""

    id: str
    text: str
    words: tuple[str, ...]

    @property
    def plain(self) -> str:
        """Returns only the words, so that captions that differ only in case and punctuation compare equal."""
        return " ".join(self.words)


Defect = tuple[CheckedCaption, str]  # a caption, and what is wrong with it


def rows_of(texts: Mapping[str, Sequence[str]]) -> list[CheckedCaption]:
    """Returns all captions, in file order."""
    return [
        CheckedCaption(key, text, tuple(found.lower() for found in _WORD.findall(text)))
        for key, own in texts.items()
        for text in own
    ]


def each(fault: Callable[[CheckedCaption], str], rows: Sequence[CheckedCaption]) -> Iterator[Defect]:
    """Applies a check to each caption. ``fault`` says what is wrong with a caption, or returns ""."""
    return ((row, why) for row in rows if (why := fault(row)))


_MISSING = {("nan",), ("none",), ("null",), ("n", "a"), ("undefined",)}


def empty(row: CheckedCaption) -> str:
    """Says why a caption counts as empty: it has no letters or digits, or is a placeholder for a missing value."""
    if row.words in _MISSING:
        return f"“{row.text}”, a placeholder for a missing value"
    return "" if row.words else "contains no words"


def refusal(row: CheckedCaption) -> str:
    """Quotes the words that mark the caption as a model's refusal."""
    found = stock_phrases.refusal(row.text)
    return f"“{found}”" if found else _quoted(_REFUSAL.search(row.text))


def loop(row: CheckedCaption) -> str:
    """Quotes one to eight words that occur three times in a row, or a repeated sentence of at least four words."""
    words = row.words
    for size in range(1, min(8, len(words) // 2) + 1):
        for at in range(size, len(words) - size + 1):
            part = words[at - size : at]
            if words[at : at + size] != part:
                continue
            runs = (words[start : start + size] for start in range(at, len(words), size))
            times = 1 + sum(1 for _ in takewhile(part.__eq__, runs))
            if times >= (3 if size < 4 else 2):
                return f"“{' '.join(part)}” {times} times"
    return ""


def encoding(row: CheckedCaption) -> str:
    """Quotes traces of a wrong encoding, HTML, an escape sequence or a special token."""
    return _quoted(_MOJIBAKE.search(row.text))


def _quoted(match: re.Match[str] | None) -> str:
    return f"“{match[0]}”" if match else ""


def language(row: CheckedCaption, expected: str) -> str:
    """Describes the caption's script or language if it is not ``expected``, a key of `LANGUAGES`."""
    letters = [char for char in row.text if char.isalpha()]
    foreign = sum(ord(char) > 0x24F and not 0x1E00 <= ord(char) <= 0x1EFF for char in letters)
    if foreign > 0.3 * max(len(letters), 1):
        return "not in Latin script"
    hits = {name: len(known.intersection(row.words)) for name, known in LANGUAGES.items()}
    best = max(hits, key=lambda name: hits[name])
    return f"contains common words of “{best}”" if hits[best] >= 2 and hits[best] > 2 * hits[expected] else ""


def cut(rows: Sequence[CheckedCaption]) -> Iterator[Defect]:
    """Finds truncated captions.

    If most captions end in punctuation, a caption that does not is considered truncated if its last word hardly ever
    ends a caption, or never occurs as a complete word in the file. Otherwise, a caption is considered truncated if its
    last word requires a continuation or a bracket is left open.
    """
    known, last = Counter[str](), Counter[str]()
    ended = [bool(_END.search(row.text)) for row in rows]
    for row in rows:
        known.update(row.words)
        last.update(row.words[-1:])
    punctuated = sum(ended) > 0.7 * max(len(rows), 1)
    begun = {word[:size] for word, times in known.items() if times >= 5 for size in range(1, len(word))}
    for row, whole in zip(rows, ended, strict=True):
        if not row.words or whole:
            continue
        word = row.words[-1]
        times, ends = known[word], last[word]
        if row.text.count("(") > row.text.count(")"):
            yield row, "unclosed bracket"
        elif word in _NEVER_LAST and ends < 0.1 * times:
            yield row, f"ends in “{word}”"
        elif punctuated and times >= 20 and ends < 0.05 * times:
            yield row, f"ends in “{word}” without punctuation"
        elif punctuated and times == 1 and len(known) > 500 and word in begun:
            yield row, f"ends in the middle of the word “{word}”"


def template(rows: Sequence[CheckedCaption]) -> Iterator[Defect]:
    """Finds openings that are typical of models, and three-word openings that a fifth of the captions share."""
    openings = Counter(row.words[:3] for row in rows if len(row.words) > 3)
    common = {words for words, times in openings.items() if times > max(SHARED_OPENING * len(rows), 3)}
    for row in rows:
        match = _TEMPLATE.match(row.text)
        if opening := match[0] if match else stock_phrases.without_opening(row.text)[1]:
            yield row, f"“{' '.join(opening.split())}”"
        elif row.words[:3] in common:
            share = openings[row.words[:3]] / len(rows)
            yield (row, f"{share:.0%} of all captions begin with “{' '.join(row.words[:3])}”")


def repeated(rows: Sequence[CheckedCaption]) -> Iterator[Defect]:
    """Finds duplicate captions of a picture."""
    seen: set[tuple[str, str]] = set()
    for row in rows:
        if row.words and (row.id, row.plain) in seen:
            yield row, "twice for this picture"
        seen.add((row.id, row.plain))


def pictures_of(rows: Sequence[CheckedCaption]) -> dict[str, list[str]]:
    """Maps each caption, reduced to its words, to the pictures that have it."""
    pictures: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        if row.words:
            pictures[row.plain][row.id] = None
    return {text: list(own) for text, own in pictures.items()}


def shared(rows: Sequence[CheckedCaption], pictures: Mapping[str, Sequence[str]]) -> Iterator[Defect]:
    """Finds captions shared by several pictures."""
    for row in rows:
        if row.words and len(own := pictures[row.plain]) > 1:
            other = own[own[0] == row.id]
            more = f" and {len(own) - 2:,} more" if len(own) > 2 else ""
            yield row, f"also used for {other}{more}"


def near(rows: Sequence[CheckedCaption], pictures: Mapping[str, Sequence[str]]) -> Iterator[Defect]:
    """Finds captions of at least `NEAR_WORDS` words that differ from another picture's caption in one word."""
    without: dict[tuple[int, int], list[str]] = defaultdict(list)  # key: a word's position, and the text without it
    long = [text for text in pictures if text.count(" ") + 1 >= NEAR_WORDS]
    for text in long:
        for key in _without_one(text):
            without[key].append(text)
    groups: dict[frozenset[str], int] = {}
    group_of = {text: groups.setdefault(frozenset(pictures[text]), len(groups)) for text in long}
    partner: dict[str, str] = {}
    for own in without.values():
        first = own[0]
        other = next((text for text in own if group_of[text] != group_of[first]), None)  # shared by other pictures
        if other is not None:
            for text in own:
                partner.setdefault(text, other if group_of[text] == group_of[first] else first)
    for row in rows:
        if (other := partner.get(row.plain)) is not None:
            yield row, f"{pictures[other][0]}: {other}"


def _without_one(text: str) -> Iterator[tuple[int, int]]:
    words = text.split(" ")
    for place in range(len(words)):
        yield place, hash((*words[:place], *words[place + 1 :]))


def neighbour(rows: Sequence[CheckedCaption]) -> Iterator[Defect]:
    """Finds captions that share most of their words with the previous row's caption."""
    for before, row in pairwise(rows):
        if before.id == row.id or min(len(row.words), len(before.words)) < 5:
            continue
        one, other = set(row.words), set(before.words)
        if len(one & other) >= ALIKE * len(one | other):
            yield row, f"{before.id}: {before.text}"


def leaked(rows: Sequence[CheckedCaption], references: Mapping[str, Sequence[str]]) -> Iterator[Defect]:
    """Finds captions that are identical to a reference of their picture except for case and punctuation."""
    known = {row.id: set[str]() for row in rows}
    for row in rows_of({key: own for key, own in references.items() if key in known}):
        known[row.id].add(row.plain)
    for row in rows:
        if len(row.words) > 3 and row.plain in known[row.id]:
            yield row, "identical to a reference"


def mispaired(rows: Sequence[CheckedCaption], references: Mapping[str, Sequence[str]]) -> Iterator[Defect]:
    """Finds captions that have fewer words in common with their picture's references than with those of most others."""
    place = {key: number for number, key in enumerate(key for key, texts in references.items() if any(texts))}
    own = [row for row in rows if row.words and row.id in place]
    found = misfits([row.text for row in own], [place[row.id] for row in own], [references[key] for key in place])
    for row in (own[number] for number in found):
        yield row, f"a reference: {next(filter(None, references[row.id]))}"
