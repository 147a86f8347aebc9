"""CHAIR (Rohrbach et al. 2018), the rate of hallucinated objects, and coverage, its counterpart.

With a file of synonyms (the authors' ``synonyms.txt``), objects are words of that file, found as in the authors' code:
lower case, singular, two-word objects first. Without one, objects are those of the generic extractor. A picture's
objects are those of its references and, if a file is given, of COCO's instances.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tellapart.errors import UsageError
from tellapart.language.claims import (
    KINDS,
    NO_SYNONYMS,
    Extraction,
    Synonyms,
    Tuple,
    claims_of,
    extract,
)
from tellapart.metrics.statistics import Sums
from tellapart.utils.messages import parse_json

# The verdict on one caption: how many of its claims are true, and how many true facts it states.

Span = tuple[int, int, str]  # start and end in characters, and the reason


@dataclass(frozen=True, slots=True)
class Verdict:
    """Counts for one caption. A verifier without complete ground truth sets ``expected`` to 0, so recall is undefined.

    claims: the number of checkable claims.
    correct: the number of true claims, fractional for a graded verifier.
    expected: the number of facts in a full description.
    recalled: the number of these facts that the caption states.
    false: the positions of false words.
    """

    claims: float
    correct: float
    expected: float = 0.0
    recalled: float = 0.0
    false: tuple[Span, ...] = ()

    @property
    def precision(self) -> float:
        """Returns the precision, 0..1; NaN for a caption without claims."""
        return self.correct / self.claims if self.claims else float("nan")

    @property
    def recall(self) -> float:
        """Returns the recall, 0..1; NaN if the verifier has no complete ground truth."""
        return self.recalled / self.expected if self.expected else float("nan")

    @property
    def f(self) -> float:
        """Returns the harmonic mean of precision and recall; 0 for a caption without claims."""
        if not self.expected:
            return float("nan")
        both = (self.precision if self.claims else 0.0) + self.recall
        return 2 * self.precision * self.recall / both if self.claims and both else 0.0

    def counts(self) -> tuple[float, float, float, float]:
        """Returns ``(correct, claims, recalled, expected)``."""
        return (self.correct, self.claims, self.recalled, self.expected)


def rates(verdicts: Sequence[Verdict]) -> np.ndarray:
    """Returns precision, recall and F of each caption, N×3, 0..1."""
    return np.array([(verdict.precision, verdict.recall, verdict.f) for verdict in verdicts]).reshape(-1, 3)


def rate_statistic(counts_N4: np.ndarray, which: int) -> Sums:
    """Returns precision (0), recall (1) or F (2) of a corpus × 100, from counts summed over captions."""

    def number(counts_R4: np.ndarray) -> np.ndarray:
        correct, claims, recalled, expected = np.moveaxis(np.asarray(counts_R4, dtype=float), -1, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            precision, recall = correct / claims, recalled / expected
            f = 2 * precision * recall / (precision + recall)
        f = np.where((expected > 0) & ((correct == 0) | (recalled == 0)), 0.0, f)  # as for a single caption
        found: np.ndarray = 100 * (precision, recall, f)[which]
        return found

    return Sums(counts_N4, number, bounds=(0.0, 100.0))


# Words for the same object, from a file in the layout of the CHAIR authors' ``synonyms.txt``.
#
# Each line is one object: its name and its synonyms, separated by commas. "person, girl, boy, man, woman, kid".

# The CHAIR authors' rules for COCO (Rohrbach et al. 2018): two-word objects, and modifiers that name no object: a
# "baby bird" is not a person.
_TWO_WORDS = [
    "motor bike",
    "motor cycle",
    "air plane",
    "traffic light",
    "street light",
    "traffic signal",
    "stop light",
    "fire hydrant",
    "stop sign",
    "parking meter",
    "suit case",
    "sports ball",
    "baseball bat",
    "baseball glove",
    "tennis racket",
    "wine glass",
    "hot dog",
    "cell phone",
    "mobile phone",
    "teddy bear",
    "hair drier",
    "potted plant",
    "bow tie",
    "laptop computer",
    "stove top oven",
    "home plate",
]
_ANIMALS = ["bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "animal", "cub"]
_VEHICLES = ("jet", "train")


def read_synonyms(path: Path) -> Synonyms:
    """Reads a file of synonyms. Raises `UsageError` for a line without a name, and for ambiguous words."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); expected lines such as 'person, girl, boy'") from None
    rows = [[cell.strip().lower() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    if not rows or not all(row[0] for row in rows):
        raise UsageError(f"{path}: expected one object a line, its name and its synonyms with commas")
    found: dict[str, str] = {}
    for row in rows:
        for word in row:
            if word:
                found[word] = row[0]  # the last line wins, as in the authors' code
    digest = hashlib.blake2b(text.encode(), digest_size=4).hexdigest()
    return Synonyms(found, f"{path.name}@{digest}")


def two_words(synonyms: Synonyms) -> dict[str, str]:
    """Maps two-word objects to their names: COCO's, and all pairs in the file."""
    found = {pair: pair for pair in (*_TWO_WORDS, *_pairs(synonyms.object_of))}
    found |= {f"{kind} {animal}": animal for animal in _ANIMALS for kind in ("baby", "adult")}
    found |= {f"passenger {vehicle}": vehicle for vehicle in _VEHICLES}
    return found | {"bow tie": "tie", "toilet seat": "toilet", "wine glas": "wine glass"}


def _pairs(words: Iterable[str]) -> list[str]:
    return [word for word in words if word.count(" ") == 1]


# The offline verifier: a claim is true if a reference of the picture makes it.
#
# Things that no reference names count as false even if the picture shows them, so precision is a lower bound. It
# compares lemmas, and objects by their name in a file of synonyms.

NOT_NAMED = "in no reference"
_COLOURS = """
red orange yellow green blue purple pink brown black white gray grey gold golden silver tan beige turquoise violet
maroon navy teal blond blonde cream crimson dark-blue light-blue multicolored colorful colourful
"""
_MATERIALS = """
wooden wood metal metallic steel iron plastic glass stone concrete brick leather paper cardboard rubber ceramic cloth
fabric cotton wool woolen denim straw wicker marble sandy snowy grassy rocky muddy
"""
_FINE = dict.fromkeys(_COLOURS.split(), "colour") | dict.fromkeys(_MATERIALS.split(), "material")


def kind_of_attribute(claim: Tuple) -> str:
    """Returns which of `FINE_KINDS` an attribute (object, attribute) is, or ""."""
    word = claim[1]
    return "count" if word.isdigit() else _FINE.get(word, "")


@dataclass(frozen=True)
class Facts:
    """Distinct tuples of one or more texts: (object), (object, attribute), (object, relation, object)."""

    objects: frozenset[Tuple]
    attributes: frozenset[Tuple]
    relations: frozenset[Tuple]

    def of(self, kind: str) -> frozenset[Tuple]:
        """Returns the tuples of one of `KINDS`."""
        return {"object": self.objects, "attribute": self.attributes, "relation": self.relations}[kind]


def facts_of(texts: Iterable[str], synonyms: Synonyms) -> Facts:
    """Returns the distinct facts of some texts."""
    found: tuple[set[Tuple], set[Tuple], set[Tuple]] = (set(), set(), set())
    for text in texts:
        for kind, claim, _ in claims_of(extract(text), synonyms):
            found[KINDS.index(kind)].add(claim)
    return Facts(*(frozenset(own) for own in found))


def verify_references(
    caption: str, references: Sequence[str], synonyms: Synonyms = NO_SYNONYMS, kinds: Sequence[str] = KINDS
) -> Verdict:
    """Verifies a caption's claims against its references.

    Precision is the share of distinct claims that a reference makes. Recall is the share of the references' distinct
    facts that the caption states. ``kinds``: which claims count, from `KINDS` and `FINE_KINDS`.
    """

    def counts(kind: str, claim: Tuple) -> bool:
        return kind in kinds or (kind == "attribute" and kind_of_attribute(claim) in kinds)

    known = _known(tuple(references), synonyms.name, synonyms)
    claims = [found for found in claims_of(extract(caption), synonyms) if counts(*found[:2])]
    false: list[Span] = []
    correct = 0
    for kind, claim, places in claims:
        if claim in known.of(kind):
            correct += 1
        else:
            false += [(start, end, NOT_NAMED) for start, end in places]
    expected = sum(counts(kind, claim) for kind in KINDS for claim in known.of(kind))
    return Verdict(len(claims), correct, expected, correct, tuple(sorted(set(false))))


@dataclass(frozen=True)
class Unmatched:
    """Claims of one kind, as texts, that only the caption or only the references make.

    ``matched``: the number of distinct claims that both make.
    """

    matched: int
    made: tuple[str, ...]
    known: tuple[str, ...]

    def verdict(self, feature_MD: np.ndarray, row: Mapping[str, int]) -> Verdict:
        """Scores each claim by its largest cosine with an unmatched claim of the other side, at least 0.

        feature_MD: L2-normalised features of texts. row: maps texts to rows.
        """
        soft_MK = np.zeros((len(self.made), len(self.known)))
        if self.made and self.known:
            soft_MK = feature_MD[[row[text] for text in self.made]] @ feature_MD[[row[text] for text in self.known]].T
        correct = self.matched + float(soft_MK.max(1, initial=0.0).clip(max=1.0).sum())
        recalled = self.matched + float(soft_MK.max(0, initial=0.0).clip(max=1.0).sum())
        return Verdict(self.matched + len(self.made), correct, self.matched + len(self.known), recalled)


def unmatched_claims(caption: str, references: Sequence[str], synonyms: Synonyms, kind: str) -> Unmatched:
    """Returns the claims of one of `KINDS` that `verify_references` finds only in the caption or only in references."""
    known = _known(tuple(references), synonyms.name, synonyms).of(kind)
    made = frozenset(claim for own, claim, _ in claims_of(extract(caption), synonyms) if own == kind)
    alone, others = (
        tuple(sorted(claim_phrase(kind, claim) for claim in side)) for side in (made - known, known - made)
    )
    return Unmatched(len(made & known), alone, others)


def claim_phrase(kind: str, claim: Tuple) -> str:
    """Formats the claim as words: "red ball", "ball on grass"."""
    return f"{claim[1]} {claim[0]}" if kind == "attribute" else " ".join(claim)


_CACHE: dict[tuple[tuple[str, ...], str], Facts] = {}


def _known(references: tuple[str, ...], name: str, synonyms: Synonyms) -> Facts:
    key = (references, name)
    if key not in _CACHE:
        if len(_CACHE) > 100_000:
            _CACHE.clear()
        _CACHE[key] = facts_of(references, synonyms)
    return _CACHE[key]


# A scorer as verifier: a claim's support is how often its sentence fits this picture better than other pictures.
#
# The support of a claim is the share of other pictures with a lower cosine to the claim's sentence, so chance is 0.5.
# It needs no references and no threshold, but cannot measure what a caption leaves out.

CHANCE = 0.5
UNLIKELY = "likelier at other pictures"
_BLOCK = 512
_SENTENCE = re.compile(r"[^\s.!?][^.!?]*(?:[.!?](?=\S)[^.!?]*)*[.!?]*")


Parts = list[tuple[str, tuple[tuple[int, int], ...]]]  # texts, and their positions in the caption


def whole_sentences(caption: str) -> Parts:
    """Returns the sentences of a caption as written."""
    found = [(match[0], match.start()) for match in _SENTENCE.finditer(caption)]
    return [(text.strip(), ((start, start + len(text.rstrip())),)) for text, start in found if text.strip()]


def claim_sentences(caption: str) -> Parts:
    """Returns `sentences_of` the claims of a caption."""
    return sentences_of(extract(caption))


def sentences_of(extraction: Extraction) -> Parts:
    """Returns a short text per claim, with the claim's positions: "a dog", "a red dog", "a dog on a sofa"."""
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    names = [mention.text for mention in extraction.mentions]
    for name, mention in zip(names, extraction.mentions, strict=True):
        found.setdefault(_with_article(name), tuple(mention.spans))
        for attribute in mention.attributes:
            text = f"{_with_article(name)} {attribute.text}" if attribute.action else f"{attribute.text} {name}"
            found.setdefault(text if attribute.action else _with_article(text), attribute.spans)
    for relation in extraction.relations:
        others = " and ".join(_with_article(names[number]) for number in relation.objects)
        found.setdefault(f"{_with_article(names[relation.subject])} {relation.text} {others}", (relation.span,))
    return list(found.items())


def verify_scorer(
    captions: Sequence[str],
    image_ND: np.ndarray,
    encode: Callable[[Sequence[str]], np.ndarray],
    parts_of: Callable[[str], Parts] = claim_sentences,
) -> list[Verdict]:
    """Computes the graded precision of each caption's claims at its own picture. Features are L2-normalised.

    encode: maps texts to features, M×D.
    parts_of: extracts the parts to verify: claims, or `whole_sentences`.

    Raises `ValueError` for fewer than two pictures.
    """
    if len(image_ND) < 2:
        raise ValueError("a claim is compared at other pictures: there must be at least two")
    claims = [parts_of(caption) for caption in captions]
    texts = list(dict.fromkeys(text for own in claims for text, _ in own))
    feature_MD = encode(texts) if texts else np.zeros((0, image_ND.shape[1]))
    row = {text: number for number, text in enumerate(texts)}
    pairs = [(row[text], picture) for picture, own in enumerate(claims) for text, _ in own]
    support = iter(_support(feature_MD, np.asarray(image_ND), np.array(pairs, dtype=int).reshape(-1, 2)))
    found = []
    for own in claims:
        values = [float(next(support)) for _ in own]
        false: list[Span] = [
            (start, end, UNLIKELY)
            for (_, places), value in zip(own, values, strict=True)
            if value < CHANCE
            for start, end in places
        ]
        found.append(Verdict(len(values), sum(values), false=tuple(sorted(set(false)))))
    return found


def _support(feature_MD: np.ndarray, image_ND: np.ndarray, pair_P2: np.ndarray) -> np.ndarray:
    found = np.zeros(len(pair_P2))
    for start in range(0, len(pair_P2), _BLOCK):
        text_B, picture_B = pair_P2[start : start + _BLOCK].T
        score_BN = feature_MD[text_B] @ image_ND.T
        own_B1 = score_BN[np.arange(len(text_B)), picture_B][:, None]
        lower = (score_BN < own_B1).sum(1) + 0.5 * ((score_BN == own_B1).sum(1) - 1)
        found[start : start + _BLOCK] = lower / (len(image_ND) - 1)
    return found


def _with_article(phrase: str) -> str:
    return f"{'an' if phrase[:1] in 'aeiou' else 'a'} {phrase}"


ABSENT = "no such object in the references"
_WORD = re.compile(r"[a-z]+(?:[-'][a-z]+)*")
_IRREGULAR = {
    "men": "man", "women": "woman", "children": "child", "mice": "mouse", "geese": "goose", "knives": "knife",
    "feet": "foot", "teeth": "tooth", "oxen": "ox", "calves": "calf", "halves": "half", "lives": "life",
}  # fmt: skip
Found = tuple[str, int, int]  # an object's name, and its position in the caption


@dataclass
class Chair:
    """CHAIR over one vocabulary. ``instances``: objects by picture id, in addition to those of the references."""

    synonyms: Synonyms
    instances: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Prepares the two-word objects."""
        self._pairs = two_words(self.synonyms)

    def objects(self, text: str) -> list[Found]:
        """Returns every object mention in a text with its position, including repeats."""
        words = [(self._singular(match[0]), match.start(), match.end()) for match in _WORD.finditer(text.lower())]
        joined: list[Found] = []
        at = 0
        while at < len(words):
            pair = f"{words[at][0]} {words[at + 1][0]}" if at + 1 < len(words) else ""
            if pair in self._pairs:
                joined.append((self._pairs[pair], words[at][1], words[at + 1][2]))
                at += 2
            else:
                joined.append(words[at])
                at += 1
        names = {name for name, _, _ in joined}
        if {"toilet", "seat"} <= names:  # a toilet seat is not a chair
            joined = [found for found in joined if found[0] != "seat"]
        known = self.synonyms.object_of
        return [(known[name], start, end) for name, start, end in joined if name in known]

    def verify(self, caption: str, references: Sequence[str], picture: str = "") -> Verdict:
        """Verifies a caption's objects against the picture's. Precision is 1 - CHAIR_i, recall is coverage."""
        there = {name for text in references for name, _, _ in self.objects(text)}
        there |= self.instances.get(picture, frozenset())
        named = self.objects(caption)
        false: list[Span] = [(start, end, ABSENT) for name, start, end in named if name not in there]
        recalled = len(there & {name for name, _, _ in named})
        return Verdict(len(named), len(named) - len(false), len(there), recalled, tuple(false))

    def _singular(self, word: str) -> str:
        """Returns the form of a word that is in the vocabulary, or the word itself."""
        forms = [word, _IRREGULAR.get(word, word)]
        if word.endswith("ies"):
            forms.append(word[:-3] + "y")
        if word.endswith("es"):
            forms.append(word[:-2])
        if word.endswith("s") and not word.endswith("ss"):
            forms.append(word[:-1])
        known = self.synonyms.object_of
        for form in forms:
            if form in known:
                return form
        parts = {part for pair in self._pairs for part in pair.split()}
        return next((form for form in forms if form in parts), word)


def read_instances(path: Path, synonyms: Synonyms) -> dict[str, frozenset[str]]:
    """Reads the objects of each picture of a COCO ``instances_*.json``, by id and file name. Raises `UsageError`."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
        names = {category["id"]: synonyms.canonical(category["name"]) for category in value["categories"]}
        found: dict[int, set[str]] = {}
        for annotation in value["annotations"]:
            found.setdefault(annotation["image_id"], set()).add(names[annotation["category_id"]])
        files = {image["id"]: image.get("file_name", "") for image in value.get("images", ())}
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; expected COCO's instances_*.json") from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path}: is no COCO instances file ({type(error).__name__}: {error})") from None
    by_name: dict[str, frozenset[str]] = {}
    for number in {**files, **found}:  # a picture without annotations has no objects
        file = Path(files.get(number, ""))
        for name in filter(None, (str(number), str(file) if file.name else "", file.name, file.stem)):
            by_name[name] = frozenset(found.get(number, ()))
    return by_name
