"""Any model that ``AutoModelForImageTextToText`` loads, as a captioner: one adapter for all the families."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from tellapart.captioners.base import check_room, room_after
from tellapart.captioners.beams import captions_after
from tellapart.captioners.continuing import continued, continues, unshared_reason
from tellapart.captioners.hf_pictures import PicturesOfHf
from tellapart.captioners.layouts import Group, find_module, first
from tellapart.captioners.patching import default_generation_settings, identity, replaced_forward
from tellapart.captioners.picture_prompt import PicturePrompt
from tellapart.captioners.prefix import CachedPrefix, hidden_after, shares
from tellapart.errors import UsageError
from tellapart.models.decoding import Decoding, to_rollout, token_samplers
from tellapart.types import Rollout
from tellapart.utils.files import write_sums
from tellapart.utils.rng import ItemSeeds


class Hf(PicturesOfHf):
    """BLIP-2, InstructBLIP, GIT, PaliGemma, LLaVA, Qwen-VL and their kin.

    ``visual`` is what the vision tower gives (B×patches×D), so that a picture is encoded once while the projector
    behind the tower still learns. Of a family whose layout is not known (`layouts`) it is the pixels themselves, and
    the tower runs in every step. Where pictures keep their own shapes (Qwen-VL) rows are as `grids` packs them, of at
    most ``visual_tokens`` tokens a picture; where they are cut into tiles or of an unknown family, as `tiles` does.

    ``prompt``: what the model is asked, put into its chat template where it has one. Captions are what it answers:
    no loss is on the prompt or the picture's tokens, and the latter are never written.
    """

    options: ClassVar = {"prompt": str, "visual_tokens": int}

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        processor: Any,
        name: str,
        prompt: str | None = None,
        visual_tokens: int | None = None,
    ) -> None:
        """``processor`` is the whole one, of pictures and text."""
        super().__init__(model, tokenizer, processor, name, visual_tokens)
        self.text_config = model.config.get_text_config(decoder=True)
        self.is_encoder_decoder = bool(
            model.config.is_encoder_decoder or getattr(self.text_config, "is_encoder_decoder", False)
        )
        if prompt and model.config.model_type == "vision-encoder-decoder":
            raise UsageError(f"{name}: this model reads pictures alone; leave prompt out")
        self.prompt = prompt
        self.before = PicturePrompt(model.config, processor, self.layout, prompt, self.accepted, self.blank, self.tiles)
        self.places = self.before.places

    def _inputs(self, visual: torch.Tensor) -> dict[str, torch.Tensor]:
        """What the model reads of R pictures from their rows in ``visual``, prompts aligned at their right ends."""
        if self.tiles is not None:
            ids, tensors = self.tiles.unpack(visual)
            inputs = self.before.rows([row.tolist() for row in ids], self.device)
            inputs |= self.tiles.batch(tensors, self.dtype)
            if self.tower is not None:  # for `_pass_through`
                inputs["pixel_values"] = inputs["pixel_values"].unsqueeze(-3)
            return inputs
        if self.grids is None:
            asked = self.before.of_blank
            inputs = {name: x.to(self.device).repeat(len(visual), *[1] * (x.ndim - 1)) for name, x in asked.items()}
            visual = self.inputs(visual)
            return {**inputs, "pixel_values": visual.unsqueeze(1) if self.tower is not None else visual}
        grid_R3, cells = self.grids.unpack(visual, merged=self.tower is not None)
        inputs = self.before.rows([[self.places[0]] * count for count in self.grids.tokens(grid_R3)], self.device)
        return {**inputs, "image_grid_thw": grid_R3, "pixel_values": cells.to(self.dtype)}

    # Captions
    @cached_property
    def ends(self) -> list[int]:
        """All tokens that end an answer, the one that captions are taught with first."""
        whose: Any = (self.model.generation_config, getattr(self.model, "language_model", None), self.text_config)
        settings = [getattr(owner, "generation_config", owner) for owner in whose]
        ids = next((s.eos_token_id for s in settings if getattr(s, "eos_token_id", None) is not None), None)
        ids = [ids] if isinstance(ids, int) else list(ids or [self.tokenizer.eos_token_id])
        usual = [i for i in ids if i == self.tokenizer.eos_token_id]
        return usual + [i for i in ids if i not in usual]

    @property
    def end(self) -> int:
        return self.ends[0]

    @property
    def max_caption_tokens(self) -> int | None:
        if self.is_encoder_decoder:
            return room_after(self.text_config, self._begun(1).shape[1])
        before = self.before.of_blank["input_ids"].shape[1]
        if self.grids is not None:  # of another shape a picture may take more places than the blank one did
            before += self.visual_tokens - len(self.before.blank_ids)
        if self.tiles is not None:
            before += self.tiles.most_tokens - len(self.before.blank_ids)
        return room_after(self.text_config, before)

    def _caption_rows(self, texts: Sequence[str]) -> list[list[int]]:
        return [[i for i in row if i not in self.places] for row in super()._caption_rows(texts)]

    @cached_property
    def output_layer(self) -> torch.nn.Module:
        layer: torch.nn.Module = self.model.get_output_embeddings()
        return layer

    @cached_property
    def plain(self) -> bool:
        """Whether scores are nothing but the output layer of the states before it (some models squash or scale)."""
        if hasattr(self.output_layer, "base_layer"):
            return False  # LoRA stands beside it
        device = self.device.type
        training = self.model.training
        self.model.eval()
        with torch.no_grad(), torch.autocast(device, enabled=False):
            visual = self.blank_visual()
            tokens_RT = torch.tensor([[self.end, self.end]], device=self.device)
            scores_RTV = self._run(visual, tokens_RT, torch.ones_like(tokens_RT).bool())
            with replaced_forward(self.output_layer, identity):
                states_RTH = self._run(visual, tokens_RT, torch.ones_like(tokens_RT).bool())
            layer: Any = self.output_layer
            gap = 1e-4 if self.dtype == torch.float32 else 2e-2
            equal = states_RTH.shape[-1] == layer.weight.shape[1] and torch.allclose(
                F.linear(states_RTH, layer.weight, layer.bias).float(), scores_RTV.float(), rtol=gap, atol=gap
            )
        self.model.train(training)
        return bool(equal)

    def head(self) -> tuple[torch.Tensor, torch.Tensor | None] | None:
        layer: Any = self.output_layer
        return (layer.weight, layer.bias) if self.plain else None

    def hidden(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        if len(tokens_RT) > len(visual) and self._shares():
            return hidden_after(self.read(visual, tokens_RT.shape[1]), tokens_RT, valid_RT.sum(1))
        return self.hidden_plain(visual, tokens_RT, valid_RT)

    def hidden_plain(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """`hidden` in one pass, the picture and its prompt repeated for every caption."""
        visual_R = visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0)
        with self.without_head():
            return self._run(visual_R, tokens_RT, valid_RT)

    def without_head(self) -> AbstractContextManager[None]:
        """For the moment the model's output is what its output layer reads, where `head` says that this is enough."""
        return replaced_forward(self.output_layer, identity) if self.plain else nullcontext()

    def _run(self, visual_R: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """The model's output at the T positions that score ``tokens``."""
        inputs, T = self._inputs(visual_R), tokens_RT.shape[1]
        with self._precomputed_vision():
            if self.is_encoder_decoder:
                inputs["decoder_input_ids"] = torch.cat([self._begun(len(tokens_RT)), tokens_RT[:, :-1]], dim=1)
            else:
                check_room(self.text_config, inputs["input_ids"].shape[1], T)
                inputs = {name: self._longer(name, x, tokens_RT, valid_RT) for name, x in inputs.items()}
            logits_RTV: torch.Tensor = self.model(**inputs, use_cache=False).logits[:, -T:]
            return logits_RTV

    def _longer(self, name: str, x: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """An input of the prompt with that of the caption after it; the last token of a caption is not read."""
        if name == "input_ids":
            return torch.cat([x, tokens_RT[:, :-1]], dim=1)
        if name == "attention_mask":
            return torch.cat([x, valid_RT[:, :-1].to(x.dtype)], dim=1)
        if name in ("token_type_ids", "mm_token_type_ids"):
            of_text = int(self.model.config.model_type == "paligemma")  # 0 there is the prefix, which sees itself whole
            return torch.cat([x, x.new_full((len(x), tokens_RT.shape[1] - 1), of_text)], dim=1)
        return x

    def _begun(self, rows: int) -> torch.Tensor:
        """What a decoder has read before a caption: where it starts, and the token that it must begin with (BART)."""
        owners = (self.model, getattr(self.model, "language_model", None))
        settings = [getattr(owner, "generation_config", None) for owner in owners]
        settings += [self.model.config, self.text_config]
        names = ("decoder_start_token_id", "forced_bos_token_id")
        found = [[x for s in settings if (x := getattr(s, name, None)) is not None] for name in names]
        begun = [values[0] for values in found if values]
        return torch.tensor([begun] * rows, device=self.device)

    def generate(self, visual: torch.Tensor, decoding: Decoding, seeds: ItemSeeds | None = None) -> Rollout:
        uniform_RT = decoding.uniform(len(visual), visual.device, seeds)
        with torch.no_grad():
            if self._shares():
                scores = self.output_layer if self.plain else identity
                prefix = self.read(visual, decoding.max_tokens)
                tokens_RT = captions_after(prefix, scores, decoding, self.ends, uniform_RT, self.places)
            else:
                tokens_RT = self.generate_with_transformers(visual, decoding, uniform_RT)
        return to_rollout(tokens_RT, self.tokenizer, self.ends, decoding.samples)

    def generate_with_transformers(
        self, visual: torch.Tensor, decoding: Decoding, uniform_RT: torch.Tensor | None = None
    ) -> torch.Tensor:
        """New tokens R×T by transformers' ``generate``: any decoding, every row as long as the longest."""
        inputs = self._inputs(visual)
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = self._begun(len(visual))
        before = inputs["decoder_input_ids" if self.is_encoder_decoder else "input_ids"].shape[1]
        if not self.is_encoder_decoder:
            check_room(self.text_config, before, decoding.max_tokens)
        config = decoding.generation_config(pad=self.tokenizer.pad_token_id, start=None, ends=self.ends)
        config.suppress_tokens = self.places or None
        with self._precomputed_vision(), self._default_generation_settings():
            samplers = token_samplers(decoding, uniform_RT, before)
            tokens_RT: torch.Tensor = self.model.generate(**inputs, generation_config=config, logits_processor=samplers)
        return tokens_RT[:, before:]

    # What is read once
    def _shares(self) -> bool:
        """Whether a picture and its prompt can be read once for all its captions; if not, says why."""
        return shares(self.name, unshared_reason(self))

    @cached_property
    def continues(self) -> bool:
        return continues(self)

    @property
    def pads_prompts(self) -> bool:
        """Whether pictures take different numbers of places, so that shorter prompts are padded at the left."""
        return self.grids is not None or self.tiles is not None

    def read(self, visual: torch.Tensor, tokens: int) -> CachedPrefix:
        """What the model reads of B pictures before captions of at most so many ``tokens``."""
        inputs = self._inputs(visual)
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = self._begun(len(visual))
        else:
            check_room(self.text_config, inputs["input_ids"].shape[1], tokens)
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.accepted else {}
        with self.without_head(), self._precomputed_vision():
            output = self.model(**inputs, **last, use_cache=True)
        return continued(self, inputs, output)

    def _default_generation_settings(self) -> AbstractContextManager[None]:
        start = int(self._begun(1)[0, 0]) if self.is_encoder_decoder else None
        owners = (self.model, getattr(self.model, "language_model", None))
        return default_generation_settings(*owners, start=start)

    # The rest
    def parts(self) -> dict[str, torch.nn.Module]:
        layout, parts = self.layout, {}
        if layout.vision:
            parts["vision"] = find_module(self.model, layout.vision)
        if any(find_module(self.model, path) is not None for path in layout.mapper):
            parts["mapper"] = Group(self.model, layout.mapper)
        parts["language_model"] = (
            Group(self.model, layout.language) if first(self.model, layout.language) else self.model
        )
        return parts

    def save(self, folder: str | Path) -> None:
        super().save(folder)
        self.whole.save_pretrained(folder)
        write_sums(Path(folder))
