"""An embedded world of small pictures whose truth is known exactly. NumPy and Pillow only."""

from .families import Object
from .world import Scene, Scenes

__all__ = ["Object", "Scene", "Scenes"]
