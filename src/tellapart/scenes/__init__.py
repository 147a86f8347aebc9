"""A synthetic world of small pictures with exact ground truth; requires only NumPy and Pillow.

`world` has the data set `Scenes`. `contents` generates scenes, `render` draws them, `grammar` describes them, and
`parser` and `truth` compare any caption with the ground truth of a scene.
"""

from tellapart.scenes.contents import Object
from tellapart.scenes.world import Scene, Scenes

__all__ = ["Object", "Scene", "Scenes"]
