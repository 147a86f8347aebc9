"""Augments a batch of pictures with random crops, changes of brightness and tint, and horizontal flips."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from tellapart.utils.rng import ItemSeeds


def random_crops(pixels_BCHW: torch.Tensor, seeds: ItemSeeds, *, flip: bool) -> torch.Tensor:
    """Augments each picture: resamples a random crop (0.6 to 1 of each side) to the original size, changes brightness
    and tint at random, and, if ``flip`` is set, flips the picture horizontally with probability 0.5.
    """
    B, device = len(pixels_BCHW), pixels_BCHW.device
    drawn = iter(seeds.uniform("crops", 9).float().to(device).unbind(1))

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * next(drawn)

    size_B, aspect_B = uniform(0.6, 1.0), uniform(0.85, 1.18)
    width_B, height_B = (size_B * aspect_B).clamp(max=1), (size_B / aspect_B).clamp(max=1)
    mirror_B = torch.where(uniform(0, 1) < 0.5, -1.0, 1.0) if flip else torch.ones(B, device=device)
    frame = torch.zeros(B, 2, 3, device=device)
    frame[:, 0, 0], frame[:, 1, 1] = width_B * mirror_B, height_B
    frame[:, 0, 2], frame[:, 1, 2] = uniform(-1, 1) * (1 - width_B), uniform(-1, 1) * (1 - height_B)
    grid = F.affine_grid(frame, list(pixels_BCHW.shape), align_corners=False)
    crops = F.grid_sample(pixels_BCHW, grid, align_corners=False, padding_mode="reflection")
    brightness_B, tint_B3 = uniform(0.7, 1.3), torch.stack([uniform(-0.2, 0.2) for _ in range(3)], dim=1)
    changed = crops * brightness_B[:, None, None, None] + tint_B3[:, :, None, None]
    return changed.contiguous(memory_format=torch.channels_last)
