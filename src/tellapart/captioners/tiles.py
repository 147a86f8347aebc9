"""Pictures in tiles (LLaVA-NeXT, which is LLaVA 1.6), as rows of one shape.

The processor shows the whole picture, scaled to the tower's square, and cuts a larger version of it into further such
squares, as many as its shape asks for. A row is (tiles, height, width) of the picture, then its tiles, then zeros, in
full precision: (1 + most)×pixels, or, behind the tower, (1 + most·patches)×D.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Tiles:
    """How one processor cuts pictures: at most ``most`` tiles of ``side`` pixels, that of the whole picture counted."""

    processor: Any
    side: int
    most: int

    @staticmethod
    def of(whole: Any) -> Tiles | None:
        """The tiles of this processor of pictures and text; None where it cuts none as LLaVA-NeXT does."""
        points = getattr(whole.image_processor, "image_grid_pinpoints", None)
        if not points or not hasattr(whole, "_get_number_of_features"):
            return None
        size = dict(whole.image_processor.size)
        side = int(size.get("shortest_edge") or size["height"])
        return Tiles(whole, side, 1 + max((height // side) * (width // side) for height, width in points))

    @property
    def most_tokens(self) -> int:
        """The largest number of tokens of a picture."""
        across = self.side // self.processor.patch_size
        points = self.processor.image_processor.image_grid_pinpoints
        cut = [(height // self.side, width // self.side) for height, width in points]
        tiled: int = max(across * high * (across * wide + 1) for high, wide in cut)
        return int(across**2) + 1 + tiled

    def tokens(self, sizes_B2: torch.Tensor) -> list[int]:
        """How many places in the text each picture takes, from its height and width."""
        less = int(self.processor.vision_feature_select_strategy == "default")  # the tower's class token is left out
        count = self.processor._get_number_of_features
        return [count(height, width, self.side, self.side) - less for height, width in sizes_B2.tolist()]

    def pack_picture(self, image: Image.Image) -> torch.Tensor:
        """A row of pixels (1 + most)×(3·side²)."""
        read = self.processor.image_processor(images=[image], return_tensors="pt")
        return self._row(read["image_sizes"][0], read["pixel_values"][0].flatten(1)[:, None])

    def pack_states(self, sizes_B2: torch.Tensor, counts: list[int], states_TPD: torch.Tensor) -> torch.Tensor:
        """What the tower made of the tiles of all pictures, as a row for each picture."""
        pairs = zip(sizes_B2, states_TPD.split(counts), strict=True)
        return torch.stack([self._row(size_2, own_TPD) for size_2, own_TPD in pairs])

    def unpack(self, rows: torch.Tensor) -> tuple[torch.Tensor, list[int], torch.Tensor]:
        """Heights and widths B×2, the number of tiles of each picture, and the tiles B×most×patches×D, zeros behind."""
        header_B3 = rows[:, 0, :3].round().long()
        return header_B3[:, 1:], header_B3[:, 0].tolist(), rows[:, 1:].unflatten(1, (self.most, -1))

    def squares(self, tiles_TPD: torch.Tensor) -> torch.Tensor:
        """Tiles of pixels as pictures …×3×side×side."""
        return torch.unflatten(tiles_TPD.squeeze(-2), -1, (3, self.side, self.side))

    def _row(self, size_2: torch.Tensor, tiles_TPD: torch.Tensor) -> torch.Tensor:
        T, P, D = tiles_TPD.shape
        row = tiles_TPD.new_zeros(1 + self.most * P, D, dtype=torch.float32)
        row[0, :3] = torch.tensor([T, *size_2.tolist()], device=row.device)
        row[1 : 1 + T * P] = tiles_TPD.flatten(0, 1)
        return row
