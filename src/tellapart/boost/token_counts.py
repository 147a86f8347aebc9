"""Counts the tokens of captions with a pretrained tokenizer."""

from __future__ import annotations

from collections.abc import Callable

import transformers

from tellapart.errors import UsageError, first_line


def tokens_of(name: str) -> Callable[[str], int]:
    """Returns a function that counts the tokens in a text, including start and end tokens, with the named tokenizer
    (a folder or a name on the hub).

    The paper uses ``openai/clip-vit-base-patch32``. Raises `UsageError` if ``name`` has no tokenizer.
    """
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{name} has no tokenizer ({first_line(error)}); use one such as openai/clip-vit-base-patch32"
        ) from None
    return lambda text: len(tokenizer(text, truncation=False, verbose=False)["input_ids"])
