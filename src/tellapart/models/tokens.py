"""Tokenizers for models that are trained from scratch, and caption text as token ids."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tellapart.errors import UsageError

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unk>"


def word_tokenizer(
    texts: Iterable[str], *, min_count: int = 1, max_length: int = 77, sentences: bool = False
) -> PreTrainedTokenizerFast:
    """A lower-casing tokenizer of whole words that occur at least ``min_count`` times in ``texts``.

    Every encoded text is wrapped as ``<start> … <end>``; punctuation is dropped on the way in. ``sentences``: but for
    the ends of sentences before others, which are the word ".".
    """

    letters = [(r"[^\p{L}\p{N}' ]+", " ")]
    if sentences:  # an end before a further word, then all but letters and the ends
        letters = [(r"[\s.!?]*[.!?]\s+(?=.*[\p{L}\p{N}])", " . "), (r"[^\p{L}\p{N}'. ]+|(?<! )\.|\.(?! )", " ")]
    normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), *(normalizers.Replace(Regex(old), new) for old, new in letters)]
    )
    splitter = pre_tokenizers.WhitespaceSplit()
    words = frequent_words(texts, normalizer, splitter, min_count)
    # The end is not number 2: CLIP's text tower takes an end of 2 for a sign of old, wrong configurations.
    vocabulary = {word: i for i, word in enumerate([PAD, START, UNKNOWN, END, *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splitter
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{START} $A {END}", special_tokens=[(START, vocabulary[START]), (END, vocabulary[END])]
    )
    return _wrapped(tokenizer, max_length)


def with_new_words(tokenizer: PreTrainedTokenizerFast, texts: Iterable[str], min_count: int) -> PreTrainedTokenizerFast:
    """A `word_tokenizer` that also knows the words of ``texts`` that occur so often; the old ones keep their numbers.

    Raises `UsageError` for a tokenizer of another kind, which cuts any word into pieces that it knows.
    """

    backend = tokenizer.backend_tokenizer
    described = json.loads(backend.to_str())
    if described["model"]["type"] != "WordLevel":
        raise UsageError(
            f"its tokenizer, of kind {described['model']['type']}, knows every word by its pieces; leave new_words out"
        )
    vocabulary = described["model"]["vocab"]
    for word in frequent_words(texts, backend.normalizer, backend.pre_tokenizer, min_count):
        vocabulary.setdefault(word, len(vocabulary))
    return _wrapped(Tokenizer.from_str(json.dumps(described)), tokenizer.model_max_length)


def frequent_words(texts: Iterable[str], normalizer: Any, splitter: Any, min_count: int) -> list[str]:
    """The words that occur at least so often, the most frequent first."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    return sorted((word for word, count in counts.items() if count >= min_count), key=lambda w: (-counts[w], w))


def _wrapped(tokenizer: Any, max_length: int) -> PreTrainedTokenizerFast:

    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        bos_token=START,
        eos_token=END,
        unk_token=UNKNOWN,
        model_max_length=max_length,
        clean_up_tokenization_spaces=False,
    )


def caption_rows(tokenizer: Any, texts: Sequence[str], end: Sequence[int]) -> list[list[int]]:
    """Returns captions as a language model learns them: words and the ``end`` tokens, no start token."""
    encoded = tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
    return [[*row, *end] for row in encoded]
