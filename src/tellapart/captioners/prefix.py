"""What a model reads of a picture and its prompt is read once, for all the captions of that picture.

Captions differ in length, and padding costs as much as words: captions of like length are scored together. What a
family has to provide is `tellapart.models.decoding.Prefix`, after which `generate_after` writes captions.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F
from transformers import Cache, EncoderDecoderCache
from transformers.modeling_outputs import CausalLMOutputWithPast

from tellapart.models.decoding import Prefix
from tellapart.utils.messages import say

GROUPS, AT_LEAST = 4, 32  # groups of like length, and rows in one
# What transformers calls keys and values, as an argument and in an output; `cache` from 5.24 on.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


@dataclass
class CachedPrefix:
    """Keys and values of a model of transformers. ``forward(tokens_NT, prefix)`` reads further tokens into ``cache``.

    ``mask_NP``: which positions of the prompts are tokens; None: all. ``position_N1``: the position of the first token,
    where the model does not count by itself. ``encoded_NPD``: an encoder's states.
    """

    cache: Any
    output_N1H: torch.Tensor
    forward: Callable[[torch.Tensor, CachedPrefix], torch.Tensor]
    mask_NP: torch.Tensor | None = None
    position_N1: torch.Tensor | None = None
    encoded_NPD: torch.Tensor | None = None
    encoded_mask_NP: torch.Tensor | None = None
    read: int = 0  # tokens after the prompt

    def __len__(self) -> int:
        return len(self.output_N1H)

    @property
    def device(self) -> torch.device:
        return self.output_N1H.device

    def rows(self, row_M: torch.Tensor) -> Self:
        chosen = copy.copy(self)
        chosen.cache = select_rows(self.cache, row_M)
        for name in ("output_N1H", "mask_NP", "position_N1", "encoded_NPD", "encoded_mask_NP"):
            if (tensor := getattr(self, name)) is not None:
                setattr(chosen, name, tensor[row_M])
        return chosen

    def extend(self, tokens_NT: torch.Tensor) -> torch.Tensor:
        output_NTH = self.forward(tokens_NT, self)
        self.read += tokens_NT.shape[1]
        return output_NTH

    def attention_mask(self, tokens: int) -> torch.Tensor | None:
        """Of the prompt, of what was read after it, and of ``tokens`` more; None where nothing is padding."""
        if self.mask_NP is None:
            return None
        return F.pad(self.mask_NP, (0, self.read + tokens), value=1)

    def positions(self, tokens: int) -> torch.Tensor:
        """The positions N×T of the next ``tokens``."""
        assert self.position_N1 is not None
        return self.position_N1 + self.read + torch.arange(tokens, device=self.position_N1.device)


def supports_cache(model: Any) -> bool:
    """Whether the language model can go on from the keys and values of what it has read."""
    return no_cache_reason(model) is None


def no_cache_reason(model: Any) -> str | None:
    """Why a model of transformers cannot go on from what it has read; None where it can."""
    asked = "is_activation_checkpointing"  # its name in newer transformers
    asked = asked if hasattr(type(model), asked) else "is_gradient_checkpointing"
    if not model._supports_default_dynamic_cache() or model._is_stateful:
        return f"a {model.config.model_type} model keeps no keys and values"
    if model.training and getattr(model, asked):
        return "gradient checkpointing keeps no keys and values"
    return None


_explained: set[str] = set()


def shares(name: str, reason: str | None) -> bool:
    """Whether pictures can be read once, which is where there is no ``reason`` against it; prints one once."""
    line = f"{name}: the picture is read again for every caption, because {reason}"
    if reason is not None and line not in _explained:
        _explained.add(line)
        say(line)
    return reason is None


def hidden_after(prefix: Prefix, tokens_RT: torch.Tensor, length_R: torch.Tensor) -> torch.Tensor:
    """Outputs R×T×H, position t in front of ``tokens[:, t]``; R = B·S, the S rows of a picture together.

    Rows count up to their ``length``; beyond the longest of its group a row's outputs are zero.
    """
    S = len(tokens_RT) // len(prefix)
    groups, outputs = length_groups(length_R), []
    for row_N in groups:
        longest = int(length_R[row_N].max()) if len(groups) > 1 else tokens_RT.shape[1]
        rows = prefix.rows(row_N // S)
        output_NTH = rows.output_N1H
        if longest > 1:
            output_NTH = torch.cat([output_NTH, rows.extend(tokens_RT[row_N, : longest - 1])], dim=1)
        outputs.append(F.pad(output_NTH, (0, 0, 0, tokens_RT.shape[1] - output_NTH.shape[1])))
    return outputs[0] if len(groups) == 1 else torch.cat(outputs)[torch.cat(groups).argsort()]


def length_groups(length_R: torch.Tensor) -> list[torch.Tensor]:
    """The rows in groups of like length; in one on a GPU, where a launch costs more than padding."""
    count = min(GROUPS, len(length_R) // AT_LEAST) if length_R.device.type == "cpu" else 1
    return list(length_R.argsort(stable=True).tensor_split(count)) if count > 1 else [
        torch.arange(len(length_R), device=length_R.device)
    ]  # fmt: skip


def select_rows(cache: Any, row_N: torch.Tensor) -> Any:
    """The keys and values of these rows, each as often as it is named; ``cache`` stays as it is."""
    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
        return EncoderDecoderCache(*(select_rows(part, row_N) for part in parts))
    chosen: Cache = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    chosen.batch_select_indices(row_N)
    return chosen
