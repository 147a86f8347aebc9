"""BLIP (Li et al. 2022): a vision transformer, and a text decoder that attends to the patches."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any, ClassVar

import torch
from transformers import BlipForConditionalGeneration

from tellapart.captioners.blip_attention import PatchKVCache, attend_to_pictures, fused_attention
from tellapart.captioners.captioner import Captioner, check_room, max_tokens_after
from tellapart.captioners.kv_cache import CACHE, explain_no_cache, no_cache_reason
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.captioners.replaced_forward import replaced_forward
from tellapart.models.saved import load_whole


class Blip(Captioner):
    """``BlipForConditionalGeneration`` as a captioner.

    ``visual`` is B×patches×D; for clips, it contains the patches of all frames. ``prompt`` precedes every caption but
    is not part of the caption ("a picture of " in paper 1; by default, BLIP has no prompt).
    """

    options: ClassVar = {"prompt": str}
    sees_clips = True
    pixels_in_threads = True
    graphed = True

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str, prompt: str = "") -> None:
        super().__init__(model, tokenizer, processor, name)
        self.set_prompt(prompt)

    def set_prompt(self, prompt: str) -> None:
        prompt_ids = self.tokenizer(prompt, add_special_tokens=False)["input_ids"] if prompt else []
        self.start = [self.model.config.text_config.bos_token_id, *prompt_ids]

    @property
    def end(self) -> int:
        return int(self.model.config.text_config.sep_token_id)

    @property
    def max_caption_tokens(self) -> int | None:
        return max_tokens_after(self.model.config.text_config, len(self.start))

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        tower = self.model.vision_model
        with ExitStack() as stack:
            if not torch.is_grad_enabled():  # transformers has no fused attention for BLIP
                for layer in tower.encoder.layers:
                    stack.enter_context(replaced_forward(layer.self_attn, partial(fused_attention, layer.self_attn)))
            visual: torch.Tensor = tower(pixel_values=self.inputs(pixels_BCHW)).last_hidden_state
        return visual

    @property
    def caches(self) -> bool:
        return explain_no_cache(self.name, no_cache_reason(self.model.text_decoder))

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        if visual.device.type == "cuda" and len(tokens_RT) > len(visual):
            return self.hidden_in_one_pass(visual, tokens_RT)
        return super().hidden(visual, tokens_RT, valid_RT)

    def hidden_in_one_pass(self, visual: torch.Tensor, tokens_RT: torch.Tensor) -> torch.Tensor:
        """Computes `hidden` without a cache, processing the patches only once per picture.

        Compared with separate passes for prompt and captions, this takes fewer kernel launches, which saves time on a
        GPU, but more padding, which costs time on a CPU.
        """
        start_RT = self._start(len(tokens_RT))
        read_RT = torch.cat([start_RT, tokens_RT[:, :-1]], dim=1)
        bert = self.model.text_decoder.bert
        with ExitStack() as stack:
            for layer in bert.encoder.layer:
                module = layer.crossattention.self
                stack.enter_context(replaced_forward(module, partial(attend_to_pictures, module, visual)))
            output = bert(input_ids=read_RT, encoder_hidden_states=visual, is_decoder=True, use_cache=False)
        return self._transform(output.last_hidden_state[:, start_RT.shape[1] - 1 :])

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        visual_RPD = visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0)
        start_RT = self._start(len(tokens_RT))
        read_RT = torch.cat([start_RT, tokens_RT[:, :-1]], dim=1)
        output = self.model.text_decoder.bert(input_ids=read_RT, encoder_hidden_states=visual_RPD, is_decoder=True)
        return self._transform(output.last_hidden_state[:, start_RT.shape[1] - 1 :])

    def _transform(self, states: torch.Tensor) -> torch.Tensor:
        """Transforms the decoder's last hidden states into the input to its output layer."""
        hidden: torch.Tensor = self.model.text_decoder.cls.predictions.transform(states)
        return hidden

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> PatchKVCache:
        check_room(self.model.config.text_config, len(self.start), max_tokens)
        bert = self.model.text_decoder.bert
        start_BT = self._start(len(visual))
        output = bert(input_ids=start_BT, encoder_hidden_states=visual, is_decoder=True, use_cache=True)
        picture_B = torch.arange(len(visual), device=visual.device)
        return PatchKVCache(
            getattr(output, CACHE),
            self._transform(output.last_hidden_state[:, -1:]),
            len(self.start),
            picture_N=picture_B,
        )

    def decode(self, state: PatchKVCache, tokens_NT: torch.Tensor) -> torch.Tensor:
        bert = self.model.text_decoder.bert
        layers = [layer.crossattention.self for layer in bert.encoder.layer]
        with ExitStack() as stack:
            for number, layer in enumerate(layers):
                stack.enter_context(replaced_forward(layer, partial(state.attend, layer, number)))
            output = bert(
                input_ids=tokens_NT,
                encoder_hidden_states=state.hidden_N1H,  # enables cross-attention; `attend` supplies keys and values
                is_decoder=True,
                use_cache=True,
                attention_mask=state.mask_of_one() if tokens_NT.shape[1] == 1 else None,
                **{CACHE: state.cache},
            )
        return self._transform(output.last_hidden_state)

    @property
    def output_layer(self) -> Any:
        return self.model.text_decoder.cls.predictions.decoder

    def parts(self) -> dict[str, torch.nn.Module]:
        return {"vision": self.model.vision_model, "language_model": self.model.text_decoder}

    def _start(self, rows: int) -> torch.Tensor:
        return torch.tensor(self.start, device=self.device).expand(rows, -1)


def load_blip(folder: str) -> tuple[Any, type[Captioner]]:
    """Loads the model in ``folder`` in float32. Returns the model and its captioner class."""

    return load_whole(BlipForConditionalGeneration, folder, dtype=torch.float32), Blip


CAPTIONERS.register(
    CaptionerEntry(
        name="blip",
        factory=load_blip,
        help="A vision transformer and a text decoder with cross-attention.",
        label="BLIP",
        model_type=True,
    )
)
