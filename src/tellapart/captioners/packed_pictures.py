"""Packs pictures of varying shapes into rows of equal length.

The models read a grid of patches (Qwen-VL), or the whole picture and tiles of it (LLaVA-NeXT, Idefics3, InternVL). A
row contains the shapes and then the values of the picture's tensors, which include its placeholder token ids, and then
zeros. It does not depend on the prompt, and is in full precision.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image

from tellapart.errors import PictureError, UsageError

TEXT = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
IDS, PIXELS, GRID = "input_ids", "pixel_values", "image_grid_thw"
VISUAL_TOKENS = 256  # default limit per picture if pictures keep their shapes
SHAPE = 6  # number of entries per tensor shape in a row: the number of dimensions (0 if absent), then the sizes
EDGES = (64, 256, 512, 768, 1024, 1536, 2048, 4096)  # side lengths of the pictures to try
PROBES = ((64, 64), (64, 16), (16, 64), (2048, 2048), (1024, 768), (768, 1024))
LIGHT = 2**21  # number of values per row below which many rows fit into memory


def limit_tokens(processor: Any, most: int | None, name: str) -> int:
    """Limits a grid processor to ``most`` tokens per picture (None: the default), and returns the limit.

    Returns 0 if the processor has no grid. Raises `UsageError` if the processor cannot have this limit.
    """
    saved, area = 0, 1
    if GRID in processor.model_input_names:
        area = (processor.patch_size * processor.merge_size) ** 2
        saved = processor.size["longest_edge"] // area
    if most is not None and (not saved or most < 4):
        reason = (
            "expected at least 4"
            if saved
            else "it has no effect, because all pictures have the same shape; remove visual_tokens"
        )
        raise UsageError(f"{name}: visual_tokens is {most}; {reason}")
    if most is not None and most > saved:
        raise UsageError(
            f"{name}: visual_tokens is {most}, but its saved processor returns at most {saved}; load the original "
            "model, or raise size in preprocessor_config.json"
        )
    limit = min(most or VISUAL_TOKENS, saved)
    if saved:
        longest = min(processor.size["longest_edge"], limit * area)
        shortest = min(processor.size["shortest_edge"], longest)
        processor.size = {**dict(processor.size), "longest_edge": longest, "shortest_edge": shortest}
    return limit


@dataclass
class PackedPictures:
    """Describes how the picture-and-text processor ``whole`` reads one picture. ``marker`` marks a picture in text.

    ``names``: the names of a picture's tensors. ``most_tokens``, ``most_units`` and ``most``: the maximum number of
    tokens, of tiles (in a grid: of tokens) and of values in other tensors per picture. ``blank``: the size of a small
    picture.
    """

    whole: Any
    marker: str
    names: tuple[str, ...] = ()
    blank: tuple[int, int] = PROBES[0]
    most_tokens: int = 0
    most_units: int = 0
    most: int = 0

    @staticmethod
    def of(whole: Any, marker: str, accepted: Collection[str], tokens: int, always: bool) -> PackedPictures | None:
        """Returns the packing for a processor. ``accepted``: names of the model's inputs. ``tokens``: see
        `limit_tokens`.

        Returns None if every picture gives one tensor of the same shape, unless ``always`` is set.
        """
        packed = PackedPictures(whole, marker)
        read = {size: packed.read(Image.new("RGB", size)) for size in PROBES[:3]}
        shapes = {tuple(each[PIXELS].shape) for each in read.values()}
        if not always and len(shapes) == 1 and len(shape := shapes.pop()) == 4 and shape[0] == 1:
            return None
        packed.names = (IDS, *(name for name in read[PROBES[0]] if name in accepted and name not in TEXT))
        packed.blank = min(read, key=lambda size: read[size][PIXELS].numel())
        if tokens:
            packed.most_tokens = packed.most_units = tokens
            packed.most = tokens * packed._merged * read[packed.blank][PIXELS].shape[1] + 3
            return packed
        for size in packed._largest():
            one = packed.read(Image.new("RGB", size))
            packed.most_tokens = max(packed.most_tokens, one[IDS].shape[1])
            packed.most_units = max(packed.most_units, packed._units(one).numel())
            packed.most = max(packed.most, sum(one[name].numel() for name in packed.names[1:]))
        return packed

    def _largest(self) -> Collection[tuple[int, int]]:
        """Returns some picture sizes (width, height), including those with the most tokens and with the most tiles."""
        if not hasattr(self.whole, "_get_num_multimodal_tokens"):
            return PROBES
        sizes = [(height, width) for height in EDGES for width in EDGES]
        read = self.whole._get_num_multimodal_tokens(image_sizes=sizes)
        counts = [list(read[name]) for name in ("num_image_tokens", "num_image_patches")]
        return {PROBES[3], *(sizes[count.index(max(count))][::-1] for count in counts)}

    def read(self, image: Image.Image) -> dict[str, torch.Tensor]:
        """Runs the processor on a picture without surrounding text."""
        text: dict[str, Any] = {"text": [self.marker], "add_special_tokens": False, "return_tensors": "pt"}
        return dict(self.whole(images=[image], **text))

    @property
    def grids(self) -> bool:
        """Returns True if pictures are grids of patches, which keep the picture's shape."""
        return GRID in self.names

    @property
    def _merged(self) -> int:
        """Number of patches per token of a grid."""
        side: int = self.whole.image_processor.merge_size
        return side**2

    def _units(self, tensors: dict[str, torch.Tensor]) -> torch.Size:
        """Returns the shape of a picture's tiles or, for a grid, the number of its tokens."""
        return torch.Size([int(tensors[GRID].prod()) // self._merged]) if self.grids else tensors[PIXELS].shape[:-3]

    @property
    def key(self) -> str:
        """Returns a key for everything that rows depend on in addition to the settings of the image processor."""
        ids = self.read(Image.new("RGB", self.blank))[IDS][0].tolist()
        return f"packed {self.most_tokens} {self.most_units} {self.most} {ids}"

    @property
    def light(self) -> bool:
        return self.grids or self.most < LIGHT

    def pack_picture(self, image: Image.Image) -> torch.Tensor:
        try:
            read = self.read(image)
        except ValueError as error:  # Qwen-VL rejects aspect ratios of 200 or more
            raise PictureError(f"a picture of {image.width}×{image.height}: {error}") from None
        return self._row({name: read[name] for name in self.names if name in read}, self.most)

    def unpack(self, rows: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        """Returns the tensors of each picture."""
        pictures: list[dict[str, torch.Tensor]] = []
        first = SHAPE * len(self.names)
        for row, header in zip(rows, rows[:, :first].round().long().tolist(), strict=True):
            at = first
            pictures.append({})
            for place, name in enumerate(self.names):
                dimensions, *sizes = header[SHAPE * place : SHAPE * (place + 1)]
                if dimensions:
                    shape = torch.Size(sizes[:dimensions])
                    pictures[-1][name] = row[at : at + shape.numel()].view(shape)
                    at += shape.numel()
        return pictures

    def tokens(self, rows: torch.Tensor) -> list[int]:
        """Returns the number of tokens of each picture."""
        return [each[IDS].numel() for each in self.unpack(rows)]

    def same_shapes(self, rows: torch.Tensor) -> bool:
        """Returns True if the rows differ only in their pixels or in the vision tower's output."""
        first, *others = self.unpack(rows)
        return all(
            each.keys() == first.keys()
            and each[PIXELS].shape == first[PIXELS].shape
            and all(torch.equal(x, first[name]) for name, x in each.items() if name != PIXELS)
            for each in others
        )

    def encoded(self, rows: torch.Tensor, tower: Callable[..., torch.Tensor]) -> torch.Tensor:
        """Replaces the pixels of tiles (…×3×side×side) or of a grid's patches in the rows with the ``tower``'s output.

        Calls the tower with the pixels of all pictures and, for grids, their shapes.
        """
        pictures = self.unpack(rows)
        pixels = torch.cat([each[PIXELS] if self.grids else each[PIXELS].flatten(0, -4) for each in pictures])
        grid = [torch.cat([each[GRID] for each in pictures]).round().long()] if self.grids else []
        units = [self._units(each) for each in pictures]
        states = tower(pixels, *grid).split([shape.numel() for shape in units])
        beside = max(sum(x.numel() for name, x in each.items() if name not in (IDS, PIXELS)) for each in pictures)
        most = self.most_units * states[0][0].numel() + beside
        return torch.stack(
            [
                self._row(each | {PIXELS: state.unflatten(0, shape)}, most)
                for each, state, shape in zip(pictures, states, units, strict=True)
            ]
        )

    @staticmethod
    def batch(tensors: Sequence[dict[str, torch.Tensor]], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Concatenates the tensors of several pictures. Pads pictures that have fewer tiles with zeros."""
        joined = {}
        for name in dict.fromkeys(name for named in tensors for name in named):
            each = [
                named[name] if name in named else torch.ones(_mask_shape(named)).to(named[PIXELS]) for named in tensors
            ]
            most = [max(sizes) for sizes in zip(*(x.shape for x in each), strict=True)]
            joined[name] = torch.cat([_padded(x, most) for x in each]).to(dtype if name == PIXELS else torch.long)
        return joined

    def _row(self, tensors: dict[str, torch.Tensor], most: int) -> torch.Tensor:
        every = _mask_shape(tensors)  # `batch` recreates a mask without padding
        tensors = {n: x for n, x in tensors.items() if not (n.endswith("_mask") and x.shape == every and x.all())}
        header: list[int] = []
        for name in self.names:
            shape = tensors[name].shape if name in tensors else ()
            header += [len(shape), *shape, *[0] * (SHAPE - 1 - len(shape))]
        values = [tensors[name].flatten() for name in self.names if name in tensors]
        row = torch.cat([x.to(tensors[PIXELS].device, torch.float32) for x in (torch.tensor(header), *values)])
        room = len(header) + self.most_tokens + most - len(row)
        if room < 0:
            raise PictureError(
                f"it needs {tensors[IDS].numel()} tokens; expected at most {self.most_tokens}, the most that the "
                "processor returned for pictures of other sizes"
            )
        return F.pad(row, (0, room))


def _mask_shape(tensors: dict[str, torch.Tensor]) -> torch.Size:
    """Returns the shape of the pixel mask of a picture, which has no colour channels."""
    shape = tensors[PIXELS].shape
    return shape[:-3] + shape[-2:]


def _padded(x: torch.Tensor, most: Sequence[int]) -> torch.Tensor:
    """Pads with zeros at the end, up to ``most`` in every dimension except the first."""
    missing = [size for length, all in zip(x.shape[:0:-1], most[:0:-1], strict=True) for size in (0, all - length)]
    return F.pad(x, missing)
