"""The picture-reading half of the transformers captioner."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
from PIL import Image
from transformers import modeling_outputs

from tellapart.captioners.captioner import Captioner
from tellapart.captioners.families import find_module, layout_of
from tellapart.captioners.kv_cache import replaced_forward
from tellapart.captioners.packed_pictures import Grids, Tiles
from tellapart.captioners.picture_prompts import picture_marker
from tellapart.errors import TellapartError, UsageError
from tellapart.models.digests import weights_fingerprint
from tellapart.models.precision import precision_of
from tellapart.types import Encoder
from tellapart.utils.documentation import page_url

VISUAL_TOKENS = 256


class PicturesOfHf(Captioner):
    """The picture-reading half of `Hf`. ``processor`` is the combined one, for pictures and text."""

    pixels_in_threads = True

    def __init__(self, model: Any, tokenizer: Any, processor: Any, name: str, visual_tokens: int | None) -> None:
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
            reason = "all its pictures have one shape; remove it" if self.grids is None else "expected at least 4"
            raise UsageError(f"{name}: visual_tokens is {visual_tokens}; {reason}")
        if visual_tokens is not None and most is not None and visual_tokens > most:
            raise UsageError(
                f"{name}: visual_tokens is {visual_tokens}, but its saved processor returns at most {most}; "
                "load the original model, or raise size in preprocessor_config.json"
            )

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
        """Computes the tower's output B×patches×D, or packed rows if pictures keep their shapes."""
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
        """Returns whichever of the tower's outputs the rest of the model reads, B×patches×D."""
        if self.layout.output == "hidden_states":
            layer = self.model.config.vision_feature_layer
            states_BPD: torch.Tensor = self.tower(pixels_BCHW, output_hidden_states=True).hidden_states[layer]
        else:
            states_BPD = self.tower(pixels_BCHW).last_hidden_state
        return states_BPD

    @contextmanager
    def _precomputed_vision(self) -> Iterator[None]:
        """Makes the tower return its input within the context, because the input is already the tower's output."""
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
