"""The number of tokens that fit in a language model's context."""

from __future__ import annotations

from typing import Any

from tellapart.errors import UsageError


def check_room(text_config: Any, before: int, tokens: int) -> None:
    """Raises `UsageError` if ``tokens`` tokens do not fit in the language model's context after ``before`` positions.

    A caption's last token is never fed to the model, so it does not take a position.
    """
    most = max_tokens_after(text_config, before)
    if most is not None and tokens > most:
        raise UsageError(
            f"a caption of {tokens} tokens does not fit into the context: {before} of the language model's "
            f"{most + before - 1} positions are taken, so at most {most} tokens are possible; lower max_tokens, or, "
            "for a new captioner, raise captioner.new.max_tokens"
        )


def max_tokens_after(text_config: Any, before: int) -> int | None:
    """Returns the maximum number of tokens in a caption after ``before`` positions, or None if there is no limit."""
    positions = getattr(text_config, "max_position_embeddings", None)
    return None if positions is None else max(0, int(positions) - before + 1)
