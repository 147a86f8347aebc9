"""Decodes without a KV cache: every step processes all tokens so far, which is slow but works for any captioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import torch
import torch.nn.functional as F

from tellapart.errors import UsageError


class Uncached:
    """Adapts a captioner without a KV cache to the decoder interface.

    Every step runs ``hidden`` over all tokens so far, which works for any captioner but is slow.
    """

    def __init__(self, captioner: Any) -> None:
        self.captioner, self.name, self.device = captioner, captioner.name, captioner.device
        self.tokenizer = captioner.tokenizer
        self.stop_tokens = captioner.stop_tokens
        self.compute_logits, self.suppressed_tokens = captioner.compute_logits, captioner.suppressed_tokens

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> TokenHistory:
        return TokenHistory(self, visual, torch.empty(len(visual), 0, dtype=torch.long, device=visual.device))

    def decode(self, state: Any, tokens_NT: torch.Tensor) -> torch.Tensor:
        state.tokens_NT = torch.cat([state.tokens_NT, tokens_NT], dim=1)
        return self.hidden(state)[:, -tokens_NT.shape[1] :]

    def hidden(self, state: TokenHistory) -> torch.Tensor:
        """Computes the hidden states N×(T+1)×H before the first and after each of the T tokens so far."""
        tokens_NT = F.pad(state.tokens_NT, (0, 1), value=self.captioner.end)  # the last token is never read
        hidden: torch.Tensor = self.captioner.hidden(state.visual, tokens_NT, torch.ones_like(tokens_NT).bool())
        return hidden


@dataclass
class TokenHistory:
    """State of an `Uncached` captioner: the picture features and the tokens so far."""

    captioner: Uncached
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
        return self.captioner.hidden(self)[:, -1:]

    def select(self, row_M: torch.Tensor) -> Self:
        return type(self)(self.captioner, self.visual[row_M], self.tokens_NT[row_M])
