"""Pictures that keep their own shapes (Qwen-VL and its kin), as rows of one shape.

The processor cuts a picture into t×h×w patches, the tower gives one token for each merge×merge of them. A row is the
picture's (t, h, w), then its patches (or tokens), then zeros: (1 + most)×width, in full precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from tellapart.errors import PictureError

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Grids:
    """How one processor cuts pictures: ``patch`` pixels a side, ``merge``² patches a token, at most ``most`` tokens."""

    patch: int
    merge: int
    frames: int
    most: int

    @staticmethod
    def of(processor: Any, most: int) -> Grids | None:
        """The grids of this processor, which makes no more than ``most`` tokens of a picture from now on.

        None where all its pictures have one shape.
        """
        if Grids.limit(processor) is None:
            return None
        grids = Grids(processor.patch_size, processor.merge_size, processor.temporal_patch_size, most)
        size = dict(processor.size)
        largest = most * (grids.patch * grids.merge) ** 2
        size["longest_edge"] = min(size["longest_edge"], largest)
        size["shortest_edge"] = min(size["shortest_edge"], size["longest_edge"])
        processor.size = size
        return grids

    @staticmethod
    def limit(processor: Any) -> int | None:
        """The most tokens that a processor of grids makes of a picture; None for another one."""
        if "image_grid_thw" not in processor.model_input_names:
            return None
        cells: int = processor.size["longest_edge"] // (processor.patch_size * processor.merge_size) ** 2
        return cells

    @property
    def side(self) -> int:
        """The side in pixels of the largest square picture."""
        return int(self.most**0.5) * self.patch * self.merge

    def tokens(self, grid_B3: torch.Tensor) -> list[int]:
        return (grid_B3.prod(-1) // self.merge**2).tolist()

    def pack_picture(self, image: Image.Image, processor: Any) -> torch.Tensor:
        try:
            read = processor(images=[image], return_tensors="pt")
        except ValueError as error:  # Qwen-VL's: an aspect ratio of 200 or more
            raise PictureError(f"a picture of {image.width}×{image.height}: {error}") from None
        if len(read["pixel_values"]) > self.most * self.merge**2:
            raise PictureError(f"a picture of {image.width}×{image.height} is too long for {self.most} tokens")
        return self._row(read["image_grid_thw"][0], read["pixel_values"], self.most * self.merge**2)

    def pack_cells(self, grid_B3: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Tokens of all the pictures, one after the other, as a row for each picture."""
        counts = self.tokens(grid_B3)
        pairs = zip(grid_B3, cells.split(counts), strict=True)
        return torch.stack([self._row(grid_3, own, self.most) for grid_3, own in pairs])

    def unpack(self, rows: torch.Tensor, *, merged: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """grid_B3, and the cells of all the pictures one after the other; ``merged``: they are tokens."""
        grid_B3 = rows[:, 0, :3].round().long()
        counts = self.tokens(grid_B3) if merged else grid_B3.prod(-1).tolist()
        return grid_B3, torch.cat([row[1 : 1 + count] for row, count in zip(rows, counts, strict=True)])

    @staticmethod
    def _row(grid_3: torch.Tensor, cells: torch.Tensor, most: int) -> torch.Tensor:
        row = cells.new_zeros(1 + most, cells.shape[1], dtype=torch.float32)
        row[0, :3], row[1 : 1 + len(cells)] = grid_3.to(row), cells
        return row
