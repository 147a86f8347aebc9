"""A synthetic world of small pictures with exact ground truth; needs NumPy and Pillow only.

`world` has `Scenes`, the data set. `contents` has what they show, `render` draws them, `grammar` describes them;
`parser` and `truth` compare any caption with the truth of a scene.
"""

from tellapart.scenes.contents import Object
from tellapart.scenes.world import Scene, Scenes

__all__ = ["Object", "Scene", "Scenes"]
