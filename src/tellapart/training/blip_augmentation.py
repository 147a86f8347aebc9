"""Augments pictures as in the training of BLIP: random crops, mirroring and two random operations."""

from __future__ import annotations

import math
from collections.abc import Sequence

from PIL import Image, ImageOps

TRIES, OPERATIONS = 10, 2
BLIP_DRAWS = 4 * TRIES + 1 + 3 * OPERATIONS  # number of random numbers per picture
LEVEL = 5 / 10  # RandAugment's strength, as a fraction of its maximum
GREY = (128, 128, 128)
BLIP_OPERATIONS = (
    *("identity", "autocontrast", "brightness", "sharpness", "equalize"),
    *("shear_x", "shear_y", "translate_x", "translate_y", "rotate"),
)


def blip_augmented(image: Image.Image, size: tuple[int, int], drawn: Sequence[float]) -> Image.Image:
    """Applies BLIP's training augmentation and returns a picture of the given ``size`` (width, height).

    Resizes a random crop (0.5 to 1 of the area, aspect ratio 3:4 to 4:3, bicubic), and mirrors it with probability 0.5.
    Then draws two of ten operations with replacement, and applies each of them with probability 0.5 (`blip_operation`).
    ``drawn``: `BLIP_DRAWS` random numbers in [0, 1).
    """
    image = image.resize(size, Image.Resampling.BICUBIC, box=resized_crop(image.size, drawn))
    if drawn[4 * TRIES] < 0.5:
        image = ImageOps.mirror(image)
    rest = drawn[4 * TRIES + 1 :]
    for choice, applied, sign in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if applied < 0.5:
            name = BLIP_OPERATIONS[int(choice * len(BLIP_OPERATIONS))]
            image = blip_operation(image, name, 1.0 if sign < 0.5 else -1.0)
    return image


def resized_crop(size: tuple[int, int], drawn: Sequence[float]) -> tuple[int, int, int, int]:
    """Returns a random crop as (left, upper, right, lower).

    Draws ten crops and returns the first crop that fits into the picture. A crop's area is 0.5 to 1 of the picture's
    area, and its aspect ratio is log-uniform between 3:4 and 4:3. If no crop fits, returns the largest central crop
    with an aspect ratio in this range.
    """
    width, height = size
    for share, turn, left, upper in zip(*(drawn[k : 4 * TRIES : 4] for k in range(4)), strict=True):
        area, ratio = width * height * (0.5 + 0.5 * share), (4 / 3) ** (2 * turn - 1)
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            x, y = int(left * (width - w + 1)), int(upper * (height - h + 1))
            return x, y, x + w, y + h
    w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
    x, y = (width - w) // 2, (height - h) // 2
    return x, y, x + w, y + h


def blip_operation(image: Image.Image, name: str, sign: float) -> Image.Image:
    """Applies one of `BLIP_OPERATIONS` to a picture at strength 5 of 10.

    Shears by 0.15, shifts by 5 pixels and rotates by 15 degrees, in the direction of ``sign``, filling with grey. At
    this strength, the factor for brightness and sharpness is 1.8 · 0.5 + 0.1 = 1, which leaves the picture unchanged.
    """
    if name == "autocontrast":
        return ImageOps.autocontrast(image)
    if name == "equalize":
        return ImageOps.equalize(image)
    if name == "rotate":
        return image.rotate(sign * 30 * LEVEL, Image.Resampling.BILINEAR, fillcolor=GREY)
    shear, shift = sign * 0.3 * LEVEL, sign * 10 * LEVEL
    maps = {  # from output to input coordinates
        "shear_x": (1, shear, 0, 0, 1, 0), "shear_y": (1, 0, 0, shear, 1, 0),
        "translate_x": (1, 0, shift, 0, 1, 0), "translate_y": (1, 0, 0, 0, 1, shift),
    }  # fmt: skip
    if name not in maps:  # identity, brightness, sharpness
        return image
    return image.transform(image.size, Image.Transform.AFFINE, maps[name], Image.Resampling.BILINEAR, fillcolor=GREY)
