"""Packs pictures of varying shapes into rows of equal length, as tiles (LLaVA-NeXT, Idefics3, SmolVLM, InternVL).

These models read the whole picture and tiles of it. A row contains the picture's placeholder token ids and tensor
shapes, then the tensors' values, then zeros. It does not depend on the prompt, and is in full precision.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image

from tellapart.errors import PictureError

TEXT = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
PIXELS = "pixel_values"
SHAPE = 6  # number of entries per tensor shape in a row: the number of dimensions (0 if absent), then the sizes
EDGES = (64, 256, 512, 768, 1024, 1536, 2048, 4096)  # side lengths of the pictures to try
PROBES = ((64, 64), (64, 16), (16, 64), (2048, 2048), (1024, 768), (768, 1024))
LIGHT = 2**21  # number of values per row below which many rows fit into memory


@dataclass
class Tiles:
    """Describes how the picture-and-text processor ``whole`` reads one picture. ``marker`` marks a picture in text.

    ``names``: the names of a picture's tensors. ``most_tokens``, ``most_tiles`` and ``most``: the maximum number of
    tokens, tiles and tensor values over all picture sizes that were tried. ``blank``: the size of a small picture with
    few tiles.
    """

    whole: Any
    marker: str
    names: tuple[str, ...]
    blank: tuple[int, int]
    most_tokens: int = 0
    most_tiles: int = 0
    most: int = 0

    @staticmethod
    def of(whole: Any, marker: str, accepted: Collection[str], always: bool) -> Tiles | None:
        """Returns the tiles of a processor. ``accepted``: names of the model's inputs.

        Returns None if every picture gives one tensor of the same shape, unless ``always`` is set.
        """
        tiles = Tiles(whole, marker, (), PROBES[0])
        read = {size: tiles.read(Image.new("RGB", size)) for size in PROBES[:3]}
        shapes = {tuple(each[PIXELS].shape) for each in read.values()}
        if not always and len(shapes) == 1 and len(shape := shapes.pop()) == 4 and shape[0] == 1:
            return None
        tiles.names = tuple(name for name in read[PROBES[0]] if name in accepted and name not in TEXT)
        tiles.blank = min(read, key=lambda size: read[size][PIXELS].numel())
        for size in tiles._largest():
            one = tiles.read(Image.new("RGB", size))
            tiles.most_tokens = max(tiles.most_tokens, one["input_ids"].shape[1])
            tiles.most_tiles = max(tiles.most_tiles, one[PIXELS].shape[:-3].numel())
            tiles.most = max(tiles.most, sum(one[name].numel() for name in tiles.names))
        return tiles

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
    def key(self) -> str:
        """Returns a key for everything that rows depend on in addition to the settings of the image processor."""
        ids = self.read(Image.new("RGB", self.blank))["input_ids"][0].tolist()
        return f"tiles {self.most_tokens} {self.most_tiles} {self.most} {ids}"

    @property
    def light(self) -> bool:
        return self.most < LIGHT

    def pack_picture(self, image: Image.Image) -> torch.Tensor:
        read = self.read(image)
        return self._row(read["input_ids"][0], {name: read[name] for name in self.names if name in read}, self.most)

    def unpack(self, rows: torch.Tensor) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
        """Returns the token ids and the tensors of each picture."""
        ids: list[torch.Tensor] = []
        tensors: list[dict[str, torch.Tensor]] = []
        for row in rows:
            header = row[: self._header].round().long().tolist()
            at = self._header + header[0]
            ids.append(row[self._header : at].round().long())
            tensors.append({})
            for place, name in enumerate(self.names):
                dimensions, *sizes = header[1 + SHAPE * place : 1 + SHAPE * (place + 1)]
                if dimensions:
                    shape = torch.Size(sizes[:dimensions])
                    tensors[-1][name] = row[at : at + shape.numel()].view(shape)
                    at += shape.numel()
        return ids, tensors

    def encoded(self, rows: torch.Tensor, tower: Any) -> torch.Tensor:
        """Replaces the tiles' pixels (…×3×side×side) in the rows with the output of the ``tower``."""
        ids, tensors = self.unpack(rows)
        states = tower(torch.cat([tensors_of_picture[PIXELS].flatten(0, -4) for tensors_of_picture in tensors]))
        packed, done = [], 0
        most = self.most_tiles * states[0].numel() + max(
            self._beside(tensors_of_picture) for tensors_of_picture in tensors
        )
        for id_T, tensors_of_picture in zip(ids, tensors, strict=True):
            tiles = tensors_of_picture[PIXELS].shape[:-3]
            tensors_of_picture[PIXELS] = states[done : (done := done + tiles.numel())].unflatten(0, tiles)
            packed.append(self._row(id_T, tensors_of_picture, most))
        return torch.stack(packed)

    @staticmethod
    def batch(tensors: Sequence[dict[str, torch.Tensor]], dtype: torch.dtype) -> dict[str, torch.Tensor]:
        """Concatenates the tensors of several pictures. Pads pictures that have fewer tiles with zeros."""
        joined = {}
        for name in dict.fromkeys(name for named in tensors for name in named):
            each = [named[name] if name in named else torch.ones_like(named[PIXELS].select(-3, 0)) for named in tensors]
            most = [max(sizes) for sizes in zip(*(x.shape for x in each), strict=True)]
            joined[name] = torch.cat([_padded(x, most) for x in each]).to(dtype if name == PIXELS else torch.long)
        return joined

    @property
    def _header(self) -> int:
        return 1 + SHAPE * len(self.names)

    @staticmethod
    def _beside(tensors: dict[str, torch.Tensor]) -> int:
        return sum(x.numel() for name, x in tensors.items() if name != PIXELS)

    def _row(self, ids_T: torch.Tensor, tensors: dict[str, torch.Tensor], most: int) -> torch.Tensor:
        every = tensors[PIXELS].select(-3, 0).shape  # shape of the pixel mask, which `batch` recreates
        tensors = {n: x for n, x in tensors.items() if not (n.endswith("_mask") and x.shape == every and x.all())}
        header = [float(len(ids_T))]
        for name in self.names:
            shape = tensors[name].shape if name in tensors else ()
            header += [len(shape), *shape, *[0] * (SHAPE - 1 - len(shape))]
        device, values = tensors[PIXELS].device, [tensors[name].flatten() for name in self.names if name in tensors]
        parts = [torch.tensor(header), ids_T, *values]
        row = torch.cat([part.to(device, torch.float32) for part in parts])
        room = self._header + self.most_tokens + most - len(row)
        if room < 0:
            most = self.most_tokens
            raise PictureError(
                f"it needs {len(ids_T)} tokens; expected at most {most}, the most that the processor returned for "
                "pictures of other sizes"
            )
        return F.pad(row, (0, room))


def _padded(x: torch.Tensor, most: Sequence[int]) -> torch.Tensor:
    """Pads with zeros at the end, up to ``most`` in every dimension except the first."""
    missing = [size for length, all in zip(x.shape[:0:-1], most[:0:-1], strict=True) for size in (0, all - length)]
    return F.pad(x, missing)
