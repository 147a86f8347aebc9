"""Builds and extends whole-word tokenizers, for models that are trained from scratch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tellapart.errors import UsageError

PAD, START, END, UNKNOWN = "<pad>", "<start>", "<end>", "<unk>"


def word_tokenizer(
    texts: Iterable[str], *, min_count: int = 1, max_length: int = 77, sentences: bool = False
) -> PreTrainedTokenizerFast:
    """Builds a lowercasing whole-word tokenizer from words that occur at least ``min_count`` times in ``texts``.

    The tokenizer wraps every text as ``<start> … <end>`` and drops punctuation. ``sentences``: whether to mark the end
    of every sentence except the last one with the token ".".
    """

    letters = [(r"[^\p{L}\p{N}' ]+", " ")]
    if sentences:  # drops everything but letters, digits, apostrophes, spaces, and full stops between sentences
        letters = [(r"[\s.!?]*[.!?]\s+(?=.*[\p{L}\p{N}])", " . "), (r"[^\p{L}\p{N}'. ]+|(?<! )\.|\.(?! )", " ")]
    normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Lowercase(), *(normalizers.Replace(Regex(old), new) for old, new in letters)]
    )
    splitter = pre_tokenizers.WhitespaceSplit()
    words = frequent_words(texts, normalizer, splitter, min_count)
    # The end token must not have id 2, which CLIP's text tower treats as a sign of old, wrong configurations.
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
    """Extends a `word_tokenizer` with the words that occur at least ``min_count`` times in ``texts``.

    Existing words keep their ids. Raises `UsageError` for all other kinds of tokenizers, because they split every word
    into known pieces.
    """

    backend = tokenizer.backend_tokenizer
    described = json.loads(backend.to_str())
    if described["model"]["type"] != "WordLevel":
        raise UsageError(
            f"its tokenizer (kind {described['model']['type']}) splits unknown words into known pieces; remove "
            "new_words"
        )
    vocabulary = described["model"]["vocab"]
    for word in frequent_words(texts, backend.normalizer, backend.pre_tokenizer, min_count):
        vocabulary.setdefault(word, len(vocabulary))
    return _wrapped(Tokenizer.from_str(json.dumps(described)), tokenizer.model_max_length)


def frequent_words(texts: Iterable[str], normalizer: Any, splitter: Any, min_count: int) -> list[str]:
    """Returns the words that occur at least ``min_count`` times, most frequent first."""
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
