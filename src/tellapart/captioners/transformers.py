"""Wraps any model that ``AutoModelForImageTextToText`` loads as a captioner, with one adapter for all families."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from PIL import Image
from transformers import modeling_outputs
from transformers.models.auto import modeling_auto

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.context_length import max_tokens_after
from tellapart.captioners.families import LAYOUTS, Group, find_module, layout_of, present
from tellapart.captioners.kv_cache import explain_no_cache, no_cache_reason
from tellapart.captioners.packed_pictures import IDS, PackedPictures, limit_tokens
from tellapart.captioners.picture_prompts import PicturePrompt, picture_marker, placeholders
from tellapart.captioners.processors import whole_processor
from tellapart.captioners.prompted import Prompted
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.captioners.teacher_forcing import hidden_cached
from tellapart.captioners.text_only import TextOnly
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.models.digests import weights_fingerprint
from tellapart.models.precision import precision_of
from tellapart.models.replaced_forward import replaced_forward
from tellapart.models.saved import load_tokenizer, load_whole
from tellapart.models.training_mode import in_mode
from tellapart.types import Encoder
from tellapart.utils.checksums import write_sums
from tellapart.utils.documentation import page_url

TOLERANCE = 1e-3  # tolerance for comparing outputs with and without a cached prompt, in float32


class Hf(Prompted):
    """BLIP-2, InstructBLIP, GIT, PaliGemma, LLaVA, Qwen-VL and similar models.

    ``visual`` is the output of the vision tower (B×patches×D), so a picture is encoded only once, even if the projector
    after the tower is trained. For families whose layout is unknown (`families`), ``visual`` contains the pixels, and
    the tower runs in every step. If pictures keep their shapes (Qwen-VL) or are split into tiles, or the family is
    unknown, `PackedPictures` packs the rows. Pictures that keep their shapes have at most ``visual_tokens`` tokens.

    ``prompt``: the question to the model. If the model has a chat template, the prompt is inserted into it. Captions
    are the answers. The loss excludes the prompt and the picture tokens, and picture tokens are never generated.
    """

    options: ClassVar = {"prompt": str, "visual_tokens": int}
    pixels_in_threads = True

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        processor: Any,
        name: str,
        prompt: str | None = None,
        visual_tokens: int | None = None,
    ) -> None:
        """Wraps the model. ``processor``: the model's combined processor for pictures and text."""
        super().__init__(model, tokenizer, processor.image_processor, name)
        self.whole, self.layout = processor, layout_of(model)
        self.tower: Any = find_module(model, self.layout.vision) if self.layout.output and self.layout.vision else None
        self.places = placeholders(model.config)
        most, marker = limit_tokens(self.processor, visual_tokens, name), picture_marker(self)
        always = self.tower is None
        self.packed = None if marker is None else PackedPictures.of(processor, marker, self.accepted, most, always)
        self.pads_prompts = self.packed is not None  # pictures take different numbers of positions
        self.takes_positions = model.config.model_type == "git"  # GIT has no picture tokens in the text
        self.position_axes = 3 if self.packed is not None and self.packed.grids else 1
        self.set_prompt(prompt)

    def set_prompt(self, prompt: str | None) -> None:
        if prompt and self.model.config.model_type == "vision-encoder-decoder":
            raise UsageError(f"{self.name} does not accept a prompt; remove prompt")
        self.before = PicturePrompt(self, prompt)

    # Pictures
    @property
    def encoder(self) -> Encoder:
        if self.tower is not None:
            return super().encoder
        pixels_only = weights_fingerprint(torch.nn.Module(), self.processor, f"pixels {self.view}")
        precision = precision_of(self.model)
        return Encoder(pixels_only, self.pixels, self._encode_frozen, precision=precision, name=self.name)

    @property
    def makes_features(self) -> bool:
        return self.tower is not None

    @property
    def view(self) -> str:
        layer = self.model.config.vision_feature_layer if self.layout.output == "hidden_states" else ""
        return " ".join(filter(None, (self.layout.output, f"{layer}", self.packed.key if self.packed else "")))

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        if self.packed is not None:
            return torch.stack([self.packed.pack_picture(image) for image in images])
        rows = [self.processor(images=[image], return_tensors="pt")["pixel_values"] for image in images]
        other = next((row for row in rows if row.shape != self._row_shape), None)
        if other is not None:
            raise TellapartError(
                f"{self.name} encodes one picture as {tuple(other.shape)} and another as "
                f"{tuple(self._row_shape)}, but its processor has no placeholder token for a picture; use a "
                f"family listed in {page_url('captioners.md')}"
            )
        return torch.cat(rows)

    def blank_visual(self) -> torch.Tensor:
        """Returns the output of `encode` for one blank picture."""
        return self._encode_frozen(self.pixels([self.blank()]))

    def blank(self) -> Image.Image:
        """Creates a picture without content."""
        return Image.new("RGB", self.packed.blank if self.packed is not None else (64, 64))

    @cached_property
    def _row_shape(self) -> torch.Size:
        """Shape 1×… of the processor's output for one picture."""
        shape = self.processor(images=[self.blank()], return_tensors="pt")["pixel_values"].shape
        return torch.Size([1, *shape[1:]])

    def inputs(self, visual: torch.Tensor) -> torch.Tensor:
        return super().inputs(visual) if self.packed is None else visual.to(self.device)  # bf16 cannot hold shapes

    @property
    def lengths_differ(self) -> bool:  # type: ignore[override]
        return self.packed is not None and self.packed.light

    def input_lengths(self, visual: torch.Tensor) -> list[int] | None:
        return None if self.packed is None else self.packed.tokens(visual)

    def same_shapes(self, visual: torch.Tensor) -> bool:
        return self.packed is None or self.packed.same_shapes(visual)

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes the tower's output, B×patches×D, or packed rows."""
        pixels = self.inputs(pixels_BCHW)
        if self.tower is None:
            return pixels
        return self._states(pixels) if self.packed is None else self.packed.encoded(pixels, self._states)

    def _states(self, pixels: torch.Tensor, grid_B3: torch.Tensor | None = None) -> torch.Tensor:
        """Returns the output of the tower that the rest of the model reads, B×patches×D or, for grids, tokens×D."""
        pixels, output = pixels.to(self.dtype), self.layout.output
        if grid_B3 is not None:
            states: torch.Tensor = self.tower(pixels, grid_thw=grid_B3).pooler_output
        elif output == "hidden_states":
            states = self.tower(pixels, output_hidden_states=True).hidden_states[self.model.config.vision_feature_layer]
        else:
            states = self.tower(pixels).last_hidden_state
        return states

    @contextmanager
    def _precomputed_vision(self) -> Iterator[None]:
        """Within the context, makes the tower return its input, because the input is already the tower's output."""
        try:
            with replaced_forward(self.tower, self._pass_through) if self.tower is not None else nullcontext():
                yield
        except ValueError as error:
            if "do not match" not in str(error):  # transformers' wording for a placeholder mismatch
                raise
            raise TellapartError(f"{self.name}: its processor does not match the model: {error}") from None

    def _pass_through(self, pixel_values: torch.Tensor, **_: Any) -> Any:
        if self.layout.output == "pooler_output":
            return modeling_outputs.BaseModelOutputWithPooling(pooler_output=pixel_values)
        states = pixel_values.squeeze(1)
        layers = self.tower.config.num_hidden_layers + 1 if self.layout.output == "hidden_states" else 0
        return modeling_outputs.BaseModelOutputWithPooling(states, hidden_states=(states,) * layers)

    def _inputs(self, visual: torch.Tensor) -> dict[str, torch.Tensor]:
        if self.packed is not None:
            tensors = self.packed.batch(pictures := self.packed.unpack(visual), self.dtype)
            inputs = tensors | self.before.rows([each[IDS].long().flatten().tolist() for each in pictures])
            if self.tower is not None and not self.packed.grids:  # for `_pass_through`
                inputs["pixel_values"] = inputs["pixel_values"].unsqueeze(-3)
            return inputs
        asked, visual = self.before.of_blank, self.inputs(visual)
        inputs = {name: x.to(self.device).repeat(len(visual), *[1] * (x.ndim - 1)) for name, x in asked.items()}
        return {**inputs, "pixel_values": visual.unsqueeze(1) if self.tower is not None else visual}

    # Captions
    @cached_property
    def ends(self) -> list[int]:
        """The model's own end tokens; the first one ends training captions."""
        ids, usual = self._setting("eos_token_id"), self.tokenizer.eos_token_id
        ids = [ids] if isinstance(ids, int) else list(ids or [usual])
        return sorted(ids, key=lambda id_: id_ != usual)

    @property
    def end(self) -> int:
        return self.ends[0]

    @property
    def stop_tokens(self) -> list[int]:
        return [*self.ends, *self._stop_ids]

    @property
    def suppressed_tokens(self) -> Sequence[int]:
        return [*self.places, *self.gaps]

    @property
    def max_caption_tokens(self) -> int | None:
        if self.is_encoder_decoder:
            return max_tokens_after(self.text_config, self._begun(1).shape[1])
        before = self.before.of_blank["input_ids"].shape[1]
        if self.packed is not None:  # other pictures may take more positions than the blank picture
            before = sum(map(len, self.before.around)) + self.packed.most_tokens
        return max_tokens_after(self.text_config, before)

    def _caption_rows(self, texts: Sequence[str]) -> list[list[int]]:
        return [[i for i in row if i not in self.places] for row in super()._caption_rows(texts)]

    @property
    def caches(self) -> bool:
        reason = no_cache_reason(self.model)
        if reason is None and self.model.config.model_type not in LAYOUTS and not self.cache_is_right:
            reason = "its outputs after a cached prompt differ"
        return explain_no_cache(self.name, reason)

    @cached_property
    def cache_is_right(self) -> bool:
        """Returns True if outputs after a cached prompt match those of a single pass, for two captions of a blank
        picture.

        Tests cover all families that have a layout. All other families are checked at run time.
        """
        tokens_RT = torch.full((2, 3), self.end, device=self.device)
        valid_RT = torch.ones_like(tokens_RT, dtype=torch.bool)
        try:
            with in_mode(self.model, False), torch.no_grad(), torch.autocast(self.device.type, enabled=False):
                visual = self.blank_visual()
                plain_RTH = self.hidden_uncached(visual, tokens_RT, valid_RT).float()
                cached_RTH = hidden_cached(self, self.prefill(visual, 3), tokens_RT, valid_RT.sum(1)).float()
            gap = TOLERANCE if self.model.dtype == torch.float32 else 100 * TOLERANCE
            return torch.allclose(cached_RTH, plain_RTH, rtol=gap, atol=gap)
        except Exception:  # an untested family may raise any exception
            return False

    # The rest
    def parts(self) -> dict[str, torch.nn.Module]:
        layout, model = self.layout, self.model
        vision = {"vision": find_module(model, layout.vision)} if layout.vision else {}
        mapper = {"mapper": Group(model, layout.mapper)} if present(model, layout.mapper) else {}
        language = Group(model, layout.language) if present(model, layout.language) else model
        return {**vision, **mapper, "language_model": language}

    def save(self, folder: str | Path) -> None:
        super().save(folder)
        self.whole.save_pretrained(folder)
        write_sums(Path(folder))


def load_any(where: str, kind: str, name: str, dtype: torch.dtype) -> tuple[Any, type[Captioner], Any, Any]:
    """Loads a model that ``AutoModelForImageTextToText`` or ``AutoModelForCausalLM`` supports.

    Returns the model, its captioner class, its tokenizer, and its combined processor (None for text-only models).
    Raises `TellapartError` for all other kinds of models.
    """
    if kind in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        model = load_whole(transformers.AutoModelForImageTextToText, where, dtype=dtype)
        whole = whole_processor(where, model.config)
        return model, Hf, whole.tokenizer, whole
    if kind not in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise TellapartError(f"{name} is a {kind} model, which is not a supported captioner{nearest(kind, CAPTIONERS)}")
    model = load_whole(transformers.AutoModelForCausalLM, where, dtype=dtype)
    return model, TextOnly, load_tokenizer(where), None


CAPTIONERS.register(
    CaptionerEntry(name="transformers", factory=load_any, help="Any other vision-language model in transformers.")
)
