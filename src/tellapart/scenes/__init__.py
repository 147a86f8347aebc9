"""A synthetic world of small pictures with exact ground truth. Requires only NumPy and Pillow.

`world` contains the data set `Scenes`. `families` generates scenes, `render` draws them, and `grammar` describes them.
`parser` reads any caption; `truth` counts its true claims, `listener` picks the scene that it describes best, and
`scene_graph` scores it like SPICE.
"""

from tellapart.scenes.relations import Object
from tellapart.scenes.world import Scene, Scenes

__all__ = ["Object", "Scene", "Scenes"]
