"""The interface of captioners that decoding uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self

import torch


class DecoderState(Protocol):
    """State of a decoder for N rows after the tokens so far. The captioner's `decode` updates it in place."""

    def __len__(self) -> int: ...

    @property
    def prompt_tokens(self) -> int:
        """Number of token ids before the first generated token: start token, prompt, and picture prefix."""
        ...

    @property
    def hidden_N1H(self) -> torch.Tensor:
        """Last hidden state after `prefill`, from which the first token is scored."""
        ...

    def select(self, row_M: torch.Tensor) -> Self:
        """Returns a new state with these rows, which may repeat. Does not change this state."""
        ...


class Decoder(Protocol):
    """The part of the captioner interface that decoding uses. `Captioner` documents its members."""

    name: str
    tokenizer: Any

    @property
    def device(self) -> torch.device: ...
    @property
    def stop_tokens(self) -> Sequence[int]: ...
    @property
    def suppressed_tokens(self) -> Sequence[int]: ...
    def prefill(self, visual: torch.Tensor, max_tokens: int) -> DecoderState: ...
    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor: ...
    def compute_logits(self, hidden_NH: torch.Tensor) -> torch.Tensor: ...
