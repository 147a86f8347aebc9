"""What decoding needs from a captioner: the interfaces `Decoder` and `DecoderState`.

`TokenHistory` is the state of captioners that have no KV cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
import torch.nn.functional as F

from tellapart.errors import UsageError


class DecoderState(Protocol):
    """State of a decoder for N rows after the tokens so far. `Captioner.step` updates it in place."""

    def __len__(self) -> int: ...

    @property
    def prompt_tokens(self) -> int:
        """Number of token ids before the first generated token: start token, prompt, and picture prefix."""

    @property
    def hidden_N1H(self) -> torch.Tensor:
        """Last hidden state after the prompt, from which the first token is scored."""

    def select(self, row_M: torch.Tensor) -> Self:
        """Returns a new state with these rows, which may repeat. Does not change this state."""


class Decoder(Protocol):
    """The part of the captioner interface that decoding uses. `Captioner` documents its members."""

    name: str
    tokenizer: Any
    graphs: Any

    @property
    def end(self) -> int: ...
    @property
    def stop_tokens(self) -> Sequence[int]: ...
    @property
    def suppressed_tokens(self) -> Sequence[int]: ...
    def begin(self, visual: torch.Tensor, max_tokens: int) -> DecoderState: ...
    def step(self, state: Any, token_N1: torch.Tensor) -> torch.Tensor: ...
    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor: ...
    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor: ...
    def compute_logits(self, hidden_NH: torch.Tensor) -> torch.Tensor: ...


@dataclass
class TokenHistory:
    """The picture features and the tokens so far.

    Every step runs `Captioner.hidden` over all tokens so far, which works for any captioner but is slow.
    """

    captioner: Decoder
    visual: torch.Tensor
    tokens_NT: torch.Tensor

    def __len__(self) -> int:
        return len(self.visual)

    @property
    def prompt_tokens(self) -> int:
        raise UsageError(
            f"length_penalty_over is 'all', but {self.captioner.name} does not report the number of prompt "
            "tokens; set length_penalty_over = 'new'"
        )

    @property
    def hidden_N1H(self) -> torch.Tensor:
        tokens_NT = F.pad(self.tokens_NT, (0, 1), value=self.captioner.end)  # the last token is never read
        return self.captioner.hidden(self.visual, tokens_NT, torch.ones_like(tokens_NT).bool())[:, -1:]

    def select(self, row_M: torch.Tensor) -> Self:
        return type(self)(self.captioner, self.visual[row_M], self.tokens_NT[row_M])

    def decode(self, token_N1: torch.Tensor) -> torch.Tensor:
        """Adds one token to each row, and returns the hidden states N×1×H that predict the next one."""
        self.tokens_NT = torch.cat([self.tokens_NT, token_N1], dim=1)
        return self.hidden_N1H
