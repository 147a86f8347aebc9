"""Wraps any model that ``AutoModelForImageTextToText`` loads as a captioner, with one adapter for all families."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
import transformers
from PIL import Image
from transformers import modeling_outputs
from transformers.models.auto import modeling_auto

from tellapart.captioners.captioner import Captioner, check_room, max_tokens_after
from tellapart.captioners.families import LAYOUTS, Group, find_module, first, layout_of
from tellapart.captioners.kv_cache import CACHE, KVCache, explain_no_cache, no_cache_reason
from tellapart.captioners.picture_grids import Grids
from tellapart.captioners.picture_prompts import PicturePrompt, picture_marker
from tellapart.captioners.picture_tiles import Tiles
from tellapart.captioners.processors import whole_processor
from tellapart.captioners.registry import CAPTIONERS, CaptionerEntry
from tellapart.captioners.replaced_forward import replaced_forward
from tellapart.captioners.teacher_forcing import hidden_cached
from tellapart.captioners.text_only import TextOnly
from tellapart.errors import TellapartError, UsageError, nearest
from tellapart.models.digests import weights_fingerprint
from tellapart.models.precision import precision_of
from tellapart.models.saved import load_whole
from tellapart.models.training_mode import in_mode
from tellapart.types import Encoder
from tellapart.utils.checksums import write_sums
from tellapart.utils.documentation import page_url

VISUAL_TOKENS = 256  # default limit per picture if pictures keep their shapes
TOLERANCE = 1e-3  # tolerance for comparing outputs with and without a cached prompt, in float32


def identity(states: torch.Tensor) -> torch.Tensor:
    return states


class Hf(Captioner):
    """BLIP-2, InstructBLIP, GIT, PaliGemma, LLaVA, Qwen-VL and similar models.

    ``visual`` is the output of the vision tower (B×patches×D), so a picture is encoded only once, even if the projector
    after the tower is trained. For families whose layout is unknown (`families`), ``visual`` contains the pixels, and
    the tower runs in every step. If pictures keep their shapes (Qwen-VL), `Grids` packs the rows, with at most
    ``visual_tokens`` tokens per picture. If pictures are split into tiles, or the family is unknown, `Tiles` packs the
    rows.

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
        self.whole, self.visual_tokens = processor, visual_tokens or VISUAL_TOKENS
        self.layout = layout_of(model)
        self.tower: Any = find_module(model, self.layout.vision) if self.layout.output and self.layout.vision else None
        most = Grids.limit(self.processor)
        self.grids = Grids.of(self.processor, self.visual_tokens)
        self.accepted = set(inspect.signature(model.forward).parameters) - {"labels"}
        marker = None if self.grids is not None else picture_marker(self.layout, processor, model.config)
        self.tiles = None if marker is None else Tiles.of(processor, marker, self.accepted, always=self.tower is None)
        if visual_tokens is not None and (self.grids is None or visual_tokens < 4):
            reason = (
                "it has no effect, because all pictures have the same shape; remove visual_tokens"
                if self.grids is None
                else "expected at least 4"
            )
            raise UsageError(f"{name}: visual_tokens is {visual_tokens}; {reason}")
        if visual_tokens is not None and most is not None and visual_tokens > most:
            raise UsageError(
                f"{name}: visual_tokens is {visual_tokens}, but its saved processor returns at most {most}; "
                "load the original model, or raise size in preprocessor_config.json"
            )
        self.text_config = model.config.get_text_config(decoder=True)
        self.is_encoder_decoder = bool(
            model.config.is_encoder_decoder or getattr(self.text_config, "is_encoder_decoder", False)
        )
        self.set_prompt(prompt)
        self.places = self.before.places

    def set_prompt(self, prompt: str | None) -> None:
        config = self.model.config
        if prompt and config.model_type == "vision-encoder-decoder":
            raise UsageError(f"{self.name} does not accept a prompt; remove prompt")
        self.prompt = prompt
        self.before = PicturePrompt(config, self.whole, self.layout, prompt, self.accepted, self.blank, self.tiles)

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
        rows = f"{self.visual_tokens}" if self.grids else self.tiles.key if self.tiles else ""
        return " ".join(filter(None, (self.layout.output, f"{layer}", rows)))

    def pixels(self, images: Sequence[Image.Image]) -> torch.Tensor:
        if self.grids is not None:
            return torch.stack([self.grids.pack_picture(image, self.processor) for image in images])
        if self.tiles is not None:
            return torch.stack([self.tiles.pack_picture(image) for image in images])
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
        if self.tiles is not None:
            return Image.new("RGB", self.tiles.blank)
        side = self.grids.side if self.grids else 64
        return Image.new("RGB", (side, side))

    @cached_property
    def _row_shape(self) -> torch.Size:
        """Shape 1×… of the processor's output for one picture."""
        shape = self.processor(images=[self.blank()], return_tensors="pt")["pixel_values"].shape
        return torch.Size([1, *shape[1:]])

    def inputs(self, visual: torch.Tensor) -> torch.Tensor:
        packed = self.grids is not None or self.tiles is not None  # bf16 cannot represent their shapes
        return visual.to(self.device) if packed else super().inputs(visual)

    @property
    def lengths_differ(self) -> bool:  # type: ignore[override]
        return self.grids is not None or (self.tiles is not None and self.tiles.light)

    def input_lengths(self, visual: torch.Tensor) -> list[int] | None:
        if self.tiles is not None:
            return visual[:, 0].round().long().tolist()
        return None if self.grids is None else self.grids.tokens(visual[:, 0, :3].round().long())

    def encode(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Computes the tower's output, B×patches×D. If pictures keep their shapes, returns packed rows."""
        pixels = self.inputs(pixels_BCHW)
        if self.tower is None:
            return pixels
        if self.grids is not None:
            grid_B3, cells = self.grids.unpack(pixels, merged=False)
            states = self.tower(cells.to(self.dtype), grid_thw=grid_B3).pooler_output
            return self.grids.pack_cells(grid_B3, states)
        if self.tiles is not None:
            return self.tiles.encoded(pixels, lambda tiles: self._states(tiles.to(self.dtype)))
        return self._states(pixels)

    def _states(self, pixels_BCHW: torch.Tensor) -> torch.Tensor:
        """Returns the output of the tower that the rest of the model reads, B×patches×D."""
        if self.layout.output == "hidden_states":
            layer = self.model.config.vision_feature_layer
            states_BPD: torch.Tensor = self.tower(pixels_BCHW, output_hidden_states=True).hidden_states[layer]
        else:
            states_BPD = self.tower(pixels_BCHW).last_hidden_state
        return states_BPD

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
        states = pixel_values if self.grids else pixel_values.squeeze(1)
        read: dict[str, Any] = {} if self.grids else {"last_hidden_state": states}
        if self.layout.output == "hidden_states":
            read["hidden_states"] = (states,) * (self.tower.config.num_hidden_layers + 1)
        if self.grids:
            read["pooler_output"] = states
        return modeling_outputs.BaseModelOutputWithPooling(**read)

    def _inputs(self, visual: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns the model's inputs for R pictures from their rows in ``visual``, with right-aligned prompts."""
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
        """The model's own end tokens; the first one ends training captions."""
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
        if self.grids is not None:  # pictures of other shapes may take more positions than the blank picture
            before += self.visual_tokens - len(self.before.blank_ids)
        if self.tiles is not None:
            before += self.tiles.most_tokens - len(self.before.blank_ids)
        return max_tokens_after(self.text_config, before)

    def _caption_rows(self, texts: Sequence[str]) -> list[list[int]]:
        return [[i for i in row if i not in self.places] for row in super()._caption_rows(texts)]

    @cached_property
    def _last_layer(self) -> Any:
        return self.model.get_output_embeddings()

    @cached_property
    def plain(self) -> bool:
        """Returns True if the output layer alone computes the logits from the last hidden states.

        Some models also scale or squash the logits.
        """
        if hasattr(self._last_layer, "base_layer"):
            return False  # LoRA adapts the output layer
        device = self.device.type
        with in_mode(self.model, False), torch.no_grad(), torch.autocast(device, enabled=False):
            visual = self.blank_visual()
            tokens_RT = torch.tensor([[self.end, self.end]], device=self.device)
            scores_RTV = self._run(visual, tokens_RT, torch.ones_like(tokens_RT).bool())
            with replaced_forward(self._last_layer, identity):
                states_RTH = self._run(visual, tokens_RT, torch.ones_like(tokens_RT).bool())
            layer: Any = self._last_layer
            gap = 1e-4 if self.dtype == torch.float32 else 2e-2
            equal = states_RTH.shape[-1] == layer.weight.shape[1] and torch.allclose(
                F.linear(states_RTH, layer.weight, layer.bias).float(), scores_RTV.float(), rtol=gap, atol=gap
            )
        return bool(equal)

    @property
    def output_layer(self) -> Any:
        return self._last_layer if self.plain else None

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

    def hidden_uncached(self, visual: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        visual_R = visual.repeat_interleave(len(tokens_RT) // len(visual), dim=0)
        with self.without_head():
            return self._run(visual_R, tokens_RT, valid_RT)

    def without_head(self) -> AbstractContextManager[None]:
        """Within the context, makes the model return the input to its output layer, if `plain` is True."""
        return replaced_forward(self._last_layer, identity) if self.plain else nullcontext()

    def _run(self, visual_R: torch.Tensor, tokens_RT: torch.Tensor, valid_RT: torch.Tensor) -> torch.Tensor:
        """Computes the model's output at the T positions that score ``tokens_RT``."""
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
        """Extends an input for the prompt by the caption. A caption's last token is not fed to the model."""
        if name == "input_ids":
            return torch.cat([x, tokens_RT[:, :-1]], dim=1)
        if name == "attention_mask":
            return torch.cat([x, valid_RT[:, :-1].to(x.dtype)], dim=1)
        if name in ("token_type_ids", "mm_token_type_ids"):
            of_text = int(self.model.config.model_type == "paligemma")  # in PaliGemma, 0 marks the bidirectional prefix
            return torch.cat([x, x.new_full((len(x), tokens_RT.shape[1] - 1), of_text)], dim=1)
        return x

    def _begun(self, rows: int) -> torch.Tensor:
        """Returns the decoder's input before a caption: the start token and, for BART, the forced first token."""
        owners = (self.model, getattr(self.model, "language_model", None))
        settings = [getattr(owner, "generation_config", None) for owner in owners]
        settings += [self.model.config, self.text_config]
        names = ("decoder_start_token_id", "forced_bos_token_id")
        values_by_name = [[x for s in settings if (x := getattr(s, name, None)) is not None] for name in names]
        begun = [values[0] for values in values_by_name if values]
        return torch.tensor([begun] * rows, device=self.device)

    @property
    def pads_prompts(self) -> bool:
        """Returns True if pictures take different numbers of positions, so that shorter prompts are left-padded."""
        return self.grids is not None or self.tiles is not None

    def prefill(self, visual: torch.Tensor, max_tokens: int) -> KVCache:
        inputs = self._inputs(visual)
        if self.is_encoder_decoder:
            inputs["decoder_input_ids"] = self._begun(len(visual))
        else:
            check_room(self.text_config, inputs["input_ids"].shape[1], max_tokens)
        last = {"logits_to_keep": 1} if "logits_to_keep" in self.accepted else {}
        with self.without_head(), self._precomputed_vision():
            output = self.model(**inputs, **last, use_cache=True)
        inner = getattr(output, "language_model_outputs", None) or output
        read_BP = inputs["decoder_input_ids" if self.is_encoder_decoder else "input_ids"]
        state = KVCache(getattr(inner, CACHE), output.logits[:, -1:], read_BP.shape[1])
        mask_BP = inputs.get("attention_mask")
        if self.is_encoder_decoder:
            state.encoded_NPD, state.encoded_mask_NP = inner.encoder_last_hidden_state, mask_BP
            return state
        if mask_BP is not None and self.pads_prompts:
            state.mask_NP = mask_BP
        if self.model.config.model_type == "git":  # GIT has no picture tokens in the text
            state.position_N1 = torch.full((len(visual), 1), inputs["input_ids"].shape[1], device=self.device)
        deltas_B1 = getattr(self.model.base_model, "rope_deltas", None)
        if "image_grid_thw" in inputs and deltas_B1 is not None:
            assert mask_BP is not None
            state.position_N1 = mask_BP.sum(1, keepdim=True) + deltas_B1
        return state

    def decode(self, state: KVCache, tokens_NT: torch.Tensor) -> torch.Tensor:
        model, more = self.model, {CACHE: state.cache, "use_cache": True}
        with self.without_head():
            if self.is_encoder_decoder:
                hidden_NTH = self._decode_beside_encoder(state, tokens_NT, more)
            else:
                if (mask_NP := state.attention_mask(tokens_NT.shape[1])) is not None:
                    more["attention_mask"] = mask_NP
                if state.position_N1 is not None:
                    position_NT = state.positions(tokens_NT.shape[1])
                    axes = self.grids is not None  # time, height and width, which are equal for words
                    more["position_ids"] = position_NT.expand(3, -1, -1) if axes else position_NT
                if hasattr(model.config, "num_query_tokens"):  # BLIP-2 and InstructBLIP require a picture in every pass
                    model = model.language_model
                hidden_NTH = model(input_ids=tokens_NT, **more).logits
        state.decoded += tokens_NT.shape[1]
        return hidden_NTH

    def _decode_beside_encoder(self, state: KVCache, tokens_NT: torch.Tensor, more: dict[str, Any]) -> torch.Tensor:
        """Computes `decode` for an encoder-decoder. The cache contains the encoder's keys and values."""
        model = self.model
        if model.config.model_type == "vision-encoder-decoder":
            output = model.decoder(input_ids=tokens_NT, encoder_hidden_states=state.encoded_NPD, **more)
        else:
            output = getattr(model, "language_model", model)(
                decoder_input_ids=tokens_NT,
                encoder_outputs=modeling_outputs.BaseModelOutput(last_hidden_state=state.encoded_NPD),
                attention_mask=state.encoded_mask_NP,
                **more,
            )
        logits_NTV: torch.Tensor = output.logits
        return logits_NTV

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
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, trust_remote_code=False)
    return model, TextOnly, tokenizer, None


CAPTIONERS.register(
    CaptionerEntry(name="transformers", factory=load_any, help="Any other vision-language model in transformers.")
)
