"""The objects in a scene.

Positions are in units of 1/128 of the picture's width (half a pixel at 64), x to the right, y downwards.
"""

from __future__ import annotations

from dataclasses import dataclass

UNITS = 128
FIELDS = ("shape", "colour", "size", "texture", "motion")  # an object's fields, in the order of a scene's facts


@dataclass(frozen=True, slots=True)
class Object:
    """An object. ``x`` and ``y`` are in units of 1/128 of the picture's width. ``motion`` is empty in still
    pictures.
    """

    shape: str
    colour: str
    size: str
    texture: str
    x: int
    y: int
    motion: str = ""

    @property
    def place(self) -> tuple[float, float]:
        """Returns the centre as fractions of the picture's width and height, with y pointing downwards."""
        return self.x / UNITS, self.y / UNITS

    @property
    def attributes(self) -> tuple[str, str, str, str, str]:
        """Returns the values in the order of `FIELDS`. The last value, motion, is empty in still
        pictures.
        """
        return self.shape, self.colour, self.size, self.texture, self.motion
