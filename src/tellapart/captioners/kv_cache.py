"""`KVCache`: the state of a transformers language model after the prompt and the tokens generated so far."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from tellapart.utils.messages import say_once

# Name of the KV cache in arguments and outputs; `cache` since transformers 5.24.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


@dataclass
class KVCache:
    """State of a transformers language model for N rows: keys, values and other inputs to a forward pass.

    mask_NP: True for positions in the prompt that are tokens rather than padding. None: all positions are tokens.
    position_N1: the position of the first token after the prompt, for models that do not track positions themselves.
    encoded_NPD: an encoder's states.
    decoded: number of tokens after the prompt.
    """

    cache: Any
    hidden_N1H: torch.Tensor
    prompt_tokens: int
    mask_NP: torch.Tensor | None = None
    position_N1: torch.Tensor | None = None
    encoded_NPD: torch.Tensor | None = None
    encoded_mask_NP: torch.Tensor | None = None
    decoded: int = 0

    def __len__(self) -> int:
        return len(self.hidden_N1H)

    def select(self, row_M: torch.Tensor) -> Self:
        chosen = copy.copy(self)
        chosen.cache = select_rows(self.cache, row_M)
        for name in KVCache.TENSORS:
            if (tensor := getattr(self, name)) is not None:
                setattr(chosen, name, tensor[row_M])
        return chosen

    TENSORS: ClassVar[Sequence[str]] = ("hidden_N1H", "mask_NP", "position_N1", "encoded_NPD", "encoded_mask_NP")

    def tensors(self) -> list[torch.Tensor]:
        """Returns all tensors in the state, or an empty list if this kind of cache does not grow token by token."""
        layers = layers_of(self.cache)
        if any(type(layer) is not DynamicLayer for layer in layers):
            return []
        cached = [tensor for layer in layers for tensor in (layer.keys, layer.values)]
        return cached + [tensor for name in self.TENSORS if (tensor := getattr(self, name)) is not None]

    def with_tensors(self, tensors: Sequence[torch.Tensor]) -> Self:
        """Returns a copy of this state with the given tensors, in the order of `tensors`."""
        rest, chosen = iter(tensors), copy.copy(self)
        chosen.cache = copied_cache(self.cache)
        for layer in layers_of(chosen.cache):
            layer.keys, layer.values = next(rest), next(rest)
        for name in self.TENSORS:
            if getattr(self, name) is not None:
                setattr(chosen, name, next(rest))
        return chosen

    def inputs(self, tokens: int, position_axes: int = 1) -> dict[str, torch.Tensor]:
        """Returns the model's ``attention_mask`` and ``position_ids`` for ``tokens`` more tokens, if it needs them.

        position_axes: more than 1 if positions have several axes, which are equal for words.
        """
        inputs = {}
        if self.mask_NP is not None:
            inputs["attention_mask"] = F.pad(self.mask_NP, (0, self.decoded + tokens), value=1)
        if self.position_N1 is not None:
            position_NT = self.position_N1 + self.decoded + torch.arange(tokens, device=self.position_N1.device)
            inputs["position_ids"] = position_NT.expand(position_axes, -1, -1) if position_axes > 1 else position_NT
        return inputs


def select_rows(cache: Any, row_N: torch.Tensor) -> Any:
    """Returns a cache with the keys and values of these rows, which may repeat. Does not change ``cache``."""
    if isinstance(cache, EncoderDecoderCache):
        parts = (cache.self_attention_cache, cache.cross_attention_cache)
        return EncoderDecoderCache(*(select_rows(part, row_N) for part in parts))
    chosen: Cache = copied_cache(cache)
    chosen.batch_select_indices(row_N)
    return chosen


def copied_cache(cache: Any) -> Any:
    """Returns a copy of the cache that shares its keys and values but grows independently."""
    if isinstance(cache, EncoderDecoderCache):
        return EncoderDecoderCache(copied_cache(cache.self_attention_cache), copied_cache(cache.cross_attention_cache))
    chosen: Cache = copy.copy(cache)
    chosen.layers = [copy.copy(layer) for layer in cache.layers]
    return chosen


def layers_of(cache: Any) -> list[Any]:
    """Returns the layers of a cache, with cross-attention layers last."""
    if isinstance(cache, EncoderDecoderCache):
        return [*cache.self_attention_cache.layers, *cache.cross_attention_cache.layers]
    return list(cache.layers)


def no_cache_reason(model: Any) -> str | None:
    """Returns the reason why a transformers model cannot decode from a KV cache, or None if it can."""
    asked = "is_activation_checkpointing"  # name of this property in newer versions of transformers
    asked = asked if hasattr(type(model), asked) else "is_gradient_checkpointing"
    if not model._supports_default_dynamic_cache() or model._is_stateful:
        return f"{model.config.model_type} models do not return keys and values"
    if model.training and getattr(model, asked):
        return "gradient checkpointing does not store keys and values"
    return None


def explain_no_cache(name: str, reason: str | None) -> bool:
    """Returns True if a KV cache can be used. If it cannot be used, prints the ``reason`` once."""
    if reason is not None:
        say_once(f"{name}: the picture is encoded again for every caption because {reason}")
    return reason is None
