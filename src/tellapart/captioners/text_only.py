"""A text-only language model, which can be fine-tuned on instructions by the same training loop (paper 1, appendix B).

The prompt replaces the picture, and the answer replaces the caption. The prompt is therefore excluded from losses and
from SMILE's subset, and all objectives, decoding methods and checkpoints work as they do for captions.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from tellapart.captioners.prompted import Prompted
from tellapart.errors import UsageError
from tellapart.types import Encoder

NONE = -1  # value that pads prompt rows on the left; differs from every token id, including that of the padding token


class TextOnly(Prompted):
    """Any causal language model from transformers. ``visual`` is B×P: the right-aligned tokens of the prompts."""

    lengths_differ = True
    pads_prompts = True
    makes_features = False

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        super().__init__(model, tokenizer, processor, name)
        self.positions: int | None = getattr(self.text_config, "max_position_embeddings", None)
        self.takes_positions = "position_ids" in inspect.signature(model.base_model.forward).parameters

    def input_lengths(self, visual: torch.Tensor) -> list[int] | None:
        lengths: list[int] = (visual != NONE).sum(1).tolist()
        return lengths

    @staticmethod
    def reads_pictures(model: Any) -> bool:
        return False

    @property
    def encoder(self) -> Encoder:
        raise UsageError(f"{self.name} is a language model without vision; use data such as instructions:FILE")

    @property
    def max_caption_tokens(self) -> int | None:
        """Maximum number of tokens in an answer: half of the model's positions. The other half is for prompts."""
        return None if self.positions is None else self.positions // 2

    def prompt_rows(self, prompts: Sequence[tuple[str, str]]) -> np.ndarray:
        """Tokenizes N prompts, given as (id, text), to int32 N×P.

        Raises `UsageError` if a prompt leaves no room for an answer.
        """
        rows = [list(row) for row in self.tokenizer([text for _, text in prompts])["input_ids"]]
        begin = self.end if self.tokenizer.bos_token_id is None else self.tokenizer.bos_token_id
        rows = [(row[:-1] if row[-1:] == [self.end] else row) or [begin] for row in rows]  # drop the end token, if any
        for (name, _), row in zip(prompts, rows, strict=True):
            if self.positions is not None and len(row) > self.positions - (self.positions // 2) + 1:
                raise UsageError(
                    f"the prompt of {name} has {len(row)} tokens, but {self.name} has {self.positions} positions, "
                    f"up to {self.positions // 2} of which are reserved for the answer; shorten or remove the prompt"
                )
        width = max(map(len, rows), default=1)
        return np.array([[NONE] * (width - len(row)) + row for row in rows], np.int32).reshape(-1, width)

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        raise UsageError(f"{self.name} is a language model without vision")

    def blank_visual(self) -> torch.Tensor:
        return torch.tensor([[self.end]], device=self.device)

    def _inputs(self, visual: torch.Tensor) -> dict[str, torch.Tensor]:
        ids_BP, there_BP = self.prompts(visual)
        return {"input_ids": ids_BP, "attention_mask": there_BP.long()}

    def prompts(self, visual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the token ids ids_BP and their mask there_BP, trimmed to the longest prompt in the batch."""
        there_BP = visual != NONE
        width = int(there_BP.sum(1).max())
        ids_BP, there_BP = visual[:, -width:].long(), there_BP[:, -width:]
        return ids_BP.masked_fill(~there_BP, self.tokenizer.pad_token_id), there_BP

    def parts(self) -> dict[str, torch.nn.Module]:
        return {"language_model": self.model}
