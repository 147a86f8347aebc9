"""A synthetic world of small pictures with exact ground truth. Requires only NumPy and Pillow.

`world` contains the data set `Scenes`. `families` generates scenes, `render` draws them, and `grammar` describes them.
`parser` parses any caption, `checked_claims` checks its claims, and `claims` counts the true ones. `listener` picks the
scene that a caption describes best, and `scene_graph` scores a caption as SPICE does.
"""

from tellapart.scenes.objects import Object
from tellapart.scenes.world import Scene, Scenes

__all__ = ["Object", "Scene", "Scenes"]
