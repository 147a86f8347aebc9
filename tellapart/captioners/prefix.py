"""A causal language model behind a prefix: what it read of a picture serves all the captions of that picture.

Captions differ in length, and padding costs as much as words. So captions of like length are read together, and rows
that have ended are left out while others are still being written.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from transformers import Cache

from tellapart.models.decoding import Decoding, next_token

GROUPS, AT_LEAST = 4, 32  # groups of like length, and rows in one
GOING = 0.75  # rows that have ended are left out when no more than this share goes on


def supports_cache(model: Any) -> bool:
    """Whether the language model can go on from the keys and values of what it has read."""
    asked = "is_activation_checkpointing"  # its name in newer transformers
    asked = asked if hasattr(type(model), asked) else "is_gradient_checkpointing"
    if model.training and getattr(model, asked):
        return False
    return model._supports_default_dynamic_cache() and not model._is_stateful


def hidden_after_prefix(
    model: Any, prefix_BPH: torch.Tensor, tokens_RT: torch.Tensor, length_R: torch.Tensor
) -> torch.Tensor:
    """Last hidden states R×T×H, position t in front of ``tokens[:, t]``; R = B·S, the S rows of a prefix together.

    Rows count up to their ``length``; beyond the longest of its group a row's states are zero.
    """
    S, embed = len(tokens_RT) // len(prefix_BPH), model.get_input_embeddings()
    # Padding lies to the right of everything it could disturb: a causal model needs no mask.
    if S == 1 or tokens_RT.shape[1] == 1 or not supports_cache(model):
        embeds_RTH = embed(tokens_RT[:, :-1]).to(prefix_BPH.dtype)
        inputs = torch.cat([prefix_BPH.repeat_interleave(S, dim=0), embeds_RTH], dim=1)
        output = model.base_model(inputs_embeds=inputs, use_cache=False)
        hidden_RTH: torch.Tensor = output.last_hidden_state[:, prefix_BPH.shape[1] - 1 :]
        return hidden_RTH
    read = model.base_model(inputs_embeds=prefix_BPH, use_cache=True)
    groups, states = length_groups(length_R), []
    for row_N in groups:
        longest, picture_N = int(length_R[row_N].max()), row_N // S
        states_NTH = read.last_hidden_state[picture_N, -1:]
        if longest > 1:
            embeds_NTH = embed(tokens_RT[row_N, : longest - 1]).to(prefix_BPH.dtype)
            keys = select_rows(read.past_key_values, picture_N)
            rest = model.base_model(inputs_embeds=embeds_NTH, past_key_values=keys, use_cache=True)
            states_NTH = torch.cat([states_NTH, rest.last_hidden_state], dim=1)
        states.append(F.pad(states_NTH, (0, 0, 0, tokens_RT.shape[1] - states_NTH.shape[1])))
    return torch.cat(states)[torch.cat(groups).argsort()]


def length_groups(length_R: torch.Tensor) -> list[torch.Tensor]:
    """The rows in groups of like length; in one on a GPU, where a launch costs more than padding."""
    count = min(GROUPS, len(length_R) // AT_LEAST) if length_R.device.type == "cpu" else 1
    return list(length_R.argsort(stable=True).tensor_split(count)) if count > 1 else [
        torch.arange(len(length_R), device=length_R.device)
    ]  # fmt: skip


def select_rows(keys: Cache, row_N: torch.Tensor) -> Cache:
    """The keys and values of these rows, each as often as it is named; ``keys`` stay as they are."""
    chosen = copy.copy(keys)
    chosen.layers = [copy.copy(layer) for layer in keys.layers]
    chosen.batch_select_indices(row_N)
    return chosen


def generate_after_prefix(
    model: Any, prefix_BPH: torch.Tensor, decoding: Decoding, end: int, uniform_RT: torch.Tensor | None = None
) -> torch.Tensor:
    """Greedy captions after each prefix, or those drawn with ``uniform_RT``, R×T.

    What stands after a row's first ``end`` means nothing.
    """
    R = len(prefix_BPH) * decoding.samples
    row_N = torch.arange(R, device=prefix_BPH.device)
    tokens_RT = row_N.new_full((R, decoding.max_tokens), end)
    output = model(inputs_embeds=prefix_BPH, use_cache=True)
    output.past_key_values.batch_repeat_interleave(decoding.samples)
    scores_NV = output.logits[:, -1].repeat_interleave(decoding.samples, dim=0)
    going_N = torch.ones_like(row_N, dtype=torch.bool)
    for place in range(decoding.max_tokens):
        word_N = next_token(scores_NV, decoding, None if uniform_RT is None else uniform_RT[row_N, place])
        tokens_RT[row_N, place] = word_N
        going_N &= word_N != end
        going = int(going_N.sum())
        if not going or place + 1 == decoding.max_tokens:
            break
        if going <= GOING * len(row_N):
            kept = going_N.nonzero()[:, 0]
            output.past_key_values.batch_select_indices(kept)
            row_N, word_N, going_N = row_N[kept], word_N[kept], going_N[kept]
        output = model(input_ids=word_N[:, None], past_key_values=output.past_key_values, use_cache=True)
        scores_NV = output.logits[:, -1]
    return tokens_RT[:, : place + 1]
