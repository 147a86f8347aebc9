"""The common part of captioners that continue a prompt with a transformers model (`Hf`, `TextOnly`)."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from transformers.modeling_outputs import BaseModelOutput

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.context_length import check_room
from tellapart.captioners.kv_cache import CACHE, KVCache, explain_no_cache, no_cache_reason
from tellapart.models.replaced_forward import identity, replaced_forward
from tellapart.models.training_mode import in_mode


class Prompted(Captioner, ABC):
    """A transformers model that writes a caption after a prompt, which may contain a picture."""

    pads_prompts = False  # whether prompts differ in length, so that shorter prompts are padded on the left
    takes_positions = False  # whether the model must be told the positions of tokens
    position_axes = 1  # 3 if positions have the axes time, height and width

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str) -> None:
        super().__init__(model, tokenizer, processor, name)
        self.accepted = set(inspect.signature(model.forward).parameters) - {"labels"}
        self.text_config = model.config.get_text_config(decoder=True)
        self.is_encoder_decoder = bool(
            model.config.is_encoder_decoder or getattr(self.text_config, "is_encoder_decoder", False)
        )

    @abstractmethod
    def _inputs(self, visual: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the model's inputs for R pictures from their rows in ``visual``, with right-aligned prompts."""

    @abstractmethod
    def blank_visual(self) -> torch.Tensor:
        """Returns the shortest ``visual``, for trying the model."""

    def _precomputed_vision(self) -> AbstractContextManager[None]:
        """Within the context, the model reads ``visual`` in place of pixels."""
        return nullcontext()

    @cached_property
    def _last_layer(self) -> Any:
        return self.model.get_output_embeddings()

    @cached_property
    def plain(self) -> bool:
        """Returns True if the output layer alone computes the logits from the last hidden states.

        Some models also scale or squash the logits.
        """
        layer = self._last_layer
        if hasattr(layer, "base_layer"):
            return False  # LoRA adapts the output layer
        with in_mode(self.model, False), torch.no_grad(), torch.autocast(self.device.type, enabled=False):
            visual = self.blank_visual()
            tokens_RT = torch.tensor([[self.end, self.end]], device=self.device)
            valid_RT = torch.ones_like(tokens_RT).bool()
            scores_RTV = self._run(visual, tokens_RT, valid_RT)
            with replaced_forward(layer, identity):
                states_RTH = self._run(visual, tokens_RT, valid_RT)
            gap = 1e-4 if self.dtype == torch.float32 else 2e-2
            return states_RTH.shape[-1] == layer.weight.shape[1] and torch.allclose(
                F.linear(states_RTH, layer.weight, layer.bias).float(), scores_RTV.float(), rtol=gap, atol=gap
            )

    @property
    def output_layer(self) -> Any:
        return self._last_layer if self.plain else None

    def without_head(self) -> AbstractContextManager[None]:
        """Within the context, makes the model return the input to its output layer, if `plain` is True."""
        return replaced_forward(self._last_layer, identity) if self.plain else nullcontext()

    @property
    def caches(self) -> bool:
        return explain_no_cache(self.name, no_cache_reason(self.model))

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        visual_R = visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0)
        with self.without_head():
            return self._run(visual_R, tokens_RT, valid_RT)

    def _run(self, visual_R: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes the model's output at the T positions that score ``tokens_RT``."""
        inputs, read_RT = self._inputs(visual_R), tokens_RT[:, :-1]  # a caption's last token is not fed to the model
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = torch.cat([self._begun(len(tokens_RT)), read_RT], dim=1)
        else:
            check_room(self.text_config, inputs["input_ids"].shape[1], tokens_RT.shape[1])
            after = {"input_ids": read_RT, "attention_mask": valid_RT[:, :-1]}
            of_text = int(self.model.config.model_type == "paligemma")  # in PaliGemma, 0 marks the bidirectional prefix
            kinds_RT = torch.full_like(read_RT, of_text)
            after |= dict.fromkeys(("token_type_ids", "mm_token_type_ids"), kinds_RT)
            inputs |= {name: torch.cat([x, after[name].to(x)], 1) for name, x in inputs.items() if name in after}
        with self._precomputed_vision():
            logits_RTV: torch.Tensor = self.model(**self._with_positions(inputs), use_cache=False).logits
        return logits_RTV[:, -tokens_RT.shape[1] :]

    def _with_positions(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Adds the positions, which count from the start of the prompt without padding, if the model takes them."""
        if not self.takes_positions:
            return inputs
        return inputs | {"position_ids": (inputs["attention_mask"].cumsum(1) - 1).clamp(min=0)}

    def _setting(self, name: str) -> Any:
        """Returns a generation setting of the model or of its language model, or None."""
        owners = (self.model, getattr(self.model, "language_model", None))
        settings = [getattr(owner, "generation_config", None) for owner in owners]
        settings += [self.model.config, self.text_config]
        return next((value for each in settings if (value := getattr(each, name, None)) is not None), None)

    def _begun(self, rows: int) -> torch.Tensor:
        """Returns the decoder's input before a caption: the start token and, for BART, the forced first token."""
        begun = [self._setting(name) for name in ("decoder_start_token_id", "forced_bos_token_id")]
        return torch.tensor([[i for i in begun if i is not None]] * rows, device=self.device)

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> KVCache:
        inputs = self._inputs(visual)
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = self._begun(len(visual))
        else:
            check_room(self.text_config, inputs["input_ids"].shape[1], max_tokens)
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.accepted else {}
        with self.without_head(), self._precomputed_vision():
            output = self.model(**self._with_positions(inputs), **last, use_cache=True)
        inner = getattr(output, "language_model_outputs", None) or output
        read_BP = inputs["decoder_input_ids" if self.is_encoder_decoder else "input_ids"]
        state = KVCache(getattr(inner, CACHE), output.logits[:, -1:], read_BP.shape[1])
        mask_BP = inputs.get("attention_mask")
        if self.is_encoder_decoder:
            state.encoded_NPD, state.encoded_mask_NP = inner.encoder_last_hidden_state, mask_BP
        elif mask_BP is not None:
            state.mask_NP = mask_BP if self.pads_prompts else None
            shift_B1 = getattr(self.model.base_model, "rope_deltas", None) if self.position_axes > 1 else None
            if self.takes_positions:
                state.position_N1 = mask_BP.sum(1, keepdim=True)
            elif shift_B1 is not None:
                state.position_N1 = mask_BP.sum(1, keepdim=True) + shift_B1
        return state

    def decode(self, state: KVCache, tokens_NT: torch.Tensor) -> torch.Tensor:
        model, T = self.model, tokens_NT.shape[1]
        inputs: dict[str, Any] = {CACHE: state.cache, "use_cache": True}
        if not self.is_encoder_decoder:
            inputs |= {"input_ids": tokens_NT} | state.inputs(T, self.position_axes)
            if hasattr(model.config, "num_query_tokens"):  # BLIP-2 and InstructBLIP require a picture in every pass
                model = model.language_model
        elif model.config.model_type == "vision-encoder-decoder":
            inputs |= {"input_ids": tokens_NT, "encoder_hidden_states": state.encoded_NPD}
            model = model.decoder
        else:
            encoded = BaseModelOutput(last_hidden_state=state.encoded_NPD)
            inputs |= {"decoder_input_ids": tokens_NT, "encoder_outputs": encoded}
            inputs["attention_mask"] = state.encoded_mask_NP
            model = getattr(model, "language_model", model)
        with self.without_head():
            hidden_NTH: torch.Tensor = model(**inputs).logits
        state.decoded += T
        return hidden_NTH
