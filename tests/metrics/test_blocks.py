"""Many captions are scored a block of pictures at a time: the same numbers, to the last bit, as all at once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from tellapart.metrics import bleu, cider, cider_d, cider_plain, ptb, rouge_l
from tellapart.metrics.bleu_score import bleu_stats

RNG = np.random.default_rng(1)
WORDS = ["a", "the", "Dog.", "cat's", "runs,", "on", "grass", "1 1/2", "über", "-", "no-break\u00a0space", *"bcdefgh"]


def text() -> str:
    return " ".join(RNG.choice(WORDS, RNG.integers(0, 60)))


@pytest.fixture(scope="module")
def corpus() -> tuple[list[str], list[list[str]]]:
    references = [[text() for _ in range(RNG.integers(1, 6))] for _ in range(57)]
    references[10] = [""]
    captions = [text() for _ in references]
    captions[5], captions[20] = "", references[20][0]
    return captions, references


METRICS = [cider_d, cider_plain, rouge_l, *(partial(bleu, n=n) for n in (1, 2, 4))]


def forget() -> None:
    """The metrics remember their last results: let them be of other texts."""
    for number in range(9):
        for metric in METRICS:
            metric([f"a dog {number}"], [[f"a cat {number}"]])


@pytest.mark.parametrize("size", [1, 7, 56])
def test_blocks_of_pictures_score_as_all_at_once(
    corpus: tuple[list[str], list[list[str]]], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget()
    whole, counts_NC = [metric(*corpus) for metric in METRICS], bleu_stats(*corpus)
    forget()
    monkeypatch.setattr(ptb, "BLOCK", size)
    monkeypatch.setattr(cider, "BLOCK", size)
    sizes: list[int] = []
    monkeypatch.setattr(cider.Counted, "__init__", _counting(cider.Counted.__init__, sizes))
    for metric, (value, value_N) in zip(METRICS, whole, strict=True):
        found, found_N = metric(*corpus)
        assert found == value and np.array_equal(found_N, value_N)
    assert np.array_equal(bleu_stats(*corpus), counts_NC)
    assert sizes == [len(corpus[0])], "counted anew, in blocks, once for all metrics"


def _counting(method: Callable[..., None], sizes: list[int]) -> Callable[..., None]:
    def init(self: cider.Counted, references: list[list[str]]) -> None:
        method(self, references)
        assert not self.in_one_block
        sizes.append(len(references))

    return init


def test_a_corpus_in_blocks_is_counted_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    references = [[text() for _ in range(RNG.integers(1, 4))] for _ in range(23)]
    references = [[" ".join(own.split()) for own in texts] for texts in references]
    whole = cider.Counted(references)
    monkeypatch.setattr(cider, "BLOCK", 4)
    parts = cider.Counted(references)
    assert whole.in_one_block and not parts.in_one_block
    assert parts.table.words == whole.table.words and parts.table.size == whole.table.size
    (all_of_them,) = whole.blocks()
    blocks = list(parts.blocks())
    assert [block.pictures for block in blocks] == [slice(at, min(at + 4, 23)) for at in range(0, 23, 4)]
    first = np.cumsum([0, *(len(block.counts.length_M) for block in blocks)])
    sentence = [block.counts.sentence_E + at for block, at in zip(blocks, first, strict=False)]
    assert np.array_equal(np.concatenate(sentence), all_of_them.counts.sentence_E)
    for name in ("gram_E", "count_E", "length_M"):
        joined = np.concatenate([getattr(block.counts, name) for block in blocks])
        assert np.array_equal(joined, getattr(all_of_them.counts, name)), name
