"""BLIP (Li et al. 2022): a vision transformer and a text decoder that attends to its patches."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from tellapart.captioners.base import Captioner, check_room, room_after
from tellapart.models.decoding import Decoding, to_rollout, token_samplers
from tellapart.types import Rollout
from tellapart.utils.rng import ItemSeeds


class Blip(Captioner):
    """``BlipForConditionalGeneration`` as a captioner. ``visual`` is B×patches×D, of clips the patches of all frames.

    ``prompt`` stands before every caption and is no part of it ("a picture of " in paper 1; BLIP's own default
    is none).
    """

    options: ClassVar = {"prompt": str}
    sees_clips = True
    pixels_in_threads = True

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str, prompt: str = "") -> None:
        super().__init__(model, tokenizer, processor, name)
        prompt_ids = tokenizer(prompt, add_special_tokens=False)["input_ids"] if prompt else []
        self.start = [model.config.text_config.bos_token_id, *prompt_ids]

    @property
    def end(self) -> int:
        return int(self.model.config.text_config.sep_token_id)

    @property
    def max_caption_tokens(self) -> int | None:
        return room_after(self.model.config.text_config, len(self.start))

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        visual: torch.Tensor = self.model.vision_model(pixel_values=self.inputs(pixels_BCHW)).last_hidden_state
        return visual

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        visual_RPD = visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0)
        start_RT = self._start(len(tokens_RT))
        decoder = self.model.text_decoder
        output = decoder.bert(
            input_ids=torch.cat([start_RT, tokens_RT[:, :-1]], dim=1),
            encoder_hidden_states=visual_RPD,
            encoder_attention_mask=torch.ones(visual_RPD.shape[:2], dtype=torch.long, device=self.device),
            is_decoder=True,
        )
        states_RTH = output.last_hidden_state[:, start_RT.shape[1] - 1 :]
        hidden_RTH: torch.Tensor = decoder.cls.predictions.transform(states_RTH)
        return hidden_RTH

    def head(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        layer = self.model.text_decoder.cls.predictions.decoder
        return layer.weight, layer.bias

    def generate(self, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        uniform_RT = decoding.uniform(len(visual), visual.device, seeds)
        config = decoding.generation_config(pad=self.tokenizer.pad_token_id, start=None, ends=[self.end])
        start_BT = self._start(len(visual))
        check_room(self.model.config.text_config, start_BT.shape[1], decoding.max_tokens)
        with torch.no_grad():
            tokens_RT = self.model.text_decoder.generate(
                input_ids=start_BT,
                attention_mask=torch.ones_like(start_BT),
                encoder_hidden_states=visual,
                encoder_attention_mask=torch.ones(visual.shape[:2], dtype=torch.long, device=self.device),
                generation_config=config,
                logits_processor=token_samplers(decoding, uniform_RT, start_BT.shape[1]),
            )
        return to_rollout(tokens_RT[:, start_BT.shape[1] :], self.tokenizer, [self.end], decoding.samples)

    def parts(self) -> dict[str, torch.nn.Module]:
        return {"vision": self.model.vision_model, "language_model": self.model.text_decoder}

    def _start(self, rows: int) -> torch.Tensor:
        return torch.tensor(self.start, device=self.device).expand(rows, -1)
