"""BLEU, ROUGE-L and CIDEr in plain Python, word by word as their definitions read: what the fast ones must equal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

Words = Sequence[str]


def grams(words: Words, n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def bleu_counts(caption: Words, references: Sequence[Words]) -> tuple[int, int, list[int], list[int]]:
    closest = min((abs(len(r) - len(caption)), len(r)) for r in references)[1]
    said = [max(0, len(caption) - n + 1) for n in range(1, 5)]
    matched = []
    for n in range(1, 5):
        told = [grams(r, n) for r in references]
        matched.append(sum(min(c, max(t[g] for t in told)) for g, c in grams(caption, n).items()))
    return len(caption), closest, said, matched


def bleu(counts: tuple[int, int, list[int], list[int]], n: int) -> float:
    length, closest, said, matched = counts
    product = math.prod((m + 1e-15) / (s + 1e-9) for s, m in zip(said[:n], matched[:n], strict=True))
    ratio = (length + 1e-15) / (closest + 1e-9)
    return product ** (1 / n) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1)


def rouge_l(caption: Words, references: Sequence[Words]) -> float:
    def common(a: Words, b: Words) -> int:
        table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
        for i, x in enumerate(a):
            for j, y in enumerate(b):
                table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
        return table[-1][-1]

    best_p = max(common(caption, r) / len(caption) for r in references)
    best_r = max(common(caption, r) / len(r) for r in references)
    return (1 + 1.44) * best_p * best_r / (best_r + 1.44 * best_p) if best_p and best_r else 0.0


def cider(
    captions: Sequence[Words],
    references: Sequence[Sequence[Words]],
    documents: Sequence[Sequence[Words]] | None = None,
    plain: bool = False,
) -> list[float]:
    documents = references if documents is None else documents
    frequency = Counter(g for held in documents for g in {g for r in held for n in range(1, 5) for g in grams(r, n)})

    def vector(words: Words, n: int) -> dict[tuple[str, ...], float]:
        return {g: c * (math.log(len(documents)) - math.log(max(1, frequency[g]))) for g, c in grams(words, n).items()}

    def norm(v: dict[tuple[str, ...], float]) -> float:
        return math.sqrt(sum(x * x for x in v.values()))

    def likeness(caption: Words, reference: Words, n: int) -> float:
        a, b = vector(caption, n), vector(reference, n)
        if not norm(a) or not norm(b):
            return 0.0
        dot = sum((a[g] if plain else min(a[g], b[g])) * b[g] for g in a.keys() & b.keys())
        gap = max(len(caption) - 1, 0) - max(len(reference) - 1, 0)
        return dot / norm(a) / norm(b) * (1 if plain else math.exp(-gap * gap / 72))

    return [
        10 * sum(likeness(c, r, n) for n in range(1, 5) for r in held) / 4 / len(held)
        for c, held in zip(captions, references, strict=True)
    ]
