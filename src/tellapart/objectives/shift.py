"""First-token Shifting of SMILE: which other form of a word stands in for it at the start of a caption."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tellapart.errors import UsageError, nearest
from tellapart.models.protocols import Tokenizer

CONTINUES, STARTS = "##", ("Ġ", "▁")  # how tokenizers mark a part inside a word, and one at its start


def alternative_forms(tokenizer: Tokenizer, V: int, pairs: Sequence[tuple[str, str]] = ()) -> torch.Tensor:
    """shift_V: for each token the id of its other form, or its own where it has none (paper 1, section 3.3).

    ``pairs`` name the tokens and their stand-ins; without any, they are the tokenizer's own two forms of a word
    (``a`` and ``##a``, ``a`` and ``Ġa``). Raises `UsageError` where there are none, or for an unknown token.
    """
    ids: dict[str, int] = tokenizer.get_vocab()
    shift_V = torch.arange(V)
    for token, stand_in in pairs or [(token, form) for token in ids if (form := alternative_form(token, ids))]:
        for name in (token, stand_in):
            if name not in ids:
                raise UsageError(f"objective.shift: the tokenizer has no token '{name}'{nearest(name, ids)}")
        shift_V[ids[token]] = ids[stand_in]
    if torch.equal(shift_V, torch.arange(V)):
        raise UsageError(
            "objective.first_token = 'shift': this tokenizer has one form of each word; name a token that seldom comes "
            'first to stand in, as in --set \'objective.shift=[["a", "<unk>"]]\''
        )
    return shift_V


def alternative_form(token: str, ids: dict[str, int]) -> str | None:
    """The same word as a part inside a word, or without or with the mark of a start: what the vocabulary has."""
    candidates = [CONTINUES + token, *(token[1:] for mark in STARTS if token.startswith(mark))]
    candidates += [mark + token for mark in STARTS]
    return next((form for form in candidates if form in ids), None)
