"""Teacher forcing: computes hidden states of given captions while processing each picture once.

Padding costs as much as words, so captions of similar length are processed together.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tellapart.captioners.decoder_state import Decoder, DecoderState

GROUPS, AT_LEAST = 4, 32  # maximum number of length groups, and minimum number of rows per group


def hidden_cached(
    captioner: Decoder, state: DecoderState, tokens_RT: torch.Tensor, length_R: torch.Tensor
) -> torch.Tensor:
    """Computes hidden_RTH with teacher forcing, from the decoder state after B pictures.

    R = B·S, with each picture's S rows adjacent. Rows are valid up to ``length_R``. Hidden states beyond the longest
    row in a group are zero.
    """
    S = len(tokens_RT) // len(state)
    groups, outputs = length_groups(length_R), []
    for row_N in groups:
        longest = int(length_R[row_N].max()) if len(groups) > 1 else tokens_RT.shape[1]
        rows = state.select(row_N // S)
        hidden_NTH = rows.hidden_N1H
        if longest > 1:
            hidden_NTH = torch.cat([hidden_NTH, captioner.decode(rows, tokens_RT[row_N, : longest - 1])], dim=1)
        outputs.append(F.pad(hidden_NTH, (0, 0, 0, tokens_RT.shape[1] - hidden_NTH.shape[1])))
    return outputs[0] if len(groups) == 1 else torch.cat(outputs)[torch.cat(groups).argsort()]


def length_groups(length_R: torch.Tensor) -> list[torch.Tensor]:
    """Groups rows of similar length. On a GPU, uses a single group, because a kernel launch costs more than padding."""
    count = min(GROUPS, len(length_R) // AT_LEAST) if length_R.device.type == "cpu" else 1
    return list(length_R.argsort(stable=True).tensor_split(count)) if count > 1 else [
        torch.arange(len(length_R), device=length_R.device)
    ]  # fmt: skip
