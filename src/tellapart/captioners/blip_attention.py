"""BLIP's attention, faster: fused, and with the patches' keys and values stored once per picture."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from transformers import EncoderDecoderCache

from tellapart.captioners.decoding import GOING
from tellapart.captioners.kv_cache import KVCache, select_rows

BLOCK_QUERIES = 1024  # maximum number of queries per attention block in bf16 on a CPU


def fused_attention(module: Any, hidden_states: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
    """Replaces the forward pass of `BlipAttention` for inference (B×P×D to B×P×D). Does not store P×P probabilities."""
    mixed_BPKHD = module.qkv(hidden_states).unflatten(-1, (3, module.num_heads, -1))
    query, key, value = mixed_BPKHD.permute(2, 0, 3, 1, 4)
    states = attention(query, key, value)
    return module.projection(states.transpose(1, 2).flatten(2)), None


def attend_to_pictures(
    module: Any, visual: torch.Tensor, hidden_RTH: torch.Tensor, **_: Any
) -> tuple[torch.Tensor, None]:
    """Replaces the forward pass of cross-attention (`BlipTextSelfAttention`) for R = B·S rows, where ``visual`` has B
    rows.
    """

    def heads(states: torch.Tensor) -> torch.Tensor:
        return torch.unflatten(states, -1, (module.num_attention_heads, -1)).transpose(1, 2)

    query_BQH = module.query(hidden_RTH).view(len(visual), -1, module.all_head_size)
    dropout = module.dropout.p if module.training else 0.0
    mixed = attention(heads(query_BQH), heads(module.key(visual)), heads(module.value(visual)), dropout)
    return mixed.transpose(1, 2).reshape(hidden_RTH.shape[0], hidden_RTH.shape[1], -1), None


def attention(
    query_BKQD: torch.Tensor, key_BKPD: torch.Tensor, value_BKPD: torch.Tensor, dropout: float = 0.0
) -> torch.Tensor:
    """Computes unmasked attention of all queries to all keys, B×heads×Q×D.

    torch's fused attention does not use bf16 products on a CPU. Two matrix products per picture, whose scores fit into
    the CPU's caches, are faster and match what transformers computes for this family.
    """
    if torch.is_grad_enabled() or query_BKQD.device.type != "cpu" or query_BKQD.dtype != torch.bfloat16:
        return F.scaled_dot_product_attention(query_BKQD, key_BKPD, value_BKPD, dropout_p=dropout)
    B, _, Q, D = query_BKQD.shape
    result_BQKD = query_BKQD.new_empty(B, Q, query_BKQD.shape[1], D)
    result_BKQD, block = result_BQKD.transpose(1, 2), max(1, BLOCK_QUERIES // Q)
    for start in range(0, B, block):
        some = slice(start, start + block)
        score_BKQP = (query_BKQD[some] * D**-0.5) @ key_BKPD[some].transpose(-1, -2)
        torch.softmax(score_BKQP, -1, out=score_BKQP)
        result_BKQD[some] = F.dropout(score_BKQP, dropout, training=dropout > 0) @ value_BKPD[some]
    return result_BKQD


def reads_at_once(tensor: torch.Tensor) -> bool:
    """Returns True if the host can read the tensor's values without waiting for a device."""
    return tensor.device.type == "cpu"


@dataclass
class PatchKVCache(KVCache):
    """A KV cache that stores the patches' keys and values once per picture, for all rows of the picture.

    ``picture_N``: index of each row's picture in ``cache``.
    """

    picture_N: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    slots: tuple[torch.Tensor, int] | None = None

    TENSORS: ClassVar = (*KVCache.TENSORS, "picture_N")

    def select(self, row_M: torch.Tensor) -> Self:
        chosen, patches = copy.copy(self), self.cache.cross_attention_cache
        chosen.hidden_N1H, picture_M = self.hidden_N1H[row_M], self.picture_N[row_M]
        if reads_at_once(picture_M):  # on other devices, the host would have to wait to find out which pictures remain
            left_B, place_M = picture_M.unique(return_inverse=True)
            if len(left_B) <= GOING * patches.layers[0].keys.shape[0]:
                patches, picture_M = select_rows(patches, left_B), place_M
        chosen.picture_N = picture_M
        chosen.cache = EncoderDecoderCache(select_rows(self.cache.self_attention_cache, row_M), patches)
        chosen.slots = None
        return chosen

    def mask_of_one(self) -> torch.Tensor:
        """Returns the attention mask for one more token, which attends to all tokens: zeros, 1×1×1×T.

        Transformers copies its own mask from the host, which CUDA graphs cannot capture.
        """
        return self.hidden_N1H.new_zeros(1, 1, 1, self.cache.get_seq_length() + 1)

    def attend(self, module: Any, number: int, hidden_NTH: torch.Tensor, **_: Any) -> tuple[torch.Tensor, None]:
        """Replaces the forward pass of cross-attention (`BlipTextSelfAttention`) in layer ``number``.

        Works for any selection of rows.
        """
        patches = self.cache.cross_attention_cache.layers[number]
        B, heads = patches.keys.shape[:2]
        N, T = hidden_NTH.shape[:2]
        query_NTH = module.query(hidden_NTH)
        slot_N, most = self._slots(B)
        query_BSTH = query_NTH.new_zeros(B, most, T, query_NTH.shape[-1])
        query_BSTH = query_BSTH.index_put((self.picture_N, slot_N), query_NTH)
        mixed = attention(
            torch.unflatten(query_BSTH.flatten(1, 2), -1, (heads, -1)).transpose(1, 2),
            patches.keys,
            patches.values,
            module.dropout.p if module.training else 0.0,
        )
        mixed_BSTH = torch.unflatten(mixed.transpose(1, 2).flatten(2), 1, (most, T))
        return mixed_BSTH[self.picture_N, slot_N].view(N, T, -1), None

    def _slots(self, pictures: int) -> tuple[torch.Tensor, int]:
        """Returns each row's index among the rows of its picture, N, and the maximum number of rows per picture."""
        if self.slots is None:
            same_NN = self.picture_N[:, None] == self.picture_N[None, :]
            slot_N = same_NN.tril(-1).sum(1)
            most = int(slot_N.max()) + 1 if reads_at_once(slot_N) else len(slot_N) // pictures
            self.slots = slot_N, most
        return self.slots
