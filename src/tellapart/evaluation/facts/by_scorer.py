"""Verifies claims with a scorer: measures how often a claim's sentence fits its own picture better than another
picture.

A claim's support is the share of other pictures whose cosine with the claim's sentence is lower, so chance is 0.5. The
method needs neither references nor a threshold, but it cannot measure what a caption leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import numpy as np

from tellapart.evaluation.facts.verdict import Verdict
from tellapart.language.claims import extract

CHANCE = 0.5
UNLIKELY = "fits other pictures better"
_BLOCK = 512
_SENTENCE = re.compile(r"[^\s.!?][^.!?]*(?:[.!?](?=\S)[^.!?]*)*[.!?]*")
Parts = list[tuple[str, tuple[tuple[int, int], ...]]]  # texts, and their positions in the caption


def whole_sentences(caption: str) -> Parts:
    """Returns the sentences of a caption as written."""
    found = [(match[0], match.start()) for match in _SENTENCE.finditer(caption)]
    return [(text.strip(), ((start, start + len(text.rstrip())),)) for text, start in found if text.strip()]


def claim_sentences(caption: str) -> Parts:
    """Returns a short text for each claim ("a dog", "a red dog", "a dog on a sofa"), with the claim's positions."""
    extraction = extract(caption)
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    names = [_with_article(mention.text) for mention in extraction.mentions]
    for name, mention in zip(names, extraction.mentions, strict=True):
        found.setdefault(name, tuple(mention.spans))
        for attribute in mention.attributes:
            described = _with_article(f"{attribute.text} {mention.text}")
            found.setdefault(f"{name} {attribute.text}" if attribute.action else described, attribute.spans)
    for relation in extraction.relations:
        others = " and ".join(names[number] for number in relation.objects)
        found.setdefault(f"{names[relation.subject]} {relation.text} {others}", (relation.span,))
    return list(found.items())


def verify_scorer(
    captions: Sequence[str],
    image_ND: np.ndarray,
    encode: Callable[[Sequence[str]], np.ndarray],
    parts_of: Callable[[str], Parts] = claim_sentences,
) -> list[Verdict]:
    """For each caption, computes how well its claims fit its own picture, as graded precision. Features must be
    L2-normalized.

    encode: maps texts to features, M×D.
    parts_of: extracts the parts to verify, either claims or `whole_sentences`.

    Raises `ValueError` for fewer than two pictures.
    """
    if len(image_ND) < 2:
        raise ValueError("Claims are compared with other pictures; expected at least two pictures")
    claims = [parts_of(caption) for caption in captions]
    texts = list(dict.fromkeys(text for own in claims for text, _ in own))
    feature_MD = encode(texts) if texts else np.zeros((0, image_ND.shape[1]))
    row = {text: number for number, text in enumerate(texts)}
    pairs = [(row[text], picture) for picture, own in enumerate(claims) for text, _ in own]
    support = iter(_support(feature_MD, np.asarray(image_ND), np.array(pairs, dtype=int).reshape(-1, 2)).tolist())
    found = []
    for own in claims:
        values = [next(support) for _ in own]
        doubted = (places for (_, places), value in zip(own, values, strict=True) if value < CHANCE)
        false = {(*place, UNLIKELY) for places in doubted for place in places}
        found.append(Verdict(len(values), sum(values), false=tuple(sorted(false))))
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
