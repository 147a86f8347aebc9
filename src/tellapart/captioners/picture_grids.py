"""Packs pictures of varying shapes into rows of equal length, as grids of patches (Qwen-VL).

A row, (1 + most)×width, contains the picture's (t, h, w), then its t×h×w patches (or the tower's tokens, one per
merge×merge patches), then zeros. Rows are in full precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image

from tellapart.errors import PictureError


@dataclass(frozen=True)
class Grids:
    """Describes how a processor splits pictures into patches: ``patch`` pixels per side, ``merge``² patches per token,
    and at most ``most`` tokens.
    """

    patch: int
    merge: int
    frames: int
    most: int

    @staticmethod
    def of(processor: Any, most: int) -> Grids | None:
        """Limits a processor to ``most`` tokens per picture, and returns its grids.

        Returns None if the processor resizes all pictures to the same shape.
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
        """Returns a grid processor's maximum number of tokens per picture, or None for all other processors."""
        if "image_grid_thw" not in processor.model_input_names:
            return None
        cells: int = processor.size["longest_edge"] // (processor.patch_size * processor.merge_size) ** 2
        return cells

    @property
    def side(self) -> int:
        """Side of the largest square picture that fits, in pixels."""
        return int(self.most**0.5) * self.patch * self.merge

    def tokens(self, grid_B3: torch.Tensor) -> list[int]:
        return (grid_B3.prod(-1) // self.merge**2).tolist()

    def pack_picture(self, image: Image.Image, processor: Any) -> torch.Tensor:
        try:
            read = processor(images=[image], return_tensors="pt")
        except ValueError as error:  # Qwen-VL rejects aspect ratios of 200 or more
            raise PictureError(f"a picture of {image.width}×{image.height}: {error}") from None
        if len(read["pixel_values"]) > self.most * self.merge**2:
            raise PictureError(f"a picture of {image.width}×{image.height} does not fit into {self.most} tokens")
        return self._row(read["image_grid_thw"][0], read["pixel_values"], self.most * self.merge**2)

    def pack_cells(self, grid_B3: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Packs the concatenated tokens of all pictures into one row per picture."""
        counts = self.tokens(grid_B3)
        pairs = zip(grid_B3, cells.split(counts), strict=True)
        return torch.stack([self._row(grid_3, cells_of_picture, self.most) for grid_3, cells_of_picture in pairs])

    def unpack(self, rows: torch.Tensor, *, merged: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns grid_B3 and the concatenated cells of all pictures.

        ``merged``: whether the cells are tokens rather than patches.
        """
        grid_B3 = rows[:, 0, :3].round().long()
        counts = self.tokens(grid_B3) if merged else grid_B3.prod(-1).tolist()
        return grid_B3, torch.cat([row[1 : 1 + count] for row, count in zip(rows, counts, strict=True)])

    @staticmethod
    def _row(grid_3: torch.Tensor, cells: torch.Tensor, most: int) -> torch.Tensor:
        row = cells.new_zeros(1 + most, cells.shape[1], dtype=torch.float32)
        row[0, :3], row[1 : 1 + len(cells)] = grid_3.to(row), cells
        return row
