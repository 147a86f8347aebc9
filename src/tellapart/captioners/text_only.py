"""A text-only language model, which can be fine-tuned on instructions by the same training loop (paper 1, appendix B).

The prompt replaces the picture, and the answer replaces the caption. The prompt is therefore excluded from losses and
from SMILE's subset, and all objectives, decoding methods and checkpoints work as they do for captions.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from tellapart.captioners.captioner import Captioner, check_room
from tellapart.captioners.kv_cache import CACHE, KVCache, explain_no_cache, no_cache_reason
from tellapart.errors import UsageError
from tellapart.models.training_mode import in_mode
from tellapart.types import Encoder

NONE = -1  # value that pads prompt rows on the left; differs from every token id, including that of the padding token


class TextOnly(Captioner):
    """Any causal language model from transformers. ``visual`` is B×P: the right-aligned tokens of the prompts."""

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        super().__init__(model, tokenizer, processor, name)
        self.text_config = model.config.get_text_config(decoder=True)
        self.positions: int | None = getattr(self.text_config, "max_position_embeddings", None)
        self.takes_positions = "position_ids" in inspect.signature(model.base_model.forward).parameters
        self._linear: bool | None = None

    lengths_differ = True

    def input_lengths(self, visual: torch.Tensor) -> list[int] | None:
        lengths: list[int] = (visual != NONE).sum(1).tolist()
        return lengths

    @staticmethod
    def reads_pictures(model: Any) -> bool:
        return False

    @property
    def makes_features(self) -> bool:
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
        block = np.full((len(rows), max(map(len, rows), default=1)), NONE, np.int32)
        for n, row in enumerate(rows):
            block[n, block.shape[1] - len(row) :] = row
        return block

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        raise UsageError(f"{self.name} is a language model without vision")

    @property
    def caches(self) -> bool:
        return explain_no_cache(self.name, no_cache_reason(self.model))

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        prompt_RP, there_RP = (x.repeat_interleave(len(tokens_RT) // len(visual), dim=0) for x in self.prompts(visual))
        P = prompt_RP.shape[1]
        check_room(self.text_config, P, tokens_RT.shape[1])
        inputs = self._inputs(torch.cat([prompt_RP, tokens_RT[:, :-1]], dim=1), there_RP)
        return self._outputs(self._run(inputs, use_cache=False))[:, P - 1 :]

    def _inputs(self, ids_NT: torch.Tensor, there_NP: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the model's inputs for ``ids_NT``, whose first P tokens are prompts. Positions count from the start
        of the prompt, without padding.
        """
        mask_NT = F.pad(there_NP, (0, ids_NT.shape[1] - there_NP.shape[1]), value=True).long()
        inputs = {"input_ids": ids_NT, "attention_mask": mask_NT}
        if self.takes_positions:
            inputs["position_ids"] = (mask_NT.cumsum(1) - 1).clamp(min=0)
        return inputs

    def _run(self, inputs: Mapping[str, torch.Tensor], **settings: Any) -> Any:
        return (self.model.base_model if self.linear else self.model)(**inputs, **settings)

    def _outputs(self, output: Any) -> torch.Tensor:
        """Returns the last hidden states, or the logits if they are not computed by a single linear layer."""
        outputs: torch.Tensor = output.last_hidden_state if self.linear else output.logits
        return outputs

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> KVCache:
        prompt_BP, there_BP = self.prompts(visual)
        check_room(self.text_config, prompt_BP.shape[1], max_tokens)
        output = self._run(self._inputs(prompt_BP, there_BP), use_cache=True)
        state = KVCache(getattr(output, CACHE), self._outputs(output)[:, -1:], prompt_BP.shape[1], there_BP.long())
        if self.takes_positions:
            state.position_N1 = there_BP.sum(1, keepdim=True)
        return state

    def decode(self, state: KVCache, tokens_NT: torch.Tensor) -> torch.Tensor:
        T = tokens_NT.shape[1]
        inputs: dict[str, Any] = {"input_ids": tokens_NT, "attention_mask": state.attention_mask(T)}
        if state.position_N1 is not None:
            inputs["position_ids"] = state.positions(T)
        hidden_NTH = self._outputs(self._run(inputs, use_cache=True, **{CACHE: state.cache}))
        state.decoded += T
        return hidden_NTH

    @property
    def output_layer(self) -> Any:
        return self.model.get_output_embeddings() if self.linear else None

    @property
    def linear(self) -> bool:
        """Returns True if a single linear layer computes the logits from the last hidden states.

        Some models also scale or squash the logits. The test runs only once.
        """
        if self._linear is None:
            layer = self.model.get_output_embeddings()
            with in_mode(self.model, False), torch.no_grad():
                ids = torch.tensor([[self.end, self.end]], device=self.device)
                states = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
                scores = self.model(input_ids=ids, use_cache=False).logits
                gap = 1e-3 if self.dtype == torch.float32 else 2e-2
                self._linear = states.shape[-1] == layer.weight.shape[1] and torch.allclose(
                    F.linear(states, layer.weight, getattr(layer, "bias", None)).float(),
                    scores.float(),
                    rtol=gap,
                    atol=gap,
                )
        return self._linear

    def prompts(self, visual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the token ids ids_BP and their mask there_BP, trimmed to the longest prompt in the batch."""
        there_BP = visual != NONE
        width = int(there_BP.sum(1).max())
        ids_BP, there_BP = visual[:, -width:].long(), there_BP[:, -width:]
        return ids_BP.masked_fill(~there_BP, self.tokenizer.pad_token_id), there_BP

    def parts(self) -> dict[str, torch.nn.Module]:
        return {"language_model": self.model}
