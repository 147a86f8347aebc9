"""BLIP (Li et al. 2022): a vision transformer, and a text decoder that attends to the patches."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import torch
from transformers import BlipForConditionalGeneration

from tellapart.captioners.blip_attention import PatchKVCache, attend_to_pictures, fused_attention
from tellapart.captioners.captioner import Captioner
from tellapart.captioners.context_length import check_room, max_tokens_after
from tellapart.captioners.kv_cache import CACHE, explain_no_cache, no_cache_reason
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.models.replaced_forward import replaced_forwards
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
        # Transformers has no fused attention for BLIP.
        fused = [] if torch.is_grad_enabled() else [layer.self_attn for layer in tower.encoder.layers]
        with replaced_forwards((each, partial(fused_attention, each)) for each in fused):
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
        layers = [layer.crossattention.self for layer in self.model.text_decoder.bert.encoder.layer]
        with replaced_forwards((layer, partial(attend_to_pictures, layer, visual)) for layer in layers):
            return self._read(visual, tokens_RT)

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        return self._read(visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0), tokens_RT)

    def _read(self, visual: torch.Tensor, tokens_RT: torch.Tensor) -> torch.Tensor:
        """Computes the hidden states that predict these tokens in one pass over the prompt and the tokens."""
        start_RT = self._start(len(tokens_RT))
        read_RT = torch.cat([start_RT, tokens_RT[:, :-1]], dim=1)
        bert = self.model.text_decoder.bert
        output = bert(input_ids=read_RT, encoder_hidden_states=visual, is_decoder=True, use_cache=False)
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
        hidden_B1H = self._transform(output.last_hidden_state[:, -1:])
        picture_B = torch.arange(len(visual), device=visual.device)
        return PatchKVCache(getattr(output, CACHE), hidden_B1H, len(self.start), picture_N=picture_B)

    def decode(self, state: PatchKVCache, tokens_NT: torch.Tensor) -> torch.Tensor:
        bert = self.model.text_decoder.bert
        layers = [layer.crossattention.self for layer in bert.encoder.layer]
        with replaced_forwards((layer, partial(state.attend, layer, number)) for number, layer in enumerate(layers)):
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


CAPTIONERS.register(
    CaptionerEntry(
        name="blip",
        factory=lambda folder: (load_whole(BlipForConditionalGeneration, folder, dtype=torch.float32), Blip),
        help="A vision transformer and a text decoder with cross-attention.",
        label="BLIP",
        model_type=True,
    )
)
